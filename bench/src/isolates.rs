//! A fresh isolate per plugin call, as its caller sees it: Bulkhead's service over gRPC, where each call has a process of its
//! own, beside isolated-vm and workerd, which each make a new isolate in one process; and what calls that wait hold.

mod ours;
mod peers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::{report::Report, stats::Samples};

/// The handler's input, and what must come back: a call that answers anything else is no call.
const INPUT: &str =
    r#"{"items":[{"sku":"a-1","price":250,"count":3},{"sku":"b-2","price":1999,"count":1}]}"#;
const TOTAL: &str = r#""total":2749"#;

#[derive(clap::Args)]
pub(crate) struct CallOptions {
    /// Calls of each contender with one caller; with more callers twice as many.
    #[arg(long, default_value_t = 1000)]
    calls: u32,
    /// How often the contenders take turns; their calls are spread over the turns.
    #[arg(long, default_value_t = 5)]
    turns: u32,
    /// Leave the peers out.
    #[arg(long)]
    alone: bool,
}

#[derive(clap::Args)]
pub(crate) struct WaitingOptions {
    /// Calls that wait in the middle of a host call at the same time.
    #[arg(long, default_value_t = 1000)]
    calls: u32,
}

/// Whoever runs the plugin.
#[async_trait]
trait Contender: Send + Sync {
    fn name(&self) -> &'static str;

    /// One call in a fresh isolate: the result's text.
    async fn call(&self) -> Result<String>;

    /// Calls that were refused for too much work, and made again.
    fn shed(&self) -> u64 {
        0
    }

    /// What must be done before a turn, outside the measurement.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }
}

const CALLERS: [u32; 3] = [1, 8, 64];

/// What one contender did with so many callers.
#[derive(Default)]
struct Row {
    samples: Samples,
    took: Duration,
}

