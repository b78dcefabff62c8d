//! This program as a zygote: what plugins' processes can do, and what they cannot.

use std::path::Path;

use bulkhead_wire::pipe::from_invocation::Frame;
use bulkhead_zygote::{Isolate, Options, TestHooks, control::Ending};

use crate::{
    ZYGOTE,
    attacker::{Attacker, Is, long, tries},
    support::{Zygote, assert_walls},
};

fn start(isolate: Isolate, test_hooks: TestHooks) -> Zygote {
    let options = Options {
        memory_mib: 128,
        isolate,
        test_hooks,
    };
    Zygote::start_with(Path::new(ZYGOTE), &options)
}

const ECHO: &str = "export default { echo: async (input) => input };";
const RANDOM: &str = "export const r = { echo: () => [Math.random(), Math.random()] };";

/// D8: locked down, a process serves a handler, in both ways of having an isolate.
#[test]
fn d8_a_locked_down_process_serves_a_handler() {
    for isolate in [Isolate::Ready, Isolate::Child] {
        let zygote = start(isolate, TestHooks::Absent);
        let mut process = zygote.fork();
        process.call(ECHO, &["default", "echo"], r#"{"a":[1,"b"]}"#);
        assert_eq!(process.result().unwrap(), r#"{"a":[1,"b"]}"#, "{isolate:?}");
        assert_eq!(zygote.ending(), (process.id, Ending::Code(0)));
    }
}

/// D8: copies of one isolate do not draw the same numbers.
#[test]
fn d8_copies_of_an_isolate_draw_numbers_of_their_own() {
    for isolate in [Isolate::Ready, Isolate::Child] {
        let zygote = start(isolate, TestHooks::Absent);
        let draw = || {
            let mut process = zygote.fork();
            process.call(RANDOM, &["r", "echo"], "0");
            process.result().unwrap()
        };
        let all: std::collections::BTreeSet<String> = (0..5).map(|_| draw()).collect();
        assert_eq!(all.len(), 5, "{isolate:?}: {all:?}");
    }
}

/// Issue 4, "escape": native code in a process that has V8 in it reaches nothing either.
#[test]
fn escape_native_code_beside_v8_reaches_nothing() {
    for isolate in [Isolate::Ready, Isolate::Child] {
        let zygote = start(isolate, TestHooks::Present);
        let neighbour = zygote.fork();
        let mut attacker = Attacker::new(zygote.fork().pipe);
        let canary = ZYGOTE;
        let reached = attacker.reaches(canary, neighbour.id.0.into());
        assert_eq!(reached, Vec::<String>::new(), "{isolate:?}");
        let page = (attacker.scratch & !4095).cast_signed();
        let executable = tries(
            "mprotect",
            libc::SYS_mprotect,
            [Is(page), Is(4096), long(7)],
        );
        assert_eq!(attacker.call(&executable), -i64::from(libc::EPERM));
    }
}

/// D8: in a process that runs a plugin no page is both writable and executable, and none is executable that is not a file's.
#[test]
fn d8_a_process_has_no_writable_code() {
    for isolate in [Isolate::Ready, Isolate::Child] {
        let zygote = start(isolate, TestHooks::Absent);
        let mut process = zygote.fork();
        let source = "export const f = () => host.fetch({ url: 'https://a.example/' });";
        process.call(source, &["f"], "0");
        // In the middle of a call: it has run code, and stands until there is an answer.
        while !matches!(process.frame().unwrap(), Frame::Waiting(_)) {}
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap();
        assert!(maps.contains("r-xp"), "{maps}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()));
        assert_walls(&status.unwrap());
        let bad: Vec<String> = maps
            .lines()
            .filter(|line| {
                let mut columns = line.split_whitespace();
                let rights = columns.nth(1).unwrap_or_default();
                let file = columns.nth(3).unwrap_or_default();
                rights.contains('x')
                    && (rights.contains('w')
                        || !(file.starts_with('/') || file == "[vdso]" || file == "[vsyscall]"))
            })
            .map(str::to_owned)
            .collect();
        assert_eq!(bad, Vec::<String>::new(), "{isolate:?}");
    }
}
