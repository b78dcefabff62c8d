//! From creation to the end: nothing is inside before, nothing is left after.

use std::process::{Child, Command, Stdio};

use bulkhead_sandbox::{
    Cause, EndReason, Engine, EngineConfig, ExitStatus, Plan, SandboxId, Workspace,
};

use crate::support::{groups_of, id, one, place, plan, say, shell, small, until};

/// R4: a sandbox is made, runs a process, ends, and is gone.
#[tokio::test]
async fn r4_a_sandbox_is_made_and_is_gone() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    assert!(!groups_of(id).is_empty());
    let said = say(&sandbox, shell("echo hello; exit 7")).await;
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (ExitStatus::Code(7), "hello\n")
    );
    let outcome = sandbox.end(Cause::Finished(said.status)).await;
    assert_eq!(outcome.reason, EndReason::Exit { code: 7 }, "{outcome:?}");
    assert_eq!(groups_of(id), Vec::<std::path::PathBuf>::new());
    assert_eq!(
        sandbox.end(Cause::Cancelled).await,
        outcome,
        "a second end changes nothing"
    );
    assert!(sandbox.spawn(shell("true")).await.is_err());
}

/// Case 18: setsid, nohup and double forks do not outlive the sandbox, nor do processes that ignore every signal.
#[tokio::test]
async fn case_18_nothing_survives_the_end() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    let script = "trap '' HUP INT TERM QUIT USR1 USR2; setsid sleep 7771 & nohup sleep 7772 & (sleep 7773 & exec sleep 7774) & \
        (setsid sh -c 'sleep 7775 & exit' &) ; sleep 0.2; echo up; exec sleep 7776";
    let mut process = sandbox.spawn(shell(script)).await.unwrap();
    let mut stdout = process.stdout.take().unwrap();
    let mut up = [0; 2];
    tokio::io::AsyncReadExt::read_exact(&mut stdout, &mut up)
        .await
        .unwrap();
    let before = members(id);
    assert!(before.len() >= 6, "{before:?}");
    let outcome = sandbox.end(Cause::Cancelled).await;
    assert_eq!(outcome.reason, EndReason::Cancelled);
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    assert_eq!(groups_of(id), Vec::<std::path::PathBuf>::new());
    for pid in before {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} lives"
        );
    }
}

