//! From how an invocation ended to whose fault it was: four classes, each with a finer reason and evidence (P7, O4).
//!
//! | what is known | class | reason |
//! |---|---|---|
//! | the service killed the process at its deadline | timeout | `WALL_CLOCK` |
//! | the process's last words: its heap is full | memory limit | `HEAP` |
//! | it died, and the kernel counted a kill in its memory group | memory limit | `KERNEL` |
//! | it died by a signal of V8's own, with nearly all of its memory used | memory limit | `HEAP` |
//! | it died otherwise | crash | `ENGINE_DIED` |
//! | it sent what it must not | crash | `PROTOCOL` |
//! | the handler or the module threw; a rejection that nobody took | crash | `THREW`, `UNHANDLED_REJECTION` |
//! | the result, the handler, the module's form is not what it must be | bad request | `RESULT_NOT_DATA` … |
//!
//! Messages are for people: secrets are taken out, then they are cut to [`MESSAGE_CHARS_MAX`] characters.

use std::time::Duration;

use bulkhead_model::plugin::InvocationLimits;
use bulkhead_wire::{
    isolates::{Evidence, Fault, Position, Reason, fault::Class},
    pipe::{self, failure::Reason as Said},
};

use crate::{
    context::{SecretRegistry, Used},
    process::{Death, Ending},
};

pub const MESSAGE_CHARS_MAX: usize = 500;
const STACK_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 200;

/// The signals by which V8 ends its own process: a trap, an abort, an illegal instruction.
const ENGINE_SIGNALS: [i32; 3] = [5, 6, 4];
/// So near to its limit, a process that ends itself has run out of memory.
const NEARLY_BYTES: u64 = 16 << 20;

/// When in its life something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Loading,
    Handling,
}

/// What turns what is known into a fault.
pub struct Judge<'a> {
    pub limits: InvocationLimits,
    pub secrets: &'a SecretRegistry,
    pub used: Used,
}

