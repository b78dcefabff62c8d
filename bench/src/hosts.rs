//! What a host costs over doing the same by hand: processes, small file operations, one large file, and a crowd of processes.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use bulkhead_host::{
    Command, DockerConfig, DockerHost, FileSystem, Host, LocalConfig, LocalHost, Mount,
    MountAccess, ReadStreamOptions, SshConfig, SshHost, WriteOptions, WriteStreamOptions,
};
use bulkhead_test_hosts::{ContainerEngine, Sshd, SshdOptions};
use futures::StreamExt as _;
use tokio::{io::AsyncReadExt as _, task::JoinSet};

use crate::{raw_engine::RawEngine, report::Report, stats::Samples};

const PIECE: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct ProcessOptions {
    /// How many processes each contender starts.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
}

#[derive(clap::Args)]
pub(crate) struct FileOptions {
    /// Small files that each contender writes, looks at and removes.
    #[arg(long, default_value_t = 500)]
    files: u32,
    /// The size of the large file.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// How often the large file goes each way.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

#[derive(clap::Args)]
pub(crate) struct CrowdOptions {
    /// Processes asked for at the same moment.
    #[arg(long, default_value_t = 1000)]
    count: u32,
}

/// A machine over ssh, and a multiplexed connection made by hand beside ours.
struct Machine {
    sshd: Sshd,
    control: PathBuf,
}

impl Machine {
    async fn start() -> Result<Self> {
        let sshd = Sshd::start_with(SshdOptions::default());
        let control = sshd.dir().join("by-hand");
        let machine = Self { sshd, control };
        let mut master = machine.ssh();
        let ready = master
            .args(["-M", "-N", "-f", Sshd::ALIAS])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await?;
        ensure!(ready.success(), "the connection by hand could not be made");
        Ok(machine)
    }

    fn options(&self) -> Vec<std::ffi::OsString> {
        let mut path = std::ffi::OsString::from("ControlPath=");
        path.push(&self.control);
        let config = self.sshd.client_config().into_os_string();
        vec!["-F".into(), config, "-o".into(), path]
    }

    fn ssh(&self) -> tokio::process::Command {
        let mut ssh = tokio::process::Command::new("ssh");
        ssh.args(self.options());
        ssh
    }

    fn host(&self) -> SshHost {
        SshHost::new(
            SshConfig::new(Sshd::ALIAS)
                .config_file(self.sshd.client_config())
                .env("PATH", "/usr/bin:/bin")
                .env("HOME", self.sshd.dir().display().to_string()),
        )
    }

