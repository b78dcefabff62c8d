//! Rows O4 to O11: what an operator sees.

use std::{sync::Arc, time::Duration};

use bulkhead_wire::isolates::{not_run, result::Outcome};

use super::{Service, tool, value};

/// O8: overload is shed before it queues for long, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn o8_more_than_can_run_is_shed_and_not_queued() {
    let service = Arc::new(Service::start(&["--slots", "1"]).await);
    let spin = service.unchecked(&tool("for(;;);")).wall(3_000);
    let busy = Arc::clone(&service);
    let spinning = async move { busy.call(&spin).await };
    let shed = async {
        loop {
            if service.client.status().await.unwrap().running == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        service.call(&service.unchecked(&tool("return 1"))).await
    };
    let (spun, shed) = tokio::join!(spinning, shed);
    super::timed_out("O8", &spun, 3_000);
    let Some(Outcome::NotRun(not_run)) = &shed.outcome else {
        panic!("{:?}", shed.outcome);
    };
    assert_eq!(not_run.reason(), not_run::Reason::Shed, "{not_run:?}");
    // Afterwards it serves again.
    service.neighbour().await;
}

/// O7: what runs may finish, and nothing new begins.
#[tokio::test(flavor = "multi_thread")]
async fn o7_a_drained_service_finishes_what_runs_and_takes_nothing_new() {
    let service = Arc::new(Service::start(&[]).await);
    let plugin = service.unchecked(&tool(
        "let n = 0; for (let i = 0; i < 3e6; i++) n += i; return n",
    ));
    let running = async { service.call(&plugin).await };
    let draining = async {
        loop {
            if service.client.status().await.unwrap().running > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let left = service.client.drain(Duration::from_secs(60)).await.unwrap();
        assert_eq!(left, 0);
        service.call(&service.unchecked(&tool("return 1"))).await
    };
    let (ended, refused) = tokio::join!(running, draining);
    assert_eq!(value(&ended), "4499998500000");
    let Some(Outcome::NotRun(not_run)) = &refused.outcome else {
        panic!("{:?}", refused.outcome);
    };
    assert_eq!(not_run.reason(), not_run::Reason::Draining);
}

/// P7: whoever goes away cancels; the service goes on.
#[tokio::test(flavor = "multi_thread")]
async fn p7_a_caller_who_leaves_ends_its_call_at_once() {
    let service = Service::start(&[]).await;
    let spin = service.unchecked(&tool("for(;;);"));
    let gone = tokio::time::timeout(Duration::from_millis(300), service.call(&spin)).await;
    assert!(gone.is_err());
    let deadline = std::time::Instant::now() + super::PATIENCE;
    while service.client.status().await.unwrap().running > 0 {
        assert!(std::time::Instant::now() < deadline, "it still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    service.neighbour().await;
}
