//! Terminals: all three streams, a size that can change, and keys that are signals.

use bulkhead_host::{Command, ExitStatus, Process, Stdio, TerminalSize};
use tokio::io::AsyncWriteExt as _;

use super::{Maker, Place, assert_signal, ended, read_until, run};

const SIZE: TerminalSize = TerminalSize {
    rows: 33,
    columns: 77,
};

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    is_a_terminal(&place).await;
    is_none_without(&place).await;
    resizes(&place).await;
    keys(maker, &place).await;
    place.end().await;
}

async fn start(place: &Place, line: &str) -> Process {
    let command = Command::shell(line).stdio(Stdio::Terminal(SIZE));
    place.host.spawn(command).await.unwrap()
}

async fn is_a_terminal(place: &Place) {
    let line =
        "test -t 0 && test -t 1 && test -t 2 && stty size && : >/dev/tty && echo all; exit 5";
    let mut process = start(place, line).await;
    assert!(process.stderr.is_none());
    let text = read_until(process.stdout.as_mut().unwrap(), "all").await;
    assert!(text.contains("33 77"), "{text:?}");
    assert_eq!(ended(&process.control).await, ExitStatus::Code(5));
}

async fn is_none_without(place: &Place) {
    let line = "test -t 0 || test -t 1 || test -t 2 || echo none";
    let ran = run(&*place.host, Command::shell(line)).await;
    assert_eq!(ran.text(), "none\n");
}

async fn resizes(place: &Place) {
    let line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut process = start(place, line).await;
    let stdout = process.stdout.as_mut().unwrap();
    read_until(stdout, "ready").await;
    let size = TerminalSize {
        rows: 44,
        columns: 132,
    };
    process.control.resize(size).await.unwrap();
    read_until(stdout, "44 132").await;
    kill(&process).await;
}

async fn keys(maker: &impl Maker, place: &Place) {
    // Ctrl-C goes to whatever runs in the foreground.
    let mut process = start(place, "echo ready; exec sleep 1000").await;
    let mut stdin = process.stdin.take().unwrap();
    read_until(process.stdout.as_mut().unwrap(), "ready").await;
    stdin.write_all(b"\x03").await.unwrap();
    stdin.flush().await.unwrap();
    assert_signal(maker, ended(&process.control).await, 2);
    // Ctrl-D is the end of the input; what is typed comes back, and from the program once more.
    let mut process = start(place, "echo ready; exec cat").await;
    let mut stdin = process.stdin.take().unwrap();
    let stdout = process.stdout.as_mut().unwrap();
    read_until(stdout, "ready").await;
    stdin.write_all(b"typed\n").await.unwrap();
    stdin.flush().await.unwrap();
    let text = read_until(stdout, "typed\r\ntyped\r\n").await;
    assert_eq!(text.matches("typed").count(), 2);
    stdin.write_all(b"\x04").await.unwrap();
    stdin.flush().await.unwrap();
    assert_eq!(ended(&process.control).await, ExitStatus::Code(0));
}

async fn kill(process: &Process) {
    let control = &process.control;
    let (signal, target) = (bulkhead_host::Signal::Kill, bulkhead_host::Target::Group);
    control.signal(signal, target).await.unwrap();
    ended(control).await;
}
