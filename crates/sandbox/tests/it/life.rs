//! From creation to the end: nothing is inside before, nothing is left after.

use bulkhead_sandbox::{Cause, EndReason, ExitStatus};

use crate::support::{groups_of, one, place, plan, say, shell};

/// R4: a sandbox is made, runs a process, ends, and is gone.
#[tokio::test]
async fn r4_a_sandbox_is_made_and_is_gone() {
    let place = place().await;
    let plan = plan();
    let id = plan.id;
    let sandbox = place.engine.create(plan).await.unwrap();
    assert!(!groups_of(id).is_empty());
    let said = say(
        &sandbox,
        shell("id; echo $0; mount; ls -la / /dev /proc/self/fd; cat /proc/self/status"),
    )
    .await;
    eprintln!("{}{}", said.stdout, said.stderr);
    assert_eq!(said.status, ExitStatus::Code(0), "{said:?}");
    let outcome = sandbox.end(Cause::Finished(said.status)).await;
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 }, "{outcome:?}");
    assert_eq!(groups_of(id), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn r4_the_exit_code_comes_out() {
    let place = place().await;
    let (said, outcome) = one(&place.engine, plan(), "exit 7").await;
    assert_eq!(said.status, ExitStatus::Code(7));
    assert_eq!(outcome.reason, EndReason::Exit { code: 7 });
}
