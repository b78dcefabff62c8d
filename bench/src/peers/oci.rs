//! OCI runtimes: `runc` and `crun`, on a bundle without an image, with the same limits.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;
use serde_json::json;

use super::{CPU_MILLI, MEMORY_BYTES, PAYLOAD, PIDS, Peer, must_succeed};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(super) struct Runtime {
    program: String,
    root: PathBuf,
    bundle: PathBuf,
    /// crun refuses a hybrid layout whose version 2 part has controllers, so it runs where that part is not mounted.
    hide_v2: bool,
}

impl Runtime {
    pub(super) fn new(program: &str, scratch: &Path) -> Result<Self> {
        let bundle = scratch.join(format!("{program}-bundle"));
        let rootfs = bundle.join("rootfs");
        for dir in ["usr", "proc", "dev", "tmp", "etc"] {
            fs::create_dir_all(rootfs.join(dir))?;
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{link}"), rootfs.join(link))?;
        }
        fs::write(
            bundle.join("config.json"),
            serde_json::to_vec_pretty(&config())?,
        )?;
        Ok(Self {
            program: program.to_owned(),
            root: scratch.join(format!("{program}-state")),
            bundle,
            hide_v2: program == "crun" && Path::new("/sys/fs/cgroup/unified").is_dir(),
        })
    }
}

impl Peer for Runtime {
    fn name(&self) -> String {
        self.program.clone()
    }

    fn run_once(&self) -> Result<()> {
        let id = format!(
            "bench-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let mut command = if self.hide_v2 {
            let mut command = Command::new("unshare");
            let script = "umount /sys/fs/cgroup/unified && exec \"$0\" \"$@\"";
            command.args([
                "-m",
                "--propagation",
                "private",
                "sh",
                "-c",
                script,
                &self.program,
            ]);
            command
        } else {
            Command::new(&self.program)
        };
        command
            .arg("--root")
            .arg(&self.root)
            .args(["run", "-b"])
            .arg(&self.bundle)
            .arg(id);
        must_succeed(&mut command)
    }
}

fn config() -> serde_json::Value {
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
    let namespaces: Vec<_> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1000 },
            "args": [PAYLOAD],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "bench",
        "mounts": [
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"] },
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"] },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=64m"] }
        ],
        "linux": {
            "namespaces": namespaces,
            "resources": {
                "memory": { "limit": MEMORY_BYTES },
                "pids": { "limit": PIDS },
                "cpu": { "quota": CPU_MILLI * 100, "period": 100_000 }
            },
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"]
        }
    })
}
