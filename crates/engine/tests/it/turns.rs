//! D11: promises of the host's, driven from the isolate's own thread.

use std::time::Duration;

use bulkhead_engine::{EngineError, Isolate, Thrown, Value, later};

use crate::{block_on, both, isolate};

fn with_sleep() -> Isolate {
    let mut isolate = isolate();
    let sleep = later(|arguments| async move {
        let ms = arguments[0].as_number().unwrap_or_default();
        tokio::time::sleep(Duration::from_secs_f64(ms / 1000.0)).await;
        match &arguments[1] {
            Value::String(text) => Err(Thrown::new(text.clone())),
            value => Ok(value.clone()),
        }
    });
    isolate.install("host", vec![("sleep", sleep)]).unwrap();
    isolate
}

fn run(isolate: &mut Isolate, source: &str) -> Result<Value, EngineError> {
    let promise = isolate.evaluate("t.js", source)?;
    let result = block_on(isolate.settle(&promise))?;
    isolate.value(&result)
}

both! {
    fn promises_are_settled_in_the_order_of_their_ends() {
        let source = "(async () => { const order = [];
            await Promise.all([60, 20, 40].map(async ms => { order.push(await host.sleep(ms, ms)) }));
            return order })()";
        let value = run(&mut with_sleep(), source).unwrap();
        assert_eq!(value, Value::List([20.0, 40.0, 60.0].map(Value::Number).to_vec()));
    }

    fn a_thousand_are_under_way_at_once() {
        let source = "Promise.all(Array.from({ length: 1000 }, () => host.sleep(50, 1))).then(all => all.length)";
        let start = std::time::Instant::now();
        assert_eq!(run(&mut with_sleep(), source).unwrap(), Value::Number(1000.0));
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    fn a_rejection_can_be_caught_inside() {
        let value = run(&mut with_sleep(), "host.sleep(1, 'no').catch(e => e.message)").unwrap();
        assert_eq!(value.as_str(), Some("no"));
    }

    fn a_rejection_that_is_not_caught_is_the_outcome() {
        let mut isolate = with_sleep();
        let error = run(&mut isolate, "(async () => { await host.sleep(1, 1); throw new RangeError('out') })()").unwrap_err();
        assert!(error.to_string().starts_with("RangeError: out (t.js:1:"), "{error}");
        assert_eq!(isolate.take_unhandled(), []);
    }

    fn rejections_that_nobody_hears_are_kept() {
        let mut isolate = with_sleep();
        run(&mut isolate, "Promise.reject(new Error('lost')); const p = Promise.reject(1); p.catch(() => {}); 0").unwrap();
        let unhandled = isolate.take_unhandled();
        assert_eq!(unhandled.len(), 1);
        assert_eq!(unhandled[0].to_string(), "Error: lost (t.js:1:16)");
        assert_eq!(isolate.take_unhandled(), []);
    }

    fn microtasks_run_at_checkpoints_only() {
        let mut isolate = isolate();
        isolate.run("t.js", "globalThis.ran = false; Promise.resolve().then(() => { ran = true })").unwrap();
        assert_eq!(isolate.run("t.js", "ran").unwrap(), Value::Bool(false));
        isolate.checkpoint().unwrap();
        assert_eq!(isolate.run("t.js", "ran").unwrap(), Value::Bool(true));
    }

    fn what_is_under_way_survives_that_its_wait_is_given_up() {
        let mut isolate = with_sleep();
        block_on(async {
            let promise = isolate.evaluate("t.js", "host.sleep(100, 5)").unwrap();
            let short = tokio::time::timeout(Duration::from_millis(10), isolate.settle(&promise));
            assert!(short.await.is_err());
            assert!(!isolate.is_idle());
            let value = isolate.settle(&promise).await.unwrap();
            assert_eq!(isolate.value(&value).unwrap(), Value::Number(5.0));
            assert!(isolate.is_idle());
        });
    }
}
