//! Logs (R14, R15; cases 9, 26, 48): contiguous, bounded, whole after any death.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bulkhead_model::{Fence, RunId, Stream};
use bulkhead_store::{
    PhaseKey,
    logs::{
        Body, Entry, GapReason, LocalLogs, LogEnd, LogError, LogSink, LogStore, MAX_BODY, Marker,
        NewEntry, Page, Rejected, SinkConfig, Tail,
    },
    mask::Masker,
};
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::watch;
use uuid::Uuid;

use crate::support::{Fixture, NOW, TTL, phase};

fn key() -> PhaseKey {
    PhaseKey {
        run: RunId::from_uuid(Uuid::now_v7()),
        phase: phase("plan"),
        attempt: 1,
    }
}

fn output(text: impl AsRef<[u8]>) -> NewEntry {
    NewEntry {
        at_ms: NOW,
        stream: Stream::Stdout,
        body: Body::Output(bytes::Bytes::copy_from_slice(text.as_ref())),
    }
}

async fn everything(logs: &dyn LogStore, key: &PhaseKey) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let from = entries.last().map_or(1, |entry: &Entry| entry.seq + 1);
        let Page { entries: page, .. } = logs.read(key, from, 1 << 20).await.unwrap();
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    assert!(
        entries
            .iter()
            .map(|entry| entry.seq)
            .eq(1..=entries.len() as u64),
        "a gap"
    );
    entries
}

fn text_of(entries: &[Entry]) -> String {
    let bodies = entries.iter().filter_map(|entry| match &entry.body {
        Body::Output(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Body::Marker(_) => None,
    });
    bodies.collect()
}

fn markers(entries: &[Entry]) -> Vec<Marker> {
    let markers = entries.iter().filter_map(|entry| match &entry.body {
        Body::Marker(marker) => Some(marker.clone()),
        Body::Output(_) => None,
    });
    markers.collect()
}

fn local(dir: &Path) -> LocalLogs {
    LocalLogs::new(dir.to_owned())
}

#[tokio::test]
async fn case_9_a_reader_goes_on_from_any_sequence_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, key) = (local(dir.path()), key());
    // Raw bytes of any kind, over many index entries.
    let line = |n: u32| {
        [
            format!("line {n} ").as_bytes(),
            &[0, 255, b'\n'],
            &vec![b'x'; 3000],
        ]
        .concat()
    };
    for n in 0..300 {
        let batch = vec![
            output(line(3 * n)),
            output(line(3 * n + 1)),
            output(line(3 * n + 2)),
        ];
        assert_eq!(
            logs.append(&key, batch).await.unwrap(),
            u64::from(3 * n + 3)
        );
    }
    for logs in [logs, local(dir.path())] {
        for from in [1, 2, 450, 899, 900] {
            let page = logs.read(&key, from, 10_000).await.unwrap();
            assert_eq!(page.entries[0].seq, from);
            assert_eq!(
                page.entries[0].body,
                output(line(u32::try_from(from).unwrap() - 1)).body
            );
            assert!(page.entries.len() <= 4 && !page.complete);
            assert_eq!(page.next_seq, from + page.entries.len() as u64);
        }
        assert_eq!(everything(&logs, &key).await.len(), 900);
        assert!(logs.read(&key, 901, 100).await.unwrap().entries.is_empty());
    }
    let index = std::fs::metadata(local(dir.path()).path(&key).with_extension("idx")).unwrap();
    assert!(index.len() >= 16 * 30, "the index is used: {}", index.len());
    let mode = index.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn r14_a_torn_end_is_cut_and_everything_before_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, key) = (local(dir.path()), key());
    logs.append(&key, vec![output("one"), output("two")])
        .await
        .unwrap();
    let whole = std::fs::read(logs.path(&key)).unwrap();
    logs.append(&key, vec![output("three")]).await.unwrap();
    let longer = std::fs::read(logs.path(&key)).unwrap();
    for cut in whole.len()..longer.len() {
        std::fs::write(logs.path(&key), &longer[..cut]).unwrap();
        let again = local(dir.path());
        assert_eq!(
            text_of(&everything(&again, &key).await),
            "onetwo",
            "cut at {cut}"
        );
        again.append(&key, vec![output("3!")]).await.unwrap();
        assert_eq!(
            text_of(&everything(&again, &key).await),
            "onetwo3!",
            "cut at {cut}"
        );
    }
    // A bit that flipped ends the log there, and is never shown.
    for bit in whole.len() * 8..longer.len() * 8 {
        let mut flipped = longer.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(logs.path(&key), flipped).unwrap();
        assert_eq!(
            text_of(&everything(&local(dir.path()), &key).await),
            "onetwo",
            "bit {bit}"
        );
    }
}

