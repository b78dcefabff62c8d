//! Every way of losing the runner, over a real sshd: nothing of the agent is left, and nothing of the supervisor.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command as Program, Stdio as Std},
    time::{Duration, Instant},
};

use bulkhead_host::supervisor::{Level, Options, Way};
use bulkhead_test_hosts::{Account, Sshd, SshdOptions};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    agents::{self, Cell, KINDS, Kind, Terminal},
    machine::{carrying, cells, groups_of, left_in, session_server, until},
    network::Network,
    ssh::{Connection, Master},
};

const PATIENCE: Duration = Duration::from_secs(6);
/// The last beat may have come just before, and the look that counts it just after.
const NOTICED: Duration = Duration::from_secs(6 + 2);
const BOUND: Duration = Duration::from_secs(5);
/// What a machine that is busy with other tests may take longer.
const BUSY: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(60);
/// Tells this test binary that it is the runner.
const RUNNER: &str = "BULKHEAD_TEST_RUNNER";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    ClientKilled,
    RunnerKilled,
    ClientFrozen,
    NetworkCut,
    ServerKilled,
}

/// What is between the runner and the agents, and what can be broken of it.
struct Rig {
    sshd: Sshd,
    network: Option<Network>,
    connection: Connection,
    master: Master,
    tmp: PathBuf,
}

/// A runner: in this process, or a process of its own.
enum Runner {
    Here(agents::Started),
    Apart(Child, Vec<String>),
}

#[derive(Debug)]
struct Row {
    cell: Cell,
    level: String,
    took: Duration,
}

