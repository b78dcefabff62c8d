//! Starting processes: exactly these arguments, this environment, this directory, and nothing inherited.

use bulkhead_host::{Command, ExitStatus, HostError, Stdio, Stream};
use tokio::io::AsyncWriteExt as _;

use super::{Maker, Place, collect, piped, run, shell};

/// What quoting gets wrong.
const AWKWARD: [&str; 20] = [
    "", " ", "a b", "'", "\"", "\\", "$HOME", "`id`", "*", "\n", "a\nb", "-n", "--", "ü", ";",
    "| & < >", "\t", "!", "'\"'\"'", "{a,b}",
];

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    arguments(&place).await;
    environment(&place).await;
    directories(&place).await;
    refusals(&place).await;
    inputs_and_outputs(&place).await;
    many_at_once(&place).await;
    place.end().await;
}

async fn arguments(place: &Place) {
    let mut argv = vec![
        "/bin/sh",
        "-c",
        "for a in \"$@\"; do printf '%s\\0' \"$a\"; done",
        "name",
    ];
    argv.extend(AWKWARD);
    let ran = super::run(&*place.host, Command::new(argv)).await;
    let expected: String = AWKWARD.iter().flat_map(|text| [*text, "\0"]).collect();
    assert_eq!(ran.text(), expected);
    // Longer than a pipe or a packet.
    let long = "x".repeat(100_000);
    let ran = super::run(&*place.host, Command::new(["printf", "%s", &long])).await;
    assert_eq!(ran.text().len(), long.len());
}

async fn environment(place: &Place) {
    let mut command =
        Command::shell("printf '%s\\0' \"$A_1\" \"$a\" \"$EMPTY\" \"${UNSET-unset}\"; env");
    command = command
        .env("A_1", AWKWARD.concat())
        .env("a", "lower")
        .env("EMPTY", "");
    let ran = super::run(&*place.host, command).await;
    let (given, all) = ran.text().rsplit_once('\0').unwrap();
    assert_eq!(given, [&AWKWARD.concat(), "lower", "", "unset"].join("\0"));
    // What this test's own environment always has.
    for name in ["CARGO_MANIFEST_DIR=", "CARGO_PKG_NAME="] {
        assert!(!all.contains(name), "{name} was inherited: {all}");
    }
    for name in ["PATH=/", "HOME=/"] {
        assert!(
            all.lines().any(|line| line.starts_with(name)),
            "{name} is missing: {all}"
        );
    }
    // A value for what the host sets itself replaces it.
    let command = Command::shell("echo $HOME").env("HOME", "/elsewhere");
    let ran = super::run(&*place.host, command).await;
    assert_eq!(ran.text(), "/elsewhere\n");
}

async fn directories(place: &Place) {
    let dir = place.path("with space and 'quote'");
    place.files.mkdir(&dir, 0o755).await.unwrap();
    let real = place.files.realpath(&dir).await.unwrap();
    let command = Command::new(["pwd", "-P"]).cwd(dir.to_str().unwrap());
    let ran = super::run(&*place.host, command).await;
    assert_eq!(ran.text().trim_end(), real.to_str().unwrap());
}

async fn refusals(place: &Place) {
    let missing = place.host.spawn(Command::new(["no-such-program"])).await;
    assert!(
        matches!(&missing, Err(HostError::NotFound { program, .. }) if program == "no-such-program"),
        "{missing:?}"
    );
    let missing = place.host.spawn(Command::new(["/no/such/program"])).await;
    assert!(
        matches!(&missing, Err(HostError::NotFound { .. })),
        "{missing:?}"
    );
    let file = place.path("not-a-program");
    let options = bulkhead_host::WriteOptions::WRITE;
    place
        .files
        .write_file(&file, "text", options)
        .await
        .unwrap();
    let refused = place
        .host
        .spawn(Command::new([file.to_str().unwrap()]))
        .await;
    assert!(
        matches!(&refused, Err(HostError::Spawn { .. })),
        "{refused:?}"
    );
    let nowhere = Command::new(["true"]).cwd(place.path("nowhere").to_str().unwrap());
    let refused = place.host.spawn(nowhere).await;
    assert!(
        matches!(&refused, Err(HostError::Spawn { .. })),
        "{refused:?}"
    );
}

async fn inputs_and_outputs(place: &Place) {
    let mut process = place
        .host
        .spawn(piped("cat; echo error >&2; exit 7"))
        .await
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"in\0put\xff\n").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let ran = collect(process).await;
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        (&b"in\0put\xff\n"[..], &b"error\n"[..])
    );
    assert_eq!(ran.status, ExitStatus::Code(7));
    // An input that is nothing ends at once; an output that is nothing takes everything.
    let nothing = Stdio::Streams {
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Null,
    };
    let command = Command::shell("cat; echo lost >&2; echo done").stdio(nothing);
    let ran = super::run(&*place.host, command).await;
    assert_eq!((ran.text(), ran.stderr.len()), ("done\n", 0));
}

async fn many_at_once(place: &Place) {
    let each = (0..50).map(|n: u8| {
        let command = Command::shell(&format!("echo {n}; exit {n}"));
        run(&*place.host, command)
    });
    for (n, ran) in (0..).zip(futures::future::join_all(each).await) {
        assert_eq!(
            (ran.text(), ran.status),
            (&*format!("{n}\n"), ExitStatus::Code(n))
        );
    }
    assert_eq!(
        shell(&*place.host, "echo still there").await,
        "still there\n"
    );
}
