//! The crash test (R14, D1, D2): a server that dies at any moment comes to the one right end.
//!
//! A child process (this binary again) runs the real control plane with the fake executor for a run of three
//! phases, whose gates it answers. An undisturbed child writes down every fail point that it passes. Then, for
//! each of them, a child is killed there (SIGKILL, by itself), started again and left to finish; what it leaves
//! behind is checked.

mod check;
mod child;
mod disk;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::Mutex,
    time::{Duration, Instant},
};

use child::{Fail, LONG_LEASE, Script};

use crate::repo;

pub(crate) const WORKFLOW: &str = "name: Crash\nphases:\n  - name: plan\n    run: 'true'\n    gate: review\n  - name: build\n    run: 'true'\n    gate: none\n  - name: test\n    run: 'true'\n    gate: review\n";

const PATIENCE: Duration = Duration::from_secs(120);
/// How many lives of one world are killed.
const LIVES: usize = 3;

/// One life of a server and what it leaves, in directories of its own.
struct World {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        repo::with_workflow(&root.join("repo"), WORKFLOW);
        Self { _dir: dir, root }
    }

    fn start(&self, fail: Fail) -> Child {
        self.start_with(fail, LONG_LEASE)
    }

    fn start_with(&self, fail: Fail, lease: Duration) -> Child {
        Script::new(&self.root, fail, lease).save();
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::child::server",
                "--ignored",
                "--nocapture",
            ])
            .env("BULKHEAD_TEST_CRASH", &self.root)
            .stdout(std::fs::File::create(self.root.join("stdout")).unwrap())
            .stderr(std::fs::File::create(self.root.join("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    /// Lets a child come to its end, whatever that is.
    fn run(&self, fail: Fail) -> ExitStatus {
        self.wait(self.start(fail))
    }

    fn wait(&self, mut child: Child) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                let stuck = self.words();
                child.kill().unwrap();
                panic!("a child is stuck:\n{stuck}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a phase has said something that the control plane acknowledged.
    fn until_said(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        let said = self.root.join("said");
        while !std::fs::read_to_string(&said)
            .unwrap_or_default()
            .contains(words)
        {
            assert!(
                Instant::now() < deadline,
                "{words:?} was never said\n{}",
                self.words()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the child said, for failures.
    fn words(&self) -> String {
        let read = |name| std::fs::read_to_string(self.root.join(name)).unwrap_or_default();
        format!("{}\n{}", read("stdout"), read("stderr"))
    }

    fn finish(&self, after: &str) {
        let status = self.run(Fail::Never);
        assert!(
            status.success(),
            "after {after}: {status}\n{}",
            self.words()
        );
        check::right_end(&self.root, after);
    }
}

fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

/// Every fail point of an undisturbed run, with how often it is passed.
fn points() -> Vec<(String, u32)> {
    let world = World::new();
    let trace = world.root.join("trace");
    let status = world.run(Fail::Trace);
    assert!(status.success(), "undisturbed: {status}\n{}", world.words());
    check::right_end(&world.root, "an undisturbed run");
    counted(&trace)
}

fn counted(trace: &Path) -> Vec<(String, u32)> {
    let mut counts: Vec<(String, u32)> = Vec::new();
    for name in std::fs::read_to_string(trace).unwrap().lines() {
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name.to_owned(), 1)),
        }
    }
    counts
}

/// Performs `work` for each item, a few at a time.
fn side_by_side<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let Some(item) = items.lock().unwrap().pop() else {
                        return;
                    };
                    work(item);
                }
            });
        }
    });
}

/// Every passing of every point, each in a world of its own.
fn kill_everywhere() {
    let kills = points().into_iter().flat_map(|(name, count)| {
        let each = 1..=count;
        each.map(move |nth| (name.clone(), nth))
    });
    side_by_side(kills.collect(), |(name, nth)| {
        let world = World::new();
        let after = format!("a kill at {name} ({nth})");
        let status = world.run(Fail::Kill(name, nth));
        // Side by side, a point may be passed less often than in the undisturbed run.
        assert!(
            was_killed(status) || status.success(),
            "{after}: {status}\n{}",
            world.words()
        );
        world.finish(&after);
    });
}

