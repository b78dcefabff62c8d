//! Connections to and from the host.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use bulkhead_engine::{Function, Thrown, Value, later, now};
use bulkhead_host::{DuplexStream, Endpoint};
use tokio::sync::Mutex;

use super::{Held, Native, arguments::Arguments, processes::of_host, streams::Work};

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let function = |run: fn(&Native, Arguments) -> Result<Work, Thrown>| {
        let native = Rc::clone(native);
        later(move |values| {
            let work = run(&native, Arguments::new(values));
            let begun = work.map(|work| native.outside.begin(work));
            async move { begun?.await }
        })
    };
    let dropping = Rc::clone(native);
    vec![
        ("connect", function(connect)),
        ("listen", function(listen)),
        ("listenerAccept", function(accept)),
        (
            "listenerDrop",
            now(move |values| {
                dropping
                    .held
                    .listeners
                    .remove(Arguments::new(values).u32()?);
                Ok(Value::Undefined)
            }),
        ),
    ]
}

fn endpoint(value: &Value) -> Result<Endpoint, Thrown> {
    if let Some(path) = value.get("path").as_str() {
        return Ok(Endpoint::Unix(path.into()));
    }
    let (host, port) = (value.get("host").as_str(), value.get("port").as_number());
    let (Some(host), Some(port)) = (host, port) else {
        return Err(Thrown::type_error("the endpoint is malformed"));
    };
    // A name that is no address would be looked up somewhere: on the host, or on the runner?
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let host = host.parse().map_err(|_| {
        Thrown::type_error(format!(
            "{host:?} is no address: give 127.0.0.1 or the like"
        ))
    })?;
    let port = Arguments::new(vec![Value::Number(port)]).u32()?;
    let port = u16::try_from(port).map_err(|_| Thrown::range_error("the port is out of range"))?;
    Ok(Endpoint::Tcp(SocketAddr::new(host, port)))
}

fn connect(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let to = endpoint(&arguments.value())?;
    let (host, held) = (native.host()?, Arc::clone(&native.held));
    Ok(Box::pin(async move {
        let connected = host.connect(to).await;
        hold(&held, connected.map_err(|error| of_host(&error))?)
    }))
}

fn hold(held: &Held, stream: DuplexStream) -> Result<Value, Thrown> {
    let (reader, writer) = tokio::io::split(stream);
    Ok(Value::object([
        ("id", held.add_reader(Box::new(reader))?),
        ("end", held.add_writer(Box::new(writer))?),
    ]))
}

fn listen(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let at = endpoint(&arguments.value())?;
    let (host, held) = (native.host()?, Arc::clone(&native.held));
    Ok(Box::pin(async move {
        let listener = host.listen(at).await.map_err(|error| of_host(&error))?;
        let (port, path) = match listener.endpoint() {
            Endpoint::Tcp(address) => (Value::Number(address.port().into()), Value::Null),
            Endpoint::Unix(path) => (Value::Null, super::arguments::path(&path)),
        };
        let id = held.listeners.insert(Arc::new(Mutex::new(listener)))?;
        let id = Value::Number(id.into());
        Ok(Value::object([("id", id), ("port", port), ("path", path)]))
    }))
}

/// Null where the listener was closed.
fn accept(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let number = arguments.u32()?;
    let Ok(listener) = native.held.listeners.get(number) else {
        return Ok(Box::pin(async { Ok(Value::Null) }));
    };
    let held = Arc::clone(&native.held);
    Ok(Box::pin(async move {
        let accepted = listener.lock().await.accept().await;
        hold(&held, accepted.map_err(|error| of_host(&error))?)
    }))
}
