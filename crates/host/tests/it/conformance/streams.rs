//! Streams of processes: much, in bounded memory, with the pace of whoever is slower.

use std::time::Duration;

use bulkhead_host::Command;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Maker, Place, assert_signal, ended, piped, shell, soon};

const PIECE: usize = 64 << 10;
/// More than this may not be held of what passes through.
const MEMORY_BYTES: u64 = 64 << 20;

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    through_and_back(&place).await;
    nobody_reads(&place).await;
    closed_by_the_reader(maker, &place).await;
    both_outputs_at_once(&place).await;
    place.end().await;
}

/// 64 MiB; with `BULKHEAD_TEST_STREAM_BYTES` another size, such as 1073741824.
pub(super) fn size_bytes() -> u64 {
    let wanted = std::env::var("BULKHEAD_TEST_STREAM_BYTES");
    wanted.map_or(64 << 20, |bytes| bytes.parse().unwrap())
}

/// Every byte through `cat`, each piece with its own number.
async fn through_and_back(place: &Place) {
    let pieces = size_bytes() / PIECE as u64;
    let before = peak_bytes();
    let mut process = place.host.spawn(piped("exec cat")).await.unwrap();
    let (mut stdin, mut stdout) = (
        process.stdin.take().unwrap(),
        process.stdout.take().unwrap(),
    );
    let writes = async move {
        for number in 0..pieces {
            stdin.write_all(&piece(number)).await.unwrap();
        }
        stdin.shutdown().await.unwrap();
    };
    let reads = async {
        let mut buffer = vec![0; PIECE];
        for number in 0..pieces {
            stdout.read_exact(&mut buffer).await.unwrap();
            assert!(buffer == piece(number), "piece {number} is another");
        }
        assert_eq!(stdout.read(&mut buffer).await.unwrap(), 0);
    };
    tokio::join!(writes, reads);
    assert!(ended(&process.control).await.success());
    let grown = peak_bytes() - before;
    assert!(grown < MEMORY_BYTES, "{grown} bytes more were held");
}

fn piece(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PIECE / 8)
}

/// The most memory that this process has held.
pub(super) fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

/// A process whose output is not taken waits, and goes on when it is.
async fn nobody_reads(place: &Place) {
    let marker = place.path("all-written");
    let line = format!(
        "dd if=/dev/zero bs=65536 count=256 2>/dev/null; : >'{}'",
        marker.display()
    );
    let mut process = place.host.spawn(Command::shell(&line)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        !place.files.exists(&marker).await,
        "16 MiB lie between the process and here"
    );
    let mut taken = Vec::new();
    let stdout = process.stdout.as_mut().unwrap();
    soon("the rest", stdout.read_to_end(&mut taken))
        .await
        .unwrap();
    assert_eq!(taken.len(), 256 * 65536);
    ended(&process.control).await;
    assert!(place.files.exists(&marker).await);
}

/// A writer hears that nobody listens any more.
async fn closed_by_the_reader(maker: &impl Maker, place: &Place) {
    let mut process = place.host.spawn(Command::shell("exec yes")).await.unwrap();
    let mut some = [0; 100];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut some)
        .await
        .unwrap();
    drop(process.stdout.take());
    assert_signal(maker, ended(&process.control).await, 13);
}

async fn both_outputs_at_once(place: &Place) {
    let line = "for n in $(seq 2000); do echo out $n; echo error $n >&2; done";
    let ran = super::run(&*place.host, Command::shell(line)).await;
    for (stream, word) in [(&ran.stdout, "out"), (&ran.stderr, "error")] {
        let text = std::str::from_utf8(stream).unwrap();
        assert_eq!(text.lines().count(), 2000);
        assert!(text.ends_with(&format!("{word} 2000\n")));
    }
    // An output is not lost because the process ended first.
    assert_eq!(
        shell(&*place.host, "seq 1 20000 | tail -n 1").await,
        "20000\n"
    );
}