/// Every point, three to a world: three lives are killed at one point each, the fourth comes to the end. What a run
/// passes only once, at its beginning, comes first.
fn kill_at_each_point() {
    let mut points = points();
    assert!(points.len() > 30, "fail points are missing: {points:?}");
    points.sort_by_key(|(_, count)| *count);
    let worlds = points.len().div_ceil(LIVES);
    let chains = (0..worlds).map(|world| points.iter().skip(world).step_by(worlds).collect());
    side_by_side(chains.collect(), |chain: Vec<&(String, u32)>| {
        let world = World::new();
        let after = format!("kills at {chain:?}");
        for (name, _) in chain {
            let status = world.run(Fail::Kill(name.clone(), 1));
            assert!(
                was_killed(status),
                "{after}: {name}: {status}\n{}",
                world.words()
            );
        }
        world.finish(&after);
    });
}

fn kill_twice(first: &str, second: &str) {
    let world = World::new();
    let after = format!("a kill at {first}, then at {second}");
    let status = world.run(Fail::Kill(first.to_owned(), 2));
    assert!(was_killed(status), "{after}: {status}\n{}", world.words());
    let status = world.run(Fail::Kill(second.to_owned(), 1));
    assert!(
        was_killed(status) || status.success(),
        "{after}: {status}\n{}",
        world.words()
    );
    world.finish(&after);
}

fn kill_at_random(seed: u64, lives: u64) {
    let world = World::new();
    for life in 0..lives {
        let mut child = world.start(Fail::Never);
        let pause = 80 + (seed * 7919 + life * 104_729) % 500;
        std::thread::sleep(Duration::from_millis(pause));
        // It may have come to its end already.
        drop(child.kill());
        child.wait().unwrap();
    }
    world.finish(&format!("kills of seed {seed}"));
}

/// Points at which the first life may end, and points of the recovery at which the second may.
const FIRST: [&str; 4] = [
    "started.after_commit",
    "push.after_record",
    "push.before_done",
    "branch.read",
];
const SECOND: [&str; 8] = [
    "reconcile.before_settle",
    "push.before_settle",
    "push.after_settle",
    "restarted.before_commit",
    "restarted.after_commit",
    "confirmed.before_commit",
    "confirmed.after_commit",
    "effect.claimed",
];

/// R14: killed at each fail point that a run passes, and started again.
#[test]
fn r14_a_server_killed_anywhere_comes_to_the_one_right_end() {
    kill_at_each_point();
}

/// R14: killed again while it recovers from a kill.
#[test]
fn r14_a_server_killed_again_while_it_recovers_comes_to_the_one_right_end() {
    let pairs = SECOND.iter().enumerate();
    let pairs = pairs.map(|(index, second)| (FIRST[index % FIRST.len()], *second));
    side_by_side(pairs.collect(), |(first, second)| kill_twice(first, second));
}

/// R14: killed from outside, at no moment in particular, several times.
#[test]
fn r14_a_server_killed_at_random_moments_comes_to_the_one_right_end() {
    side_by_side((0..2).collect(), |seed| kill_at_random(seed, 3));
}

/// D2: a server that was stopped past the lease of its phase finds it lost. What it then still does for that attempt
/// is refused everywhere, the phase parks, runs again, and its commit is there once.
#[test]
fn d2_a_server_stopped_past_its_lease_does_nothing_twice() {
    let world = World::new();
    let child = world.start_with(Fail::Never, Duration::from_secs(2));
    world.until_said("plan begins");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let status = world.wait(child);
    assert!(status.success(), "{status}\n{}", world.words());
    check::right_end_with(&world.root, "a stop past the lease", check::Parked::May);
}

/// All passings of all points, all pairs, many random lives.
#[test]
#[ignore = "takes minutes: for outside CI"]
fn r14_the_long_crash_test() {
    kill_everywhere();
    let pairs = FIRST
        .iter()
        .flat_map(|first| SECOND.iter().map(move |second| (*first, *second)));
    side_by_side(pairs.collect(), |(first, second)| kill_twice(first, second));
    side_by_side((0..60).collect(), |seed| kill_at_random(seed, 6));
}
