//! Docker: an engine of the benchmark's own, in a network namespace of its own, with an image of nothing.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{MEMORY_BYTES, PAYLOAD, PIDS, Peer, must_succeed};

pub(crate) struct Docker {
    engine: Child,
    socket: PathBuf,
}

impl Docker {
    pub(super) fn start(scratch: &Path) -> Result<Self> {
        let dir = scratch.join("docker");
        fs::create_dir_all(&dir)?;
        let socket = dir.join("docker.sock");
        let log = fs::File::create(dir.join("log"))?;
        let engine = Command::new("unshare")
            .args(["--net", "dockerd", "--iptables=false", "--bridge=none"])
            .arg("--data-root")
            .arg(dir.join("root"))
            .arg("--exec-root")
            .arg(dir.join("exec"))
            .arg("--pidfile")
            .arg(dir.join("pid"))
            .arg("-H")
            .arg(format!("unix://{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting dockerd")?;
        let docker = Self { engine, socket };
        docker.wait_until_up(&dir)?;
        docker.import_image(scratch)?;
        Ok(docker)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command
            .arg("-H")
            .arg(format!("unix://{}", self.socket.display()));
        command
    }

    fn wait_until_up(&self, dir: &Path) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.command().arg("version").output()?.status.success() {
            if Instant::now() > deadline {
                bail!(
                    "dockerd did not come up: {}",
                    fs::read_to_string(dir.join("log"))?
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// An image of empty directories and links; `/usr` comes from the machine, as for every other contender.
    fn import_image(&self, scratch: &Path) -> Result<()> {
        let tree = scratch.join("image");
        for dir in ["usr", "proc", "dev", "tmp", "etc", "sys"] {
            fs::create_dir_all(tree.join(dir))?;
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{link}"), tree.join(link))?;
        }
        let tar = scratch.join("image.tar");
        must_succeed(
            Command::new("tar")
                .arg("-C")
                .arg(&tree)
                .arg("-cf")
                .arg(&tar)
                .arg("."),
        )?;
        must_succeed(self.command().arg("import").arg(&tar).arg("bench:1"))
    }
}

impl Peer for Docker {
    fn name(&self) -> String {
        "docker".to_owned()
    }

    fn run_once(&self) -> Result<()> {
        let memory = format!("--memory={MEMORY_BYTES}");
        let pids = format!("--pids-limit={PIDS}");
        must_succeed(
            self.command()
                .args([
                    "run",
                    "--rm",
                    "--network=none",
                    "--read-only",
                    "--user=1000:1000",
                    "--cap-drop=ALL",
                ])
                .args([
                    "--security-opt=no-new-privileges",
                    "--cpus=1",
                    &memory,
                    &pids,
                ])
                .args(["-v", "/usr:/usr:ro", "bench:1", PAYLOAD]),
        )
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // The engine removes its own mounts and its containerd when it is asked to stop.
        let pid = self.engine.id().to_string();
        let _ = Command::new("kill").arg(&pid).status();
        let _ = self.engine.wait();
    }
}
