//! What is known of each process, changed by what the holder says. The holder is not trusted: who sends more than was
//! granted, or grants more than there is, ends the connection.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bulkhead_init::wire::{ACCEPTED_FROM, Malformed, OUTPUT, Place, SpawnStage, WINDOW};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::ExitStatus;

/// Whether a start succeeded, and where a listening is; else how far it came and the kernel's number.
pub(super) type Answer = Result<Option<Place>, (SpawnStage, i32)>;

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<u32, Entry>,
    /// Where the connections of each listening go. At most as many wait as a holder keeps.
    listening: HashMap<u32, mpsc::UnboundedSender<Fresh>>,
    last: u32,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Process,
    Connection,
}

#[derive(Debug)]
struct Entry {
    answer: Option<oneshot::Sender<Answer>>,
    input: Arc<Input>,
    outputs: [Option<Sink>; 2],
    exited: watch::Sender<Option<ExitStatus>>,
    is_released: bool,
}

/// What may be sent to a process's input.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) window: Semaphore,
    /// The process reads no more.
    pub(super) refused: CancellationToken,
}

#[derive(Debug)]
struct Sink {
    to: mpsc::UnboundedSender<Bytes>,
    under_way: Arc<AtomicU32>,
}

/// The table's other end of an output. The holder's window bounds the queue.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) from: mpsc::UnboundedReceiver<Bytes>,
    /// Bytes that arrived and were not granted anew.
    pub(super) under_way: Arc<AtomicU32>,
}

/// A process or a connection that is being started.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) process: u32,
    pub(super) answer: oneshot::Receiver<Answer>,
    pub(super) input: Arc<Input>,
    pub(super) outputs: [Tap; 2],
    pub(super) exited: watch::Receiver<Option<ExitStatus>>,
}

impl Table {
    /// A new process; none after the end.
    pub(super) fn insert(&mut self) -> Option<Fresh> {
        let process = self.number()?;
        Some(self.enter(process, What::Process))
    }

    /// A new connection; none after the end.
    pub(super) fn insert_connection(&mut self) -> Option<Fresh> {
        let process = self.number()?;
        Some(self.enter(process, What::Connection))
    }

    fn number(&mut self) -> Option<u32> {
        // Two billion processes later the numbers of the first ones are free again.
        self.last = (self.last + 1) % ACCEPTED_FROM;
        (!self.has_ended).then_some(self.last)
    }

    /// From now on connections to this listening go there.
    pub(super) fn listen(&mut self, process: u32, to: mpsc::UnboundedSender<Fresh>) {
        self.listening.insert(process, to);
    }

    pub(super) fn unlisten(&mut self, process: u32) {
        self.listening.remove(&process);
        self.entries.remove(&process);
    }

    /// A connection that came; false where nobody waits for it any more.
    pub(super) fn accept(&mut self, listening: u32, process: u32) -> Result<bool, Malformed> {
        if process < ACCEPTED_FROM || self.entries.contains_key(&process) {
            return Err(Malformed);
        }
        let Some(to) = self.listening.get(&listening).cloned() else {
            return Ok(false);
        };
        let fresh = self.enter(process, What::Connection);
        if to.send(fresh).is_err() {
            self.entries.remove(&process);
            return Ok(false);
        }
        Ok(true)
    }

    fn enter(&mut self, process: u32, what: What) -> Fresh {
        let (answer, answered) = oneshot::channel();
        let is_process = what == What::Process;
        // A connection has no end of its own but those of its streams.
        let status = (!is_process).then_some(ExitStatus::HostEnded);
        let (exit, exited) = watch::channel(status);
        let (output, output_tap) = tap();
        let (error, error_tap) = tap();
        let input = Arc::new(Input {
            window: Semaphore::new(WINDOW as usize),
            refused: CancellationToken::new(),
        });
        self.entries.insert(
            process,
            Entry {
                answer: Some(answer),
                input: Arc::clone(&input),
                outputs: [Some(output), is_process.then_some(error)],
                exited: exit,
                is_released: !is_process,
            },
        );
        Fresh {
            process,
            answer: answered,
            input,
            outputs: [output_tap, error_tap],
            exited,
        }
    }

    pub(super) fn answer(&mut self, process: u32, answer: Answer) {
        let failed = answer.is_err();
        if let Some(entry) = self.entries.get_mut(&process)
            && let Some(waits) = entry.answer.take()
        {
            let _ = waits.send(answer);
            if failed {
                self.entries.remove(&process);
            }
        }
    }

    pub(super) fn output(
        &mut self,
        process: u32,
        channel: u8,
        bytes: Bytes,
    ) -> Result<(), Malformed> {
        let Some(sink) = self.slot(process, channel).and_then(|slot| slot.as_ref()) else {
            return Ok(());
        };
        let length = u32::try_from(bytes.len()).map_err(|_| Malformed)?;
        let before = sink.under_way.fetch_add(length, Ordering::Relaxed);
        if before.saturating_add(length) > WINDOW {
            return Err(Malformed);
        }
        // Nobody reads it any more: the holder has been or will be told.
        let _ = sink.to.send(bytes);
        Ok(())
    }

    pub(super) fn finish(&mut self, process: u32, channel: u8) {
        if let Some(slot) = self.slot(process, channel) {
            *slot = None;
        }
        self.forget(process);
    }

    pub(super) fn grant(&self, process: u32, bytes: u32) -> Result<(), Malformed> {
        let Some(entry) = self.entries.get(&process) else {
            return Ok(());
        };
        let window = &entry.input.window;
        if window.available_permits() + bytes as usize > WINDOW as usize {
            return Err(Malformed);
        }
        window.add_permits(bytes as usize);
        Ok(())
    }

    pub(super) fn refuse(&self, process: u32) {
        if let Some(entry) = self.entries.get(&process) {
            entry.input.refused.cancel();
        }
    }

    pub(super) fn exit(&mut self, process: u32, status: i32) {
        if let Some(entry) = self.entries.get(&process) {
            entry.exited.send_replace(Some(exit_status(status)));
        }
        self.forget(process);
    }

    /// Nobody asks about it any more.
    pub(super) fn release(&mut self, process: u32) {
        if let Some(entry) = self.entries.get_mut(&process) {
            entry.is_released = true;
        }
        self.forget(process);
    }

    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.listening.clear();
        for (_, entry) in self.entries.drain() {
            entry.input.refused.cancel();
            entry.exited.send_if_modified(|status| {
                let lives = status.is_none();
                status.get_or_insert(ExitStatus::HostEnded);
                lives
            });
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn slot(&mut self, process: u32, channel: u8) -> Option<&mut Option<Sink>> {
        let index = usize::from(channel != OUTPUT);
        self.entries
            .get_mut(&process)
            .map(|entry| &mut entry.outputs[index])
    }

    fn forget(&mut self, process: u32) {
        let over = self.entries.get(&process).is_some_and(|entry| {
            entry.is_released
                && entry.exited.borrow().is_some()
                && entry.outputs.iter().all(Option::is_none)
        });
        if over {
            self.entries.remove(&process);
        }
    }
}

fn tap() -> (Sink, Tap) {
    let (to, from) = mpsc::unbounded_channel();
    let under_way = Arc::new(AtomicU32::new(0));
    let sink = Sink {
        to,
        under_way: Arc::clone(&under_way),
    };
    (sink, Tap { from, under_way })
}

/// By the layout of a wait status, which is the same on every Linux.
const fn exit_status(status: i32) -> ExitStatus {
    match status & 0x7f {
        0 => ExitStatus::Code((status >> 8) & 0xff),
        signal => ExitStatus::Signal(signal),
    }
}
