//! Retention (R19, cases 25 and 48): what goes, what stays, and that the report says so exactly.

use std::sync::Arc;

use bulkhead_model::{RunId, Stream, run::RunEvent};
use bulkhead_store::{
    Held,
    events::NewEvent,
    leases::Lease,
    logs::{LocalLogs, LogStore, SinkConfig},
    mask::Masker,
    retention::{Kept, Mend, Orphan, Policy, Reason, Report},
    tokens::NewApiToken,
};

use crate::support::{Fixture, NOW, TTL};

const DAY: i64 = 24 * 60 * 60 * 1000;
const KEEP_ALL: Policy = Policy {
    max_age_ms: None,
    max_runs: None,
    max_bytes: None,
    max_log_age_ms: None,
};

struct Collected {
    fixture: Fixture,
    logs: Arc<LocalLogs>,
}

impl Collected {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        let logs = Arc::new(LocalLogs::new(fixture.store.dir().logs()));
        Self { fixture, logs }
    }

    /// Collects, after a dry run that must have said the same.
    async fn gc(&self, policy: Policy, now_ms: i64) -> Report {
        let gc = async |mend| {
            self.fixture
                .store
                .gc(&*self.logs, &policy, mend, now_ms)
                .await
                .unwrap()
        };
        let (files, said) = (self.files(), gc(Mend::Report).await);
        assert_eq!(self.files(), files, "a dry run removed something");
        let done = gc(Mend::Remove).await;
        assert_eq!(said, done);
        done
    }

    /// A run with a log of 1,000 bytes of output, an artifact, an event and a token, still live.
    async fn live(&self, artifact: &[u8]) -> (RunId, Held, Lease) {
        let (run, held, lease) = self.fixture.working().await;
        let store = &self.fixture.store;
        let masker = Masker::new([]).unwrap();
        let logs = Arc::clone(&self.logs) as Arc<dyn LogStore>;
        let mut sink = store
            .open_log(logs, &held, &masker, SinkConfig::default(), NOW)
            .await
            .unwrap();
        sink.write(Stream::Stdout, &[b'x'; 1000], NOW)
            .await
            .unwrap();
        sink.finish(NOW).await.unwrap();
        let mut writer = store.new_artifact(1000).await.unwrap();
        writer.write(artifact).await.unwrap();
        writer
            .finish(&held, &"report".parse().unwrap(), NOW)
            .await
            .unwrap();
        let event = NewEvent {
            kind: "agent".into(),
            at_ms: NOW,
            payload: 1.into(),
        };
        store.append_events(&held, &[event], NOW).await.unwrap();
        store.mint_phase_token(&held, None, NOW).await.unwrap();
        (run.id, held, lease)
    }

    /// The same, ended at the given time, with nothing left to do.
    async fn ended(&self, artifact: &[u8], at_ms: i64) -> RunId {
        let (id, held, lease) = self.live(artifact).await;
        self.fixture
            .apply_at(id, &RunEvent::Cancel { by: "ada".into() }, at_ms)
            .await;
        let gone = RunEvent::Restarted {
            fence: held.fence,
            head: None,
        };
        self.fixture.apply_at(id, &gone, at_ms).await;
        self.settle(at_ms).await;
        self.fixture.store.release_lease(&lease).await.unwrap();
        id
    }

    async fn settle(&self, now_ms: i64) {
        let store = &self.fixture.store;
        loop {
            let effects = store.claim_effects(100, TTL, now_ms).await.unwrap();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                store.ack_effect(&effect, now_ms).await.unwrap();
            }
        }
    }

    fn files(&self) -> usize {
        let count = |dir| std::fs::read_dir(dir).unwrap().count();
        count(self.fixture.store.dir().logs()) + count(self.fixture.store.dir().artifacts())
    }
}

