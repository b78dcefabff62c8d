//! `bulkhead isolates`: the service of plugins, as a process of its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bulkhead_isolates::{
    broker::Broker,
    calls::HostFunctions,
    server::{Listen, ListenError, MutualTls, serve},
    settings::Settings,
    zygotes::{ZygoteSettings, Zygotes},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    data_dir,
    plugin::service::{fetch, javascript_program},
};
use crate::{
    cli::{Global, Isolates},
    config::OperatorConfig,
    failure::{Exit, Misuse},
    interrupt::Interrupt,
    output::Output,
};

pub(crate) async fn run(args: Isolates, global: &Global, output: Output) -> Result<Exit> {
    let listen = listen(&args, global)?;
    let operator = OperatorConfig::load(global)?;
    let functions = HostFunctions::new(fetch(&operator, &[])?);
    let settings = Settings {
        slots: positive("--slots", args.slots)?,
        ..Settings::default()
    };
    let zygotes = ZygoteSettings {
        standby: positive("--standby", args.standby)?,
        ..ZygoteSettings::new(javascript_program()?)
    };
    let zygotes = Arc::new(Zygotes::start(zygotes).await?);
    let broker = Arc::new(Broker::new(
        settings,
        Arc::clone(&zygotes) as _,
        Arc::new(functions),
    ));
    let drain = Duration::from_millis(args.drain.0);
    let served = serve_until_told(Arc::clone(&broker), listen, drain, output).await;
    zygotes.stop().await;
    match served {
        Err(error) if is_misuse(&error) => Err(Misuse::usage(error.to_string()).into()),
        served => Ok(served.map(|()| Exit::Done)?),
    }
}

/// Serves until a signal, and then until what runs has finished or the time for that is over.
async fn serve_until_told(
    broker: Arc<Broker>,
    listen: Listen,
    drain: Duration,
    output: Output,
) -> Result<(), ListenError> {
    let stop = CancellationToken::new();
    let interrupt = Interrupt::listen(output).map_err(|source| ListenError::Bind {
        at: "signals".to_owned(),
        source,
    })?;
    let told = interrupt.token();
    let ending = async {
        told.cancelled().await;
        let left = broker.drain(drain).await;
        if left > 0 {
            output.note(format_args!("{left} calls did not finish in time."));
        }
        stop.cancel();
    };
    let serving = serve(Arc::clone(&broker), listen, stop.clone(), |at| {
        output.note(format_args!("Serving plugins at {at}"));
        // Whoever closed standard output can read the note.
        let _ = output.json_object(&json!({ "listening": at }));
    });
    tokio::select! {
        served = serving => served,
        // Streams that stay open after their calls' end are cut with the process.
        () = async { ending.await; tokio::time::sleep(Duration::from_secs(2)).await } => Ok(()),
    }
}

fn is_misuse(error: &ListenError) -> bool {
    matches!(
        error,
        ListenError::NotPrivate(_) | ListenError::InUse(_) | ListenError::Tls(_)
    )
}

fn positive(option: &str, count: usize) -> Result<usize> {
    match count {
        0 => Err(Misuse::usage(format!("{option} must be at least 1")).into()),
        count => Ok(count),
    }
}

fn listen(args: &Isolates, global: &Global) -> Result<Listen> {
    let files = [&args.tls_cert, &args.tls_key, &args.client_ca];
    let named = files.iter().filter(|file| file.is_some()).count();
    let place = match &args.listen {
        Some(place) => place.clone(),
        None => {
            let socket = data_dir(global)?.join("run/isolates/isolates.sock");
            format!("unix:{}", socket.display())
        }
    };
    if let Some(path) = place.strip_prefix("unix:") {
        if named > 0 {
            let what = "a Unix socket takes no certificates: it is for this user alone";
            return Err(Misuse::usage(what.to_owned()).into());
        }
        return Ok(Listen::Unix(path.into()));
    }
    let address: SocketAddr = place.parse().map_err(|_| {
        Misuse::usage_hint(
            format!("{place:?} is no place to listen at"),
            "unix:PATH, or an address with a port such as 127.0.0.1:7443",
        )
    })?;
    let [Some(certificate), Some(key), Some(client_authority)] = files else {
        let what = "over TCP both sides show certificates";
        let hint = "give --tls-cert, --tls-key and --client-ca, or listen at unix:PATH";
        return Err(Misuse::usage_hint(what.to_owned(), hint).into());
    };
    let tls = MutualTls {
        certificate: read(certificate)?,
        key: read(key)?,
        client_authority: read(client_authority)?,
    };
    Ok(Listen::Tcp { address, tls })
}

fn read(file: &PathBuf) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}
