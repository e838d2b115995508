//! `navarch scope`: which services workloads call, and the Sidecars that make only these visible.

mod pods;
mod prometheus;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_migration::{SidecarPod, Snapshot, pods_by_workload, sidecar_pods};
use navarch_scope::difference::compare;
use navarch_scope::suggestion::{Options, suggest};
use navarch_scope::{Workload, WorkloadName};

use super::discovery::duration;
use super::mesh::{Mesh, MeshFlags};
use super::output::{Output, print_json, print_yaml, report};
use super::progress::Progress;
use sources::{Gathered, SourceFlags};

/// The exit code if the configuration in force cuts calls.
const CUT_EXIT_CODE: u8 = 1;
/// The exit code if there is no answer.
const FAILED_EXIT_CODE: u8 = 2;

/// Show which services workloads call, and suggest Sidecars that make only these visible
///
/// Every proxy has the configuration of all services, unless a Sidecar names those that its workload
/// calls. The metrics of proxies have what it calls: this command reads them, from the pods through
/// the API server, from files (--metrics), or from Prometheus (--prometheus). A former output
/// (-o json) can be added (--evidence), so that evidence accumulates.
///
/// A pod is believed only about its own workload, and only hosts of the registry are suggested:
/// what an application writes on its page of metrics has no effect on others.
///
/// Nothing is written to the cluster: suggestions are YAML on the standard output.
///
/// Exit codes: 0 there is an answer; 1 diff has found calls that the configuration in force cuts; 2
/// the command line is wrong, or the mesh or all of the metrics could not be read. A pod or a line
/// that cannot be read is named on the standard error, and the others are read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch scope suggest -n shop                              Sidecars for the workloads of a namespace
  navarch scope suggest shop/web --policies
  navarch scope suggest -n shop -o json > shop.json          evidence to add to later
  navarch scope suggest -n shop --evidence shop.json
  navarch scope suggest -n shop --prometheus http://localhost:9090 --since 7d
  navarch scope suggest --from dump/ --metrics web-1.txt     without a cluster
  navarch scope diff -n shop                                 what Sidecars and exportTo in force cut

Needed rights: the verb list for all kinds of the mesh, and get and create for pods/portforward.")]
pub(super) struct Scope {
    /// What to do
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    mesh: MeshFlags,
    /// Output format
    #[arg(
        short = 'o',
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    output: Output,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Print a Sidecar for each workload, with the evidence as comments, and what it saves
    Suggest {
        #[command(flatten)]
        selection: Selection,
        /// Time over which calls must have been counted, or else there is a warning
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = with_days)]
        min_age: Duration,
        /// Print an AuthorizationPolicy for each workload, too, which allows the clients that it
        /// has had
        #[arg(long)]
        policies: bool,
    },
    /// Compare what workloads call with what the configuration in force lets them call
    Diff {
        #[command(flatten)]
        selection: Selection,
    },
}

/// The workloads to look at.
#[derive(Args, Debug)]
struct Selection {
    /// Namespace of the workloads; all if unset
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Workloads, such as Deployments: NAME with --namespace, or NAMESPACE/NAME; all if unset
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
}

/// The selected workloads, and what their proxies have counted.
struct Looked {
    snapshot: Snapshot,
    workloads: Vec<Workload>,
    /// The proxies of the other pods, which receive requests.
    others: Vec<Client>,
    gathered: Gathered,
}

/// Parses a duration, which may be in days.
fn with_days(text: &str) -> anyhow::Result<Duration> {
    let days = text.strip_suffix('d').map(str::parse::<u32>);
    match days {
        Some(Ok(days)) => Ok(Duration::from_hours(24 * u64::from(days))),
        _ => duration(text),
    }
}

impl Selection {
    /// The names of the selected workloads; `None` selects all of the namespace.
    fn names(&self) -> anyhow::Result<Option<Vec<WorkloadName>>> {
        if self.workloads.is_empty() {
            return Ok(None);
        }
        let name = |text: &String| match (&self.namespace, text.contains('/')) {
            (Some(namespace), false) => Ok(WorkloadName::new(namespace, text)),
            (None, false) => bail!("{text}: set --namespace, or name it as NAMESPACE/NAME"),
            (_, true) => text.parse().with_context(|| text.clone()),
        };
        self.workloads
            .iter()
            .map(name)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// The selected pods.
    ///
    /// # Errors
    /// If a named workload has none, or there are none at all.
    fn of<'a>(&self, pods: &'a [SidecarPod]) -> anyhow::Result<Vec<&'a SidecarPod>> {
        let names = self.names()?;
        for name in names.iter().flatten() {
            let has_pods = pods.iter().any(|pod| name_of(pod) == *name);
            ensure!(has_pods, "workload {name} has no pod with a sidecar");
        }

        let is_selected = |pod: &&SidecarPod| match (&names, &self.namespace) {
            (Some(names), _) => names.contains(&name_of(pod)),
            (None, Some(namespace)) => pod.namespace == *namespace,
            (None, None) => true,
        };
        let selected: Vec<&SidecarPod> = pods.iter().filter(is_selected).collect();
        ensure!(!selected.is_empty(), "no pod with a sidecar is selected");
        Ok(selected)
    }
}

