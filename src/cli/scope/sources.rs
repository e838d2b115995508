//! Where evidence comes from: pods, files, Prometheus, and the output of a former run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use navarch_api::names::Hostname;
use navarch_migration::{SidecarPod, Snapshot};
use navarch_scope::evidence::Evidence;
use navarch_scope::exposition::Malformed;
use navarch_scope::reading::{Claim, Reader, Reading};
use navarch_scope::{Moment, Workload, WorkloadName};

use super::super::mesh::Mesh;
use super::super::output::report;
use super::super::reading::read;
use super::{pods, prometheus, with_days};

/// Where the mesh and the metrics are read.
#[derive(Args, Debug)]
pub(super) struct SourceFlags {
    /// File or directory with the objects as YAML or JSON, or - for the standard input, instead of
    /// a cluster
    #[arg(long, alias = "config-dir", global = true, value_name = "PATH")]
    pub(super) from: Option<PathBuf>,
    /// File with the metrics of a proxy as Prometheus reads them, instead of those of pods; can be
    /// repeated. Name files after pods: files with the same name are readings of the same pod
    #[arg(long, global = true, value_name = "FILE")]
    metrics: Vec<PathBuf>,
    /// File with the output (-o json) of a former run, to which the metrics are added
    #[arg(long, global = true, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Address of a Prometheus server with the metrics of proxies, instead of pods, such as
    /// http://localhost:9090
    #[arg(long, global = true, value_name = "URL")]
    prometheus: Option<String>,
    /// Time before now that is read from Prometheus
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "7d",
        value_parser = with_days
    )]
    since: Duration,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) evidence: Evidence,
    /// How many pods could not be read.
    pub(super) unread: BTreeMap<WorkloadName, usize>,
}

/// Tells whether a host is in the registry.
pub(super) type IsHost<'a> = &'a dyn Fn(&str) -> bool;

impl SourceFlags {
    /// Reads all sources. What cannot be read of one of them is reported, and the others are read.
    ///
    /// # Errors
    /// If a file cannot be read, or no source is named for objects of files.
    pub(super) async fn gather(
        &self,
        mesh: &Mesh,
        snapshot: &Snapshot,
        pods: &[&SidecarPod],
        workloads: &[Workload],
    ) -> anyhow::Result<Gathered> {
        let namespaces = &snapshot.context.directory.namespaces_of_host;
        let is_host = |host: &str| namespaces.contains_key(&Hostname::new(host));
        let mut gathered = Gathered {
            evidence: self.former()?,
            unread: BTreeMap::new(),
        };

        let names_sources = !self.metrics.is_empty() || self.prometheus.is_some();
        match (&self.from, names_sources) {
            (None, false) => pods::read(mesh.client()?, pods, &is_host, &mut gathered).await,
            (Some(_), false) if self.evidence.is_none() => {
                bail!("set --metrics, --prometheus or --evidence with --from");
            }
            _ => {}
        }
        for file in &self.metrics {
            gathered.evidence.add(&of_file(file, &is_host)?);
        }
        if let Some(address) = &self.prometheus {
            let names: Vec<WorkloadName> = workloads.iter().map(|one| one.name.clone()).collect();
            prometheus::read(address, self.since, &names, &is_host, &mut gathered).await;
        }
        Ok(gathered)
    }

    /// The evidence of a former run.
    fn former(&self) -> anyhow::Result<Evidence> {
        let Some(file) = &self.evidence else {
            return Ok(Evidence::default());
        };
        let text = read(file)?;
        Evidence::parse(&text).with_context(|| file.display().to_string())
    }
}

/// The time of a reading.
pub(super) fn now() -> Moment {
    Moment::of(Timestamp::now())
}

/// Reads an exposition in a file.
fn of_file(file: &Path, is_host: IsHost<'_>) -> anyhow::Result<Reading> {
    let text = read(file)?;
    let name = file.file_name().unwrap_or(file.as_os_str());
    let reading = Reading::new(&name.to_string_lossy(), now());
    let mut reader = Reader::new(reading, Claim::Operator, is_host);
    reader.read(&text);
    let reading = reader.finish();
    report_malformed(&file.display().to_string(), &reading.malformed);
    Ok(reading)
}

/// Names the lines that were not read.
pub(super) fn report_malformed(place: &str, malformed: &Malformed) {
    for line in &malformed.first {
        report(&format!("{place}:{}: {}", line.number, line.reason));
    }
    let more = malformed.count.saturating_sub(malformed.first.len());
    if more > 0 {
        report(&format!("{place}: {more} more lines are malformed"));
    }
}