    async fn end(&self) -> Result<()> {
        self.ssh()
            .args(["-O", "exit", Sshd::ALIAS])
            .stderr(Stdio::null())
            .status()
            .await?;
        Ok(())
    }
}

/// `echo` with its output read, on a host.
async fn one(host: &dyn Host) -> Result<Duration> {
    let started = Instant::now();
    let mut process = host.spawn(Command::new(["/usr/bin/echo", "hello"])).await?;
    let mut text = String::new();
    let mut stdout = process.stdout.take().context("no output")?;
    stdout.read_to_string(&mut text).await?;
    let status = process.control.wait().await;
    let taken = started.elapsed();
    ensure!(status.success() && text == "hello\n", "{status}: {text:?}");
    Ok(taken)
}

async fn by_hand(mut command: tokio::process::Command) -> Result<Duration> {
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output().await?;
    let taken = started.elapsed();
    ensure!(output.stdout == b"hello\n", "{output:?}");
    Ok(taken)
}

/// A process on a warm host, beside the same by hand.
pub(crate) async fn processes(options: ProcessOptions) -> Result<Report> {
    let machine = Machine::start().await?;
    let engine = ContainerEngine::docker();
    let local: Arc<dyn Host> = Arc::new(LocalHost::new(LocalConfig::new("/tmp")));
    let ssh = machine.host();
    let docker = DockerHost::new(Arc::clone(&local), container(&engine));
    one(&docker).await.context("the container")?;
    let mut raw = RawEngine::connect(&engine.socket(), docker.container_name()).await?;
    let mut samples = vec![Samples::default(); 6];
    for round in 0..options.rounds + 3 {
        let mut local_by_hand = tokio::process::Command::new("/usr/bin/echo");
        local_by_hand.arg("hello");
        let mut ssh_by_hand = machine.ssh();
        ssh_by_hand.args([Sshd::ALIAS, "/usr/bin/echo", "hello"]);
        let taken = [
            one(&*local).await.context("the local host")?,
            by_hand(local_by_hand).await.context("a local process")?,
            one(&ssh).await.context("the ssh host")?,
            by_hand(ssh_by_hand).await.context("ssh by hand")?,
            one(&docker).await.context("the docker host")?,
            raw.echo().await.context("the engine's API")?,
        ];
        // The first rounds connect, and fill caches.
        if round >= 3 {
            for (samples, taken) in samples.iter_mut().zip(taken) {
                samples.add(taken);
            }
        }
    }
    docker.teardown().await?;
    ssh.teardown().await?;
    machine.end().await?;
    let names = [
        "local",
        "a process of the runtime",
        "**ssh**",
        "`ssh` through a control master",
        "**docker**",
        "the engine's API: create, start, output, inspect",
    ];
    let rows = names.iter().enumerate().map(|(index, name)| {
        let mine = &samples[index];
        let peer = &samples[index | 1];
        vec![
            (*name).to_owned(),
            mine.len().to_string(),
            format!("{:.2}", mine.median_ms()),
            format!("{:.2}", mine.percentile_ms(0.95)),
            format!("{:.2}", mine.median_ms() / peer.median_ms()),
        ]
    });
    Ok(Report {
        title: "A process on a warm host".to_owned(),
        command: format!("make bench ARGS='host-processes --rounds {}'", options.rounds),
        about: "`echo hello`, from the request until its output is read and its exit is known. Each host beside the same by hand, interleaved; targets: ssh at most 1.3 ×, docker at most 1.1 ×.".to_owned(),
        head: ["how", "n", "median ms", "p95 ms", "× by hand"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        notes: vec![
            "By hand starts an `ssh` program each time, as a person does; the host speaks with the master itself.".to_owned(),
        ],
    })
}

fn container(engine: &ContainerEngine) -> DockerConfig {
    let mut config = DockerConfig::new(ContainerEngine::IMAGE);
    config.socket = engine.socket();
    config.mounts = ["/usr", "/lib", "/lib64", "/bin"]
        .map(|dir| Mount::Bind {
            source: dir.into(),
            target: dir.into(),
            access: MountAccess::Read,
        })
        .into();
    config
}

/// Small operations one after the other, and one large file each way, against OpenSSH's own programs.
pub(crate) async fn files(options: FileOptions) -> Result<Report> {
    let machine = Machine::start().await?;
    let host = machine.host();
    let files = FileSystem::new(host.files());
    let there = machine.sshd.dir().join("there");
    std::fs::create_dir(&there)?;
    // The server's account is another user.
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o777))?;
    files.readdir(&there).await?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..3 {
        ours.add(small(&files, &there, options.files).await?);
        theirs.add(small_by_sftp(&machine, &there, options.files).await?);
    }
    let per_second = |samples: &Samples| f64::from(options.files * 3) / samples.median_ms() * 1e3;
    let mut rows = vec![vec![
        "small files: write, stat, remove; operations a second".to_owned(),
        format!("{:.0}", per_second(&ours)),
        format!("{:.0}", per_second(&theirs)),
        format!("{:.2}", per_second(&ours) / per_second(&theirs)),
    ]];
    let here = machine.sshd.dir().join("here");
    large_file(&here, options.mebibytes)?;
    let remote = there.join("large");
    let [mut up, mut up_scp, mut down, mut down_scp] = [const { Vec::new() }; 4];
    let rate = |taken: Duration| options.mebibytes as f64 * 1.048_576 / taken.as_secs_f64();
    let before = high_water_mib()?;
    for _ in 0..options.rounds {
        up.push(rate(upload(&files, &here, &remote).await?));
        std::fs::remove_file(&remote)?;
        up_scp.push(rate(scp(&machine, &here, &target(&remote)).await?));
        down.push(rate(
            download(&files, &remote, options.mebibytes << 20).await?,
        ));
        let back = machine.sshd.dir().join("back");
        down_scp.push(rate(
            scp(
                &machine,
                Path::new(&target(&remote)),
                &back.display().to_string(),
            )
            .await?,
        ));
        std::fs::remove_file(&back)?;
        std::fs::remove_file(&remote)?;
    }
    let grown = high_water_mib()? - before;
    for (name, mut ours, mut theirs) in [
        ("to the machine, MB/s", up, up_scp),
        ("from the machine, MB/s", down, down_scp),
    ] {
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        rows.push(vec![
            format!("{} MiB {name}", options.mebibytes),
            format!("{ours:.0}"),
            format!("{theirs:.0}"),
            format!("{:.2}", ours / theirs),
        ]);
    }
    host.teardown().await?;
    machine.end().await?;
    Ok(Report {
        title: "Files on an ssh host".to_owned(),
        command: format!(
            "make bench ARGS='host-files --files {} --mebibytes {} --rounds {}'",
            options.files, options.mebibytes, options.rounds
        ),
        about: format!(
            "Over one warm connection each, to a server on loopback; medians of {} rounds, interleaved. Targets: the large file at least 0.9 × of scp.",
            options.rounds
        ),
        head: ["what", "Bulkhead", "by hand (`sftp`, `scp`)", "×"].map(str::to_owned).to_vec(),
        rows,
        notes: vec![
            format!("This process's memory grew by {grown} MiB at most while the large files went both ways (limit: 64)."),
            "`sftp` runs one batch of `put`, `ls` and `rm`; scp writes to a file when it fetches, we read to the end.".to_owned(),
        ],
    })
}