#[tokio::test]
async fn r14_an_index_that_lies_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, key) = (local(dir.path()), key());
    for n in 0..10 {
        logs.append(&key, vec![output(vec![b'a' + n; MAX_BODY])])
            .await
            .unwrap();
    }
    let index = logs.path(&key).with_extension("idx");
    let good = std::fs::read(&index).unwrap();
    let lies: [Vec<u8>; 4] = [
        vec![0xff; good.len()],
        good[..good.len() - 5].to_vec(),
        [&good[..], &[7; 32]].concat(),
        Vec::new(),
    ];
    for lie in lies {
        std::fs::write(&index, lie).unwrap();
        let again = local(dir.path());
        assert_eq!(everything(&again, &key).await.len(), 10);
        assert_eq!(again.read(&key, 7, 1).await.unwrap().entries[0].seq, 7);
    }
    let again = local(dir.path());
    assert_eq!(again.append(&key, vec![output("end")]).await.unwrap(), 11);
}

#[tokio::test]
async fn r14_a_file_of_another_kind_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, key) = (local(dir.path()), key());
    std::fs::create_dir(logs.path(&key).parent().unwrap()).unwrap();
    std::fs::write(logs.path(&key), b"BHLOG\0\0\x02 of a later version").unwrap();
    assert!(logs.append(&key, vec![output("x")]).await.is_err());
    assert_eq!(
        std::fs::read(logs.path(&key)).unwrap(),
        b"BHLOG\0\0\x02 of a later version"
    );
}

#[tokio::test]
async fn r15_followers_see_each_entry_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, key) = (local(dir.path()), key());
    assert!(matches!(
        logs.follow(&key).await,
        Err(LogError::NotFound { .. })
    ));
    logs.append(&key, Vec::new()).await.unwrap();
    let mut tail = logs.follow(&key).await.unwrap();
    assert_eq!(
        *tail.borrow_and_update(),
        Tail {
            next_seq: 1,
            sealed: false
        }
    );
    let writer = tokio::task::JoinSet::from_iter([{
        let (logs, key) = (logs.clone(), key.clone());
        async move {
            for n in 0..50 {
                logs.append(&key, vec![output(format!("{n},"))])
                    .await
                    .unwrap();
            }
            logs.recover(&key, NOW).await.unwrap();
        }
    }]);
    let (mut seen, mut next) = (Vec::new(), 1);
    let read = async {
        loop {
            let page = logs.read(&key, next, 100).await.unwrap();
            next = page.next_seq;
            seen.extend(page.entries);
            if page.complete {
                break;
            }
            if next >= tail.borrow_and_update().next_seq && tail.changed().await.is_err() {
                continue;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read)
        .await
        .unwrap();
    writer.join_all().await;
    let expected: String = (0..50).map(|n| format!("{n},")).collect();
    assert_eq!(text_of(&seen), expected);
    assert_eq!(
        markers(&seen),
        [Marker::End {
            how: LogEnd::Recovered
        }]
    );
    // Later comers find the end in the file; nothing can be added; a second recovery adds nothing.
    assert!(logs.follow(&key).await.unwrap().borrow().sealed);
    assert!(logs.append(&key, vec![output("late")]).await.is_err());
    let tail = local(dir.path()).recover(&key, NOW).await.unwrap();
    assert_eq!(
        tail,
        Tail {
            next_seq: 52,
            sealed: true
        }
    );
    assert!(logs.remove(&key).await.unwrap() > 0);
    assert_eq!(logs.list().await.unwrap(), []);
}

/// Runs as a process of its own, started by the test below: appends and says what was acknowledged.
#[tokio::test]
#[ignore = "started by r14_kill_9_in_the_middle_of_appending_loses_nothing_acknowledged"]
async fn child_appends() {
    let dir = std::env::var_os("BULKHEAD_TEST_LOGS").unwrap();
    let key = child_key();
    let logs = local(Path::new(&dir));
    let mut acknowledged = std::io::stdout().lock();
    for n in 1_u64.. {
        let size = usize::try_from(n * 7919 % 50_000).unwrap();
        let seq = logs
            .append(&key, vec![output(numbered(n, size))])
            .await
            .unwrap();
        assert_eq!(seq, n);
        writeln!(acknowledged, "ack {seq}").unwrap();
        acknowledged.flush().unwrap();
    }
}

fn child_key() -> PhaseKey {
    PhaseKey {
        run: RunId::from_uuid(Uuid::from_u128(7)),
        phase: phase("plan"),
        attempt: 1,
    }
}

fn numbered(n: u64, size: usize) -> Vec<u8> {
    let mut bytes = format!("{n}:").into_bytes();
    bytes.resize(bytes.len() + size, b'.');
    bytes
}

#[tokio::test]
async fn r14_kill_9_in_the_middle_of_appending_loses_nothing_acknowledged() {
    for kill_after in [1, 40, 173] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "logs::child_appends", "--ignored", "--nocapture"])
            .env("BULKHEAD_TEST_LOGS", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut last = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(seq) = line.unwrap().strip_prefix("ack ") {
                last = seq.parse().unwrap();
            }
            if last == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let logs = local(dir.path());
        let entries = everything(&logs, &child_key()).await;
        assert!(entries.len() as u64 >= last, "{} of {last}", entries.len());
        for entry in &entries {
            let size = usize::try_from(entry.seq * 7919 % 50_000).unwrap();
            assert_eq!(entry.body, output(numbered(entry.seq, size)).body);
        }
        let next = logs.append(&child_key(), vec![output("on")]).await.unwrap();
        assert_eq!(next, entries.len() as u64 + 1);
    }
}