/// The host's pids of everything in a sandbox.
pub(crate) fn members(id: SandboxId) -> Vec<i32> {
    let groups = groups_of(id);
    let text = groups
        .iter()
        .filter_map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")).ok());
    let mut pids: Vec<i32> = text
        .flat_map(|text| {
            text.lines()
                .map(|line| line.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Case 17: what was cancelled does not go on: the proof is never written.
#[tokio::test]
async fn case_17_cancelled_work_stops() {
    let place = place().await;
    let shared = place.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let plan = Plan {
        workspace: Workspace::Directory(shared.clone()),
        ..plan()
    };
    let sandbox = place.engine.create(plan).await.unwrap();
    let process = sandbox
        .spawn(shell("touch STARTED; sleep 2; touch PROOF"))
        .await
        .unwrap();
    until("the work started", || shared.join("STARTED").exists()).await;
    sandbox.end(Cause::Cancelled).await;
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(!shared.join("PROOF").exists());
}

/// R4: dropping the handle ends the sandbox in the background.
#[tokio::test]
async fn r4_dropping_it_ends_it() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    let process = sandbox.spawn(shell("sleep 1000")).await.unwrap();
    drop(sandbox);
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    until("the groups are gone", || groups_of(id).is_empty()).await;
}

/// R4, case 15: whoever gives up while a sandbox is being made, at whatever moment, leaves nothing: no group, no process. The
/// moments are steps of the creation, so they fall everywhere between its first effect and its last, however fast it is.
#[tokio::test]
async fn case_15_giving_up_in_the_middle_leaves_nothing() {
    let place = place().await;
    let mut given_up = 0;
    for polls in 0..200 {
        let plan = plan();
        let id = plan.id;
        let mut making = Box::pin(place.engine.create(plan));
        let mut left = polls;
        let made = std::future::poll_fn(|context| match making.as_mut().poll(context) {
            std::task::Poll::Ready(made) => std::task::Poll::Ready(Some(made)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        })
        .await;
        drop(making);
        if let Some(made) = made {
            made.unwrap().end(Cause::Cancelled).await;
            assert!(groups_of(id).is_empty());
            break;
        }
        given_up += 1;
        until("the groups are gone", || groups_of(id).is_empty()).await;
    }
    assert!(given_up > 1, "it was made in {given_up} steps");
}

/// R4, case 15: many requests beside many exits jam nothing: each side goes on reading while it has something to say. Every
/// process is started and its end is told.
#[tokio::test]
async fn case_15_hundreds_of_processes_at_once_are_all_answered() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let running = (0..100).map(|_| sandbox.spawn(shell("read line")));
    let waves = futures::future::join_all(running).await;
    let mut held: Vec<_> = waves.into_iter().map(Result::unwrap).collect();
    // All of them exit at the same moment, beside requests for as many others.
    for process in &mut held {
        process.stdin.take();
    }
    let others = (0..300).map(|number| {
        let sandbox = &sandbox;
        async move {
            let process = sandbox
                .spawn(shell(&format!("exit {}", number % 7)))
                .await
                .unwrap();
            assert_eq!(process.wait().await, ExitStatus::Code(number % 7));
        }
    });
    futures::future::join_all(others).await;
    for process in held {
        assert_eq!(process.wait().await, ExitStatus::Code(1));
    }
    sandbox.end(Cause::Cancelled).await;
}

/// R4, case 15: where PID 1 takes nothing any more (here it is stopped), the sandbox can be ended past all that waits for it.
#[tokio::test]
async fn case_15_a_sandbox_that_takes_nothing_can_be_ended() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    let [init] = members(id)[..] else {
        panic!("{:?}", members(id));
    };
    signal(init.cast_unsigned(), rustix::process::Signal::STOP);
    let asked = (0..500).map(|_| sandbox.spawn(shell("true")));
    let asked = futures::future::join_all(asked);
    let ended = async {
        // Until as much is on its way as goes: then the queue takes no more.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        sandbox.end(Cause::Cancelled).await
    };
    let (answers, outcome) = futures::join!(asked, ended);
    assert_eq!(outcome.reason, EndReason::Cancelled);
    assert!(answers.iter().all(Result::is_err));
    assert!(groups_of(id).is_empty());
}

/// Case 15: an end that is asked for while a program is being started, or by several at once, is the one end.
#[tokio::test]
async fn case_15_it_can_be_ended_while_it_works() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    let starting = (0..32).map(|_| sandbox.spawn(shell("sleep 1000")));
    let (started, first, second) = futures::join!(
        futures::future::join_all(starting),
        sandbox.end(Cause::Cancelled),
        sandbox.end(Cause::Idle),
    );
    assert_eq!(first, second);
    assert!(groups_of(id).is_empty());
    for process in started.into_iter().flatten() {
        assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    }
}

/// R4: two sandboxes share nothing: not the workspace, not `/tmp`, not processes, not user ids.
#[tokio::test]
async fn r4_sandboxes_share_nothing() {
    let place = place().await;
    let one = place.engine.create(plan()).await.unwrap();
    let other = place.engine.create(plan()).await.unwrap();
    say(&one, shell("echo secret > /workspace/a; echo secret > /tmp/a; echo secret > /dev/shm/a; echo secret > ~/a")).await;
    let said = say(
        &other,
        shell("ls /workspace /tmp /dev/shm ~ | grep -c '^a$'; cut -d ' ' -f 1- /proc/self/uid_map"),
    )
    .await;
    let own = say(&one, shell("cat /proc/self/uid_map")).await;
    assert!(said.stdout.starts_with("0\n"), "{said:?}");
    assert!(!said.stdout.contains(own.stdout.trim()), "{said:?} {own:?}");
}

/// The parent of a sandbox, for the tests that kill it: makes one, says so, and waits.
#[tokio::test]
#[ignore = "started by the tests below, as a process of its own"]
async fn helper_parent() {
    let dir = std::env::var_os("BULKHEAD_TEST_DIR").unwrap();
    let id: SandboxId = std::env::var("BULKHEAD_TEST_ID").unwrap().parse().unwrap();
    let engine = Engine::probe(EngineConfig::new(dir)).await.unwrap();
    let sandbox = engine
        .create(Plan::new(id, small(), Workspace::Image))
        .await
        .unwrap();
    let process = sandbox
        .spawn(shell(
            "trap '' TERM HUP; setsid sleep 8881 & exec sleep 8882",
        ))
        .await
        .unwrap();
    process.wait().await;
}

fn start_parent(dir: &std::path::Path, id: SandboxId) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "life::helper_parent"])
        .env("BULKHEAD_TEST_DIR", dir)
        .env("BULKHEAD_TEST_ID", id.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// R14, case 6: the parent is killed; the launcher ends and removes everything by itself.
#[tokio::test]
async fn case_6_the_parent_s_death_ends_the_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let id = id();
    let mut parent = start_parent(dir.path(), id);
    until("the sandbox runs", || members(id).len() >= 3).await;
    let pids = members(id);
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the groups are gone", || groups_of(id).is_empty()).await;
    for pid in pids {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} lives"
        );
    }
}

