//! D8, D11: isolates that begin from a snapshot.

use bulkhead_engine::{Isolate, IsolateOptions, Snapshot, Value, now};

use crate::{both, options};

fn from(snapshot: &Snapshot) -> Isolate {
    Isolate::new(&IsolateOptions {
        snapshot: Some(snapshot.clone()),
        ..options()
    })
}

both! {
    fn isolates_begin_with_what_the_scripts_made_and_share_nothing() {
        let snapshot = Snapshot::new(&[
            ("one.js", "globalThis.list = [1]; class A { #x = 2; get x() { return this.#x } } globalThis.A = A"),
            ("two.js", "list.push(2)"),
        ]).unwrap();
        for _ in 0..3 {
            let mut isolate = from(&snapshot);
            let value = isolate.run("t.js", "list.push(new A().x); list.length").unwrap();
            assert_eq!(value, Value::Number(3.0));
        }
    }

    fn host_functions_are_installed_into_what_was_made_before() {
        let snapshot = Snapshot::new(&[("s.js", "globalThis.double = () => host.number() * 2")]).unwrap();
        let mut isolate = from(&snapshot);
        isolate.install("host", vec![("number", now(|_| Ok(Value::Number(21.0))))]).unwrap();
        assert_eq!(isolate.run("t.js", "double()").unwrap(), Value::Number(42.0));
    }

    fn a_script_that_throws_makes_no_snapshot() {
        let error = Snapshot::new(&[("s.js", "\n nothing()")]).unwrap_err();
        assert_eq!(error.to_string(), "ReferenceError: nothing is not defined (s.js:2:2)");
    }
}