/// A store that fails while it is told to, also after having written half.
#[derive(Debug)]
struct Faulty {
    logs: LocalLogs,
    failing: AtomicBool,
    /// Whether each append takes its time.
    slow: AtomicBool,
    full: bool,
}

impl LogStore for Faulty {
    fn append<'a>(
        &'a self,
        key: &'a PhaseKey,
        entries: Vec<NewEntry>,
    ) -> BoxFuture<'a, Result<u64, Rejected>> {
        let slow = self.slow.load(Ordering::SeqCst);
        if !self.failing.load(Ordering::SeqCst) {
            return Box::pin(async move {
                if slow {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                self.logs.append(key, entries).await
            });
        }
        let kind = match self.full {
            true => std::io::ErrorKind::StorageFull,
            false => std::io::ErrorKind::Other,
        };
        let (key, source) = (key.clone(), std::io::Error::from(kind));
        let error = match self.full {
            true => LogError::DiskFull { key, source },
            false => LogError::File {
                doing: "append to",
                key,
                source,
            },
        };
        Box::pin(async move {
            if slow {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            Err(Rejected { entries, error })
        })
    }

    fn read<'a>(
        &'a self,
        key: &'a PhaseKey,
        from: u64,
        max: usize,
    ) -> BoxFuture<'a, Result<Page, LogError>> {
        self.logs.read(key, from, max)
    }

    fn follow<'a>(
        &'a self,
        key: &'a PhaseKey,
    ) -> BoxFuture<'a, Result<watch::Receiver<Tail>, LogError>> {
        self.logs.follow(key)
    }

    fn recover<'a>(
        &'a self,
        key: &'a PhaseKey,
        now_ms: i64,
    ) -> BoxFuture<'a, Result<Tail, LogError>> {
        self.logs.recover(key, now_ms)
    }

    fn remove<'a>(&'a self, key: &'a PhaseKey) -> BoxFuture<'a, Result<u64, LogError>> {
        self.logs.remove(key)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<(PhaseKey, u64)>, std::io::Error>> {
        self.logs.list()
    }
}

struct Sunk {
    fixture: Fixture,
    logs: Arc<Faulty>,
    key: PhaseKey,
    sink: LogSink,
}

fn no_secrets() -> Masker {
    Masker::new([]).unwrap()
}

