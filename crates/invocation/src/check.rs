//! What a module exports, for `Check`.

use bulkhead_engine::{Alone, EngineError, Isolate, Reference, Shape};
use bulkhead_wire::pipe::{
    Check, Export, Exports, Failure, Position, export::Kind, failure::Reason,
};

use crate::fault::{Time, failure};

/// How long a way from the module is told.
const STEPS_MAX: usize = 3;
/// Ways that are told.
const EXPORTS_MAX: usize = 1000;
/// Properties of one object that are looked at.
const PROPERTIES_MAX: u32 = 256;

pub(crate) fn exports(
    isolate: &mut Isolate,
    module: &Alone,
    namespace: &Reference,
    check: &Check,
) -> Result<Exports, EngineError> {
    let mut exports = Vec::new();
    walk(isolate, namespace, &mut Vec::new(), &mut exports)?;
    let code_cache = match check.want_code_cache {
        true => isolate.code_cache(module),
        false => Vec::new(),
    };
    Ok(Exports {
        exports,
        code_cache,
        javascript: None,
    })
}

/// The source without its types. It is done here, behind the walls, because whoever wrote the source chose how deep the
/// reader of TypeScript has to go.
pub(crate) fn without_types(source: &str, file: &str) -> Result<String, Failure> {
    bulkhead_typescript::strip(source).map_err(|error| {
        let mut failure = failure(Reason::Syntax, &error.message, Time::Load);
        failure.stack = vec![Position {
            function: String::new(),
            file: file.to_owned(),
            line: error.line,
            column: error.column,
        }];
        failure
    })
}

fn walk(
    isolate: &mut Isolate,
    object: &Reference,
    path: &mut Vec<String>,
    exports: &mut Vec<Export>,
) -> Result<(), EngineError> {
    for (name, value) in isolate.own_properties(object, PROPERTIES_MAX)? {
        if exports.len() >= EXPORTS_MAX {
            return Ok(());
        }
        let shape = isolate.shape(&value);
        path.push(name);
        exports.push(Export {
            path: path.clone(),
            kind: kind(shape).into(),
        });
        if shape == Shape::Object && path.len() < STEPS_MAX {
            walk(isolate, &value, path, exports)?;
        }
        path.pop();
    }
    Ok(())
}

fn kind(shape: Shape) -> Kind {
    match shape {
        Shape::Function => Kind::Function,
        Shape::Object => Kind::Object,
        Shape::Other => Kind::Other,
    }
}
