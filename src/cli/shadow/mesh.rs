//! What Navarch would answer from: the objects of a directory, or of a cluster that is watched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use navarch_ambient::AmbientTranslator;
use navarch_api::istiod;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Namespace;
use navarch_api::settings::Settings;
use navarch_envoy::EnvoyTranslator;
use navarch_kubernetes::InWords;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::worker::{self, Debounce, PushHandle};
use navarch_source::{
    Batch, IDLE_TIMEOUT, KubernetesScope, KubernetesSource, KubernetesSourceConfig, MeshMapSource,
    MeshMapSourceConfig, SourceEvent,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::super::cluster::ClusterFlags;
use super::super::discovery::scope;
use super::super::environment::{self, Variables};
use super::super::kubeconfig::ClusterClient;
use super::super::offline::snapshot_with;
use super::super::output::report;

/// The number of batches of a source that wait.
const BATCHES: usize = 16;
/// The advice without a cluster and a directory.
const ADVICE: &str =
    "name the objects of the mesh: a cluster by --kubeconfig, or a directory by --config-dir";

/// The objects of the mesh.
pub(super) enum Mesh {
    /// A directory, which is read in each round.
    Directory {
        path: PathBuf,
        mesh_config: Option<PathBuf>,
        variables: Variables,
    },
    /// A cluster.
    Cluster(Watched),
}

/// A cluster whose objects are watched.
pub(super) struct Watched {
    push: PushHandle,
    /// Why objects are no longer read.
    ended: Arc<OnceLock<String>>,
    /// Reading tasks, which end with this.
    _tasks: JoinSet<()>,
}

impl Mesh {
    /// The objects of a directory, with the variables of the control plane.
    pub(super) fn of_directory(
        path: &Path,
        mesh_config: Option<&PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self::Directory {
            path: path.to_owned(),
            mesh_config: mesh_config.cloned(),
            variables: Variables::new(variables),
        }
    }

    /// The objects of a cluster with this DNS domain, once all have been read. `given` are variables
    /// that override those of istiod's pod.
    ///
    /// # Errors
    /// If there is no cluster, it has no istiod, or not all objects can be read in time.
    pub(super) async fn of_cluster(
        flags: &ClusterFlags,
        given: BTreeMap<String, String>,
        domain: &str,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let opened = flags.client().await?.context(ADVICE)?;
        let mut variables = variables_of_istiod(&opened, flags).await?;
        variables.extend(given);

        let variables = Variables::new(variables);
        let watching = read_cluster(&opened, flags, &variables, domain);
        let watched = tokio::time::timeout(timeout, watching).await;
        let watched = watched.with_context(|| {
            format!(
                "the objects of {} were not read within {timeout:?}: increase --timeout, or see \
                 whether the user of the kubeconfig may list and watch them (`kubectl auth can-i \
                 list secrets -A`)",
                opened.name
            )
        })?;
        Ok(Self::Cluster(watched?))
    }

    /// The current snapshot. Not for async code: a directory is read by a runtime of its own.
    ///
    /// # Errors
    /// If the directory cannot be read, or the cluster is no longer read.
    pub(super) fn context(&self) -> anyhow::Result<Arc<PushContext>> {
        match self {
            Self::Directory {
                path,
                mesh_config,
                variables,
            } => {
                let (context, problems) = snapshot_with(path, mesh_config.as_ref(), variables)?;
                for problem in problems {
                    report(&format!("Warning: {problem}"));
                }
                Ok(context)
            }
            Self::Cluster(watched) => match watched.ended.get() {
                None => Ok(watched.push.context()),
                Some(error) => bail!("the cluster is no longer read: {error}"),
            },
        }
    }
}

/// The environment variables in the pods of the selected istiod.
async fn variables_of_istiod(
    opened: &ClusterClient,
    flags: &ClusterFlags,
) -> anyhow::Result<BTreeMap<String, String>> {
    let namespace = flags.istio_namespace();
    let pods: Api<Pod> = Api::namespaced(opened.client.clone(), namespace);
    let selector = flags.selector();
    let listed = pods.list(&ListParams::default().labels(&selector)).await;
    let listed = listed.map_err(|error| {
        anyhow::anyhow!(
            "failed to read istiod's variables: {}. Request the verb list for pods in {namespace}",
            InWords(&error)
        )
    })?;

    let Some(pod) = listed.items.into_iter().next() else {
        bail!(
            "{}: namespace {namespace} has no pod with the labels {selector}: set \
             --istioNamespace and --revision",
            opened.name
        );
    };
    let spec = serde_json::to_value(pod.spec).context("failed to read istiod's pod")?;
    Ok(istiod::container(&spec)
        .map(istiod::variables)
        .unwrap_or_default())
}

/// The revision of istiod, whose objects alone it reads: that of the flag, else that of its pod.
fn revision_of(flags: &ClusterFlags, variables: &Variables) -> Option<String> {
    let of_pod = || variables.get("REVISION").filter(|name| !name.is_empty());
    flags.revision().map(str::to_owned).or_else(of_pod)
}

/// The objects that istiod reads: of its revision, of the namespace to which it is restricted, and
/// without the kinds that it ignores.
fn scope_of(flags: &ClusterFlags, variables: &Variables, settings: &Settings) -> KubernetesScope {
    KubernetesScope {
        system_namespace: settings.system_namespace.clone(),
        ..scope(variables, revision_of(flags, variables), settings)
    }
}

/// Watches the objects and the mesh config of a cluster, and returns once all have been read.
async fn read_cluster(
    opened: &ClusterClient,
    flags: &ClusterFlags,
    variables: &Variables,
    domain: &str,
) -> anyhow::Result<Watched> {
    let mut settings = environment::settings(|name| variables.get(name))?;
    settings.discover_configuration = true;
    settings.domain_suffix = domain.to_owned();
    settings.system_namespace = Namespace::new(flags.istio_namespace());

    let revision = revision_of(flags, variables);
    if let Some(revision) = &revision {
        settings.clusters.revision.clone_from(revision);
    }
    let mesh_config_map = settings.clusters.mesh_config_map();
    let scope = scope_of(flags, variables, &settings);

    let translator = Arc::new(AmbientTranslator(EnvoyTranslator));
    let (push, _) = worker::start(settings, Debounce::default(), translator)
        .context("failed to start the thread of the mesh state")?;

    let maps = MeshMapSource::new(MeshMapSourceConfig {
        client: opened.client.clone(),
        namespace: Namespace::new(flags.istio_namespace()),
        names: vec![mesh_config_map],
        base: MeshConfig::istio_defaults(),
        idle_timeout: IDLE_TIMEOUT,
    });
    let objects = KubernetesSource::new(KubernetesSourceConfig {
        client: opened.client.clone(),
        scope,
        idle_timeout: IDLE_TIMEOUT,
    });

    let ended = Arc::new(OnceLock::new());
    let mut tasks = JoinSet::new();
    let (to_push, from_maps) = mpsc::channel(BATCHES);
    let maps_ended = ended.clone();
    tasks.spawn(async move {
        if let Err(error) = maps.run(to_push).await {
            maps_ended.get_or_init(|| error.to_string());
        }
    });

    let (to_push, from_objects) = mpsc::channel(BATCHES);
    let objects_ended = ended.clone();
    tasks.spawn(async move {
        if let Err(error) = objects.run(to_push).await {
            objects_ended.get_or_init(|| error.to_string());
        }
    });

    for batches in [from_maps, from_objects] {
        let (synced, mut is_synced) = watch::channel(false);
        tasks.spawn(forward(batches, push.clone(), synced));
        is_synced
            .wait_for(|synced| *synced)
            .await
            .context("a reader of the cluster has ended")?;
    }
    push.full_sync().await?;
    push.wait_synced().await?;
    Ok(Watched {
        push,
        ended,
        _tasks: tasks,
    })
}

/// Applies the batches of a source, until it ends.
async fn forward(
    mut batches: mpsc::Receiver<Batch>,
    push: PushHandle,
    synced: watch::Sender<bool>,
) {
    while let Some(batch) = batches.recv().await {
        let is_synced = batch.contains(&SourceEvent::FullSync);
        let changes = batch.into_iter().filter_map(change).collect();
        if push.change(changes).await.is_err() {
            return;
        }
        if is_synced {
            synced.send_replace(true);
        }
    }
}

/// The change of an event.
fn change(event: SourceEvent) -> Option<Change> {
    match event {
        SourceEvent::Added(object) | SourceEvent::Updated(object) => {
            Some(Change::Put(object.without_internal_annotations()))
        }
        SourceEvent::Deleted(name) => Some(Change::Removed(name)),
        SourceEvent::MeshConfig(config) => Some(Change::Mesh(config)),
        SourceEvent::MeshNetworks(networks) => Some(Change::Networks(networks)),
        SourceEvent::Keys(source, keys) => Some(Change::Keys(source, keys)),
        SourceEvent::Problems { .. } | SourceEvent::FullSync => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use navarch_api::object::Kind;

    use super::*;

    #[test]
    fn objects_are_those_that_istiod_reads() {
        let command = ClusterFlags::augment_args(clap::Command::new("shadow"));
        let parsed = command.get_matches_from(["shadow", "-i", "mesh-system"]);
        let flags = ClusterFlags::from_arg_matches(&parsed).unwrap();
        let variables = [
            ("REVISION", "canary"),
            ("ISTIO_WATCH_NAMESPACE", "shop"),
            ("PILOT_IGNORE_RESOURCES", "*.istio.io"),
            ("PILOT_INCLUDE_RESOURCES", "sidecars.networking.istio.io"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = Variables::new(BTreeMap::from(variables));
        let settings = Settings {
            system_namespace: Namespace::new("mesh-system"),
            ..Settings::default()
        };

        let scope = scope_of(&flags, &variables, &settings);
        assert_eq!(scope.revision, "canary");
        assert_eq!(scope.system_namespace.as_str(), "mesh-system");
        assert_eq!(scope.namespace.as_str(), "shop");
        let kinds = scope.read_kinds();
        let reads = |kind| kinds.iter().any(|read| read.kind == kind);
        assert!(reads(Kind::Sidecar) && !reads(Kind::VirtualService));
    }
}