async fn sunk(config: SinkConfig, masker: Masker, full: bool) -> Sunk {
    let fixture = Fixture::new().await;
    let (_, held, _) = fixture.working().await;
    let logs = Arc::new(Faulty {
        logs: LocalLogs::new(fixture.store.dir().logs()),
        failing: AtomicBool::new(false),
        slow: AtomicBool::new(false),
        full,
    });
    let sink = fixture
        .store
        .open_log(
            Arc::clone(&logs) as Arc<dyn LogStore>,
            &held,
            &masker,
            config,
            NOW,
        )
        .await
        .unwrap();
    Sunk {
        fixture,
        logs,
        key: held.key,
        sink,
    }
}

#[tokio::test]
async fn case_26_after_ten_seconds_of_errors_every_line_is_there_once() {
    let mut sunk = sunk(SinkConfig::default(), no_secrets(), false).await;
    let mut expected = String::new();
    // A line every 10 ms for 20 s; the store fails in the middle 10 s.
    for n in 0..2000_i64 {
        sunk.logs
            .failing
            .store((500..1500).contains(&n), Ordering::SeqCst);
        let line = format!("line {n}\n");
        sunk.sink
            .write(Stream::Stdout, line.as_bytes(), NOW + 10 * n)
            .await
            .unwrap();
        expected.push_str(&line);
    }
    assert!(!sunk.sink.is_failing());
    let last = sunk.sink.finish(NOW + 20_000).await.unwrap();
    let entries = everything(&*sunk.logs, &sunk.key).await;
    assert_eq!(entries.last().unwrap().seq, last);
    assert_eq!(text_of(&entries), expected);
    assert_eq!(
        markers(&entries),
        [Marker::End {
            how: LogEnd::Closed
        }]
    );
}

/// R14: whoever waits for a writer may stop waiting at any moment, as the control plane does when a phase ends. Every
/// line is there, once and in order.
#[tokio::test]
async fn r14_calls_that_are_dropped_halfway_lose_and_repeat_nothing() {
    let mut sunk = sunk(SinkConfig::default(), no_secrets(), false).await;
    sunk.logs.slow.store(true, Ordering::SeqCst);
    let mut expected = String::new();
    let short = |n: i64| std::time::Duration::from_millis(u64::try_from(n % 7 * 5).unwrap());
    for n in 0..60_i64 {
        sunk.logs.failing.store(n % 4 == 3, Ordering::SeqCst);
        let (line, now) = (format!("line {n}\n"), NOW + 300 * n);
        let writing = sunk.sink.write(Stream::Stdout, line.as_bytes(), now);
        drop(tokio::time::timeout(short(n), writing).await);
        drop(tokio::time::timeout(short(n + 3), sunk.sink.tick(now + 250)).await);
        expected.push_str(&line);
    }
    sunk.logs.failing.store(false, Ordering::SeqCst);
    let finishing = sunk.sink.finish(NOW + 19_000);
    drop(tokio::time::timeout(std::time::Duration::from_millis(5), finishing).await);
    let last = sunk.sink.finish(NOW + 19_000).await.unwrap();
    assert_eq!(sunk.sink.finish(NOW + 19_001).await.unwrap(), last);
    let entries = everything(&*sunk.logs, &sunk.key).await;
    assert_eq!(text_of(&entries), expected);
    assert_eq!(entries.last().unwrap().seq, last);
    let end = Marker::End {
        how: LogEnd::Closed,
    };
    assert_eq!(markers(&entries), [end]);
}

