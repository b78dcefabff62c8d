//! The supervisor's program in every shell that stands in for `sh` somewhere, and on machines that lack what others have.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_host::{
    Command, DuplexStream, Endpoint, ExitStatus, Host, HostError, Layer, Listener, LocalConfig,
    LocalHost, Process, Provider, Signal, Stdio, Target,
    supervisor::{Level, Options, Supervisor, Way},
};
use tokio::io::AsyncReadExt as _;

use super::machine::{WORD, carrying, left_in, until};

const LIMIT: Duration = Duration::from_secs(40);

/// This machine, with other words before every command, another shell, and a record of all arguments.
#[derive(Debug)]
struct Altered {
    machine: LocalHost,
    before: Vec<String>,
    shell: String,
    seen: Mutex<Vec<Command>>,
}

impl Altered {
    fn new(dir: &Path, shell: &str, before: &[&str]) -> Arc<Self> {
        let config = LocalConfig::new(dir).env("TMPDIR", dir.display().to_string());
        Arc::new(Self {
            machine: LocalHost::new(config),
            before: before.iter().map(|word| (*word).to_owned()).collect(),
            shell: shell.to_owned(),
            seen: Mutex::default(),
        })
    }
}

#[async_trait]
impl Host for Altered {
    fn describe(&self) -> String {
        "altered".to_owned()
    }

    fn is_connected(&self) -> bool {
        self.machine.is_connected()
    }

    async fn spawn(&self, mut command: Command) -> Result<Process, HostError> {
        self.seen.lock().unwrap().push(command.clone());
        // The supervisor's shell only: the agent's own arguments are its own.
        for word in command
            .argv
            .iter_mut()
            .take(4)
            .filter(|word| *word == "/bin/sh")
        {
            word.clone_from(&self.shell);
        }
        command.argv.splice(0..0, self.before.iter().cloned());
        self.machine.spawn(command).await
    }

