//! Each boundary probed for real, for `bulkhead doctor`.
//!
//! First what the kernel offers, one by one; then limits, set and read back; then, where a sandbox can be built, the view from
//! inside of one. A check that could not be made is a failed check.

use std::{io, net::SocketAddr, path::Path, time::Duration};

use bulkhead_init::wire::{Control, Probed, Report, Setting};
use bulkhead_model::{ids::SandboxId, limits::Limits};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    cgroup::{Layout, Name, Owner},
    create,
    engine::{Engine, EngineConfig, find_cgroups, with_sources},
    image,
    plan::{BoundSocket, Listener, Plan, Workspace},
    program::Program,
    sandbox::{Cause, Sandbox},
    spec::ProcessSpec,
};

/// One boundary and what was seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The boundary's name, stable, in kebab-case: `user-namespace`, `memory-limit`, `egress-denied` …
    pub name: String,
    pub ok: bool,
    /// What was tried and seen, in one sentence.
    pub seen: String,
    /// What to do about it; none where it is well.
    pub remedy: Option<String>,
}

impl Check {
    fn new(name: &str, result: Result<String, String>, remedy: &str) -> Self {
        let ok = result.is_ok();
        Self {
            name: name.to_owned(),
            ok,
            seen: result.unwrap_or_else(|seen| seen),
            remedy: (!ok).then(|| remedy.to_owned()),
        }
    }
}

const LIMIT: Duration = Duration::from_secs(30);
const IMAGE_REMEDY: &str = "install e2fsprogs and give Bulkhead loop devices (/dev/loop-control): as root outside a container \
    they are there; in one, run it with `--privileged` or pass them in";
const SANDBOX_REMEDY: &str =
    "mend the boundary that fails above; if none does, this is a defect of Bulkhead";

/// Probes every boundary, also after one has failed, and, where a sandbox can be built, from inside of one.
pub async fn checks(config: EngineConfig) -> Vec<Check> {
    let mut all = kernel().await;
    all.extend(limits());
    all.push(disk(&config));
    match Engine::probe(config).await {
        Ok(engine) => {
            all.push(Check::new(
                "sandbox",
                Ok(format!(
                    "a program ran in one and it is gone: {}",
                    engine.describe()
                )),
                "",
            ));
            all.extend(from_inside(&engine).await);
        }
        Err(refusal) => all.push(Check {
            name: "sandbox".to_owned(),
            ok: false,
            seen: format!("{}: {}", refusal.boundary, refusal.seen),
            remedy: Some(refusal.remedy),
        }),
    }
    all
}

/// What the launcher finds when it tries one thing at a time.
async fn kernel() -> Vec<Check> {
    match timeout(LIMIT, probe_kernel()).await {
        Ok(Ok(found)) => found.iter().map(kernel_check).collect(),
        Ok(Err(error)) => vec![Check::new(
            "launcher",
            Err(with_sources(&error)),
            "allow memory files to be executed",
        )],
        Err(_) => vec![Check::new(
            "launcher",
            Err("it did not answer".to_owned()),
            SANDBOX_REMEDY,
        )],
    }
}

