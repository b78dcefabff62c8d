//! D11, H5: modules, and the places that errors name.

use std::{collections::HashMap, rc::Rc};

use bulkhead_engine::{EngineError, Isolate, JsError, Loader, Place, Thrown, Value};

use crate::{block_on, both, isolate};

/// Modules by name; a specifier is a name.
struct Sources(HashMap<&'static str, &'static str>);

impl Loader for Sources {
    fn resolve(&self, specifier: &str, _referrer: &str) -> Result<String, Thrown> {
        Ok(specifier.to_owned())
    }

    fn load(&self, name: &str) -> Result<String, Thrown> {
        let source = self.0.get(name);
        source
            .map(|source| (*source).to_owned())
            .ok_or_else(|| Thrown::new(format!("there is no {name}")))
    }
}

fn load(
    isolate: &mut Isolate,
    sources: &[(&'static str, &'static str)],
) -> Result<Value, EngineError> {
    let sources = Rc::new(Sources(sources.iter().copied().collect()));
    let (namespace, end) = isolate.load(sources, "a.js")?;
    block_on(isolate.settle(&end))?;
    let result = isolate.get(&namespace, "default")?;
    isolate.value(&result)
}

fn thrown(error: EngineError) -> JsError {
    let EngineError::Thrown(error) = error else {
        panic!("{error:?}")
    };
    error
}

fn place(file: &str, line: u32, column: u32) -> Option<Place> {
    Some(Place {
        file: file.into(),
        line,
        column,
    })
}

both! {
    fn a_graph_with_a_circle_is_loaded_once() {
        let value = load(&mut isolate(), &[
            ("a.js", "import { b } from 'b.js'; import { c } from 'c.js'; export const a = 1; export default [b(), c, import.meta.url]"),
            ("b.js", "import { a } from 'a.js'; import 'c.js'; export const b = () => a"),
            ("c.js", "globalThis.times = (globalThis.times ?? 0) + 1; export const c = globalThis.times"),
        ]).unwrap();
        let expected = vec![Value::Number(1.0), Value::Number(1.0), Value::String("a.js".into())];
        assert_eq!(value, Value::List(expected));
    }

    fn modules_may_await_and_import_at_run_time() {
        let value = load(&mut isolate(), &[
            ("a.js", "const { b } = await import('b.js'); const e = await import('x.js').catch(e => e.message); export default [b, e]"),
            ("b.js", "export const b = await Promise.resolve(7)"),
        ]).unwrap();
        assert_eq!(value, Value::List(vec![Value::Number(7.0), Value::String("Error: there is no x.js".into())]));
    }

    fn a_missing_module_is_an_error_that_names_it() {
        let error = load(&mut isolate(), &[("a.js", "import 'b.js'")]).unwrap_err();
        assert_eq!(thrown(error).message, "Error: there is no b.js");
    }

    fn a_missing_export_is_an_error_with_its_place() {
        let error = load(&mut isolate(), &[("a.js", "\nimport { x } from 'b.js'"), ("b.js", "")]).unwrap_err();
        let error = thrown(error);
        assert_eq!(error.place, place("a.js", 2, 10));
        assert!(error.message.contains("does not provide an export named 'x'"), "{error}");
    }

    fn a_syntax_error_has_its_place() {
        let error = load(&mut isolate(), &[("a.js", "const a = 1;\nlet let = 2")]).unwrap_err();
        assert_eq!(thrown(error).place, place("a.js", 2, 5));
    }

    fn what_is_thrown_has_its_place() {
        let error = load(&mut isolate(), &[("a.js", "function f() {\n  throw new TypeError('no')\n}\nf()")]).unwrap_err();
        let error = thrown(error);
        assert_eq!(error.place, place("a.js", 2, 9));
        assert_eq!(error.to_string(), "TypeError: no (a.js:2:9)");
        assert!(error.stack.unwrap().contains("at a.js:4:1"));
    }

    fn after_an_await_too() {
        let error = load(&mut isolate(), &[("a.js", "async function f() {\n  await null\n  null.x\n}\nawait f()")]).unwrap_err();
        let error = thrown(error);
        assert_eq!(error.place, place("a.js", 3, 8));
        assert!(error.stack.unwrap().contains("at async a.js:5:1"));
    }

    fn what_is_no_error_object_is_shown_as_it_is() {
        for (source, words) in [("throw 'plain'", "plain"), ("throw { a: 1 }", "#<Object>"), ("throw null", "null")] {
            let error = isolate().run("a.js", source).unwrap_err();
            assert_eq!(thrown(error).message, words);
        }
    }
}
