//! D11: what crosses the border.

use bulkhead_engine::{Answer, EngineError, Thrown, Value, now};

use crate::{both, isolate};

both! {
    fn data_comes_back_as_it_went_in() {
        let mut isolate = isolate();
        let echo = isolate.evaluate("echo.js", "x => x").unwrap();
        let values = [
            Value::Undefined,
            Value::Null,
            Value::Bool(true),
            Value::Number(-0.5),
            Value::BigInt(i64::MIN),
            Value::String("ä\0𝄞".into()),
            Value::Bytes((0..=255).collect::<Vec<u8>>().into()),
            Value::Bytes(bytes::Bytes::new()),
            Value::List(vec![Value::Null, Value::String(String::new())]),
            Value::object([("b", Value::Number(1.0)), ("a", Value::List(vec![]))]),
        ];
        for value in values {
            let result = isolate.call(&echo, &[value.clone().into()]).unwrap();
            assert_eq!(isolate.value(&result).unwrap(), value);
        }
    }

    fn views_and_buffers_give_their_own_bytes_only() {
        let mut isolate = isolate();
        let value = isolate
            .run("v.js", "const b = new Uint8Array([1,2,3,4]); [b.subarray(1,3), b.buffer, new Uint16Array(b.buffer, 2)]")
            .unwrap();
        let bytes = |bytes: &'static [u8]| Value::Bytes(bytes.into());
        assert_eq!(value, Value::List(vec![bytes(&[2, 3]), bytes(&[1, 2, 3, 4]), bytes(&[3, 4])]));
    }

    fn data_that_contains_itself_does_not_cross() {
        let mut isolate = isolate();
        let error = isolate.run("v.js", "const a = []; a.push(a); a").unwrap_err();
        assert!(matches!(error, EngineError::Value(_)), "{error}");
    }

    fn getters_that_throw_are_errors_and_not_crashes() {
        let mut isolate = isolate();
        let error = isolate.run("v.js", "({ get a() { throw new Error('no') } })").unwrap_err();
        assert!(error.to_string().starts_with("Error: no (v.js:1:"), "{error}");
    }

    fn host_functions_answer_and_throw() {
        let mut isolate = isolate();
        let add = now(|arguments| {
            let numbers: Option<Vec<f64>> = arguments.iter().map(Value::as_number).collect();
            match numbers {
                Some(numbers) => Ok(Value::Number(numbers.iter().sum())),
                None => Err(Thrown::type_error("numbers only").with("code", Value::String("ENUM".into()))),
            }
        });
        isolate.install("host", vec![("add", add)]).unwrap();
        assert_eq!(isolate.run("a.js", "host.add(1, 2, 39)").unwrap(), Value::Number(42.0));
        let error = isolate
            .run("a.js", "try { host.add('x') } catch (e) { [e instanceof TypeError, e.message, e.code, e.stack] }")
            .unwrap();
        let Value::List(parts) = error else { panic!("{error:?}") };
        assert_eq!(parts[0], Value::Bool(true));
        assert_eq!(parts[1].as_str(), Some("numbers only"));
        assert_eq!(parts[2].as_str(), Some("ENUM"));
        assert!(parts[3].as_str().unwrap().contains("a.js:1:"), "{parts:?}");
    }

    fn an_argument_that_cannot_cross_is_an_error_of_the_call() {
        let mut isolate = isolate();
        isolate.install("host", vec![("take", Box::new(|_| Answer::Now(Ok(Value::Null))))]).unwrap();
        let error = isolate.run("a.js", "const a = {}; a.a = a;\n host.take(a)").unwrap_err();
        assert!(error.to_string().contains("contains itself (a.js:2:"), "{error}");
    }

    fn the_language_data_is_there() {
        let mut isolate = isolate();
        let text = isolate
            .run("i.js", "new Intl.DateTimeFormat('de-DE', { month: 'long', timeZone: 'Europe/Berlin' }).format(0)")
            .unwrap();
        assert_eq!(text.as_str(), Some("Januar"));
    }

    fn strings_are_no_code() {
        let mut isolate = isolate();
        for source in ["eval('1')", "new Function('1')", "(async () => {}).constructor('1')"] {
            let error = isolate.run("e.js", source).unwrap_err();
            assert!(error.to_string().starts_with("EvalError"), "{source}: {error}");
        }
    }
}