async fn probe_kernel() -> io::Result<Vec<Probed>> {
    let links = Program::load()?.launch(&Control::Probe {}, &[]).await?;
    let answer = links.control.receive::<Report>().await?;
    match answer {
        Some((Report::Probed { found }, _)) => Ok(found),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn kernel_check(found: &Probed) -> Check {
    let name = found.name.as_str();
    let result = match (found.errno, name) {
        (0, "landlock") => Ok(format!("version {} of Landlock", found.value)),
        (0, "seccomp") => Ok("filters with error numbers".to_owned()),
        (0, _) => Ok("made one".to_owned()),
        (errno, _) => Err(io::Error::from_raw_os_error(errno).to_string()),
    };
    let remedy = match name {
        "landlock" => create::LANDLOCK_REMEDY,
        "seccomp" => "use a kernel with CONFIG_SECCOMP_FILTER",
        _ => create::NAMESPACES_REMEDY,
    };
    Check::new(name, result, remedy)
}

/// Makes a sandbox's groups, sets each limit, reads it back, and removes them.
fn limits() -> Vec<Check> {
    let is_root = rustix::process::geteuid().is_root();
    let layout = match find_cgroups(is_root).and_then(|layout| layout.prepare().map(|()| layout)) {
        Ok(layout) => layout,
        Err(refusal) => {
            return vec![Check::new(
                "limits",
                Err(format!("{}: {}", refusal.boundary, refusal.seen)),
                &refusal.remedy,
            )];
        }
    };
    let Some(owner) = Owner::this() else {
        return vec![Check::new(
            "limits",
            Err("/proc does not show this process".to_owned()),
            "mount /proc",
        )];
    };
    let name = Name {
        id: SandboxId::from_uuid(Uuid::now_v7()),
        owner,
    };
    set_limits(&layout, &name)
}

fn set_limits(layout: &Layout, name: &Name) -> Vec<Check> {
    let (groups, _) = layout.groups(name, &Limits::default());
    let mut all = Vec::new();
    for group in &groups {
        let dir = Path::new(&group.path);
        let check = |name: &str, result| Check::new(name, result, create::LIMITS_REMEDY);
        if let Err(error) = std::fs::create_dir(dir) {
            all.push(check(
                "cgroup",
                Err(format!("making {}: {error}", group.path)),
            ));
            continue;
        }
        let set = |setting: &Setting| check(&limit_name(&setting.file), set_and_read(dir, setting));
        all.extend(group.settings.iter().map(set));
    }
    let dirs: Vec<_> = groups
        .iter()
        .map(|group| group.path.clone().into())
        .collect();
    let removed =
        crate::cgroup::destroy(&dirs).map(|()| format!("made and removed: {}", layout.describe()));
    all.push(Check::new(
        "cgroup-removal",
        removed.map_err(|error| error.to_string()),
        create::LIMITS_REMEDY,
    ));
    all
}

/// `memory.limit_in_bytes` is the check `limit-memory.limit_in_bytes`: the kernel's own word, to look for.
fn limit_name(file: &str) -> String {
    format!("limit-{file}")
}

fn set_and_read(dir: &Path, setting: &Setting) -> Result<String, String> {
    let file = dir.join(&setting.file);
    let during = |error: io::Error| format!("{} = {}: {error}", file.display(), setting.value);
    std::fs::write(&file, &setting.value).map_err(during)?;
    let read = std::fs::read_to_string(&file).map_err(during)?;
    if read.trim() == setting.value {
        Ok(format!("{} holds", setting.value))
    } else {
        Err(format!(
            "{} reads “{}” after writing “{}”",
            file.display(),
            read.trim(),
            setting.value
        ))
    }
}

fn disk(config: &EngineConfig) -> Check {
    if !rustix::process::geteuid().is_root() {
        let seen = "not as root: workspaces are in memory, with a fixed size too".to_owned();
        return Check::new("disk-limit", Ok(seen), "");
    }
    let made =
        create::private_dir(&config.run_dir).and_then(|()| image::make(&config.run_dir, 8 << 20));
    let seen = made.map(|_| "a file system of 8 MiB on a loop device".to_owned());
    Check::new(
        "disk-limit",
        seen.map_err(|error| with_sources(&error)),
        IMAGE_REMEDY,
    )
}

/// The sandbox's own view, and its end.
async fn from_inside(engine: &Engine) -> Vec<Check> {
    let mut plan = Plan::new(
        SandboxId::from_uuid(Uuid::now_v7()),
        Limits::default(),
        Workspace::Tmpfs,
    );
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    plan.listeners = vec![Listener::tcp(local(3128)), Listener::udp(local(53))];
    let sandbox = match engine.create(plan).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            return vec![Check::new(
                "inside",
                Err(with_sources(&error)),
                SANDBOX_REMEDY,
            )];
        }
    };
    let listeners = sandbox.take_listeners();
    let answers = match timeout(LIMIT, sandbox.examine()).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => format!("examine: error {}", with_sources(&error)),
        Err(_) => "examine: error it did not answer".to_owned(),
    };
    let mut all = judge(&answers);
    all.push(passed_on(&listeners));
    all.push(no_survivors(&sandbox).await);
    all
}