    fn files(&self) -> Arc<dyn Provider> {
        self.machine.files()
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        self.machine.connect(to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        self.machine.listen(at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        self.machine.isolation()
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.machine.teardown().await
    }
}

fn options(way: Way) -> Options {
    Options {
        ways: vec![way],
        ..Options::default()
    }
}

fn word() -> String {
    format!("{WORD}{}", uuid::Uuid::now_v7().simple())
}

/// A stubborn agent with a stubborn child in a session of its own; says when both are there.
fn stubborn(word: &str) -> Command {
    let line = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo up; while :; do sleep 1; done";
    Command::shell(line).env("CELL", word)
}

async fn line(process: &mut Process) -> String {
    let mut bytes = [0; 3];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut bytes)
        .await
        .unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Starts it, signals it, drops the supervisor as a runner that dies does, and finds nothing left.
async fn lose(host: Arc<Altered>, way: Way) -> Level {
    let word = word();
    // The host stays, or it would be what ends its processes.
    let supervisor = Supervisor::new(Arc::clone(&host) as _, options(way));
    let (mut process, level) = supervisor.start(stubborn(&word)).await.unwrap();
    assert_eq!(line(&mut process).await, "up\n");
    process
        .control
        .signal(Signal::Terminate, Target::Group)
        .await
        .unwrap();
    assert!(!carrying(&word).is_empty());
    drop(supervisor);
    let left = || carrying(&word).is_empty();
    until(&format!("{level} leaves nothing"), LIMIT, left).await;
    assert!(!process.control.wait().await.success());
    level
}

/// `dir/sh`, as which some shells behave as that one.
fn as_sh(dir: &Path, shell: &str) -> Option<String> {
    let found = ["/usr/bin", "/bin"].map(|bin| Path::new(bin).join(shell));
    let found = found.into_iter().find(|path| path.exists())?;
    let sh = dir.join(shell);
    fs::create_dir(&sh).unwrap();
    symlink(found, sh.join("sh")).unwrap();
    Some(sh.join("sh").display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_every_shell_that_is_there_supervises_by_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let shells = ["dash", "bash", "busybox", "mksh", "ksh93", "zsh"];
    let shells: Vec<_> = shells
        .iter()
        .filter_map(|shell| as_sh(dir.path(), shell))
        .collect();
    assert!(
        shells.len() >= 3,
        "dash, bash and busybox are needed: {shells:?}"
    );
    let losing = shells.iter().map(|shell| async move {
        for way in [Way::ControlGroup, Way::ProcessTree, Way::ProcessNamespace] {
            // With its own applets before the machine's programs, busybox knows none that passes everything on.
            if way == Way::ProcessNamespace && shell.contains("busybox") {
                continue;
            }
            let tmp = tempfile::tempdir().unwrap();
            lose(Altered::new(tmp.path(), shell, &[]), way).await;
            let nothing = || left_in(tmp.path()).is_empty();
            until(&format!("{shell} leaves no file"), LIMIT, nothing).await;
        }
    });
    futures::future::join_all(losing).await;
}

/// A root directory with nothing but busybox, and with `/proc` only where it is mounted.
fn bare(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    for name in ["bin", "tmp", "proc", "dev", "hidden/proc", "hidden/bin"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for busybox in ["bin/busybox", "hidden/bin/busybox"] {
        fs::copy("/usr/bin/busybox", root.join(busybox)).unwrap();
    }
    fs::write(root.join("dev/null"), "").unwrap();
    for applet in [
        "sh", "sleep", "mkdir", "mkfifo", "rm", "rmdir", "cat", "grep", "env", "id", "chroot",
        "kill",
    ] {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    root
}

/// In a mount namespace of its own, so that nothing of it is left.
fn into(root: &Path, mounts: &str) -> [String; 7] {
    let script = format!(
        "{mounts} exec chroot '{}' /bin/busybox env TMPDIR=/tmp PATH=/bin \"$@\"",
        root.display()
    );
    [
        "unshare",
        "--mount",
        "--",
        "/bin/bash",
        "-c",
        &script,
        "bash",
    ]
    .map(str::to_owned)
}

/// `root` is where it has its temporary directory, if not this machine's.
async fn lose_bare<S: AsRef<str>>(before: &[S], agent: &str, root: Option<&Path>) -> Level {
    let tmp = tempfile::tempdir().unwrap();
    let before: Vec<_> = before.iter().map(AsRef::as_ref).collect();
    let files = root.map_or_else(|| tmp.path().to_owned(), |root| root.join("tmp"));
    let word = word();
    // It stays until nothing is left, or it would be what ends its processes.
    let host = Altered::new(tmp.path(), "/bin/sh", &before);
    let supervisor = Supervisor::new(Arc::clone(&host) as _, Options::default());
    let command = Command::shell(agent).env("CELL", &word);
    let (mut process, level) = supervisor.start(command).await.unwrap();
    assert_eq!(line(&mut process).await, "up\n");
    drop(supervisor);
    process.control.wait().await;
    until("nothing is left", LIMIT, || carrying(&word).is_empty()).await;
    let nothing = || left_in(&files).is_empty();
    until("no file is left", LIMIT, nothing).await;
    host.teardown().await.unwrap();
    level
}

const PLAIN: &str =
    "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo up; while :; do sleep 1; done";

#[tokio::test(flavor = "multi_thread")]
async fn h14_a_machine_with_busybox_only_follows_the_process_tree() {
    let dir = tempfile::tempdir().unwrap();
    let root = bare(dir.path());
    let mounts = format!("mount -t proc proc '{}/proc' &&", root.display());
    symlink("busybox", root.join("bin/setsid")).unwrap();
    let agent = "trap '' TERM; (setsid sh -c '(trap \"\" TERM; while :; do sleep 1; done) &' &) ; echo up; while :; do sleep 1; done";
    let level = lose_bare(&into(&root, &mounts), agent, Some(&root)).await;
    assert_eq!(level, Level::MarkedTree);
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_a_machine_without_proc_and_ps_ends_the_process_group_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let root = bare(dir.path());
    let level = lose_bare(&into(&root, ""), PLAIN, Some(&root)).await;
    assert_eq!(level, Level::ProcessGroup);
}

/// As on systems that are not Linux: no `/proc`, but a `ps` that follows POSIX and shows no environments.
#[tokio::test(flavor = "multi_thread")]
async fn h14_a_machine_without_proc_follows_the_process_tree_by_ps() {
    let dir = tempfile::tempdir().unwrap();
    let root = bare(dir.path());
    let ps = root.join("bin/ps");
    let at = root.display();
    // Only what POSIX has, with its meaning.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         '-A -o pid= -o ppid= -o pgid=') chroot '{at}/hidden' /bin/busybox ps -o pid,ppid,pgid | {{ read -r title; cat; }} ;;\n\
         '-o '*) chroot '{at}/hidden' /bin/busybox ps -o pid,\"${{2%=}}\" |\n\
         while read -r pid value; do [ \"$pid\" = \"$4\" ] && echo \"$value\"; done ;;\n\
         *) exit 1 ;;\nesac\n"
    );
    fs::write(&ps, script).unwrap();
    fs::set_permissions(&ps, fs::Permissions::from_mode(0o755)).unwrap();
    let others: Vec<_> = fs::read_dir(root.join("bin"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    others
        .iter()
        .filter(|path| **path != ps)
        .for_each(|path| fs::remove_file(path).unwrap());
    let mounts = format!(
        "mount --bind /proc '{at}/hidden/proc' && mount -t tmpfs none /proc && export PATH='{at}/bin':\"$PATH\" && exec \"$@\""
    );
    let before = [
        "unshare",
        "--mount",
        "--",
        "/bin/bash",
        "-c",
        &mounts,
        "bash",
    ];
    let agent = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo up; while :; do sleep 1; done";
    let level = lose_bare(&before, agent, None).await;
    assert_eq!(level, Level::Tree);
}

/// What is in no argument cannot be seen by others there (H7).
#[tokio::test(flavor = "multi_thread")]
async fn h7_no_value_of_the_environment_and_no_command_for_the_loss_is_in_an_argument() {
    let dir = tempfile::tempdir().unwrap();
    let host = Altered::new(dir.path(), "/bin/sh", &[]);
    let done = dir.path().join("done");
    let options = Options {
        on_loss: Some(format!("TOKEN=canary-loss\n: >'{}'", done.display())),
        ..Options::default()
    };
    let supervisor = Supervisor::new(Arc::clone(&host) as _, options);
    let command = Command::shell("echo up; exec sleep 1000").env("KEY", "canary-env");
    let (mut process, _) = supervisor.start(command).await.unwrap();
    assert_eq!(line(&mut process).await, "up\n");
    for pid in carrying("canary") {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&arguments).contains("canary"),
            "{pid}"
        );
    }
    let seen: Vec<_> = host
        .seen
        .lock()
        .unwrap()
        .iter()
        .map(|command| (command.argv.clone(), command.env.clone()))
        .collect();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].1, BTreeMap::new());
    assert!(seen.iter().all(|(argv, _)| {
        argv.iter()
            .all(|word| !word.contains("canary") && word.len() < 100_000)
    }));
    drop(supervisor);
    until("the commands for the loss have run", LIMIT, || {
        done.exists()
    })
    .await;
    assert!(!process.control.wait().await.success());
}

/// For what no session of this connection has started, such as a container of the engine there.
#[tokio::test(flavor = "multi_thread")]
async fn h14_a_guard_runs_its_commands_when_the_runner_is_lost_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let host = Altered::new(dir.path(), "/bin/sh", &[]);
    let done = dir.path().join("done");
    let guarding = || {
        Supervisor::new(
            Arc::clone(&host) as _,
            Options {
                on_loss: Some(format!("echo ended >>'{}'", done.display())),
                ..Options::default()
            },
        )
    };
    let supervisor = guarding();
    supervisor.guard().await.unwrap().release().await;
    let _kept = supervisor.guard().await.unwrap();
    supervisor.teardown().await.unwrap();
    assert_eq!(left_in(dir.path()), Vec::<String>::new());
    let supervisor = guarding();
    let _kept = supervisor.guard().await.unwrap();
    drop(supervisor);
    until("the commands have run", LIMIT, || {
        left_in(dir.path()) == ["done"]
    })
    .await;
}

