//! The kill storm: innocent and hostile calls together, and what is left afterwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use bulkhead_wire::isolates::result::Outcome;
use tokio::task::JoinSet;

use super::{PATIENCE, Service, tool, value};

const HOSTILE: &[&str] = &[
    "for(;;);",
    "Array.prototype.includes.call({length:2**53-1},1)",
    "let a=[];for(;;)a.push({})",
    "return 'a'.repeat(2**28).split('').length",
    "await new Promise(()=>{})",
    "for(;;) await host.log('x')",
    "throw new Error('x'.repeat(1<<24))",
    "/^(a+)+$/.test('a'.repeat(40)+'!')",
];
const CALLERS: u32 = 24;

/// Children of a process, and theirs.
fn below(pid: u32) -> usize {
    let mut open = vec![pid];
    let mut count = 0;
    while let Some(pid) = open.pop() {
        count += 1;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            open.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    count
}

async fn one(service: &Service, number: u32) {
    if !number.is_multiple_of(3) {
        let mut plugin = service
            .unchecked(&tool("return input.n * 2"))
            .installed_as("innocent");
        plugin.start.input_json = format!(r#"{{"n":{number}}}"#);
        loop {
            let ended = service.call(&plugin).await;
            // Shed calls did not run: the caller is told to come again.
            if !matches!(&ended.outcome, Some(Outcome::NotRun(_))) {
                assert_eq!(value(&ended), (number * 2).to_string());
                return;
            }
        }
    }
    let body = HOSTILE[(number / 3) as usize % HOSTILE.len()];
    // Each its own, so that none is put on hold.
    let plugin = service
        .unchecked(&tool(body))
        .installed_as(&format!("hostile-{number}"))
        .wall(200);
    let ended = service.call(&plugin).await;
    let harmed = matches!(&ended.outcome, Some(Outcome::Fault(_) | Outcome::NotRun(_)));
    assert!(harmed, "{body}: {:?}", ended.outcome);
}

async fn storm(calls: u32) {
    let service = Arc::new(Service::start(&[]).await);
    service.neighbour().await;
    let next = Arc::new(AtomicU32::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (service, next) = (Arc::clone(&service), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return;
                }
                one(&service, number).await;
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    // The service, its zygotes with their outer processes, those that stand ready, and no more.
    while below(service.pid()) > 1 + 2 * 3 + 2 * 16 {
        assert!(
            Instant::now() < deadline,
            "{} processes are left",
            below(service.pid())
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    service.neighbour().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_a_kill_storm_harms_no_innocent_call() {
    storm(300).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for outside CI"]
async fn d8_a_kill_storm_of_ten_thousand_calls() {
    storm(10_000).await;
}
