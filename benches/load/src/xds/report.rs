//! The results of a run: JSON for tools, tables for people.

use std::fmt::Write;
use std::time::Duration;

use navarch_testkit::usage::Usage;
use serde::Serialize;

use crate::change::What;
use crate::churn::ChurnResult;
use crate::kind::Kind;
use crate::talk::Protocol;
use crate::tally::Counts;
use crate::world::Size;

/// A distribution over proxies, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The number of proxies.
    pub(crate) count: usize,
    pub(crate) first: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) last: f64,
}

impl Spread {
    /// From sorted times.
    pub(crate) fn of(times: &[Duration]) -> Self {
        let at = |percent: usize| {
            let index = (times.len().saturating_sub(1) * percent).div_ceil(100);
            times
                .get(index)
                .map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self {
            count: times.len(),
            first: at(0),
            p50: at(50),
            p99: at(99),
            last: at(100),
        }
    }
}

/// The result of bringing all proxies into sync.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connected {
    /// The time of each proxy.
    pub(crate) times: Spread,
    /// The server's CPU time meanwhile.
    pub(crate) cpu_seconds: Option<f64>,
    /// What the proxies received.
    pub(crate) counts: Counts,
}

/// The result of a change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changed {
    pub(crate) what: What,
    /// The time at which each proxy received it.
    pub(crate) times: Spread,
    /// The server's CPU time until responses stopped.
    pub(crate) cpu_seconds: Option<f64>,
    /// What the proxies received.
    pub(crate) counts: Counts,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) size: Size,
    pub(crate) protocol: Protocol,
    pub(crate) proxies: usize,
    /// The server before any proxy connected.
    pub(crate) before: Option<Usage>,
    /// The first connect of all proxies.
    pub(crate) first_sync: Connected,
    /// The server when all were in sync.
    pub(crate) in_sync: Option<Usage>,
    pub(crate) changes: Vec<Changed>,
    /// The reconnect of all proxies.
    pub(crate) reconnect: Option<Connected>,
    pub(crate) churn: Option<ChurnResult>,
    /// The server at the end.
    pub(crate) after: Option<Usage>,
    /// Streams that ended by themselves.
    pub(crate) broken: u64,
    /// Responses of types without a subscription.
    pub(crate) strange: u64,
    /// The proxies' own CPU time.
    pub(crate) own_cpu_seconds: f64,
}

/// CPU seconds as text.
fn cpu(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "?".to_owned(), |seconds| format!("{seconds:.2}"))
}

/// MB of all types.
fn megabytes(counts: &Counts) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "output for people")]
    let bytes = counts.iter().map(|count| count.bytes).sum::<u64>() as f64;
    bytes / 1e6
}

/// Responses of all types.
fn responses(counts: &Counts) -> u64 {
    counts.iter().map(|count| count.responses).sum()
}

/// The median, the minimum and the maximum.
fn middle(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
    (
        at(numbers.len() / 2),
        at(0),
        at(numbers.len().saturating_sub(1)),
    )
}

impl Changed {
    pub(crate) fn line(&self) -> String {
        let Spread {
            count, p50, last, ..
        } = self.times;
        let cpu = cpu(self.cpu_seconds);
        let mb = megabytes(&self.counts);
        let responses = responses(&self.counts);
        format!(
            "{:?}: {count} proxies, p50 {p50:.1} ms, last {last:.1} ms, {cpu} CPU-s, {responses} responses, {mb:.2} MB",
            self.what
        )
    }
}

