//! Changes that proxies reject: a VirtualService is edited so that Envoy would reject the resulting
//! resource, and the time is measured until every proxy has the previous version again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use memchr::memmem::Finder;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::report::Spread;
use crate::run::Run;
use crate::tally::{moment, times};
use crate::target::Target;
use crate::world;

/// Proxies reject every resource that contains this text.
const REFUSED: &str = "refused-by-load";
/// The text of accepted edits.
const TAKEN: &str = "taken-by-load";
/// The pause before the next turn, in multiples of the last turn's duration, if the server must
/// find the rejected object by trial.
const REST: f64 = 10.0;
/// How often the state of the proxies is polled.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// The responses that proxies rejected since an edit, and when the proxies recovered.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// The origin of moments.
    start: Instant,
    refused: Finder<'static>,
    taken: Finder<'static>,
    /// Whether a proxy rejected the last response of the type.
    refusing: Vec<AtomicBool>,
    /// How many proxies did.
    count: AtomicUsize,
    nacks: AtomicU64,
    /// The moment of the first NACK; 0 until then.
    first: AtomicU64,
    /// The moment when each proxy recovered; 0 until then.
    well: Vec<AtomicU64>,
}

/// The result of one rejected edit.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Refused {
    /// Milliseconds from the edit to the first NACK.
    pub(crate) first_nack: f64,
    /// From the first NACK until each proxy that sent one has received and accepted the previous
    /// version.
    pub(crate) well: Spread,
    pub(crate) nacks: u64,
}

