//! Runs simulations in processes of their own: each replaces the clock of its process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::simulation::{Options, Outcome};

/// What the last line of a process begins with.
const REPORT: &str = "outcome ";

/// The outcome of a simulation in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The violated invariants.
    pub violations: Vec<String>,
    /// The hash of the story.
    pub hash: String,
    /// The simulated time.
    pub simulated: Duration,
    /// The number of events in the schedule.
    pub events: usize,
    /// The number of responses to proxies.
    pub responses: u64,
}

impl Report {
    /// Whether all invariants hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// The first violated invariant; empty if there is none.
    #[must_use]
    pub fn invariant(&self) -> &str {
        let first = self.violations.first().map(String::as_str);
        first
            .unwrap_or_default()
            .split_once(':')
            .map_or("", |(invariant, _)| invariant)
    }
}

/// A report, and what it took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The outcome.
    pub report: Report,
    /// The CPU time of the process.
    pub cpu: Duration,
}

/// The last line of a process that took this CPU time.
#[must_use]
pub fn report_line(outcome: &Outcome, cpu: Duration) -> String {
    let report = json!({
        "violations": outcome.violations,
        "hash": format!("{:016x}", outcome.hash),
        "milliseconds": u64::try_from(outcome.simulated.as_millis()).unwrap_or(u64::MAX),
        "events": outcome.events,
        "responses": outcome.responses,
        "cpuMilliseconds": u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX),
    });
    format!("{REPORT}{report}")
}

/// Runs a simulation with this program, which is `simulate`.
///
/// # Errors
/// If the process does not end with a report: it panicked, or was ended.
pub fn run(program: &Path, options: &Options) -> anyhow::Result<Report> {
    measure(program, options).map(|measured| measured.report)
}

/// As [`run`], with the CPU time.
///
/// # Errors
/// As [`run`].
pub fn measure(program: &Path, options: &Options) -> anyhow::Result<Measured> {
    let mut command = Command::new(program);
    command.arg("one").arg(options.seed.to_string());
    if let Some(case) = &options.case {
        command.arg(format!("--case={case}"));
    }
    if let Some(keep) = &options.keep {
        let keep: Vec<String> = keep.iter().map(usize::to_string).collect();
        command.arg(format!("--keep={}", keep.join(",")));
    }
    if let Some(plant) = options.plant {
        command.arg(format!("--plant={plant}"));
    }

    if options.checks_memory {
        command.arg("--memory");
    }

    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(REPORT));
    let report = report.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("seed {} ended without a report: {errors}", options.seed)
    })?;
    parse(report).context("invalid report")
}

fn parse(text: &str) -> Option<Measured> {
    let value: Value = serde_json::from_str(text).ok()?;
    let cpu = Duration::from_millis(value.get("cpuMilliseconds")?.as_u64()?);
    let report = report_of(&value)?;
    Some(Measured { report, cpu })
}

fn report_of(report: &Value) -> Option<Report> {
    let violations = report.get("violations")?.as_array()?;
    Some(Report {
        violations: violations
            .iter()
            .filter_map(|violation| violation.as_str().map(str::to_owned))
            .collect(),
        hash: report.get("hash")?.as_str()?.to_owned(),
        simulated: Duration::from_millis(report.get("milliseconds")?.as_u64()?),
        events: usize::try_from(report.get("events")?.as_u64()?).ok()?,
        responses: report.get("responses")?.as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let outcome = Outcome {
            violations: vec!["a lock has one holder: a and b".to_owned()],
            hash: 7,
            simulated: Duration::from_secs(3),
            events: 4,
            responses: 5,
        };
        let took = Duration::from_millis(1500);
        let line = report_line(&outcome, took);
        let Measured { report, cpu } = parse(line.strip_prefix(REPORT).unwrap()).unwrap();
        assert_eq!(report.violations, outcome.violations);
        assert_eq!(report.invariant(), "a lock has one holder");
        assert_eq!(report.hash, "0000000000000007");
        assert_eq!(report.simulated, outcome.simulated);
        assert_eq!(cpu, took);
    }
}
