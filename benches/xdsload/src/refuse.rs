//! What becomes of a change that proxies refuse, as Envoy refuses what it cannot take: a
//! VirtualService is edited so that its effect is refused, and it is timed until every proxy holds
//! again what it was before.

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

/// What proxies refuse: each resource that holds this.
const REFUSED: &str = "refused-by-load";
/// What they take in its place.
const TAKEN: &str = "taken-by-load";
/// For how many times as long as the last turn took it is waited before the next, where the server
/// has to try what is refused.
const REST: f64 = 10.0;
/// The pause between two looks at whether all are well.
const LOOK: Duration = Duration::from_micros(500);

/// What proxies have refused since an edit, and when they came to hold what was before it.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Moments are counted from here.
    start: Instant,
    refused: Finder<'static>,
    taken: Finder<'static>,
    /// The proxies whose last response of the kind was refused.
    refusing: Vec<AtomicBool>,
    /// How many they are.
    count: AtomicUsize,
    /// How often something was refused.
    nacks: AtomicU64,
    /// When the first was; 0 until then.
    first: AtomicU64,
    /// When each proxy was well again; 0 until then.
    well: Vec<AtomicU64>,
}

/// One edit that was refused.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Refused {
    /// From the edit to the first NACK, in milliseconds.
    pub(crate) first_nack: f64,
    /// From the first NACK until each proxy that refused it was sent what was before, and took it.
    pub(crate) well: Spread,
    /// Responses that were refused in all.
    pub(crate) nacks: u64,
}

impl Refusals {
    /// Nobody has refused anything.
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

    /// Whether a proxy refuses a response.
    pub(crate) fn refuses(&self, proxy: usize, body: &[u8]) -> bool {
        let Some(refusing) = self.refusing.get(proxy) else {
            return false;
        };

        if self.refused.find(body).is_some() {
            let now = moment(self.start);
            // It fails where another was first.
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

    /// Whether something was refused, and everybody who refused it is well again.
    fn is_over(&self) -> bool {
        self.first.load(Ordering::Relaxed) > 0 && self.count.load(Ordering::Acquire) == 0
    }

    /// Forgets what was refused.
    fn reset(&self) {
        self.nacks.store(0, Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        self.well
            .iter()
            .for_each(|well| well.store(0, Ordering::Relaxed));
    }
}

/// What a client says that refuses resources of these names, in Envoy's words.
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

/// Has an edit refused as often as the plan repeats changes, each on top of one that all take.
///
/// # Errors
/// When an edit cannot be written, is not refused, or not everybody is well again in time.
pub(crate) async fn run(run: &Run, target: &Target, refusals: &Refusals) -> Result<Vec<Refused>> {
    let size = &run.plan.size;
    let proxies = run.plan.proxies;
    let refused = 7 % size.services.max(1);

    // Those that change with it are the first others, each of which has a VirtualService.
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
        // After what was tried on proxies the server rests in proportion: each turn is to be like
        // the first.
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
                "{} of {proxies} proxies have what is good",
                marker.count()
            );
            sleep(LOOK).await;
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
                    "{count} proxies hold what they refused, after {nacks} NACKs"
                );
                sleep(LOOK).await;
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
