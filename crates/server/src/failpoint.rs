//! Fail points: places where a crash test ends this process, one before and one after each effect on the
//! world. They exist in debug builds only, and only a test that hands them in can set one off: there is no
//! variable, file or flag that does.

#[cfg(debug_assertions)]
pub use armed::FailPoints;
#[cfg(not(debug_assertions))]
pub use disarmed::FailPoints;

#[cfg(debug_assertions)]
mod armed {
    use std::{
        collections::HashMap,
        fs::File,
        io::Write as _,
        path::Path,
        sync::{Arc, Mutex, PoisonError},
    };

    use rustix::process::{Signal, getpid, kill_process};

    /// What to do at fail points: nothing, unless a test says otherwise.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints {
        plan: Option<Arc<Plan>>,
    }

    #[derive(Debug)]
    struct Plan {
        trace: Option<Mutex<File>>,
        kill_at: Option<(String, u32)>,
        hits: Mutex<HashMap<&'static str, u32>>,
    }

    impl FailPoints {
        /// Writes the name of every point that is passed to a file, one a line.
        pub fn trace(to: &Path) -> std::io::Result<Self> {
            Ok(Self::with(Some(File::create(to)?), None))
        }

        /// Ends this process with SIGKILL at the `nth` (from 1) passing of the point `name`.
        pub fn kill_at(name: &str, nth: u32) -> Self {
            Self::with(None, Some((name.to_owned(), nth)))
        }

        fn with(trace: Option<File>, kill_at: Option<(String, u32)>) -> Self {
            let plan = Plan {
                trace: trace.map(Mutex::new),
                kill_at,
                hits: Mutex::default(),
            };
            Self {
                plan: Some(Arc::new(plan)),
            }
        }

        pub(crate) fn hit(&self, name: &'static str) {
            if let Some(plan) = &self.plan {
                plan.hit(name);
            }
        }
    }

    impl Plan {
        fn hit(&self, name: &'static str) {
            if let Some(trace) = &self.trace {
                let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
                // One write per line, so that lines of several threads never mix.
                drop(file.write_all(format!("{name}\n").as_bytes()));
            }
            let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
            let count = hits.entry(name).or_default();
            *count += 1;
            if self
                .kill_at
                .as_ref()
                .is_some_and(|(at, nth)| at == name && nth == count)
            {
                let _ = kill_process(getpid(), Signal::KILL);
                // The signal ends every thread; nothing after this point may happen meanwhile.
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

#[cfg(not(debug_assertions))]
mod disarmed {
    /// In release builds there are no fail points.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints(());

    impl FailPoints {
        #[expect(clippy::unused_self, reason = "the same call as in debug builds")]
        pub(crate) const fn hit(&self, _name: &'static str) {}
    }
}