impl Rig {
    fn new(loss: Loss, account: Account) -> Self {
        let options = SshdOptions {
            account,
            max_sessions: 200,
            ..SshdOptions::default()
        };
        let network = (loss == Loss::NetworkCut).then(Network::new);
        let sshd = match &network {
            Some(network) => Sshd::serve(network.listener(), options),
            None => Sshd::start_with(options),
        };
        let (connection, master) = Connection::open(&sshd, "client");
        let tmp = sshd.dir().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&tmp, open).unwrap();
        Self {
            sshd,
            network,
            connection,
            master,
            tmp,
        }
    }

    async fn run(&self, loss: Loss, cells: &[Cell]) -> Runner {
        if loss == Loss::RunnerKilled {
            return self.run_apart(cells);
        }
        let options = Options {
            patience: PATIENCE,
            ..Options::default()
        };
        Runner::Here(agents::start(&self.connection, &self.tmp, &options, cells).await)
    }

    /// This test binary once more, as a runner that says the level of each agent.
    fn run_apart(&self, cells: &[Cell]) -> Runner {
        let lines: Vec<_> = cells.iter().map(Cell::to_line).collect();
        let paths = [&self.connection.config, &self.connection.socket, &self.tmp];
        let plan =
            paths.map(|path| path.display().to_string()).join("\n") + "\n" + &lines.join("\n");
        let mut runner = Program::new(std::env::current_exe().unwrap());
        runner.args([
            "supervisor::lost::runner",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        let mut runner = runner
            .env(RUNNER, plan)
            .stdout(Std::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(runner.stdout.take().unwrap()).lines();
        let levels = said
            .map(Result::unwrap)
            .filter_map(|line| line.strip_prefix("level ").map(str::to_owned));
        let levels = levels.take(cells.len()).collect();
        Runner::Apart(runner, levels)
    }

    fn lose(&self, loss: Loss, runner: &mut Runner) {
        match (loss, runner) {
            (Loss::ClientKilled, _) => self.master.signal(Signal::KILL),
            (Loss::ClientFrozen, _) => self.master.signal(Signal::STOP),
            (Loss::NetworkCut, _) => self.network.as_ref().unwrap().cut(),
            (Loss::ServerKilled, _) => {
                let server = session_server(self.sshd.servers()[0]);
                kill_process(Pid::from_raw(server.cast_signed()).unwrap(), Signal::KILL).unwrap();
            }
            (Loss::RunnerKilled, Runner::Apart(runner, _)) => runner.kill().unwrap(),
            (Loss::RunnerKilled, Runner::Here(_)) => panic!("this process is not to be killed"),
        }
    }
}

impl Runner {
    fn levels(&self) -> Vec<String> {
        match self {
            Self::Here(started) => started.levels.iter().map(Level::to_string).collect(),
            Self::Apart(_, levels) => levels.clone(),
        }
    }
}

/// Only ever started by [`Rig::run_apart`]: the runner that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by h14_runner_killed"]
async fn runner() {
    let Ok(plan) = std::env::var(RUNNER) else {
        return;
    };
    let mut lines = plan.lines();
    let mut path = || PathBuf::from(lines.next().unwrap());
    let connection = Connection {
        config: path(),
        socket: path(),
    };
    let tmp = path();
    let cells: Vec<_> = lines.map(Cell::from_line).collect();
    let options = Options {
        patience: PATIENCE,
        ..Options::default()
    };
    let started = agents::start(&connection, &tmp, &options, &cells).await;
    for level in &started.levels {
        // Through the standard output that this process was given; the test harness captures `println`.
        use std::io::Write as _;
        writeln!(std::io::stdout(), "level {level}").unwrap();
    }
    std::future::pending::<()>().await;
}

/// Starts the cells, loses the runner, and waits until nothing is left, on pain of failing.
async fn lose(loss: Loss, account: Account, plan: Vec<Cell>) -> Vec<Row> {
    let rig = Rig::new(loss, account);
    let mut runner = rig.run(loss, &plan).await;
    let complete = |counts: &HashMap<String, usize>| {
        plan.iter().all(|cell| {
            counts
                .get(&cell.word)
                .is_some_and(|n| *n >= cell.kind.processes(cell.way))
        })
    };
    let began = Instant::now();
    until("all agents are complete", LIMIT, || {
        let there = cells();
        if began.elapsed() > LIMIT - BUSY / 6 {
            report(&plan, &there);
        }
        complete(&there)
    })
    .await;
    let groups: Vec<_> = plan.iter().flat_map(|cell| groups_of(&cell.word)).collect();
    let start = Instant::now();
    rig.lose(loss, &mut runner);
    let frozen = matches!(loss, Loss::ClientFrozen | Loss::NetworkCut);
    let limit = if frozen { NOTICED } else { Duration::ZERO } + BOUND + BUSY;
    let mut gone = BTreeMap::new();
    until("no agent is left", limit, || {
        let left = cells();
        if start.elapsed() > limit - BUSY / 6 {
            report(&plan, &left);
        }
        let ended = plan.iter().filter(|cell| !left.contains_key(&cell.word));
        for cell in ended {
            gone.entry(cell.word.clone())
                .or_insert_with(|| start.elapsed());
        }
        gone.len() == plan.len()
    })
    .await;
    until("no supervisor is left", BOUND + BUSY, || {
        rig.sshd.processes().is_empty()
    })
    .await;
    until("no group is left", BUSY, || {
        groups.iter().all(|group| !group.exists())
    })
    .await;
    assert_eq!(left_in(&rig.tmp), Vec::<String>::new());
    let levels = runner.levels();
    let rows = plan.into_iter().zip(levels).map(|(cell, level)| Row {
        took: gone[&cell.word],
        cell,
        level,
    });
    let rows = rows.collect();
    if let Runner::Apart(mut child, _) = runner {
        child.wait().unwrap();
    }
    rows
}

/// What is there too long, before the test fails for it.
fn report(plan: &[Cell], left: &HashMap<String, usize>) {
    use std::io::Write as _;
    for cell in plan.iter().filter(|cell| left.contains_key(&cell.word)) {
        for pid in carrying(&cell.word) {
            let read =
                |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let (cmdline, stat) = (read("cmdline").replace('\0', " "), read("stat"));
            let stat: String = stat.chars().take(60).collect();
            let _ = writeln!(std::io::stderr(), "there: {cell:?}: {stat} {cmdline}");
        }
    }
}

/// What root may use, and what another may.
fn plan(account: Account, kinds: &[Kind]) -> Vec<Cell> {
    let ways: &[Way] = match account {
        Account::Root => &[Way::ControlGroup, Way::ProcessTree],
        Account::Unprivileged => &[Way::ProcessNamespace, Way::ProcessTree],
    };
    let mut plan = Vec::new();
    for way in ways {
        for terminal in [Terminal::No, Terminal::Yes] {
            plan.extend(kinds.iter().map(|kind| Cell::new(*kind, terminal, *way)));
        }
    }
    plan
}

async fn lose_families(loss: Loss) {
    let accounts = [Account::Root, Account::Unprivileged];
    let losing = accounts.map(|account| lose(loss, account, plan(account, &[Kind::Family])));
    for row in futures::future::join_all(losing)
        .await
        .into_iter()
        .flatten()
    {
        assert!(!row.level.is_empty(), "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_client_killed() {
    lose_families(Loss::ClientKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_runner_killed() {
    lose_families(Loss::RunnerKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_client_frozen() {
    lose_families(Loss::ClientFrozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_network_cut() {
    lose_families(Loss::NetworkCut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_the_connections_server_process_killed() {
    lose_families(Loss::ServerKilled).await;
}

/// The table of docs/persistent-hosts.md, on standard output: takes minutes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for outside CI"]
async fn table() {
    for loss in [
        Loss::ClientKilled,
        Loss::RunnerKilled,
        Loss::ClientFrozen,
        Loss::NetworkCut,
        Loss::ServerKilled,
    ] {
        for account in [Account::Root, Account::Unprivileged] {
            let mut cells = plan(account, &KINDS);
            if account == Account::Root {
                for terminal in [Terminal::No, Terminal::Yes] {
                    let more = KINDS
                        .iter()
                        .map(|kind| Cell::new(*kind, terminal, Way::ProcessNamespace));
                    cells.extend(more);
                }
            }
            for row in lose(loss, account, cells).await {
                use std::io::Write as _;
                let Row { cell, level, took } = row;
                let Cell { kind, terminal, .. } = cell;
                writeln!(
                    std::io::stdout(),
                    "| {loss:?} | {kind:?} | {terminal:?} | {account:?} | {level} | {:.1} |",
                    took.as_secs_f64()
                )
                .unwrap();
            }
        }
    }
}

/// With the default patience, while other tests keep the machine busy.
#[tokio::test(flavor = "multi_thread")]
async fn h14_a_session_that_lives_for_a_minute_is_never_ended() {
    let rig = Rig::new(Loss::ClientKilled, Account::Unprivileged);
    let cells_there: Vec<_> = [Way::ProcessNamespace, Way::ProcessTree]
        .into_iter()
        .flat_map(|way| {
            [Terminal::No, Terminal::Yes].map(|terminal| Cell::new(Kind::Silent, terminal, way))
        })
        .collect();
    let started = agents::start(&rig.connection, &rig.tmp, &Options::default(), &cells_there).await;
    tokio::time::sleep(Duration::from_secs(62)).await;
    let there = cells();
    for cell in &cells_there {
        assert!(there.contains_key(&cell.word), "{cell:?}");
    }
    started.teardown().await;
    let there = cells();
    for cell in &cells_there {
        assert!(!there.contains_key(&cell.word), "{cell:?}");
    }
    assert_eq!(left_in(&rig.tmp), Vec::<String>::new());
}