/// Kills a parent and its sandbox's launcher so that neither can clean up after the other; the sandbox's processes die by themselves.
async fn leave_an_orphan(run: &std::path::Path) -> SandboxId {
    let id = id();
    let mut parent = start_parent(run, id);
    until("the sandbox runs", || members(id).len() >= 3).await;
    let pids = members(id);
    // A stopped parent does not notice the launcher's death.
    signal(parent.id(), rustix::process::Signal::STOP);
    kill(launcher_of(&pids));
    until("the processes are dead", || {
        pids.iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    id
}

/// R14, case 25: parent and launcher are killed; the processes die by themselves, and the next engine finds and
/// removes what is left, but nothing of the living.
#[tokio::test]
async fn case_25_orphans_are_reaped() {
    let place = place().await;
    let neighbour = place.engine.create(plan()).await.unwrap();
    let run = place.dir.path().join("run");
    // Another engine of this machine, of a test that runs at the same time, may be faster; but not again and again.
    let mut was_found = false;
    for _ in 0..5 {
        let id = leave_an_orphan(&run).await;
        let orphans = place.engine.reap_orphans().await;
        assert!(
            orphans
                .iter()
                .all(|orphan| orphan.id != Some(neighbour.id())),
            "{orphans:?}"
        );
        until("the groups are gone", || groups_of(id).is_empty()).await;
        if let Some(found) = orphans.iter().find(|orphan| orphan.id == Some(id)) {
            assert_eq!(found.done, Ok("killed and removed".to_owned()));
            was_found = true;
            break;
        }
    }
    assert!(was_found, "no orphan was ever found");
    assert_eq!(
        say(&neighbour, shell("echo untouched")).await.stdout,
        "untouched\n"
    );
}

/// The launcher's death alone: the parent notices, removes what is left, and says that it is lost.
#[tokio::test]
async fn case_25_the_launcher_s_death_is_noticed() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    let process = sandbox.spawn(shell("sleep 1000")).await.unwrap();
    let pids = members(id);
    kill(launcher_of(&pids));
    let outcome = tokio::time::timeout(crate::support::PATIENCE, sandbox.ended())
        .await
        .unwrap();
    assert_eq!(outcome.reason, EndReason::Lost, "{outcome:?}");
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    assert_eq!(groups_of(id), Vec::<std::path::PathBuf>::new());
    until("the processes are dead", || {
        pids.iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
}

/// The launcher of a sandbox: the parent of its first process.
pub(crate) fn launcher_of(members: &[i32]) -> u32 {
    let parent = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
                .map(str::to_owned)
        };
        // The first process is 1 in the innermost namespace.
        field("NSpid:")?.ends_with("\t1").then_some(())?;
        field("PPid:")?.parse().ok()
    };
    members.iter().find_map(parent).unwrap()
}

pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The nursery's death costs nothing: sandboxes that run go on, and the next one gets a new nursery.
#[tokio::test]
async fn the_nursery_may_die() {
    let place = place().await;
    let plan_before = plan();
    let id = plan_before.id;
    let before = place.engine.create(plan_before).await.unwrap();
    let launcher = launcher_of(&members(id));
    let status = std::fs::read_to_string(format!("/proc/{launcher}/status")).unwrap();
    let nursery = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(nursery);
    // It stays in the process table until the engine lets go of it, but it has closed its link then.
    until("the nursery is dead", || {
        let status = std::fs::read_to_string(format!("/proc/{nursery}/status")).unwrap_or_default();
        !status.contains("State:") || status.contains("State:\tZ")
    })
    .await;
    let (said, _) = one(&place.engine, plan(), "echo new").await;
    assert_eq!(said.stdout, "new\n");
    assert_eq!(say(&before, shell("echo old")).await.stdout, "old\n");
    assert!(
        before
            .end(Cause::Finished(ExitStatus::Code(0)))
            .await
            .reason
            .is_success()
    );
}

/// R4: fifty sandboxes at once, each with its own process, and all gone after.
#[tokio::test]
async fn r4_many_sandboxes_at_once() {
    let place = place().await;
    let batch = (0..50).map(|index| {
        let engine = &place.engine;
        async move {
            let (said, outcome) = one(engine, plan(), &format!("echo {index}")).await;
            assert_eq!(said.stdout, format!("{index}\n"));
            assert!(outcome.reason.is_success(), "{outcome:?}");
        }
    });
    futures::future::join_all(batch).await;
}
