//! The global object `host`, made of the table of methods.

use std::rc::Rc;

use bulkhead_engine::{
    Answer, Crossing, Entry, Json, JsonLimits, Namespace, Native, Thrown, Value, now,
};
use bulkhead_wire::{
    methods::{METHODS, Method, Where},
    pipe::{from_invocation::Frame, log::Level},
};

use crate::{
    crypto,
    drive::{ARGUMENTS_BYTES_MAX, Shared, Sharing, coded, refused},
    log::LINE_BYTES_MAX,
};

/// Settings are small; what the broker sends is bounded there.
const SETTINGS_BYTES_MAX: usize = 1 << 20;

pub(crate) fn namespace(shared: &Sharing) -> Namespace {
    let mut host = Namespace::default();
    for method in METHODS {
        match method.carried_out {
            Where::Inside => inside(&mut host, shared, method),
            Where::Broker | Where::Platform => {
                host.insert(method.path, outside(shared, method));
            }
        }
    }
    host
}

fn inside(host: &mut Namespace, shared: &Sharing, method: &Method) {
    match method.path {
        "log" => host.push("log", log(shared)),
        "settings.get" => host.insert(method.path, settings(shared)),
        path => match crypto::function(shared, path) {
            Some(function) => host.insert(path, function),
            // The table and this side are of one build: a test sees to it that nothing gets here.
            None => host.insert(path, missing(path)),
        },
    }
}

fn missing(path: &'static str) -> Native {
    Native::Values {
        run: now(move |_| {
            Err(coded(
                "unavailable",
                format!("host.{path} is not available here"),
            ))
        }),
        bytes_max: 0,
    }
}

fn outside(shared: &Sharing, method: &'static Method) -> Native {
    let shared = Rc::clone(shared);
    Native::Json {
        run: Box::new(move |arguments: Result<String, Crossing>| match arguments {
            Ok(arguments) => shared.call(method.number, method.path, arguments),
            Err(crossing) => refused("bad_request", format!("host.{}: {crossing}", method.path)),
        }),
        limits: JsonLimits::of_bytes(ARGUMENTS_BYTES_MAX),
    }
}

fn log(shared: &Sharing) -> Entry {
    let levels = [
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("warn", Level::Warn),
        ("error", Level::Error),
    ];
    let mut below = Namespace::default();
    for (name, level) in levels {
        below.push(name, Entry::Function(log_at(shared, level)));
    }
    Entry::Both(log_at(shared, Level::Info), below)
}

fn log_at(shared: &Sharing, level: Level) -> Native {
    let shared = Rc::clone(shared);
    Native::Words {
        run: Box::new(move |words| {
            if let Some(line) = shared.logs.take(level, words) {
                shared.send(Frame::Log(line));
            }
            Answer::Now(Ok(Value::Undefined))
        }),
        // One more, so that a line which is cut can be told from one that just fits.
        bytes_max: LINE_BYTES_MAX + 1,
    }
}

fn settings(shared: &Sharing) -> Native {
    let shared = Rc::clone(shared);
    Native::Values {
        run: now(move |arguments| match arguments.first() {
            None | Some(Value::Undefined) => Ok(json(shared.settings.borrow().clone())),
            Some(Value::String(name)) => setting(&shared, name),
            Some(_) => Err(Thrown::type_error(
                "host.settings.get takes the name of a setting, or nothing for all of them",
            )),
        }),
        bytes_max: 1024,
    }
}

fn setting(shared: &Shared, name: &str) -> Result<Value, Thrown> {
    let settings = serde_json::from_str::<serde_json::Value>(&shared.settings.borrow());
    let settings = settings.map_err(|_| coded("failed", "the settings cannot be read".into()))?;
    Ok(settings
        .get(name)
        .map_or(Value::Undefined, |value| json(value.to_string())))
}

fn json(text: String) -> Value {
    Value::Json(Json {
        text,
        body: None,
        limits: JsonLimits::of_bytes(SETTINGS_BYTES_MAX),
    })
}
