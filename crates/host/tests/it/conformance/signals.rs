//! Signals to a process and to its group, and how a process ended.

use bulkhead_host::{Command, ExitStatus, Signal, Target};

use super::{Maker, Place, assert_signal, ended, read_until, run, shell};

const FATAL: [(Signal, i32); 7] = [
    (Signal::Hangup, 1),
    (Signal::Interrupt, 2),
    (Signal::Quit, 3),
    (Signal::Kill, 9),
    (Signal::User1, 10),
    (Signal::User2, 12),
    (Signal::Terminate, 15),
];

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    codes(&place).await;
    each_signal(maker, &place).await;
    handled(&place).await;
    only_the_process(&place).await;
    whole_group(maker, &place).await;
    stop_and_continue(&place).await;
    place.end().await;
}

async fn codes(place: &Place) {
    for code in [0, 1, 2, 100, 126, 127, 200, 255] {
        let ran = run(&*place.host, Command::shell(&format!("exit {code}"))).await;
        assert_eq!(ran.status, ExitStatus::Code(code));
    }
}

async fn each_signal(maker: &impl Maker, place: &Place) {
    for (signal, number) in FATAL {
        let command = Command::shell("ulimit -c 0; echo up; exec sleep 1000");
        let mut process = place.host.spawn(command).await.unwrap();
        read_until(process.stdout.as_mut().unwrap(), "up").await;
        process
            .control
            .signal(signal, Target::Process)
            .await
            .unwrap();
        assert_signal(maker, ended(&process.control).await, number);
        // To somebody who is gone it is no error.
        process
            .control
            .signal(signal, Target::Process)
            .await
            .unwrap();
        process.control.signal(signal, Target::Group).await.unwrap();
        assert_signal(maker, process.control.wait().await, number);
    }
}

async fn handled(place: &Place) {
    let line = "trap 'echo heard; exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let mut process = place.host.spawn(Command::shell(line)).await.unwrap();
    let stdout = process.stdout.as_mut().unwrap();
    read_until(stdout, "up").await;
    process
        .control
        .signal(Signal::Terminate, Target::Process)
        .await
        .unwrap();
    read_until(stdout, "heard").await;
    assert_eq!(ended(&process.control).await, ExitStatus::Code(9));
}

/// A child of the process lives on when only the process is meant.
async fn only_the_process(place: &Place) {
    let line = "sleep 1000 >/dev/null 2>&1 & echo child $!. ; wait";
    let mut process = place.host.spawn(Command::shell(line)).await.unwrap();
    let text = read_until(process.stdout.as_mut().unwrap(), ".").await;
    let child = text
        .split_once("child ")
        .unwrap()
        .1
        .split('.')
        .next()
        .unwrap()
        .to_owned();
    process
        .control
        .signal(Signal::Kill, Target::Process)
        .await
        .unwrap();
    ended(&process.control).await;
    shell(&*place.host, &format!("kill -0 {child} && kill -9 {child}")).await;
}

async fn whole_group(maker: &impl Maker, place: &Place) {
    let line = "sleep 1000 >/dev/null 2>&1 & echo child $!. ; wait";
    let mut process = place.host.spawn(Command::shell(line)).await.unwrap();
    let text = read_until(process.stdout.as_mut().unwrap(), ".").await;
    let child = text
        .split_once("child ")
        .unwrap()
        .1
        .split('.')
        .next()
        .unwrap()
        .to_owned();
    process
        .control
        .signal(Signal::Kill, Target::Group)
        .await
        .unwrap();
    assert_signal(maker, ended(&process.control).await, 9);
    // A dead child may wait for its burial for a moment.
    let gone = format!(
        "for n in $(seq 200); do \
           case $(ps -o stat= -p {child} 2>/dev/null || sed 's/.*) //' /proc/{child}/stat 2>/dev/null) in ''|Z*) exit 0;; esac; sleep 0.05; \
         done; exit 1"
    );
    shell(&*place.host, &gone).await;
}

async fn stop_and_continue(place: &Place) {
    let line = "echo up; while :; do echo tick; sleep 0.02; done";
    let mut process = place.host.spawn(Command::shell(line)).await.unwrap();
    let stdout = process.stdout.as_mut().unwrap();
    read_until(stdout, "tick").await;
    let control = &process.control;
    control.signal(Signal::Stop, Target::Group).await.unwrap();
    // What was written before comes; then nothing does.
    let mut buffer = [0; 4096];
    let silent = async {
        let wait = std::time::Duration::from_millis(500);
        while let Ok(read) =
            tokio::time::timeout(wait, tokio::io::AsyncReadExt::read(stdout, &mut buffer)).await
        {
            assert_ne!(read.unwrap(), 0);
        }
    };
    super::soon("silence", silent).await;
    control
        .signal(Signal::Continue, Target::Group)
        .await
        .unwrap();
    read_until(stdout, "tick").await;
    control.signal(Signal::Kill, Target::Group).await.unwrap();
    ended(control).await;
}