#[tokio::test]
async fn r19_by_age_a_run_goes_with_everything_and_the_report_says_what() {
    let all = Collected::new().await;
    let old = all.ended(b"only here", NOW).await;
    let young = all.ended(b"shared", NOW + 5 * DAY).await;
    let (live, ..) = all.live(b"shared").await;
    let policy = Policy {
        max_age_ms: Some(7 * DAY),
        ..KEEP_ALL
    };
    assert_eq!(
        all.gc(policy, NOW + 7 * DAY).await,
        Report {
            live: 1,
            within_policy: 2,
            ..Report::default()
        }
    );
    let report = all.gc(policy, NOW + 8 * DAY).await;
    let [removed] = report.removed.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!((removed.run, removed.reason), (old, Reason::Age));
    assert_eq!(
        (
            removed.events,
            removed.tokens,
            removed.logs,
            removed.artifacts
        ),
        (1, 1, 1, 1)
    );
    assert_eq!(removed.artifact_bytes, 9);
    assert!(removed.log_bytes > 1000);
    assert_eq!(
        (report.live, report.within_policy, report.kept.len()),
        (1, 1, 0)
    );
    assert_eq!(report.orphans, []);
    let store = &all.fixture.store;
    assert!(store.run(old).await.is_err());
    assert!(store.run(young).await.is_ok() && store.run(live).await.is_ok());
    assert_eq!(all.files(), 3, "two logs and one shared content are left");
}

/// What is noted of a run (the kinds of its artifacts, who was told of its gates) goes with it, and nothing else does.
#[tokio::test]
async fn r19_what_is_noted_of_a_run_goes_with_it() {
    let all = Collected::new().await;
    let old = all.ended(b"old", NOW).await;
    let young = all.ended(b"young", NOW + 5 * DAY).await;
    let store = &all.fixture.store;
    let names = |run| {
        [
            format!("notice/{run}/gate"),
            format!("artifact-kind/{run}/report"),
        ]
    };
    for name in names(old).into_iter().chain(names(young)) {
        store.set_setting(&name, &1, NOW).await.unwrap();
    }
    store.set_setting("other", &1, NOW).await.unwrap();
    let policy = Policy {
        max_age_ms: Some(7 * DAY),
        ..KEEP_ALL
    };
    all.gc(policy, NOW + 8 * DAY).await;
    for name in names(old) {
        assert_eq!(store.setting::<i64>(&name).await.unwrap(), None);
    }
    for name in names(young).iter().map(String::as_str).chain(["other"]) {
        assert_eq!(store.setting::<i64>(name).await.unwrap(), Some(1));
    }
}

#[tokio::test]
async fn r19_by_count_and_by_bytes_the_oldest_go_and_shared_content_stays() {
    let all = Collected::new().await;
    let mut runs = Vec::new();
    for n in 0..5 {
        runs.push(all.ended(b"shared", NOW + n).await);
    }
    let report = all
        .gc(
            Policy {
                max_runs: Some(3),
                ..KEEP_ALL
            },
            NOW + DAY,
        )
        .await;
    let gone: Vec<_> = report
        .removed
        .iter()
        .map(|removed| (removed.run, removed.reason))
        .collect();
    assert_eq!(gone, [(runs[0], Reason::Count), (runs[1], Reason::Count)]);
    assert!(
        report
            .removed
            .iter()
            .all(|removed| removed.artifact_bytes == 0),
        "still shared"
    );
    let one = all.logs.list().await.unwrap()[0].1 + 6;
    let report = all
        .gc(
            Policy {
                max_bytes: Some(2 * one),
                ..KEEP_ALL
            },
            NOW + DAY,
        )
        .await;
    let gone: Vec<_> = report
        .removed
        .iter()
        .map(|removed| (removed.run, removed.reason))
        .collect();
    assert_eq!(gone, [(runs[2], Reason::Bytes)]);
    assert_eq!(report.within_policy, 2);
}

#[tokio::test]
async fn r19_a_live_run_is_never_touched_and_an_unsettled_one_is_kept_with_the_reason() {
    let all = Collected::new().await;
    let (live, held, lease) = all.live(b"one").await;
    let nothing = Policy {
        max_age_ms: Some(0),
        max_runs: Some(0),
        max_bytes: Some(0),
        max_log_age_ms: None,
    };
    let report = all.gc(nothing, NOW + 1000 * DAY).await;
    assert_eq!(
        report,
        Report {
            live: 1,
            ..Report::default()
        }
    );

    all.fixture
        .apply_at(live, &RunEvent::Cancel { by: "ada".into() }, NOW)
        .await;
    all.fixture
        .apply_at(
            live,
            &RunEvent::Restarted {
                fence: held.fence,
                head: None,
            },
            NOW,
        )
        .await;
    assert_eq!(all.gc(nothing, NOW + 1).await.kept, [(live, Kept::Effects)]);
    all.settle(NOW).await;
    assert_eq!(all.gc(nothing, NOW + 1).await.kept, [(live, Kept::Lease)]);
    all.fixture.store.release_lease(&lease).await.unwrap();
    assert_eq!(all.gc(nothing, NOW + 1).await.removed.len(), 1);
    assert_eq!(all.files(), 0);
}

