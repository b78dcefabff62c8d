//! Streams to and from endpoints of the holder's place.

use std::{io, os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bulkhead_init::wire::{OUTPUT, Order, Place, SpawnStage};
use tokio::sync::mpsc;

use super::{
    link::Link,
    process::{Output, writer},
    table::{Answer, Fresh},
};
use crate::{DuplexStream, Endpoint, HostError, Listener};

pub(super) async fn connect(link: &Arc<Link>, to: Endpoint) -> Result<DuplexStream, HostError> {
    let _permit = link.starts.acquire().await.map_err(|_| gone(link))?;
    let mut fresh = link.table().insert_connection().ok_or_else(|| gone(link))?;
    let process = fresh.process;
    let unfinished = Unfinished(link, process);
    link.order(&Order::Connect {
        process,
        to: place(&to),
    });
    let answer = (&mut fresh.answer).await;
    std::mem::forget(unfinished);
    checked(link, &to, answer.ok())?;
    Ok(stream(link, fresh))
}

pub(super) async fn listen(link: &Arc<Link>, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
    let _permit = link.starts.acquire().await.map_err(|_| gone(link))?;
    let (to, connections) = mpsc::unbounded_channel();
    let fresh = {
        let mut table = link.table();
        let fresh = table.insert_connection().ok_or_else(|| gone(link))?;
        table.listen(fresh.process, to);
        fresh
    };
    let mut listening = Listening {
        link: Arc::clone(link),
        process: fresh.process,
        at: at.clone(),
        connections,
    };
    link.order(&Order::Listen {
        process: fresh.process,
        at: place(&at),
    });
    let answer = fresh.answer.await.ok();
    if let Some(bound) = checked(link, &at, answer)? {
        listening.at = endpoint(bound).ok_or_else(|| gone(link))?;
    }
    Ok(Box::new(listening))
}

/// A connecting whose caller went away in the middle.
struct Unfinished<'a>(&'a Link, u32);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.hang_up(self.1);
    }
}

struct Listening {
    link: Arc<Link>,
    process: u32,
    at: Endpoint,
    connections: mpsc::UnboundedReceiver<Fresh>,
}

#[async_trait]
impl Listener for Listening {
    fn endpoint(&self) -> Endpoint {
        self.at.clone()
    }

    async fn accept(&mut self) -> Result<DuplexStream, HostError> {
        let fresh = self.connections.recv().await;
        let fresh = fresh.ok_or_else(|| gone(&self.link))?;
        Ok(stream(&self.link, fresh))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.link.order(&Order::Unlisten {
            process: self.process,
        });
        self.link.table().unlisten(self.process);
        // Nobody will accept those that wait.
        self.connections.close();
        while let Ok(waits) = self.connections.try_recv() {
            self.link.hang_up(waits.process);
        }
    }
}

fn stream(link: &Arc<Link>, fresh: Fresh) -> DuplexStream {
    let [output, _] = fresh.outputs;
    let reader = Output::new(Arc::clone(link), fresh.process, OUTPUT, output);
    let writer = writer(link, fresh.process, fresh.input);
    Box::new(tokio::io::join(reader, writer))
}

/// None is the holder's end.
fn checked(
    link: &Link,
    endpoint: &Endpoint,
    answer: Option<Answer>,
) -> Result<Option<Place>, HostError> {
    answer.ok_or_else(|| gone(link))?.map_err(|(stage, errno)| {
        debug_assert_eq!(stage, SpawnStage::Setup {});
        HostError::Forward {
            host: link.host().to_owned(),
            endpoint: endpoint.to_string(),
            source: Arc::new(io::Error::from_raw_os_error(errno)),
        }
    })
}

fn gone(link: &Link) -> HostError {
    HostError::Gone {
        host: link.host().to_owned(),
    }
}

fn place(endpoint: &Endpoint) -> Place {
    match endpoint {
        Endpoint::Tcp(address) => Place::Tcp {
            address: address.to_string().into_bytes(),
        },
        Endpoint::Unix(path) => Place::Unix {
            path: path.as_os_str().as_bytes().to_vec(),
        },
    }
}

/// None where the holder says what it cannot have meant.
fn endpoint(place: Place) -> Option<Endpoint> {
    match place {
        Place::Tcp { address } => {
            let text = String::from_utf8(address).ok()?;
            text.parse().ok().map(Endpoint::Tcp)
        }
        Place::Unix { path } => {
            let path = std::ffi::OsStr::from_bytes(&path);
            Some(Endpoint::Unix(PathBuf::from(path)))
        }
    }
}