#[tokio::test]
async fn case_26_what_the_bounded_buffer_cannot_hold_is_counted_at_its_place() {
    let config = SinkConfig {
        buffer_bytes: 10_000,
        ..SinkConfig::default()
    };
    let mut sunk = sunk(config, no_secrets(), false).await;
    let line = |n: i64| format!("{n:099}\n");
    for n in 0..1000 {
        sunk.logs
            .failing
            .store((100..900).contains(&n), Ordering::SeqCst);
        sunk.sink
            .write(Stream::Stderr, line(n).as_bytes(), NOW + 10 * n)
            .await
            .unwrap();
    }
    sunk.sink.finish(NOW + 10_000).await.unwrap();
    let entries = everything(&*sunk.logs, &sunk.key).await;
    let text = text_of(&entries);
    let [
        Marker::Gap {
            why: GapReason::Store,
            bytes,
            lines,
        },
        Marker::End { .. },
    ] = markers(&entries)[..]
    else {
        panic!("{:?}", markers(&entries));
    };
    assert_eq!(bytes, lines * 100);
    assert_eq!(
        text.lines().count() as u64 + lines,
        1000,
        "each line is there or counted"
    );
    let at = entries
        .iter()
        .position(|entry| matches!(entry.body, Body::Marker(_)))
        .unwrap();
    let before = text_of(&entries[..at]).lines().count() as u64;
    assert_eq!(
        text_of(&entries[at..]).lines().next().unwrap(),
        line((before + lines) as i64).trim_end()
    );
}

#[tokio::test]
async fn case_48_a_full_disk_is_said_in_the_log_and_does_not_hold_up_the_phase() {
    let config = SinkConfig {
        buffer_bytes: 0,
        ..SinkConfig::default()
    };
    let mut sunk = sunk(config, no_secrets(), true).await;
    sunk.sink
        .write(Stream::Stdout, b"before\n", NOW)
        .await
        .unwrap();
    sunk.logs.failing.store(true, Ordering::SeqCst);
    for n in 0..10 {
        sunk.sink
            .write(Stream::Stdout, b"lost\n", NOW + n)
            .await
            .unwrap();
    }
    assert!(matches!(
        sunk.sink.finish(NOW + 20).await,
        Err(LogError::DiskFull { .. })
    ));
    sunk.logs.failing.store(false, Ordering::SeqCst);
    sunk.sink.finish(NOW + 30).await.unwrap();
    let entries = everything(&*sunk.logs, &sunk.key).await;
    // The first line that met the full disk was tried, so it waited; the others found no room.
    assert_eq!(text_of(&entries), "before\nlost\n");
    let gap = Marker::Gap {
        why: GapReason::DiskFull,
        bytes: 45,
        lines: 9,
    };
    assert_eq!(
        markers(&entries),
        [
            gap,
            Marker::End {
                how: LogEnd::Closed
            }
        ]
    );
    assert_eq!(sunk.fixture.store.unsealed_logs().await.unwrap(), []);
}

/// Runs on a file system of 2 MiB of its own, started by the test below.
#[tokio::test]
#[ignore = "started by case_48_on_a_file_system_that_is_really_full"]
async fn child_fills_the_disk() {
    let dir = std::env::var_os("BULKHEAD_TEST_LOGS").unwrap();
    let (logs, key) = (local(Path::new(&dir)), key());
    logs.append(&key, vec![output("first\n")]).await.unwrap();
    let filler = Path::new(&dir).join("filler");
    let mut full = std::fs::File::create(&filler).unwrap();
    while full.write_all(&[7; 4096]).is_ok() {}
    let mut refused = None;
    for n in 0..2000 {
        match logs
            .append(&key, vec![output(format!("{n:01000}\n"))])
            .await
        {
            Ok(_) => {}
            Err(rejected) => {
                refused = Some((n, rejected));
                break;
            }
        }
    }
    let (n, rejected) = refused.unwrap();
    assert!(
        matches!(rejected.error, LogError::DiskFull { .. }),
        "{:?}",
        rejected.error
    );
    let before = everything(&logs, &key).await;
    assert_eq!(before.len(), 1 + n, "nothing of the refused entry is there");
    drop(full);
    std::fs::remove_file(filler).unwrap();
    logs.append(&key, rejected.entries).await.unwrap();
    assert_eq!(everything(&local(Path::new(&dir)), &key).await.len(), 2 + n);
    writeln!(std::io::stdout(), "case 48 done").unwrap();
}

#[test]
fn case_48_on_a_file_system_that_is_really_full() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m none \"$BULKHEAD_TEST_LOGS\" && exec \"$0\" --exact \
                  logs::child_fills_the_disk --ignored --nocapture";
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("BULKHEAD_TEST_LOGS", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(
        child.status.success() && said.contains("case 48 done"),
        "{said}{errors}"
    );
}