/// A supervisor that something on the machine kills takes its agent down with it.
#[tokio::test(flavor = "multi_thread")]
async fn h14_an_agent_does_not_outlive_a_supervisor_that_is_killed() {
    let killing =
        [Way::ControlGroup, Way::ProcessNamespace, Way::ProcessTree].map(|way| async move {
            let dir = tempfile::tempdir().unwrap();
            let host = Altered::new(dir.path(), "/bin/sh", &[]);
            let supervisor = Supervisor::new(Arc::clone(&host) as _, options(way));
            let word = word();
            let (mut process, level) = supervisor.start(stubborn(&word)).await.unwrap();
            assert_eq!(line(&mut process).await, "up\n");
            let token = host.seen.lock().unwrap()[0].argv[4].clone();
            for pid in carrying(&token) {
                // Not the agent, which has the token as its mark.
                if !carrying(&word).contains(&pid) {
                    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            let left = || carrying(&word).is_empty();
            until(&format!("{level} leaves nothing"), LIMIT, left).await;
            assert_eq!(process.control.wait().await, ExitStatus::Signal(9));
            supervisor.teardown().await.unwrap();
            assert_eq!(left_in(dir.path()), Vec::<String>::new());
        });
    futures::future::join_all(killing).await;
}

#[tokio::test]
async fn h14_where_nothing_that_is_allowed_works_no_agent_starts() {
    let dir = tempfile::tempdir().unwrap();
    let host = Altered::new(dir.path(), "/bin/sh", &[]);
    let none = Options {
        ways: Vec::new(),
        ..Options::default()
    };
    let started = Supervisor::new(Arc::clone(&host) as _, none)
        .start(Command::new(["true"]).stdio(Stdio::PIPES))
        .await;
    let Err(HostError::Refused(why)) = started else {
        panic!("{started:?}")
    };
    assert!(why.contains("none of the ways allowed"), "{why}");
    let broken = Altered::new(dir.path(), "/bin/false", &[]);
    let started = Supervisor::new(broken as _, Options::default())
        .start(Command::new(["true"]))
        .await;
    assert!(
        matches!(&started, Err(HostError::Refused(why)) if why.contains("without a word")),
        "{started:?}"
    );
}

/// Nobody else could end what a start that was given up had begun.
#[tokio::test(flavor = "multi_thread")]
async fn h14_a_start_that_is_given_up_leaves_nothing_and_none_comes_after_the_teardown() {
    let dir = tempfile::tempdir().unwrap();
    let host = Altered::new(dir.path(), "/bin/sh", &[]);
    let supervisor = Supervisor::new(Arc::clone(&host) as _, Options::default());
    for given_ms in [5, 20, 50, 100, 200] {
        let word = word();
        let start = supervisor.start(stubborn(&word));
        let started = tokio::time::timeout(Duration::from_millis(given_ms), start).await;
        if started.is_ok() {
            break;
        }
    }
    supervisor.teardown().await.unwrap();
    assert_eq!(left_in(dir.path()), Vec::<String>::new());
    let after = supervisor.start(Command::new(["true"])).await;
    assert!(matches!(after, Err(HostError::Gone { .. })), "{after:?}");
    let tokens: Vec<_> = host
        .seen
        .lock()
        .unwrap()
        .iter()
        .filter_map(|command| command.argv.get(4).cloned())
        .collect();
    for token in tokens.iter().filter(|token| token.len() == 32) {
        until("no process is left", LIMIT, || carrying(token).is_empty()).await;
    }
}