async fn small(files: &FileSystem, dir: &Path, count: u32) -> Result<Duration> {
    let started = Instant::now();
    for number in 0..count {
        let path = dir.join(format!("small-{number}"));
        files
            .write_file(&path, "hello", WriteOptions::WRITE)
            .await?;
        ensure!(files.stat(&path).await?.size == 5, "a file is short");
        files.unlink(&path).await?;
    }
    Ok(started.elapsed())
}

async fn small_by_sftp(machine: &Machine, dir: &Path, count: u32) -> Result<Duration> {
    let source = machine.sshd.dir().join("small");
    std::fs::write(&source, "hello")?;
    let batch = machine.sshd.dir().join("batch");
    let lines = (0..count).map(|number| {
        let (from, to) = (source.display(), dir.join(format!("small-{number}")));
        let to = to.display();
        format!("put {from} {to}\nls -l {to}\nrm {to}\n")
    });
    std::fs::write(&batch, lines.collect::<String>())?;
    let started = Instant::now();
    let output = tokio::process::Command::new("sftp")
        .args(machine.options())
        .arg("-b")
        .arg(&batch)
        .arg(Sshd::ALIAS)
        .output()
        .await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(started.elapsed())
}

fn target(remote: &Path) -> String {
    format!("{}:{}", Sshd::ALIAS, remote.display())
}

async fn scp(machine: &Machine, from: &Path, to: &str) -> Result<Duration> {
    let started = Instant::now();
    let output = tokio::process::Command::new("scp")
        .args(machine.options())
        .arg(from)
        .arg(to)
        .output()
        .await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(started.elapsed())
}

async fn upload(files: &FileSystem, from: &Path, to: &Path) -> Result<Duration> {
    let started = Instant::now();
    let mut file = tokio::fs::File::open(from).await?;
    let mut stream = files
        .create_write_stream(to, WriteStreamOptions::default())
        .await?;
    loop {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        if file.read_buf(&mut piece).await? == 0 {
            break;
        }
        stream.write(piece.freeze()).await?;
    }
    stream.finish().await?;
    Ok(started.elapsed())
}

async fn download(files: &FileSystem, from: &Path, size: u64) -> Result<Duration> {
    let started = Instant::now();
    let mut stream = files
        .create_read_stream(from, ReadStreamOptions::default())
        .await?;
    let mut seen = 0;
    while let Some(piece) = stream.next().await {
        seen += piece?.len() as u64;
    }
    ensure!(seen == size, "{seen} bytes came of {size}");
    Ok(started.elapsed())
}

/// Bytes that do not compress to nothing.
fn large_file(path: &Path, mebibytes: u64) -> Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path)?;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..mebibytes {
        let piece: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(PIECE / 8)
        .flatten()
        .collect();
        file.write_all(&piece)?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The most memory that this process has held so far.
fn high_water_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("VmHWM is not there")?.trim().parse::<u64>()? >> 10)
}

/// Many short processes asked for at once on one ssh host.
pub(crate) async fn crowd(options: CrowdOptions) -> Result<Report> {
    let machine = Machine::start().await?;
    let host = Arc::new(machine.host());
    one(&*host).await?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..options.count {
        let host = Arc::clone(&host);
        tasks.spawn(async move { one(&*host).await });
    }
    let (mut samples, mut lost) = (Samples::default(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok(taken) => samples.add(taken),
            Err(error) => lost.push(format!("{error:#}")),
        }
    }
    let wall = started.elapsed();
    host.teardown().await?;
    machine.end().await?;
    if let Some(first) = lost.first() {
        bail!(
            "{} of {} processes were lost: {first}",
            lost.len(),
            options.count
        );
    }
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    Ok(Report {
        title: "A crowd of processes on one ssh host".to_owned(),
        command: format!("make bench ARGS='host-crowd --count {}'", options.count),
        about: "Short processes asked for at the same moment, over one connection to a server that allows ten sessions at a time; each waits for its turn.".to_owned(),
        head: ["what", "value"].map(str::to_owned).to_vec(),
        rows: vec![
            row("processes asked for at once", options.count.to_string()),
            row("lost", lost.len().to_string()),
            row("all of them done in", format!("{:.1} s", wall.as_secs_f64())),
            row("a second", format!("{:.0}", f64::from(options.count) / wall.as_secs_f64())),
            row("wait and work of one, median", format!("{:.0} ms", samples.median_ms())),
            row("… p95", format!("{:.0} ms", samples.percentile_ms(0.95))),
        ],
        notes: vec![],
    })
}