/// The names of answers that must be errors, by the check they belong to.
const DENIED: [(&str, &[&str]); 5] = [
    (
        "egress-denied",
        &["connect-public", "connect-public-v6", "send-public-dns"],
    ),
    ("metadata-denied", &["connect-metadata"]),
    (
        "read-only-system",
        &["write-usr", "write-root", "write-sysctl"],
    ),
    ("init-protected", &["read-init-environ", "ptrace-init"]),
    (
        "system-calls-refused",
        &[
            "unshare-user",
            "mount",
            "raw-socket",
            "packet-socket",
            "keyctl",
            "bpf",
            "io-uring",
            "set-clock",
        ],
    ),
];
/// Those that must have worked.
const ALLOWED: [(&str, &[&str]); 2] = [
    ("door-reachable", &["door-http", "door-dns"]),
    ("workspace-writable", &["write-workspace"]),
];
/// Lines of the process's status and what they must be.
const RIGHTS: [(&str, &str); 10] = [
    ("Uid", "1000 1000 1000 1000"),
    ("Gid", "1000 1000 1000 1000"),
    ("Groups", ""),
    ("CapInh", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapEff", "0000000000000000"),
    ("CapBnd", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
];

/// From the answers given inside to checks. A missing answer is a failure.
fn judge(answers: &str) -> Vec<Check> {
    let answer = |name: &str| {
        let line = answers
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or("no answer")
    };
    let expect = |names: &[&str], word: &str| {
        let wrong: Vec<_> = names
            .iter()
            .filter(|name| !answer(name).starts_with(word))
            .collect();
        match wrong.first() {
            None => Ok(names
                .iter()
                .map(|name| format!("{name}: {}", answer(name)))
                .collect::<Vec<_>>()
                .join("; ")),
            Some(name) => Err(format!("{name}: {}", answer(name))),
        }
    };
    let denied = DENIED
        .iter()
        .map(|(name, names)| Check::new(name, expect(names, "error "), SANDBOX_REMEDY));
    let allowed = ALLOWED
        .iter()
        .map(|(name, names)| Check::new(name, expect(names, "ok"), SANDBOX_REMEDY));
    let wrong = RIGHTS
        .iter()
        .find(|(name, value)| answer(name).trim_end() != format!("ok {value}").trim_end());
    let rights = match wrong {
        // Not as root, the groups of the user cannot be given up; they are shown as nobody's.
        Some(("Groups", _)) if !rustix::process::geteuid().is_root() => {
            Ok("no rights; groups are the user's own".to_owned())
        }
        Some((name, value)) => Err(format!("{name} is “{}”, not “{value}”", answer(name))),
        None => {
            Ok("user 1000, no groups, no Linux capabilities, no_new_privs, filtered".to_owned())
        }
    };
    denied
        .chain(allowed)
        .chain([Check::new("no-rights", rights, SANDBOX_REMEDY)])
        .collect()
}

/// The examination connected to the door; here is the other end of that.
fn passed_on(listeners: &[BoundSocket]) -> Check {
    let seen = listeners.iter().try_for_each(|listener| match listener {
        BoundSocket::Tcp(tcp) => tcp.accept().map(drop),
        BoundSocket::Udp(udp) => udp.recv(&mut [0; 64]).map(drop),
    });
    let seen = seen.map(|()| "what was sent inside arrived outside".to_owned());
    Check::new(
        "listeners-passed",
        seen.map_err(|error| error.to_string()),
        SANDBOX_REMEDY,
    )
}

/// A process that wants to live on, and the sandbox's end.
async fn no_survivors(sandbox: &Sandbox) -> Check {
    let spec = ProcessSpec::new([
        "/bin/sh",
        "-c",
        "trap '' TERM HUP INT; setsid sleep 1000 & exec sleep 1000",
    ])
    .cwd("/");
    let started = sandbox.spawn(spec).await;
    let outcome = timeout(LIMIT, sandbox.end(Cause::Cancelled)).await;
    let seen = match (started, outcome) {
        (Err(error), _) => Err(with_sources(&error)),
        (_, Err(_)) => Err("the sandbox did not end".to_owned()),
        (Ok(_), Ok(outcome)) => {
            let left = outcome
                .evidence
                .iter()
                .find(|one| one.source == "not removed");
            left.map_or(
                Ok("killed at once, and its groups are gone".to_owned()),
                |left| Err(left.detail.clone()),
            )
        }
    };
    Check::new("no-survivors", seen, SANDBOX_REMEDY)
}