impl Refusals {
    /// The initial state: no response is rejected yet.
    pub(crate) fn new(proxies: usize) -> Self {
        Self {
            start: Instant::now(),
            refused: Finder::new(REFUSED),
            taken: Finder::new(TAKEN),
            refusing: (0..proxies).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            nacks: AtomicU64::new(0),
            first: AtomicU64::new(0),
            well: (0..proxies).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether a proxy rejects a response.
    pub(crate) fn refuses(&self, proxy: usize, body: &[u8]) -> bool {
        let Some(refusing) = self.refusing.get(proxy) else {
            return false;
        };

        if self.refused.find(body).is_some() {
            let now = moment(self.start);
            // The exchange fails if another proxy was the first.
            _ = self
                .first
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            self.nacks.fetch_add(1, Ordering::Relaxed);
            if !refusing.swap(true, Ordering::Relaxed) {
                self.count.fetch_add(1, Ordering::Release);
            }
            return true;
        }

        if refusing.load(Ordering::Relaxed) && self.taken.find(body).is_some() {
            refusing.store(false, Ordering::Relaxed);
            self.well
                .get(proxy)
                .into_iter()
                .for_each(|well| well.store(moment(self.start), Ordering::Relaxed));
            self.count.fetch_sub(1, Ordering::Release);
        }

        false
    }

    /// Whether there was a NACK, and every proxy that sent one has recovered.
    fn is_over(&self) -> bool {
        self.first.load(Ordering::Relaxed) > 0 && self.count.load(Ordering::Acquire) == 0
    }

    /// Returns to the initial state.
    fn reset(&self) {
        self.nacks.store(0, Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        self.well
            .iter()
            .for_each(|well| well.store(0, Ordering::Relaxed));
    }
}

/// The error text of a NACK for these resources, in Envoy's words.
pub(crate) fn words(kind: Kind, names: &[&[u8]]) -> String {
    let names: Vec<_> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    format!(
        "Error adding/updating {} {}: the value {REFUSED} is refused",
        kind.label(),
        names.join(", ")
    )
}

/// Makes an edit that is rejected, as often as the plan repeats changes, each after an edit that is
/// accepted.
///
/// # Errors
/// If an edit cannot be written or is not rejected, or a proxy does not recover in time.
pub(crate) async fn run(run: &Run, target: &Target, refusals: &Refusals) -> Result<Vec<Refused>> {
    let size = &run.plan.size;
    let proxies = run.plan.proxies;
    let refused = 7 % size.services.max(1);

    // The objects that change together with it are the first others with a VirtualService.
    let others: Vec<usize> = (0..size.virtual_services)
        .filter(|n| *n != refused)
        .collect();
    let among = run.plan.refuse_among.saturating_sub(1);
    ensure!(
        among <= others.len(),
        "only {} other VirtualServices can change together with it",
        others.len()
    );

    let edit = async |text: String| {
        let beside = text.replace(REFUSED, "after").replace(TAKEN, "before");
        let other = |n: &usize| world::virtual_service(size, *n, &beside);
        let mut all = vec![world::virtual_service(size, refused, &text)];
        all.extend(others.iter().take(among).map(other));
        target.put_together(&all).await
    };

    let mut all: Vec<Refused> = Vec::new();

    for turn in 1..=run.plan.repeat {
        // The server pauses its trials in proportion to their cost; wait, so that each turn starts
        // like the first.
        if let Some(Refused { well, .. }) = all.last().filter(|_| among > 0) {
            sleep(Duration::from_secs_f64(REST * well.last / 1e3)).await;
        }

        let marker = run.shared.tally.mark(
            &[Kind::Routes, Kind::VirtualHosts],
            &format!("{TAKEN}-{turn}."),
        );
        edit(format!("{TAKEN}-{turn}.")).await?;
        let deadline = Instant::now() + Duration::from_secs(run.plan.patience);

        while marker.count() < proxies {
            ensure!(
                Instant::now() < deadline,
                "{} of {proxies} proxies have recovered",
                marker.count()
            );
            sleep(POLL_INTERVAL).await;
        }

        run.quiet().await;
        refusals.reset();
        let edited = moment(refusals.start);
        edit(format!("{REFUSED}-{turn}.")).await?;
        let deadline = Instant::now() + Duration::from_secs(run.plan.patience);

        loop {
            while !refusals.is_over() {
                let count = refusals.count.load(Ordering::Relaxed);
                let nacks = refusals.nacks.load(Ordering::Relaxed);
                ensure!(
                    Instant::now() < deadline,
                    "{count} proxies did not recover, after {nacks} NACKs"
                );
                sleep(POLL_INTERVAL).await;
            }
            run.quiet().await;
            if refusals.is_over() {
                break;
            }
        }

        let first = Duration::from_nanos(refusals.first.load(Ordering::Relaxed));
        let refused = Refused {
            first_nack: first
                .saturating_sub(Duration::from_nanos(edited))
                .as_secs_f64()
                * 1e3,
            well: Spread::of(&times(&refusals.well, first)),
            nacks: refusals.nacks.load(Ordering::Relaxed),
        };

        eprintln!("refused: {refused:?}");
        all.push(refused);
    }

    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_recovers_once_it_has_the_previous_version() {
        let refusals = Refusals::new(2);
        assert!(!refusals.refuses(0, b"taken-by-load-1.") && !refusals.is_over());
        assert!(refusals.refuses(0, b"..refused-by-load-1."));
        assert!(
            refusals.refuses(0, b"refused-by-load-1.")
                && refusals.refuses(1, b"refused-by-load-1.")
        );
        assert!(!refusals.refuses(0, b"other") && !refusals.is_over());

        assert!(!refusals.refuses(1, b"taken-by-load-1.") && !refusals.is_over());
        assert!(!refusals.refuses(0, b"taken-by-load-1.") && refusals.is_over());
        assert_eq!(
            (
                refusals.nacks.load(Ordering::Relaxed),
                times(&refusals.well, Duration::ZERO).len()
            ),
            (3, 2)
        );

        refusals.reset();
        assert!(!refusals.is_over());
        assert_eq!(
            words(Kind::Routes, &[b"80"]),
            "Error adding/updating routes 80: the value refused-by-load is refused"
        );
    }
}
