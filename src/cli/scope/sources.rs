//! Where evidence comes from: pods, files, Prometheus, and the output of a former run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
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
use super::{name_of, pods, prometheus, with_days};

/// The time before now that is read from Prometheus.
const DEFAULT_SINCE: Duration = Duration::from_hours(7 * 24);

/// Where the mesh and the metrics are read.
#[derive(Args, Debug)]
pub(super) struct SourceFlags {
    /// File or directory with the objects as YAML or JSON, or - for the standard input, instead of
    /// a cluster
    #[arg(long, alias = "config-dir", global = true, value_name = "PATH")]
    pub(super) from: Option<PathBuf>,
    /// File with the metrics of a proxy as Prometheus reads them, instead of those of pods; can be
    /// repeated. Name files after pods, as POD.txt or POD.NAMESPACE.txt: such a file is believed
    /// about the workload of this pod alone, others by their labels. Files with the same name are
    /// readings of the same pod, at the time at which they were last written
    #[arg(long, global = true, value_name = "FILE")]
    metrics: Vec<PathBuf>,
    /// File with the output (-o json) of a former run, to which the metrics are added
    #[arg(long, global = true, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Address of a Prometheus server with the metrics of proxies, instead of pods, such as
    /// http://localhost:9090
    #[arg(long, global = true, value_name = "URL")]
    prometheus: Option<String>,
    /// Time before now that is read from Prometheus; 7d if unset
    #[arg(long, global = true, value_name = "DURATION", value_parser = with_days)]
    since: Option<Duration>,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) evidence: Evidence,
    /// How many pods could not be read.
    pub(super) unread: BTreeMap<WorkloadName, usize>,
    /// How many pods, files, and workloads of Prometheus were read.
    pub(super) read: usize,
}

/// Tells whether a host is in the registry.
pub(super) type IsHost<'a> = &'a dyn Fn(&str) -> bool;

impl SourceFlags {
    /// Reads all sources. What cannot be read of one of them is reported, and the others are read.
    ///
    /// # Errors
    /// If a file cannot be read or is named after several pods, no source is named for objects of
    /// files, or nothing could be read at all.
    pub(super) async fn gather(
        &self,
        mesh: &Mesh,
        snapshot: &Snapshot,
        all: &[SidecarPod],
        pods: &[&SidecarPod],
        workloads: &[Workload],
    ) -> anyhow::Result<Gathered> {
        let namespaces = &snapshot.context.directory.namespaces_of_host;
        let is_host = |host: &str| namespaces.contains_key(&Hostname::new(host));
        if self.since.is_some() && self.prometheus.is_none() {
            bail!("--since is the time that is read from Prometheus: set --prometheus");
        }

        let mut gathered = Gathered {
            evidence: self.former()?,
            ..Gathered::default()
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
            gathered.evidence.add(&of_file(file, all, &is_host)?);
            gathered.read += 1;
        }
        if let Some(address) = &self.prometheus {
            let address = prometheus::checked(address)?;
            let names: Vec<WorkloadName> = workloads.iter().map(|one| one.name.clone()).collect();
            let since = self.since.unwrap_or(DEFAULT_SINCE);
            prometheus::read(address, since, &names, &is_host, &mut gathered).await;
        }

        if gathered.read == 0 && self.evidence.is_none() {
            bail!("no metrics could be read: the warnings above have the reasons");
        }
        Ok(gathered)
    }

    /// The evidence of a former run.
    fn former(&self) -> anyhow::Result<Evidence> {
        let Some(file) = &self.evidence else {
            return Ok(Evidence::default());
        };
        let text = read(file)?;
        Evidence::parse(text.as_bytes()).with_context(|| file.display().to_string())
    }
}

/// The time of a reading.
pub(super) fn now() -> Moment {
    Moment::of(Timestamp::now())
}

/// Reads an exposition in a file. That of a pod has the metrics of its application, too, so that it
/// is believed as the pod itself.
fn of_file(file: &Path, all: &[SidecarPod], is_host: IsHost<'_>) -> anyhow::Result<Reading> {
    let text = read(file)?;
    let own = pod_of(file, all)?.map(|pod| (pod, name_of(pod)));
    let name = file.file_name().unwrap_or(file.as_os_str());
    let (instance, claim) = match &own {
        Some((pod, workload)) => (pod.name.as_str().into(), Claim::OwnWorkload(workload)),
        None => (name.to_string_lossy(), Claim::Operator),
    };

    let reading = Reading::new(&instance, written(file));
    let mut reader = Reader::new(reading, claim, is_host);
    reader.read(&text);
    let reading = reader.finish();
    let place = file.display().to_string();
    report_malformed(&place, &reading.malformed);
    if own.is_some() {
        report_foreign(&place, reading.foreign);
    }
    Ok(reading)
}

/// The pod that a file is named after; `None` if it is none of these.
///
/// # Errors
/// If several pods have its name.
fn pod_of<'a>(file: &Path, all: &'a [SidecarPod]) -> anyhow::Result<Option<&'a SidecarPod>> {
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    let stem = stem.to_string_lossy();
    let is_named = |pod: &&SidecarPod| {
        let namespace = stem.strip_prefix(pod.name.as_str());
        namespace.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('.') == Some(pod.namespace.as_str())
        })
    };
    let mut named = all.iter().filter(is_named);
    let first = named.next();
    ensure!(
        named.next().is_none(),
        "{}: several pods have this name: name the file POD.NAMESPACE.txt",
        file.display()
    );
    Ok(first)
}

/// The time of the metrics in a file: when it was last written, or now for a pipe.
fn written(file: &Path) -> Moment {
    let metadata = std::fs::metadata(file).ok();
    let regular = metadata.filter(std::fs::Metadata::is_file);
    let time = regular.and_then(|metadata| metadata.modified().ok());
    let time = time.and_then(|time| Timestamp::try_from(time).ok());
    time.map_or_else(now, Moment::of).min(now())
}

/// Reports series that a page is not believed.
pub(super) fn report_foreign(place: &str, count: usize) {
    if count > 0 {
        report(&format!(
            "Warning: {place}: {count} series are about other workloads, and are not believed"
        ));
    }
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
