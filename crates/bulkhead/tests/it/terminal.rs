//! A gate at a real terminal: it asks, the answer counts, and an interrupt leaves it waiting (R2, R7).

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::World;

/// A program at a terminal of its own.
pub(crate) struct AtTerminal {
    pub(crate) child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl AtTerminal {
    pub(crate) fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let end = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let child = command
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keys = File::from(master);
        let (sender, shown) = channel();
        let mut screen = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut piece) {
                let _ = sender.send(piece[..read].to_vec());
            }
        });
        Self {
            child,
            keys,
            shown,
            text: String::new(),
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&mut self, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.text.contains(words) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(piece) = self.shown.recv_timeout(left) else {
                panic!("{words:?} did not come; shown:\n{}", self.text);
            };
            self.text.push_str(&String::from_utf8_lossy(&piece));
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        while let Ok(piece) = self.shown.recv_timeout(Duration::from_millis(200)) {
            self.text.push_str(&String::from_utf8_lossy(&piece));
        }
        (status.code(), self.text)
    }
}

#[test]
fn r2_at_a_terminal_the_gate_asks_and_enter_approves() {
    let world = World::new();
    let mut demo = AtTerminal::start(world.command(["demo"]));
    demo.wait_for("Leave it waiting");
    demo.press("\r");
    let (code, text) = demo.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Done: the run is completed"), "{text}");
}

#[test]
fn case_61_an_interrupt_at_the_question_leaves_the_gate_waiting() {
    let world = World::new();
    let mut demo = AtTerminal::start(world.command(["demo"]));
    demo.wait_for("Leave it waiting");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&demo.child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let (code, text) = demo.ended();
    assert_eq!(code, Some(4), "{text}");
    let listed = world.run(&["runs", "list", "--json"]).expect(0).json();
    assert_eq!(listed["runs"][0]["status"], "waiting");
}
