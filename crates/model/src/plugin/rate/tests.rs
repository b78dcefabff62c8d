#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{sync::Mutex, thread};

use proptest::prelude::*;

use super::*;

fn fetches() -> RollingWindow {
    RollingWindow::new(FETCHES)
}

fn granted(window: &mut RollingWindow, attempts: usize, now_ms: u64) -> usize {
    (0..attempts)
        .filter(|_| window.take(now_ms).is_ok())
        .count()
}

#[test]
fn rl1_a_minutes_end_gives_no_second_batch() {
    let mut window = fetches();
    assert_eq!(granted(&mut window, 60, 59_100), 60);
    assert_eq!(granted(&mut window, 60, 60_000), 0);
    assert_eq!(granted(&mut window, 60, 119_099), 0);
    assert_eq!(granted(&mut window, 100, 119_100), 60);
}

#[test]
fn rl2_of_a_hundred_at_once_one_passes_where_one_is_left() {
    let window = Mutex::new(fetches());
    assert_eq!(granted(&mut window.lock().unwrap(), 59, 1_000), 59);
    let passed: usize = thread::scope(|scope| {
        let attempt = || usize::from(window.lock().unwrap().take(2_000).is_ok());
        let threads: Vec<_> = (0..100).map(|_| scope.spawn(attempt)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed, 1);
}

#[test]
fn rl4_a_refused_request_does_not_extend_the_window() {
    let mut window = fetches();
    assert_eq!(granted(&mut window, 60, 0), 60);
    for now_ms in (1..60_000).step_by(97) {
        window.take(now_ms).unwrap_err();
    }
    assert_eq!(granted(&mut window, 100, 60_000), 60);
}

#[test]
fn rl6_the_time_to_wait_is_that_of_the_oldest() {
    let mut window = fetches();
    window.take(5_000).unwrap();
    assert_eq!(granted(&mut window, 59, 20_000), 59);
    let refused = window.take(30_000).unwrap_err();
    assert_eq!(refused.retry_after, Duration::from_millis(35_000));
    window.take(64_999).unwrap_err();
    window.take(65_000).unwrap();
    let refused = window.take(65_000).unwrap_err();
    assert_eq!(refused.retry_after, Duration::from_millis(15_000));
}

#[test]
fn rl8_what_is_remembered_is_bounded_and_idle_installations_are_forgotten() {
    let mut windows = RollingWindows::new(FETCHES);
    for n in 0..1_000_u64 {
        for _ in 0..100 {
            let _ = windows.take(n, n * 10);
        }
    }
    assert!(windows.windows.values().all(|w| w.granted_ms.len() <= 60));
    assert_eq!(
        windows.len(),
        1_000,
        "all of them were active in this minute"
    );
    for n in 0..10_000_u64 {
        windows.take(10_000 + n, 1_000_000 + n * 60_000).unwrap();
        let bound = 2 * SWEEP_AT.max(1_000);
        assert!(windows.len() <= bound, "{} are remembered", windows.len());
    }
    assert!(
        windows.len() <= SWEEP_AT,
        "{} are remembered",
        windows.len()
    );
}

/// A window of one installation says nothing on another's.
#[test]
fn rl8_installations_do_not_share() {
    let mut windows = RollingWindows::new(FETCHES);
    for _ in 0..60 {
        windows.take("a", 0).unwrap();
    }
    windows.take("a", 0).unwrap_err();
    windows.take("b", 0).unwrap();
}

#[test]
fn a_clock_that_goes_backwards_grants_nothing_more() {
    let mut window = fetches();
    assert_eq!(granted(&mut window, 60, 100_000), 60);
    assert_eq!(granted(&mut window, 60, 10_000), 0);
    assert_eq!(granted(&mut window, 60, 0), 0);
}

proptest! {
    /// RL10: in no minute, wherever it begins, are there more than 60; and whoever waits as told is granted.
    #[test]
    fn rl10_no_window_of_a_minute_has_more_than_sixty(steps in proptest::collection::vec(0u64..3_000, 0..600)) {
        let (mut window, mut now_ms, mut times) = (fetches(), 0, Vec::new());
        for step in steps {
            now_ms += step;
            match window.take(now_ms) {
                Ok(()) => times.push(now_ms),
                Err(refused) => {
                    let then = now_ms + u64::try_from(refused.retry_after.as_millis()).unwrap();
                    prop_assert!(window.clone().take(then - 1).is_err());
                    prop_assert!(window.clone().take(then).is_ok());
                }
            }
        }
        for (index, first) in times.iter().enumerate() {
            let within = times[index..].iter().filter(|time| *time - first < 60_000).count();
            prop_assert!(within <= 60);
        }
    }
}