/// The workload of a pod.
fn name_of(pod: &SidecarPod) -> WorkloadName {
    WorkloadName::new(&pod.namespace, &pod.workload)
}

/// The workloads of pods, by name.
fn workloads(pods: &[&SidecarPod]) -> Vec<Workload> {
    let mut workloads: BTreeMap<WorkloadName, Workload> = BTreeMap::new();
    for pod in pods {
        let name = name_of(pod);
        let workload = workloads.entry(name.clone()).or_insert_with(|| Workload {
            name,
            pods: [].into(),
            all_pods: [].into(),
            client: Client::fresh(pod.proxy.clone()),
        });
        workload.pods.insert(pod.name.clone());
    }
    workloads.into_values().collect()
}

impl Scope {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Never: a failure is printed, and has its own exit code.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let answered = match &self.command {
            Command::Suggest {
                selection,
                min_age,
                policies,
            } => self.suggest(selection, *min_age, *policies),
            Command::Diff { selection } => self.diff(selection),
        };
        let code = answered.unwrap_or_else(|error| {
            report(&format!("Error: {error:?}"));
            FAILED_EXIT_CODE
        });
        Ok(ExitCode::from(code))
    }

    fn suggest(
        &self,
        selection: &Selection,
        min_age: Duration,
        policies: bool,
    ) -> anyhow::Result<u8> {
        let Looked {
            snapshot,
            workloads,
            gathered,
            ..
        } = self.look(selection)?;
        let Gathered {
            evidence, unread, ..
        } = gathered;
        let options = Options {
            min_age: i64::try_from(min_age.as_secs()).unwrap_or(i64::MAX),
            with_policies: policies,
            unread,
        };

        let found = translate(|| suggest(&snapshot.context, &workloads, evidence, &options))?;
        match self.output {
            Output::Text => print_yaml(&found.to_string())?,
            Output::Json => print_json(&serde_json::to_string_pretty(&found)?)?,
        }
        Ok(0)
    }

    fn diff(&self, selection: &Selection) -> anyhow::Result<u8> {
        let Looked {
            snapshot,
            workloads,
            others,
            gathered,
        } = self.look(selection)?;
        let evidence = gathered.evidence;
        let found = translate(|| compare(&snapshot.context, &workloads, others, evidence))?;
        super::output::print(self.output, &found, &found)?;
        Ok(if found.has_cut_calls() {
            CUT_EXIT_CODE
        } else {
            0
        })
    }

    /// Reads the mesh and the metrics.
    fn look(&self, selection: &Selection) -> anyhow::Result<Looked> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        let mesh = match &self.sources.from {
            Some(path) => Mesh::of_files(path, &self.mesh)?,
            None => runtime.block_on(Mesh::of_cluster(&self.mesh))?,
        };

        let snapshot = Snapshot::of_revision(&mesh.objects, &mesh.settings);
        for problem in &snapshot.problems {
            report(&format!("Warning: {problem}; it is left out"));
        }

        let all = sidecar_pods(&mesh.objects, &mesh.settings);
        let pods = selection.of(&all)?;
        let mut workloads = workloads(&pods);
        let mut all_pods = pods_by_workload(&mesh.objects);
        for workload in &mut workloads {
            let key = (workload.name.namespace.clone(), workload.name.name.clone());
            workload.all_pods = all_pods.remove(&key).unwrap_or_default();
        }

        let chosen: BTreeSet<&str> = workloads
            .iter()
            .map(|one| &*one.client.proxy.name)
            .collect();
        let others = all.iter().filter(|pod| !chosen.contains(&*pod.proxy.name));
        let others = others.map(|pod| Client::fresh(pod.proxy.clone())).collect();

        let gathering = self
            .sources
            .gather(&mesh, &snapshot, &all, &pods, &workloads);
        let gathered = runtime.block_on(gathering)?;
        Ok(Looked {
            snapshot,
            workloads,
            others,
            gathered,
        })
    }
}

/// Runs a translation on a thread of its own: it is deeply recursive.
fn translate<T: Send>(compute: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let _progress = Progress::begin("translating the proxies");
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("scope".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, compute)
            .context("failed to start the translating thread")?;
        let computed = thread.join();
        computed.map_err(|_| anyhow::anyhow!("the translating thread panicked; see the log above"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_may_be_in_days() {
        assert_eq!(with_days("7d").unwrap(), Duration::from_hours(168));
        assert_eq!(with_days("90m").unwrap(), Duration::from_mins(90));
        for wrong in ["d", "-1d", "1.5d", "week"] {
            assert!(with_days(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workloads_are_named_with_their_namespace() {
        let names = |namespace: Option<&str>, workloads: &[&str]| {
            let selection = Selection {
                namespace: namespace.map(str::to_owned),
                workloads: workloads.iter().map(|name| (*name).to_owned()).collect(),
            };
            let names = selection.names().ok()?;
            Some(names.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>()))
        };
        assert_eq!(names(Some("shop"), &[]), Some(None));
        let expected = Some(Some(vec!["shop/web".to_owned(), "bank/db".to_owned()]));
        assert_eq!(names(Some("shop"), &["web", "bank/db"]), expected);
        assert_eq!(names(None, &["web"]), None);
        assert_eq!(names(None, &["a/b/c"]), None);
    }
}
