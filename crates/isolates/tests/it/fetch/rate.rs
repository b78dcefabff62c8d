//! The rate of requests (P21), through the real fetch.

use bulkhead_isolates::{call_error::Code, fetch::FetchLimits};
use bulkhead_test_isolates::net::{Names, Server, Step};
use futures::future::join_all;

use super::World;

#[tokio::test]
async fn rl1_rl2_the_sixty_first_request_of_a_minute_is_refused() {
    let server = Server::start(|_| Step::response("200 OK", "", b"")).await;
    let world = World::good(server.port());
    let url = format!("http://good.test:{}/", server.port());
    let results = join_all((0..100).map(|_| world.get(&url))).await;
    let passed = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(passed, 60);
    assert_eq!(server.asked().len(), 60);
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!(error.code, Code::Limit);
        assert!(error.message.contains("60 requests"), "{error}");
    }
}

#[tokio::test]
async fn rl9_without_an_answer_of_the_platform_nothing_is_sent() {
    let server = Server::start(|_| Step::response("200 OK", "", b"")).await;
    let world = World::good(server.port()).silent();
    let url = format!("http://good.test:{}/", server.port());
    let (code, message) = world.refused(&url).await;
    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(server.asked().is_empty());
    assert!(world.names.asked().is_empty());
}

#[tokio::test]
async fn ht14_a_hundred_at_once_wait_for_one_another() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::start(move |_| {
        peak.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        let mut steps = vec![Step::Wait(std::time::Duration::from_millis(20))];
        steps.extend(Step::response("200 OK", "", b""));
        steps
    })
    .await;
    let rule = format!("good.test:{}", server.port());
    let limits = FetchLimits {
        at_once: 5,
        ..FetchLimits::default()
    };
    let tls = bulkhead_egress::Tls::system().unwrap();
    let world = World::with(
        Names::loopback(&["good.test"]),
        &["good.test"],
        &[&rule],
        tls,
        limits,
    );
    let url = format!("http://good.test:{}/", server.port());
    let one = async || {
        let result = world.get(&url).await;
        now.fetch_sub(1, SeqCst);
        result
    };
    let results = join_all((0..50).map(|_| one())).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(
        most.load(SeqCst) <= 5,
        "{} were under way at once",
        most.load(SeqCst)
    );
}