#[tokio::test]
async fn r15_what_is_over_the_limit_is_drained_and_counted() {
    let config = SinkConfig {
        keep_bytes: 1000,
        ..SinkConfig::default()
    };
    let mut sunk = sunk(config, no_secrets(), false).await;
    for n in 0..100 {
        sunk.sink
            .write(Stream::Stdout, format!("{n:029}\n").as_bytes(), NOW)
            .await
            .unwrap();
    }
    sunk.sink
        .write(Stream::System, b"pushed\n", NOW)
        .await
        .unwrap();
    sunk.sink.finish(NOW).await.unwrap();
    let entries = everything(&*sunk.logs, &sunk.key).await;
    let text = text_of(&entries);
    assert_eq!(text.len(), 1000 + "pushed\n".len());
    assert!(
        text.ends_with("pushed\n"),
        "Bulkhead's own words are still kept"
    );
    let expected = [
        Marker::Limit { max_bytes: 1000 },
        Marker::Truncated {
            bytes: 2000,
            lines: 67,
        },
        Marker::End {
            how: LogEnd::Closed,
        },
    ];
    assert_eq!(markers(&entries), expected);
}

#[tokio::test]
async fn case_29_a_secret_in_two_writes_is_not_in_the_file() {
    let secret = SecretString::from("ghp_16C7e42F292c6912E7710c83");
    let masker = Masker::new([("TOKEN", &secret)]).unwrap();
    let mut sunk = sunk(SinkConfig::default(), masker, false).await;
    for (stream, bytes) in [
        (Stream::Stdout, "a ghp_16C7e42F"),
        (Stream::Stderr, "between\n"),
        (Stream::Stdout, "292c6912E7710c83 b\n"),
        (Stream::Stderr, "ends with ghp_16C7e42F292c6912E7710c83"),
    ] {
        sunk.sink
            .write(stream, bytes.as_bytes(), NOW)
            .await
            .unwrap();
    }
    sunk.sink.finish(NOW).await.unwrap();
    let raw = std::fs::read(sunk.logs.logs.path(&sunk.key)).unwrap();
    assert!(!raw.windows(8).any(|window| window == b"16C7e42F"));
    let text = text_of(&everything(&*sunk.logs, &sunk.key).await);
    assert!(
        text.contains("[masked:TOKEN] b\n") && text.ends_with("ends with [masked:TOKEN]"),
        "{text}"
    );
}

#[tokio::test]
async fn d2_a_stale_writer_of_a_log_is_refused() {
    let mut sunk = sunk(SinkConfig::default(), no_secrets(), false).await;
    sunk.sink
        .write(Stream::Stdout, b"mine\n", NOW)
        .await
        .unwrap();
    let resource = bulkhead_store::leases::Resource::run(sunk.key.run);
    sunk.fixture
        .store
        .claim_lease(&resource, "other", Fence(99), TTL, NOW)
        .await
        .unwrap();
    let refused = sunk.sink.write(Stream::Stdout, b"late\n", NOW).await;
    assert!(matches!(refused, Err(LogError::Stale(_))), "{refused:?}");
    assert_eq!(text_of(&everything(&*sunk.logs, &sunk.key).await), "mine\n");
}

#[tokio::test]
async fn r14_after_a_restart_open_logs_are_found_and_ended() {
    let mut sunk = sunk(SinkConfig::default(), no_secrets(), false).await;
    sunk.sink
        .write(Stream::Stdout, b"kept\n", NOW)
        .await
        .unwrap();
    let (key, fixture) = (sunk.key.clone(), sunk.fixture);
    drop(sunk.sink);
    let fixture = fixture.reopen().await;
    assert_eq!(
        fixture.store.unsealed_logs().await.unwrap(),
        std::slice::from_ref(&key)
    );
    let logs = LocalLogs::new(fixture.store.dir().logs());
    logs.recover(&key, NOW).await.unwrap();
    fixture.store.note_log_end(&key, NOW).await.unwrap();
    assert!(fixture.store.unsealed_logs().await.unwrap().is_empty());
    let entries = everything(&logs, &key).await;
    assert_eq!(text_of(&entries), "kept\n");
    assert_eq!(
        markers(&entries),
        [Marker::End {
            how: LogEnd::Recovered
        }]
    );
}
