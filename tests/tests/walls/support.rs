//! Sandboxes for attackers: programs compiled from C, one run, and a look at what is left afterwards.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use bulkhead_sandbox::{
    Bind, Cause, Engine, EngineConfig, ExitStatus, Limits, Outcome, Plan, ProcessSpec, Sandbox,
    SandboxId, Workspace,
};
use tokio::io::AsyncReadExt;

/// Where the attacker's programs are inside.
pub(crate) const ATTACK_DIR: &str = "/opt/attack";

pub(crate) struct Yard {
    pub(crate) engine: Engine,
    _run_dir: tempfile::TempDir,
    /// Where the attack programs are on this machine.
    pub(crate) programs: PathBuf,
}

pub(crate) struct Ended {
    pub(crate) id: SandboxId,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) outcome: Outcome,
}

impl Yard {
    pub(crate) async fn new() -> Self {
        let run_dir = tempfile::tempdir().unwrap();
        let engine = Engine::probe(EngineConfig::new(run_dir.path()))
            .await
            .unwrap();
        Self {
            engine,
            _run_dir: run_dir,
            programs: compile_attacks(),
        }
    }

    pub(crate) fn plan(&self, limits: Limits, workspace: Workspace) -> Plan {
        let mut plan = Plan::new(
            SandboxId::from_uuid(uuid::Uuid::now_v7()),
            limits,
            workspace,
        );
        plan.binds.push(Bind {
            purpose: bulkhead_sandbox::Purpose::Listed,
            source: self.programs.clone(),
            target: ATTACK_DIR.into(),
        });
        plan
    }

    /// One attack program in a sandbox of its own, until everything of it is gone.
    pub(crate) async fn attack<S: AsRef<str>>(
        &self,
        limits: Limits,
        workspace: Workspace,
        argv: &[S],
    ) -> Ended {
        let sandbox = self
            .engine
            .create(self.plan(limits, workspace))
            .await
            .unwrap();
        run(&sandbox, argv).await
    }
}

pub(crate) async fn run<S: AsRef<str>>(sandbox: &Sandbox, argv: &[S]) -> Ended {
    let argv = argv.iter().map(|word| word.as_ref().to_owned());
    let mut process = sandbox.spawn(ProcessSpec::new(argv)).await.unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (
        process.stdout.take().unwrap(),
        process.stderr.take().unwrap(),
    );
    let (read_out, read_err, status) = tokio::join!(
        out.read_to_end(&mut stdout),
        err.read_to_end(&mut stderr),
        process.wait()
    );
    read_out.unwrap();
    read_err.unwrap();
    let outcome = sandbox.end(Cause::Finished(status)).await;
    Ended {
        id: sandbox.id(),
        status,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        outcome,
    }
}

pub(crate) fn small_limits() -> Limits {
    Limits {
        cpu_milli: 1_000,
        memory_bytes: 256 << 20,
        pids: 64,
        disk_bytes: 256 << 20,
        time_ms: 60_000,
        ..Limits::default()
    }
}

/// Nothing of the sandbox is left on this machine: no group, no mount, no process that names it.
pub(crate) fn assert_nothing_left(id: SandboxId) {
    let id = id.to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&id), "a mount of {id} is left:\n{mounts}");
    for group in groups_under(Path::new("/sys/fs/cgroup"), 3) {
        assert!(
            !group.to_string_lossy().contains(&id),
            "{} is left",
            group.display()
        );
    }
}

fn groups_under(dir: &Path, depth: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
            if depth > 0 {
                found.extend(groups_under(&entry.path(), depth - 1));
            }
        }
    }
    found
}

/// Compiles the attack programs, static, into a directory that anyone may read; once for each version of their sources.
fn compile_attacks() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("attack");
    let programs = ["probe", "bomb"];
    let mut version = DefaultHasher::new();
    for name in programs {
        fs::read(sources.join(format!("{name}.c")))
            .unwrap()
            .hash(&mut version);
    }
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let settled = temporary.join(format!("attack-{:x}", version.finish()));
    if settled.exists() {
        return settled;
    }
    let staged = tempfile::tempdir_in(temporary).unwrap();
    for name in programs {
        let done = Command::new("cc")
            .args(["-O1", "-static", "-o"])
            .arg(staged.path().join(name))
            .arg(sources.join(format!("{name}.c")))
            .status()
            .unwrap();
        assert!(done.success(), "cc {name}.c: {done}");
    }
    fs::set_permissions(staged.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Tests run at once: the first to finish wins, and all the others' copies are the same programs.
    let _ = fs::rename(staged.path(), &settled);
    settled
}
