//! Continuous change, to measure the server over time.

use std::time::Duration;

use anyhow::Result;
use navarch_testkit::usage::Usage;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::xds::run::Run;
use crate::xds::tally::{Counts, between};
use crate::xds::target::Target;
use crate::xds::world;

/// The server's resource usage at one moment of the churn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Moment {
    /// Seconds since the churn began.
    pub(crate) at: f64,
    /// The server's total usage.
    pub(crate) usage: Option<Usage>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChurnResult {
    /// The duration in seconds.
    pub(crate) seconds: f64,
    pub(crate) changes: u64,
    /// The server's usage over time, at most some hundred samples.
    pub(crate) moments: Vec<Moment>,
    /// What the proxies received.
    pub(crate) counts: Counts,
}

/// Changes endpoints and, every tenth time, a VirtualService, at the plan's rate. Calls `begun`
/// once, after the first change.
///
/// # Errors
/// If a file cannot be written, the server cannot be measured, or `begun` fails.
pub(crate) async fn run(
    run: &Run,
    target: &Target,
    begun: impl FnOnce() -> Result<()>,
) -> Result<ChurnResult> {
    let size = &run.plan.size;
    let total = Duration::from_secs(run.plan.churn);
    let before = run.shared.tally.counts();
    let mut ticks = interval(
        Duration::from_secs(1) / u32::try_from(run.plan.churn_rate.max(1)).unwrap_or(u32::MAX),
    );
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();

    let every = (total / 100).max(Duration::from_secs(1));
    let mut moments = Vec::new();
    let mut due = Duration::ZERO;
    let mut changes = 0_u64;
    let mut begun = Some(begun);

    while start.elapsed() < total {
        ticks.tick().await;
        let turn = usize::try_from(changes).unwrap_or(usize::MAX);
        let n = turn.wrapping_mul(2_654_435_761) % size.services.max(1);
        let rules = size.virtual_services.min(size.services);

        match changes % 10 {
            9 if rules > 0 => {
                target
                    .put(&world::virtual_service(
                        size,
                        n % rules,
                        &format!("churn-{changes}"),
                    ))
                    .await?;
            }
            _ => {
                let ip = format!("10.251.{}.{}", (turn >> 8) & 255, turn & 255);
                target.put(&world::slice(size, n, Some(&ip))).await?;
            }
        }

        changes += 1;

        if start.elapsed() >= due {
            due += every;
            let moment = Moment {
                at: start.elapsed().as_secs_f64(),
                usage: run.usage()?,
            };
            let rss = moment.usage.map_or(0, |usage| usage.rss_kb);
            eprintln!(
                "churn: {:.0} s, {changes} changes, the server holds {rss} kB",
                moment.at
            );
            moments.push(moment);
            if let Some(begun) = begun.take() {
                begun()?;
            }
        }
    }

    run.quiet().await;
    let counts = between(&before, &run.shared.tally.counts());
    Ok(ChurnResult {
        seconds: start.elapsed().as_secs_f64(),
        changes,
        moments,
        counts,
    })
}