impl Judge<'_> {
    pub fn timed_out(&self, killed_after: Duration, phase: Phase) -> Fault {
        let allowed_ms = millis(self.limits.wall);
        let doing = match phase {
            Phase::Loading => "the module was still loading",
            Phase::Handling => "the handler was still running",
        };
        let mut fault = self.fault(
            Reason::WallClock,
            &format!("{doing} after {allowed_ms} ms, which is all the time it has"),
            phase,
        );
        fault.evidence = Some(Evidence {
            limit: "wall_ms".into(),
            allowed: allowed_ms,
            used: millis(killed_after),
            killed_after_ms: Some(millis(killed_after)),
            ..self.evidence()
        });
        fault
    }

    /// The process ended before it had said how its work did; `None` where not even that could be learned in time.
    pub fn died(&self, death: Option<&Death>, phase: Phase) -> Fault {
        let mut evidence = self.evidence();
        let ending = death.and_then(|death| death.ending);
        match ending {
            Some(Ending::Signal(signal)) => evidence.signal = u32::try_from(signal).ok(),
            Some(Ending::Code(code)) => evidence.exit_code = u32::try_from(code).ok(),
            None => {}
        }
        let peak = death.and_then(|death| death.memory_peak_bytes).unwrap_or(0);
        let memory = self.limits.memory;
        let is_engines =
            matches!(ending, Some(Ending::Signal(signal)) if ENGINE_SIGNALS.contains(&signal));
        let (reason, message, allowed) = if death.is_some_and(|death| death.oom_killed) {
            let message = "it used all the memory that its process may have";
            (Reason::Kernel, message, memory.group_bytes())
        } else if is_engines && peak + NEARLY_BYTES >= memory.limit_bytes() {
            let message = "the engine ran out of memory";
            (Reason::Heap, message, memory.limit_bytes())
        } else {
            (Reason::EngineDied, "the engine ended without a word", 0)
        };
        if allowed > 0 {
            evidence.limit = "memory_bytes".into();
            evidence.allowed = allowed;
            evidence.used = peak;
        }
        let mut fault = self.fault(reason, message, phase);
        fault.evidence = Some(evidence);
        fault
    }

    /// The process sent what it must not, and was killed for it.
    pub fn broke(&self, how: &str, killed_after: Duration, phase: Phase) -> Fault {
        let mut fault = self.fault(Reason::Protocol, &format!("its process sent {how}"), phase);
        fault.evidence = Some(Evidence {
            killed_after_ms: Some(millis(killed_after)),
            ..self.evidence()
        });
        fault
    }

    pub fn result_too_large(&self, bytes: u64) -> Fault {
        let allowed = self.limits.result_bytes;
        let message = format!("the result is {bytes} bytes of JSON; it may be {allowed}");
        let mut fault = self.fault(Reason::ResultTooLarge, &message, Phase::Handling);
        fault.evidence = Some(Evidence {
            limit: "result_bytes".into(),
            allowed,
            used: bytes,
            ..self.evidence()
        });
        fault
    }

    /// What the process itself says.
    pub fn failed(&self, failure: &pipe::Failure, usage: &pipe::Usage) -> Fault {
        let phase = if failure.at_load {
            Phase::Loading
        } else {
            Phase::Handling
        };
        let reason = reason_of(failure.reason());
        let mut fault = self.fault(reason, &failure.message, phase);
        fault.stack = failure
            .stack
            .iter()
            .take(STACK_MAX)
            .map(|at| self.position(at))
            .collect();
        let mut evidence = self.evidence();
        if reason == Reason::Heap {
            evidence.limit = "memory_bytes".into();
            evidence.allowed = self.limits.memory.limit_bytes();
            evidence.used = usage.heap_bytes.max(usage.buffer_bytes);
        } else if reason == Reason::ResultTooLarge {
            evidence.limit = "result_bytes".into();
            evidence.allowed = self.limits.result_bytes;
        }
        fault.evidence = Some(evidence);
        fault
    }

    fn fault(&self, reason: Reason, message: &str, phase: Phase) -> Fault {
        Fault {
            class: class_of(reason).into(),
            reason: reason.into(),
            message: self.words(message, MESSAGE_CHARS_MAX),
            stack: Vec::new(),
            at_load: phase == Phase::Loading,
            evidence: None,
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence {
            denied_hosts: self.used.denied_hosts.clone(),
            ..Evidence::default()
        }
    }

    fn position(&self, at: &pipe::Position) -> Position {
        Position {
            function: self.words(&at.function, NAME_CHARS_MAX),
            file: self.words(&at.file, NAME_CHARS_MAX),
            line: at.line,
            column: at.column,
        }
    }

    /// Without secrets, and not too long.
    fn words(&self, text: &str, chars_max: usize) -> String {
        self.secrets.mask(text).chars().take(chars_max).collect()
    }
}

/// Which class a reason belongs to.
pub fn class_of(reason: Reason) -> Class {
    match reason {
        Reason::Unspecified => Class::Unspecified,
        Reason::WallClock => Class::Timeout,
        Reason::Heap | Reason::Kernel => Class::MemoryLimit,
        Reason::NeverSettles
        | Reason::ResultNotData
        | Reason::ResultTooLarge
        | Reason::Syntax
        | Reason::Imports
        | Reason::NoHandler
        | Reason::Input => Class::BadRequest,
        Reason::Threw | Reason::UnhandledRejection | Reason::EngineDied | Reason::Protocol => {
            Class::Crash
        }
    }
}

/// Whether the process's end was the fault: those count for the hold rule.
pub fn is_death(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::WallClock | Reason::Heap | Reason::Kernel | Reason::EngineDied | Reason::Protocol
    )
}