#[tokio::test]
async fn case_25_orphans_of_each_class_are_reported_then_mended() {
    let all = Collected::new().await;
    let (_, held, _) = all.live(b"content").await;
    let dir = all.fixture.store.dir();
    // A file without a row, of each kind; a row without a file, of each kind.
    let stray = bulkhead_store::PhaseKey {
        attempt: 9,
        ..held.key.clone()
    };
    all.logs.append(&stray, Vec::new()).await.unwrap();
    std::fs::write(dir.artifacts().join("ab".repeat(32)), "nobody's").unwrap();
    std::fs::write(dir.artifacts().join("tmp-old"), "half").unwrap();
    all.logs.remove(&held.key).await.unwrap();
    let artifact = all
        .fixture
        .store
        .artifact(held.key.run, &"report".parse().unwrap())
        .await
        .unwrap();
    std::fs::remove_file(&artifact.path).unwrap();

    // Long after the files were written, by this machine's clock.
    let now = NOW * 2;
    let expected = [
        Orphan::LogFile {
            key: stray.clone(),
            bytes: 8,
        },
        Orphan::LogRow {
            key: held.key.clone(),
        },
        Orphan::Unfinished {
            path: dir.artifacts().join("tmp-old"),
            bytes: 4,
        },
        Orphan::Content {
            sha256: "ab".repeat(32),
            bytes: 8,
        },
        Orphan::ArtifactRow {
            key: held.key.clone(),
            name: "report".into(),
        },
    ];
    for mend in [Mend::Report, Mend::Remove] {
        let found = all
            .fixture
            .store
            .compare(&*all.logs, mend, now)
            .await
            .unwrap();
        assert_eq!(found, expected);
    }
    // Files are gone; rows that miss something stay visible.
    let left = all
        .fixture
        .store
        .compare(&*all.logs, Mend::Remove, now)
        .await
        .unwrap();
    assert_eq!(left, [expected[1].clone(), expected[4].clone()]);
}

#[tokio::test]
async fn r19_tokens_that_were_dead_for_a_month_go() {
    let all = Collected::new().await;
    let store = &all.fixture.store;
    let new = |name, expires_at_ms| NewApiToken {
        name,
        scopes: &[],
        expires_at_ms,
        now_ms: NOW,
    };
    store
        .create_api_token(new("expires", Some(NOW)))
        .await
        .unwrap();
    let (revoked, _) = store.create_api_token(new("revoked", None)).await.unwrap();
    store.create_api_token(new("good", None)).await.unwrap();
    store.revoke_api_token(revoked, NOW + DAY).await.unwrap();
    assert_eq!(all.gc(KEEP_ALL, NOW + 30 * DAY).await.api_tokens, 0);
    assert_eq!(all.gc(KEEP_ALL, NOW + 31 * DAY).await.api_tokens, 1);
    assert_eq!(all.gc(KEEP_ALL, NOW + 31 * DAY + 1).await.api_tokens, 1);
    assert_eq!(store.api_tokens().await.unwrap()[0].name, "good");
}

#[tokio::test]
async fn r19_logs_may_go_earlier_than_their_runs() {
    let all = Collected::new().await;
    let run = all.ended(b"content", NOW).await;
    let policy = Policy {
        max_log_age_ms: Some(DAY),
        ..KEEP_ALL
    };
    assert!(all.gc(policy, NOW + DAY).await.logs.is_empty());
    let report = all.gc(policy, NOW + DAY + 1).await;
    assert_eq!(
        (
            report.logs.len(),
            report.logs[0].key.run,
            report.within_policy
        ),
        (1, run, 1)
    );
    assert!(report.logs[0].bytes > 1000 && report.orphans.is_empty() && report.removed.is_empty());
    assert!(all.fixture.store.run(run).await.is_ok());
    assert_eq!(all.files(), 1, "the artifact stays");
    assert!(all.gc(policy, NOW + DAY + 2).await.logs.is_empty());
}