impl Report {
    /// The tables in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        self.write(&mut text)
            .expect("writing to a string cannot fail");
        text
    }

    /// Writes the tables.
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Size {
            services,
            endpoints,
            namespaces,
            virtual_services,
            destination_rules,
            sidecars,
            policies,
            gateway_hosts,
            pods,
        } = self.size;

        writeln!(
            out,
            "{} proxies, {:?}; {services} services x {endpoints} endpoints in {namespaces} namespaces{}, {virtual_services} \
             VirtualServices, {destination_rules} DestinationRules, {sidecars} Sidecars, {policies} AuthorizationPolicies, \
             {gateway_hosts} hosts at a gateway\n",
            self.proxies,
            self.protocol,
            if pods { " with pods" } else { "" },
        )?;

        writeln!(
            out,
            "| what | p50 ms | p99 ms | last ms | CPU-s | responses | MB |"
        )?;
        writeln!(out, "| --- | --- | --- | --- | --- | --- | --- |")?;
        self.connected(out, "first sync", &self.first_sync)?;
        for what in What::ALL {
            self.changed(out, what)?;
        }

        if let Some(reconnect) = &self.reconnect {
            self.connected(out, "reconnect", reconnect)?;
        }

        writeln!(
            out,
            "\n| first sync | responses | resources | MB |\n| --- | --- | --- | --- |"
        )?;

        for (kind, count) in Kind::ALL.iter().zip(&self.first_sync.counts) {
            #[expect(clippy::cast_precision_loss, reason = "output for people")]
            let mb = count.bytes as f64 / 1e6;
            writeln!(
                out,
                "| {} | {} | {} | {mb:.2} |",
                kind.label(),
                count.responses,
                count.resources
            )?;
        }

        writeln!(
            out,
            "\n| server | RSS MB | peak MB | CPU-s | files |\n| --- | --- | --- | --- | --- |"
        )?;

        for (when, usage) in [
            ("before", self.before),
            ("in sync", self.in_sync),
            ("at the end", self.after),
        ] {
            let Some(usage) = usage else { continue };
            let rss = usage.rss_kb / 1000;
            let peak = usage.peak_kb / 1000;
            writeln!(
                out,
                "| {when} | {rss} | {peak} | {:.2} | {} |",
                usage.cpu_seconds, usage.files
            )?;
        }

        if let Some(churn) = &self.churn {
            let rss = |moment: Option<&crate::churn::Moment>| {
                moment
                    .and_then(|moment| moment.usage)
                    .map_or(0, |u| u.rss_kb)
            };
            let first = rss(churn.moments.first());
            let last = rss(churn.moments.last());
            let changes = churn.changes;
            let seconds = churn.seconds;
            writeln!(
                out,
                "\nChurn: {changes} changes in {seconds:.0} s; RSS {first} kB at its begin, {last} kB at its end."
            )?;
        }

        writeln!(
            out,
            "\n{} streams broke, {} responses that nobody asked for; the proxies themselves took {:.2} CPU-s.",
            self.broken, self.strange, self.own_cpu_seconds
        )
    }

    /// Writes a row of proxies that came into sync.
    fn connected(&self, out: &mut String, name: &str, connected: &Connected) -> std::fmt::Result {
        let Spread { p50, p99, last, .. } = connected.times;
        let cpu = cpu(connected.cpu_seconds);
        let mb = megabytes(&connected.counts);
        writeln!(
            out,
            "| {name} | {p50:.0} | {p99:.0} | {last:.0} | {cpu} | {} | {mb:.2} |",
            responses(&connected.counts)
        )
    }

    /// Writes a row of all changes of a kind: medians, and for the last proxy and the CPU also
    /// minimum and maximum.
    fn changed(&self, out: &mut String, what: What) -> std::fmt::Result {
        let changes: Vec<&Changed> = self
            .changes
            .iter()
            .filter(|changed| changed.what == what)
            .collect();
        if changes.is_empty() {
            return Ok(());
        }

        let of = |get: &dyn Fn(&Changed) -> f64| {
            middle(changes.iter().map(|changed| get(changed)).collect())
        };
        let (p50, ..) = of(&|changed| changed.times.p50);
        let (p99, ..) = of(&|changed| changed.times.p99);
        let (last, least, most) = of(&|changed| changed.times.last);
        let (cpu, cheapest, dearest) = of(&|changed| changed.cpu_seconds.unwrap_or(f64::NAN));
        let (mb, ..) = of(&|changed| megabytes(&changed.counts));

        #[expect(clippy::cast_precision_loss, reason = "output for people")]
        let (responses, ..) = of(&|changed| responses(&changed.counts) as f64);
        writeln!(
            out,
            "| {what:?} | {p50:.1} | {p99:.1} | {last:.1} ({least:.1} to {most:.1}) | {cpu:.2} ({cheapest:.2} to {dearest:.2}) | {responses} | {mb:.2} |"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_nearest_rank_percentiles() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let spread = Spread::of(&times);
        assert_eq!((spread.count, spread.first, spread.last), (200, 1.0, 200.0));
        assert!(
            (spread.p50 - 101.0).abs() < 1.5 && (spread.p99 - 199.0).abs() < 1.5,
            "{spread:?}"
        );
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
    }
}