pub(crate) async fn calls(options: CallOptions) -> Result<Report> {
    let dir = tempfile::tempdir()?;
    let plugin = plugin();
    let mut contenders: Vec<Arc<dyn Contender>> =
        vec![Arc::new(ours::Service::start(dir.path(), &plugin).await?)];
    if !options.alone {
        contenders.push(Arc::new(
            peers::IsolatedVm::start(dir.path(), &plugin).await?,
        ));
        contenders.push(Arc::new(peers::Workerd::start(dir.path(), &plugin).await?));
    }
    let mut rows = Vec::new();
    for callers in CALLERS {
        let mut found: Vec<Row> = contenders.iter().map(|_| Row::default()).collect();
        let calls = options.calls * if callers == 1 { 1 } else { 2 };
        for turn in 0..=options.turns {
            for (contender, row) in contenders.iter().zip(&mut found) {
                contender.prepare().await?;
                let (samples, took) = some(contender, callers, calls / options.turns).await?;
                // The first turn only warms.
                if turn > 0 {
                    row.samples.extend(samples);
                    row.took += took;
                }
            }
        }
        let first = rate(&found[0]);
        rows.extend(contenders.iter().zip(&found).map(|(contender, row)| {
            vec![
                callers.to_string(),
                contender.name().to_owned(),
                row.samples.len().to_string(),
                format!("{:.2}", row.samples.median_ms()),
                format!("{:.2}", row.samples.percentile_ms(0.95)),
                format!("{:.2}", row.samples.percentile_ms(0.99)),
                format!("{:.0}", rate(row)),
                format!("{:.2}", first / rate(row)),
            ]
        }));
    }
    Ok(Report {
        title: "A plugin call in a fresh isolate".to_owned(),
        command: format!("make bench ARGS='isolate-calls --calls {}'", options.calls),
        about: format!(
            "One call of a handler of the same plugin ({} bytes), in an isolate that is made for it and thrown away, as its \
             caller on the same machine sees it. Contenders take turns, every call's answer is checked.",
            plugin.len()
        ),
        head: ["callers", "contender", "n", "median ms", "p95 ms", "p99 ms", "calls/s", "Bulkhead's calls/s ×"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        notes: vec![
            format!(
                "Bulkhead sheds what would wait more than 200 ms for one of its 16 slots: {} calls, made again, their time going on.",
                contenders[0].shed()
            ),
            "Bulkhead: gRPC over a Unix socket, a locked-down process and a memory group of its own for each call, without a \
             JIT. The others: HTTP over a Unix socket, all calls in one process, with a JIT."
                .to_owned(),
            "isolated-vm 7.0.1 on Node 24 with a code cache made once; workerd's dynamic workers, each call with a name of \
             its own. It never gives those back and dies of it after some 2,000, so it is started anew before each turn. Service, peers and callers share the machine's processors."
                .to_owned(),
        ],
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
fn rate(row: &Row) -> f64 {
    row.samples.len() as f64 / row.took.as_secs_f64()
}

/// So many calls by so many callers, and how long they took together.
async fn some(
    contender: &Arc<dyn Contender>,
    callers: u32,
    calls: u32,
) -> Result<(Samples, Duration)> {
    let left = Arc::new(AtomicU32::new(calls));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..callers {
        let (contender, left) = (Arc::clone(contender), Arc::clone(&left));
        tasks.spawn(async move {
            let mut samples = Samples::default();
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                let begun = Instant::now();
                let answer = contender.call().await?;
                samples.add(begun.elapsed());
                ensure!(
                    answer.contains(TOTAL),
                    "{} answered {answer}",
                    contender.name()
                );
            }
            Ok(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(samples) = tasks.join_next().await {
        all.extend(samples??);
    }
    Ok((all, begun.elapsed()))
}

/// What calls hold that wait for the platform in the middle.
pub(crate) async fn waiting(options: WaitingOptions) -> Result<Report> {
    let dir = tempfile::tempdir()?;
    let service = ours::Service::start(dir.path(), &plugin()).await?;
    let before = service.memory_bytes()?;
    let crowd = service.crowd(options.calls).await?;
    let during = service.memory_bytes()?;
    let answered = crowd.release().await?;
    ensure!(
        answered == options.calls,
        "{answered} of {} ended well",
        options.calls
    );
    let grown = during.saturating_sub(before);
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    Ok(Report {
        title: "Plugin calls that wait".to_owned(),
        command: format!("make bench ARGS='isolate-waiting --calls {}'", options.calls),
        about: "Calls that all wait in the middle of a host call at the same time, each in a process of its own, and are then \
                all answered. Memory is the sum of the proportional set sizes of the service and all its processes."
            .to_owned(),
        head: ["waiting calls", "ended well", "all together MiB", "MiB a call", "the service alone MiB"]
            .map(str::to_owned)
            .to_vec(),
        rows: vec![vec![
            options.calls.to_string(),
            answered.to_string(),
            mib(during),
            mib(grown / u64::from(options.calls.max(1))),
            mib(before),
        ]],
        notes: vec![],
    })
}

/// A plugin of some 10 KB: one handler that is called, and what an ordinary plugin has besides.
fn plugin() -> String {
    let mut text = String::from(
        "// The plugin of the benchmark.
export const tools = {
  order(input) {
    const lines = input.items.map((item) => ({ ...item, sum: item.price * item.count }));
    const total = lines.reduce((sum, line) => sum + line.sum, 0);
    return { lines, total, label: describe_0(total) };
  },
  async wait(input) {
    return { secret: (await host.settings.getSecret(input.name)).length };
  },
};
",
    );
    for number in 0..32 {
        text.push_str(&format!(
            "
/** Words for an amount, in the way of country {number}. */
function describe_{number}(amount, options = {{ digits: 2, sign: '€' }}) {{
  if (typeof amount !== 'number' || Number.isNaN(amount)) throw new TypeError('an amount must be a number');
  const whole = Math.trunc(amount / 100).toString().replace(/\\B(?=(\\d{{3}})+$)/g, '.');
  const rest = Math.abs(amount % 100).toString().padStart(options.digits, '0');
  return `${{whole}},${{rest}} ${{options.sign}}`;
}}
"
        ));
    }
    text
}
