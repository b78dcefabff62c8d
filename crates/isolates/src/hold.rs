//! The rule by which a plugin is put on hold that ends its process again and again (O6, T28). Pure: time comes in.
//!
//! Counted are ends by death: a time-out, a memory limit that the kernel or the engine enforced, an engine that died. A
//! handler that throws, or gives the wrong result, did not cost more than any other. [`DEATHS`] of them in a row put the
//! installation's bundle on hold for [`FIRST`]. After that one invocation is let through: if it dies too, the hold is twice
//! as long, up to [`LONGEST`]; if it succeeds, everything is forgotten. An invocation that is refused because of a hold
//! never ran: it is `NotRun`, and costs the account nothing.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// So many deaths in a row.
pub const DEATHS: u32 = 5;
pub const FIRST: Duration = Duration::from_secs(30);
pub const LONGEST: Duration = Duration::from_secs(10 * 60);
/// How long an invocation that was let through to try is waited for before another one is.
const TRIAL: Duration = Duration::from_secs(60);
/// How many bundles are remembered; beyond, those that died longest ago are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Whose hold it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub installation: String,
    pub bundle: [u8; 32],
}

/// How an invocation ended, as far as this rule goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Success,
    Death,
    /// It threw, was cancelled, or gave no proper result: says nothing either way.
    Other,
}

#[derive(Debug, Default)]
pub struct Holds {
    rows: HashMap<Key, Row>,
}

#[derive(Debug)]
struct Row {
    deaths: u32,
    last_death: Instant,
    held_until: Option<Instant>,
    /// One was let through to try, and its end is waited for.
    is_tried: bool,
    length: Duration,
}

impl Holds {
    /// Whether it may run now; otherwise when to try again.
    pub fn admit(&mut self, key: &Key, now: Instant) -> Result<(), Duration> {
        let Some(row) = self.rows.get_mut(key) else {
            return Ok(());
        };
        match row.held_until {
            None => Ok(()),
            Some(until) if until > now => Err(until - now),
            Some(_) => {
                // This one tries; the others wait for what comes of it.
                row.held_until = Some(now + TRIAL);
                row.is_tried = true;
                Ok(())
            }
        }
    }

    pub fn ended(&mut self, key: &Key, end: End, now: Instant) {
        match end {
            End::Success => {
                self.rows.remove(key);
            }
            End::Death => self.died(key, now),
            End::Other => {
                if let Some(row) = self.rows.get_mut(key)
                    && row.is_tried
                {
                    // A trial that said nothing: the next one may try.
                    row.held_until = Some(now);
                    row.is_tried = false;
                }
            }
        }
    }

    /// How many are on hold.
    pub fn on_hold(&self, now: Instant) -> usize {
        let held = |row: &&Row| row.held_until.is_some_and(|until| until > now);
        self.rows.values().filter(held).count()
    }

    fn died(&mut self, key: &Key, now: Instant) {
        self.make_room();
        let row = self.rows.entry(key.clone()).or_insert(Row {
            deaths: 0,
            last_death: now,
            held_until: None,
            is_tried: false,
            length: FIRST,
        });
        row.deaths += 1;
        row.last_death = now;
        row.is_tried = false;
        if row.held_until.is_some() {
            row.length = (row.length * 2).min(LONGEST);
            row.held_until = Some(now + row.length);
        } else if row.deaths >= DEATHS {
            row.held_until = Some(now + row.length);
        }
    }

    fn make_room(&mut self) {
        if self.rows.len() < REMEMBERED_MAX {
            return;
        }
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.last_death);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.rows.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(installation: &str) -> Key {
        Key {
            installation: installation.to_owned(),
            bundle: [1; 32],
        }
    }

    fn dies(holds: &mut Holds, key: &Key, times: u32, now: Instant) {
        for _ in 0..times {
            holds.ended(key, End::Death, now);
        }
    }

    /// O6: five deaths in a row, thirty seconds, doubling to ten minutes; one success clears.
    #[test]
    fn o6_a_plugin_that_dies_every_time_is_put_on_hold() {
        let (mut holds, key, start) = (Holds::default(), key("a"), Instant::now());
        dies(&mut holds, &key, 4, start);
        assert_eq!(holds.admit(&key, start), Ok(()));
        dies(&mut holds, &key, 1, start);
        assert_eq!(holds.admit(&key, start), Err(FIRST));
        assert_eq!(holds.on_hold(start), 1);
        let mut now = start;
        let mut length = FIRST;
        for expected in [60, 120, 240, 480, 600, 600] {
            now += length;
            assert_eq!(holds.admit(&key, now), Ok(()), "one tries");
            assert!(holds.admit(&key, now).is_err(), "and the others wait");
            dies(&mut holds, &key, 1, now);
            length = Duration::from_secs(expected);
            assert_eq!(holds.admit(&key, now), Err(length));
        }
        now += length;
        assert_eq!(holds.admit(&key, now), Ok(()));
        holds.ended(&key, End::Success, now);
        dies(&mut holds, &key, 4, now);
        assert_eq!(holds.admit(&key, now), Ok(()), "it begins anew");
    }

    /// O6: another installation, another bundle, and faults that are no deaths are not touched.
    #[test]
    fn o6_a_hold_is_one_installations_own() {
        let (mut holds, now) = (Holds::default(), Instant::now());
        dies(&mut holds, &key("a"), 50, now);
        let newer = Key {
            bundle: [2; 32],
            ..key("a")
        };
        for other in [key("b"), newer] {
            assert_eq!(holds.admit(&other, now), Ok(()));
            for _ in 0..50 {
                holds.ended(&other, End::Other, now);
            }
            assert_eq!(holds.admit(&other, now), Ok(()));
        }
    }

    /// O6: a trial that is cancelled does not keep the next one away.
    #[test]
    fn o6_a_trial_that_says_nothing_is_followed_by_another() {
        let (mut holds, key, start) = (Holds::default(), key("a"), Instant::now());
        dies(&mut holds, &key, 5, start);
        let later = start + FIRST;
        assert_eq!(holds.admit(&key, later), Ok(()));
        assert_eq!(holds.admit(&key, later), Err(TRIAL));
        holds.ended(&key, End::Other, later);
        assert_eq!(holds.admit(&key, later), Ok(()));
    }

    /// O6: what began before the hold and says nothing either way does not end it.
    #[test]
    fn o6_only_a_trial_ends_a_hold() {
        let (mut holds, key, now) = (Holds::default(), key("a"), Instant::now());
        dies(&mut holds, &key, 5, now);
        holds.ended(&key, End::Other, now);
        assert_eq!(holds.admit(&key, now), Err(FIRST));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (mut holds, start) = (Holds::default(), Instant::now());
        for n in 0..u32::try_from(REMEMBERED_MAX).unwrap_or(0) + 10 {
            holds.ended(
                &key(&n.to_string()),
                End::Death,
                start + Duration::from_millis(n.into()),
            );
        }
        assert_eq!(holds.rows.len(), REMEMBERED_MAX);
        assert!(!holds.rows.contains_key(&key("0")));
    }
}
