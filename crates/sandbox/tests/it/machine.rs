//! What all of a machine shares and no namespace divides: one sandbox takes its share, and no more.

use bulkhead_sandbox::{Cause, ExitStatus, ProcessSpec, Stdio, TerminalSize, Workspace};

use tokio::io::AsyncReadExt as _;

use crate::support::{PATIENCE, groups_of, id, one, place, plan, say, shell};

fn perl(script: &str) -> ProcessSpec {
    ProcessSpec::new(["perl", "-e", script])
}

/// R4: a sandbox that opens terminals and watches without end leaves the others theirs: the kernel has one count of
/// terminals for the machine, and one of watches for the user who made the namespaces.
#[tokio::test]
async fn r4_terminals_and_watches_are_shares() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let ptys = r#"my @all; while (@all < 2000) { sysopen(my $f, "/dev/ptmx", 2) or last; push @all, $f } print scalar @all;"#;
    let said = say(&sandbox, perl(ptys)).await;
    let count: u32 = said.stdout.parse().unwrap();
    assert!((16..=256).contains(&count), "{said:?}");
    let watches = format!(
        "my $n = 0; while ($n < 1000) {{ last if syscall({}, 0) < 0; $n++ }} print $n;",
        libc::SYS_inotify_init1
    );
    let said = say(&sandbox, perl(&watches)).await;
    let count: u32 = said.stdout.parse().unwrap();
    assert!((4..=32).contains(&count), "{said:?}");
    sandbox.end(Cause::Cancelled).await;
}

/// H7: on a machine that pipes core dumps to a program, that program would run outside, as root, on the memory of whatever
/// crashed. Only a limit of exactly 1 prevents it, so nothing inside may set another one.
#[tokio::test]
async fn h7_nothing_dumps_core() {
    let place = place().await;
    // Where the machine has such a program, the crash would show there.
    let script = "ulimit -c 0 && echo seems set; sh -c 'kill -SEGV $$' 2>/dev/null; grep -E 'core file|pending signals|msgqueue' /proc/self/limits";
    let (said, _) = one(&place.engine, plan(), script).await;
    assert_eq!(said.status, ExitStatus::Code(0), "{said:?}");
    let number = |line: &str, field: usize| -> u64 {
        let rest = said.stdout.lines().find_map(|one| one.strip_prefix(line));
        let fields: Vec<&str> = rest.unwrap().split_whitespace().collect();
        fields[field].parse().unwrap()
    };
    assert!(said.stdout.starts_with("seems set"));
    assert_eq!(
        [
            number("Max core file size", 0),
            number("Max core file size", 1)
        ],
        [1, 1]
    );
    // R4: counted for the user who made the namespaces, too.
    assert!(number("Max pending signals", 1) <= 1024);
    assert!(number("Max msgqueue size", 1) <= 256 << 10);
}

/// R4: large pages that the machine's owner has set aside are counted by no memory limit, so there are none inside.
#[tokio::test]
async fn r4_no_large_pages() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let calls = [
        format!("syscall({}, 0, 2097152, 3, 0x40022, -1, 0)", libc::SYS_mmap),
        format!(
            "my $name = 'x'; syscall({}, $name, 4)",
            libc::SYS_memfd_create
        ),
        format!("syscall({}, 0, 2097152, 04600)", libc::SYS_shmget),
    ];
    for call in calls {
        let said = say(&sandbox, perl(&format!("{call}; print $! + 0;"))).await;
        assert_eq!(said.stdout, "1", "{call}: {said:?}");
    }
}

/// R4: what lies in sockets has a limit of its own where memory's does not count it (cgroup v1).
#[tokio::test]
async fn r4_sockets_memory_is_limited() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    for group in groups_of(id) {
        if let Ok(limit) = std::fs::read_to_string(group.join("memory.kmem.tcp.limit_in_bytes")) {
            assert!(limit.trim().parse::<u64>().unwrap() <= 64 << 20, "{limit}");
        }
    }
    sandbox.end(Cause::Cancelled).await;
}

/// R4: files without content are counted too: a shared directory's file system has only so many.
#[tokio::test]
async fn r4_empty_files_in_a_shared_directory_count() {
    let place = place().await;
    let shared = place.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut plan = plan();
    plan.workspace = Workspace::Directory(shared);
    // So much that what others write to the same file system meanwhile is not taken for the sandbox's.
    plan.limits.disk_bytes = 700 << 20;
    let sandbox = place.engine.create(plan).await.unwrap();
    let script = r#"for my $i (1 .. 60000) { open(my $f, ">", "f$i") or die $! } sleep 1000"#;
    let _process = sandbox.spawn(perl(script)).await.unwrap();
    let outcome = tokio::time::timeout(PATIENCE, sandbox.ended())
        .await
        .unwrap();
    assert_eq!(
        outcome.reason,
        bulkhead_sandbox::EndReason::DiskFull,
        "{outcome:?}"
    );
    assert!(
        outcome
            .evidence
            .iter()
            .any(|one| one.detail.contains("files")),
        "{outcome:?}"
    );
}

/// R4: PID 1 ends with its launcher also after it has made a terminal, for which it changes its user for a moment.
/// The parent does not help here: its one thread sleeps.
#[tokio::test]
async fn r4_the_launcher_s_death_ends_it_after_a_terminal_too() {
    let place = place().await;
    let mut plan = plan();
    plan.id = id();
    let sandbox = place.engine.create(plan).await.unwrap();
    let spec = shell("exec sleep 31557").stdio(Stdio::Terminal(TerminalSize::default()));
    let process = sandbox.spawn(spec).await.unwrap();
    let first = crate::life::members(sandbox.id());
    let launcher = crate::life::launcher_of(&first);
    crate::life::kill(launcher);
    let end = std::time::Instant::now() + PATIENCE;
    while first
        .iter()
        .any(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists())
    {
        assert!(
            std::time::Instant::now() < end,
            "PID 1 outlives its launcher"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(process);
}

/// `echo … > /dev/stderr` and reading `/dev/stdin` work as outside, and no process can read what it has said.
#[tokio::test]
async fn streams_can_be_opened_by_name() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let said = say(
        &sandbox,
        shell("echo out > /dev/stdout; echo err > /dev/stderr; head -c 1 < /dev/stdout || true"),
    )
    .await;
    assert_eq!(said.stdout, "out\n", "{said:?}");
    assert!(
        said.stderr.starts_with("err\n") && said.stderr.contains("denied"),
        "{said:?}"
    );
}

/// R4, case 18: a process that stops every other one again and again cannot stop PID 1 through the processes that it starts,
/// and nothing survives a clearing.
#[tokio::test]
async fn r4_stopping_others_does_not_stop_the_init() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let script = "$| = 1; print 1; while (1) { kill 'STOP', -1 }";
    let mut stopper = sandbox.spawn(perl(script)).await.unwrap();
    let mut one = [0];
    let begun = stopper.stdout.as_mut().unwrap().read_exact(&mut one);
    tokio::time::timeout(PATIENCE, begun)
        .await
        .unwrap()
        .unwrap();
    for attempt in 0..20 {
        let started = tokio::time::timeout(PATIENCE, sandbox.spawn(shell("true")));
        assert!(started.await.is_ok(), "start {attempt} is stuck");
    }
    sandbox.clear().await.unwrap();
    let said = say(&sandbox, shell("echo alive; ls -d /proc/[0-9]* | wc -l")).await;
    assert!(said.stdout.starts_with("alive"), "{said:?}");
}
