//! Where the agent's events pass: the caps on turns and cost are watched here.

use bulkhead_model::{AgentEvent, PhaseOrder, Usage};

use super::stop::{Reason, Stops};
use crate::{outbox::Outbox, protocol::EventSink};

/// Turns and cost after which an agent is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caps {
    max_turns: Option<u32>,
    max_cost_usd_milli: Option<u64>,
}

impl Caps {
    pub(crate) const fn of(order: &PhaseOrder) -> Self {
        Self {
            max_turns: order.max_turns,
            max_cost_usd_milli: order.max_cost_usd_milli,
        }
    }

    pub(crate) const fn new(max_turns: Option<u32>, max_cost_usd_milli: Option<u64>) -> Self {
        Self {
            max_turns,
            max_cost_usd_milli,
        }
    }

    /// Which cap is exceeded, in words.
    fn exceeded(self, usage: &Usage) -> Option<String> {
        if let Some(max) = self.max_turns.filter(|max| usage.turns > *max) {
            return Some(format!(
                "the agent took {} turns, and the limit is {max}: raise `max_turns` or make the phase smaller",
                usage.turns
            ));
        }
        let cost = usage.cost_usd?;
        let max = self.max_cost_usd_milli.map(|milli| milli as f64 / 1000.0)?;
        (cost > max).then(|| {
            format!(
                "the agent cost {cost:.3} US dollars, and the limit is {max:.3}: raise `max_cost` or make \
                 the phase smaller"
            )
        })
    }
}

pub(super) struct Sink {
    pub(super) out: Outbox,
    pub(super) caps: Caps,
    pub(super) stops: Stops,
}

impl EventSink for Sink {
    async fn event(&mut self, event: AgentEvent) {
        if let AgentEvent::Usage { total } = &event
            && let Some(words) = self.caps.exceeded(total)
        {
            self.stops.stop(Reason::Cap(words));
        }
        self.out.agent(event).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(turns: u32, cost_usd: f64) -> Usage {
        Usage {
            turns,
            cost_usd: Some(cost_usd),
            ..Usage::default()
        }
    }

    #[test]
    fn r15_caps_are_exceeded_only_above_them() {
        let caps = Caps {
            max_turns: Some(3),
            max_cost_usd_milli: Some(500),
        };
        assert_eq!(caps.exceeded(&usage(3, 0.5)), None);
        assert_eq!(Caps::default().exceeded(&usage(900, 900.0)), None);
        insta::assert_snapshot!(caps.exceeded(&usage(4, 0.0)).unwrap_or_default(), @"the agent took 4 turns, and the limit is 3: raise `max_turns` or make the phase smaller");
        insta::assert_snapshot!(caps.exceeded(&usage(1, 0.75)).unwrap_or_default(), @"the agent cost 0.750 US dollars, and the limit is 0.500: raise `max_cost` or make the phase smaller");
    }
}