fn reason_of(said: Said) -> Reason {
    match said {
        // A process that fails and cannot say why broke the protocol.
        Said::Unspecified => Reason::Protocol,
        Said::Threw => Reason::Threw,
        Said::NeverSettles => Reason::NeverSettles,
        Said::ResultNotData => Reason::ResultNotData,
        Said::ResultTooLarge => Reason::ResultTooLarge,
        Said::Syntax => Reason::Syntax,
        Said::Imports => Reason::Imports,
        Said::NoHandler => Reason::NoHandler,
        Said::HeapLimit => Reason::Heap,
        Said::Input => Reason::Input,
        Said::UnhandledRejection => Reason::UnhandledRejection,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use bulkhead_model::plugin::{Demands, InvocationKind};

    use super::*;

    fn judged(
        secrets: &SecretRegistry,
        judge: impl FnOnce(&Judge<'_>) -> Fault,
    ) -> (Class, Reason, Fault) {
        let limits = InvocationLimits::of(InvocationKind::Tool, &Demands::default());
        let fault = judge(&Judge {
            limits,
            secrets,
            used: Used::default(),
        });
        (fault.class(), fault.reason(), fault)
    }

    fn death(ending: Ending, oom_killed: bool, peak_mib: u64) -> Death {
        Death {
            ending: Some(ending),
            oom_killed,
            memory_peak_bytes: Some(peak_mib << 20),
        }
    }

    /// M20: which death is which class, by the kernel's count, the signal and the memory used.
    #[test]
    fn m20_deaths_have_the_class_that_the_evidence_gives() {
        let table = [
            (
                death(Ending::Signal(9), true, 160),
                Class::MemoryLimit,
                Reason::Kernel,
            ),
            (
                death(Ending::Signal(5), false, 125),
                Class::MemoryLimit,
                Reason::Heap,
            ),
            (
                death(Ending::Signal(6), false, 130),
                Class::MemoryLimit,
                Reason::Heap,
            ),
            (
                death(Ending::Signal(5), false, 30),
                Class::Crash,
                Reason::EngineDied,
            ),
            (
                death(Ending::Signal(9), false, 130),
                Class::Crash,
                Reason::EngineDied,
            ),
            (
                death(Ending::Signal(11), false, 150),
                Class::Crash,
                Reason::EngineDied,
            ),
            (
                death(Ending::Code(0), false, 30),
                Class::Crash,
                Reason::EngineDied,
            ),
        ];
        let secrets = SecretRegistry::default();
        for (death, class, reason) in table {
            let (got, why, fault) =
                judged(&secrets, |judge| judge.died(Some(&death), Phase::Handling));
            assert_eq!((got, why), (class, reason), "{death:?}: {fault:?}");
        }
        let (class, _, fault) = judged(&secrets, |judge| judge.died(None, Phase::Loading));
        assert_eq!(class, Class::Crash);
        assert!(fault.at_load);
    }

    /// P7, E15: messages and stacks are cut at a character's border, and hold no secret.
    #[test]
    fn p7_messages_are_cut_to_five_hundred_characters_and_hold_no_secret() {
        let secrets = SecretRegistry::default();
        secrets.add("key", "canary-0123".into()).unwrap();
        let failure = pipe::Failure {
            reason: Said::Threw.into(),
            message: format!("canary-0123 {}", "é".repeat(1_000)),
            stack: vec![
                pipe::Position {
                    function: "canary-0123".into(),
                    ..Default::default()
                };
                100
            ],
            at_load: false,
        };
        let (class, reason, fault) = judged(&secrets, |judge| {
            judge.failed(&failure, &pipe::Usage::default())
        });
        assert_eq!((class, reason), (Class::Crash, Reason::Threw));
        assert_eq!(fault.message.chars().count(), MESSAGE_CHARS_MAX);
        assert!(fault.message.starts_with("[masked:key] é"));
        assert_eq!(fault.stack.len(), STACK_MAX);
        assert_eq!(fault.stack[0].function, "[masked:key]");
    }

    /// O4: every reason that a process can give has a class of the four, and unknown ones are its own fault.
    #[test]
    fn o4_every_reason_has_one_of_the_four_classes() {
        for number in 0..=20 {
            let said = Said::try_from(number).unwrap_or(Said::Unspecified);
            assert_ne!(class_of(reason_of(said)), Class::Unspecified, "{said:?}");
        }
    }

    /// T1, T27: a time-out says how long it had, when the signal was sent, and in which phase.
    #[test]
    fn t27_a_time_out_says_what_it_had_and_when_it_was_killed() {
        let secrets = SecretRegistry::default();
        let after = Duration::from_millis(30_002);
        let (class, _, fault) = judged(&secrets, |judge| judge.timed_out(after, Phase::Loading));
        let evidence = fault.evidence.unwrap();
        assert_eq!(class, Class::Timeout);
        assert_eq!((evidence.allowed, evidence.used), (30_000, 30_002));
        assert_eq!(evidence.killed_after_ms, Some(30_002));
        assert!(fault.at_load && fault.message.contains("loading"));
    }
}
