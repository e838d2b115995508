//! The results of a run: JSON for tools, tables for people.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use anyhow::Result;
use navarch_testkit::usage::Usage;
use serde::Serialize;

use crate::distribution::{Middle, Spread};
use crate::results;
use crate::xds::change::What;
use crate::xds::churn::{ChurnResult, Moment};
use crate::xds::resource_type::ResourceType;
use crate::xds::talk::Protocol;
use crate::xds::tally::{Count, Counts};
use crate::xds::world::Size;

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
    /// Writes the JSON to a file, and the tables beside it as `.md`, or prints the JSON if there is
    /// no file; prints the tables.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn publish(&self, out: Option<&Path>) -> Result<()> {
        let json = results::pretty(self)?;
        let table = self.to_string();

        match out {
            Some(out) => {
                results::write(&out.with_extension("md"), &table)?;
                results::write(out, &json)?;
            }
            None => print!("{json}"),
        }

        println!("{table}");
        Ok(())
    }

    /// Writes a row of proxies that came into sync.
    fn connected(&self, out: &mut Formatter<'_>, name: &str, connected: &Connected) -> fmt::Result {
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
    fn changed(&self, out: &mut Formatter<'_>, what: What) -> fmt::Result {
        let changes: Vec<&Changed> = self
            .changes
            .iter()
            .filter(|changed| changed.what == what)
            .collect();
        if changes.is_empty() {
            return Ok(());
        }

        let of = |get: &dyn Fn(&Changed) -> f64| {
            Middle::of(changes.iter().map(|changed| get(changed)).collect())
        };
        let p50 = of(&|changed| changed.times.p50).median;
        let p99 = of(&|changed| changed.times.p99).median;
        let mb = of(&|changed| megabytes(&changed.counts)).median;
        let last = of(&|changed| changed.times.last);
        let last = format!("{:.1} ({:.1} to {:.1})", last.median, last.least, last.most);
        let cpu = of(&|changed| changed.cpu_seconds.unwrap_or(f64::NAN));
        let cpu = format!("{:.2} ({:.2} to {:.2})", cpu.median, cpu.least, cpu.most);

        #[expect(clippy::cast_precision_loss, reason = "output for people")]
        let responses = of(&|changed| responses(&changed.counts) as f64).median;
        writeln!(
            out,
            "| {what:?} | {p50:.1} | {p99:.1} | {last} | {cpu} | {responses} | {mb:.2} |"
        )
    }

    /// Writes what all proxies together received by type: in the first sync, and at the median
    /// change of each kind. Rows with 0 show that nothing of a type was sent.
    fn sent_by_type(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "\n| sent | type | responses | resources | bytes |\n| --- | --- | --- | --- | --- |"
        )?;
        write_counts(out, "first sync", &self.first_sync.counts)?;

        for what in What::ALL {
            let changes = self.changes.iter().filter(|changed| changed.what == what);
            let counts: Vec<Counts> = changes.map(|changed| changed.counts).collect();
            if !counts.is_empty() {
                write_counts(out, &format!("{what:?}"), &medians(&counts))?;
            }
        }
        Ok(())
    }
}

/// Writes a row for each type.
fn write_counts(out: &mut Formatter<'_>, what: &str, counts: &Counts) -> fmt::Result {
    for (resource_type, count) in ResourceType::ALL.iter().zip(counts) {
        let label = resource_type.label();
        let Count {
            responses,
            resources,
            bytes,
            ..
        } = count;
        writeln!(
            out,
            "| {what} | {label} | {responses} | {resources} | {bytes} |"
        )?;
    }
    Ok(())
}

/// The median of each counter; of two middle values the upper one.
fn medians(all: &[Counts]) -> Counts {
    let mut medians = Counts::default();
    for (place, median) in medians.iter_mut().enumerate() {
        let of = |get: fn(&Count) -> u64| {
            let mut values: Vec<u64> = all
                .iter()
                .flat_map(|counts| counts.get(place))
                .map(get)
                .collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        *median = Count {
            responses: of(|count| count.responses),
            resources: of(|count| count.resources),
            removed: of(|count| count.removed),
            bytes: of(|count| count.bytes),
        };
    }
    medians
}

/// The tables in Markdown.
impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
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
            headless,
        } = self.size;

        writeln!(
            out,
            "{} proxies, {:?}; {services} {}services x {endpoints} endpoints in {namespaces} namespaces{}, {virtual_services} \
             VirtualServices, {destination_rules} DestinationRules, {sidecars} Sidecars, {policies} AuthorizationPolicies, \
             {gateway_hosts} hosts at a gateway\n",
            self.proxies,
            self.protocol,
            if headless { "headless " } else { "" },
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

        self.sent_by_type(out)?;

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
            let rss = |moment: Option<&Moment>| {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::run::Plan;

    /// A change of endpoints that sent this number of bytes of EDS.
    fn endpoint_change(bytes: u64) -> Changed {
        let mut counts = Counts::default();
        counts[ResourceType::Endpoints.index()] = Count {
            responses: 2,
            resources: 2,
            removed: 0,
            bytes,
        };
        Changed {
            what: What::Endpoint,
            times: Spread::default(),
            cpu_seconds: None,
            counts,
        }
    }

    #[test]
    fn a_change_reports_every_type_even_those_of_which_nothing_was_sent() {
        let report = Report {
            size: Plan::default().size,
            protocol: Protocol::Delta,
            proxies: 2,
            before: None,
            first_sync: Connected {
                times: Spread::default(),
                cpu_seconds: None,
                counts: Counts::default(),
            },
            in_sync: None,
            changes: [700, 300, 500].map(endpoint_change).into(),
            reconnect: None,
            churn: None,
            after: None,
            broken: 0,
            strange: 0,
            own_cpu_seconds: 0.0,
        };

        let table = report.to_string();
        let rows: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("| Endpoint | ") && line.matches('|').count() == 6)
            .collect();
        assert_eq!(
            rows,
            [
                "| Endpoint | clusters | 0 | 0 | 0 |",
                "| Endpoint | endpoints | 2 | 2 | 500 |",
                "| Endpoint | listeners | 0 | 0 | 0 |",
                "| Endpoint | routes | 0 | 0 | 0 |",
                "| Endpoint | virtual hosts | 0 | 0 | 0 |",
            ]
        );
    }
}
