//! Selects the sources by flags, mesh config and environment, and starts their tasks.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc};

use super::api_rate::ApiRate;
use super::boot::{Boot, until};
use super::refusals::Refusals;
use super::source_address::{SourceAddress, XdsServer};
use super::{Config, kubernetes, pump};
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Namespace;
use navarch_api::regular_file;
use navarch_net::backoff::Backoff;
use navarch_push::worker::PushHandle;
use navarch_source::{
    Aggregate, Batch, Demand, FileSource, FileSourceConfig, IDLE_TIMEOUT, KeyFetching, KeyMetrics,
    KubernetesScope, KubernetesSource, KubernetesSourceConfig, MeshFileSource,
    MeshFileSourceConfig, MeshLayers, MeshMapSource, MeshMapSourceConfig, ReadKinds, SourceError,
    XdsMetrics, XdsSource, XdsSourceConfig,
};

/// Capacity of the channel of batches to the push thread; sources block when it is full, and merge
/// their events.
const BATCHES_CAPACITY: usize = 64;

/// Maximum number of attempts to read the mesh config at start; after that, it has no config
/// sources.
const MAX_ATTEMPTS: u32 = 5;
/// Delays between attempts.
const RETRY_DELAY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(4));

/// Settings of sources from flags and environment.
#[derive(Clone, Debug)]
pub struct SourcesConfig {
    /// `--config-source`: the sources of configuration; earlier ones take precedence.
    pub addresses: Vec<SourceAddress>,
    /// `--registries`: whether Kubernetes' services are read.
    pub kubernetes_registry: bool,
    /// `--config-dir`: the directory of configuration, if neither flags nor mesh config contain
    /// sources.
    pub config_dir: Option<PathBuf>,
    /// The file of the mesh config, if there is one.
    pub mesh_config: Option<PathBuf>,
    /// The file of the mesh networks, if there is one.
    pub networks_config: Option<PathBuf>,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// The objects of the Kubernetes API to read.
    pub scope: KubernetesScope,
    /// `--kubernetes-idle-timeout`: time without activity after which a connection to the
    /// Kubernetes API is closed.
    pub idle_timeout: Duration,
    /// The rate limit of the Kubernetes API, if there is one.
    pub rate: Option<ApiRate>,
    /// `SHARED_MESH_CONFIG`: a ConfigMap that the one of the revision overrides.
    pub shared_mesh_config: Option<String>,
}

impl Default for SourcesConfig {
    fn default() -> Self {
        let (addresses, scope) = Default::default();
        let (config_dir, mesh_config, networks_config, kubeconfig, shared_mesh_config) =
            Default::default();
        Self {
            addresses,
            kubernetes_registry: true,
            config_dir,
            mesh_config,
            networks_config,
            kubeconfig,
            scope,
            idle_timeout: IDLE_TIMEOUT,
            rate: None,
            shared_mesh_config,
        }
    }
}

/// The selected sources, in order of precedence.
pub(super) struct Plan {
    sources: Vec<Planned>,
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<kube::Client>,
}

/// One source of objects.
enum Planned {
    Files(PathBuf),
    Kubernetes(ReadKinds),
    /// Another control plane.
    Xds(XdsServer),
}

impl Plan {
    /// Selects the sources: those of the flags; otherwise the directory, with the services of a
    /// cluster if enabled; otherwise those of the mesh config (`configSources`), with the services
    /// of the local cluster; otherwise the Kubernetes API.
    pub(super) async fn make(
        config: &SourcesConfig,
        namespace: &Namespace,
    ) -> anyhow::Result<Self> {
        let addresses = match (&config.addresses[..], &config.mesh_config) {
            ([], Some(file)) => addresses_in_file(file)?,
            (flags, _) => flags.to_vec(),
        };
        if addresses.is_empty()
            && let Some(directory) = &config.config_dir
        {
            let mut plan = Self {
                sources: vec![Planned::Files(directory.clone())],
                client: None,
            };
            if config.kubernetes_registry {
                plan.client =
                    Some(kubernetes::client(config.kubeconfig.as_deref(), config.rate).await?);
                plan.sources.push(Planned::Kubernetes(ReadKinds::Native));
            }
            return Ok(plan);
        }

        let without_cluster =
            !addresses.is_empty() && !addresses.contains(&SourceAddress::Kubernetes);
        if without_cluster && (!config.addresses.is_empty() || !config.kubernetes_registry) {
            return Ok(Self {
                sources: addresses.into_iter().map(Planned::from).collect(),
                client: None,
            });
        }

        let client = kubernetes::client(config.kubeconfig.as_deref(), config.rate).await?;
        let mesh_file = config
            .mesh_config
            .as_ref()
            .filter(|file| regular_file::may_exist(file));
        let addresses = match (addresses.is_empty(), mesh_file) {
            (true, None) => {
                addresses_in_map(&client, namespace, &map_name(&config.scope.revision)).await?
            }
            (true, Some(_)) | (false, _) => addresses,
        };

        let all = if config.kubernetes_registry {
            ReadKinds::All
        } else {
            ReadKinds::Configuration
        };

        let planned = |address| match address {
            SourceAddress::Kubernetes => Planned::Kubernetes(all),
            other @ (SourceAddress::Files(_) | SourceAddress::Xds(_)) => Planned::from(other),
        };
        let mut sources: Vec<_> = addresses.into_iter().map(planned).collect();
        if sources.is_empty() {
            sources.push(Planned::Kubernetes(all));
        } else if config.kubernetes_registry
            && !sources
                .iter()
                .any(|source| matches!(source, Planned::Kubernetes(_)))
        {
            sources.push(Planned::Kubernetes(ReadKinds::Native));
        }
        Ok(Self {
            sources,
            client: Some(client),
        })
    }

    /// Whether Istio's configuration comes from the Kubernetes API.
    pub(super) fn configures_by_kubernetes(&self) -> bool {
        let configures = |source: &Planned| match source {
            Planned::Kubernetes(ReadKinds::All | ReadKinds::Configuration) => true,
            Planned::Kubernetes(ReadKinds::Native | ReadKinds::Remote(_))
            | Planned::Files(_)
            | Planned::Xds(_) => false,
        };
        self.sources.iter().any(configures)
    }

    /// The objects of the Kubernetes API to read; `None` if it is not used.
    pub(super) fn scope(&self, config: &SourcesConfig) -> Option<KubernetesScope> {
        let kinds = self.sources.iter().find_map(|source| match source {
            Planned::Kubernetes(kinds) => Some(*kinds),
            Planned::Files(_) | Planned::Xds(_) => None,
        })?;
        Some(KubernetesScope {
            kinds,
            ..config.scope.clone()
        })
    }

    /// A short description of the sources.
    pub(super) fn describe(&self) -> String {
        let names: Vec<_> = self
            .sources
            .iter()
            .map(|source| source.name().to_string())
            .collect();
        names.join(", ")
    }
}

impl From<SourceAddress> for Planned {
    fn from(address: SourceAddress) -> Self {
        match address {
            SourceAddress::Files(path) => Self::Files(path),
            SourceAddress::Kubernetes => Self::Kubernetes(ReadKinds::All),
            SourceAddress::Xds(server) => Self::Xds(server),
        }
    }
}

impl Planned {
    /// The name of the source in problems.
    fn name(&self) -> Arc<str> {
        match self {
            Self::Files(path) => Arc::from(format!("fs://{}", path.display())),
            Self::Kubernetes(_) => Arc::from("k8s://"),
            Self::Xds(server) => Arc::from(format!("xds://{}", server.address)),
        }
    }
}

/// The config sources in a mesh config file; none if there is no file. An invalid file has none;
/// the error is reported when its source reads it.
///
/// # Errors
/// When the file cannot be read. Without its sources others would be read instead, until a restart.
fn addresses_in_file(file: &Path) -> anyhow::Result<Vec<SourceAddress>> {
    match regular_file::read_text(file) {
        Ok(text) => addresses_in(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            Err(error).with_context(|| format!("failed to read the mesh config {}", file.display()))
        }
    }
}

/// The config sources in a mesh config.
fn addresses_in(text: &str) -> anyhow::Result<Vec<SourceAddress>> {
    let config = MeshConfig::istio_defaults()
        .apply(text)
        .map(|typed| typed.value);
    let sources = config
        .map(|config| config.config_sources)
        .unwrap_or_default();
    let addresses: Result<_, _> = sources.iter().map(SourceAddress::of).collect();
    addresses.context("configSources of the mesh config")
}

/// The config sources in the mesh config of a ConfigMap.
async fn addresses_in_map(
    client: &kube::Client,
    namespace: &Namespace,
    name: &str,
) -> anyhow::Result<Vec<SourceAddress>> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let mut backoff = RETRY_DELAY;

    for _ in 0..MAX_ATTEMPTS {
        let request = http::Request::get(&path).body(Vec::new())?;
        match client.request::<serde_json::Value>(request).await {
            Ok(map) => {
                let text = map
                    .pointer("/data/mesh")
                    .and_then(serde_json::Value::as_str);
                return addresses_in(text.unwrap_or_default());
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => {
                tracing::warn!(%error, ns = %namespace, name, "failed to read the mesh config");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }

    // It may become readable later; its mesh settings are applied then.
    Ok(Vec::new())
}

/// The ConfigMap of the mesh config of a revision.
fn map_name(revision: &str) -> String {
    match revision {
        "" | "default" => "istio".to_owned(),
        revision => format!("istio-{revision}"),
    }
}

/// Starts the tasks of the sources.
pub(super) struct Starter<'a> {
    /// Settings from flags and environment.
    pub(super) config: &'a Config,
    pub(super) metrics: SourceMetrics,
    /// Notified to read files again.
    pub(super) reload: &'a Arc<Notify>,
    pub(super) boot: &'a mut Boot,
}

#[derive(Debug)]
pub(super) struct SourceMetrics {
    /// Metrics of rejected objects.
    pub(super) refusals: Refusals,
    keys: KeyMetrics,
    /// Metrics of streams from other control planes.
    xds: XdsMetrics,
}

/// Registers the metrics of sources; those of key fetches have istiod's names.
pub(super) fn metrics(registry: &mut Registry) -> SourceMetrics {
    let refusals = Refusals::register(registry);
    let keys = KeyMetrics::default();
    let KeyMetrics { fetched, failed } = keys.clone();
    let about = "JWKS of token issuers fetched";
    registry.register(
        "pilot_jwks_resolver_network_fetch_success_total",
        about,
        fetched,
    );

    let about = "JWKS of token issuers that failed to be fetched";
    registry.register(
        "pilot_jwks_resolver_network_fetch_fail_total",
        about,
        failed,
    );

    SourceMetrics {
        refusals,
        keys,
        xds: XdsMetrics::register(registry),
    }
}

impl Starter<'_> {
    /// Starts the sources and the pump. `remotes` sends an event when remote clusters were read.
    pub(super) fn start(
        mut self,
        plan: Plan,
        remotes: mpsc::Receiver<Batch>,
        push: &PushHandle,
    ) -> anyhow::Result<()> {
        let mut reloads = Vec::new();
        let mesh = self.start_mesh(plan.client.as_ref(), &mut reloads);
        let mut sources = Vec::new();
        for source in plan.sources {
            let name = source.name();
            let events = match source {
                Planned::Files(root) => self.start_files(root, &mut reloads),
                Planned::Xds(server) => self.start_xds(server, plan.client.clone()),
                Planned::Kubernetes(kinds) => {
                    let Some(client) = plan.client.clone() else {
                        bail!("no Kubernetes client")
                    };

                    let scope = KubernetesScope {
                        kinds,
                        ..self.scope()
                    };

                    self.start_kubernetes(KubernetesSourceConfig {
                        client,
                        scope,
                        idle_timeout: self.config.sources.idle_timeout,
                    })
                }
            };

            sources.push((name, events));
        }

        let objects = match sources.len() {
            1 => sources.remove(0).1,
            _ => {
                let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
                self.boot
                    .spawn_until_stop("all sources", Aggregate::new(sources).run(sender));
                events
            }
        };

        let requested = self.reload.clone();
        let stop = self.boot.stop.clone();
        self.boot.spawn("reload", async move {
            while until(&stop, requested.notified()).await.is_some() {
                reloads.iter().for_each(|reload| reload.notify_one());
            }
        });

        let (to_keys, keys) = self.start_keys();
        let pump = pump::Pump {
            push: push.clone(),
            problems: self.boot.problems.clone(),
            keys: to_keys,
            refusals: self.metrics.refusals,
        };
        self.boot
            .spawn_until_stop("pump", pump.run([mesh, objects, keys, remotes]));

        Ok(())
    }

    /// The objects of the Kubernetes API to read, with the namespace of the control plane.
    fn scope(&self) -> KubernetesScope {
        KubernetesScope {
            system_namespace: self.config.settings.system_namespace.clone(),
            ..self.config.sources.scope.clone()
        }
    }

    /// Starts the fetcher of token issuers' keys. Returns the channel of its requests, and its
    /// events.
    fn start_keys(&mut self) -> (mpsc::Sender<Demand>, mpsc::Receiver<Batch>) {
        let (to_keys, demands) = mpsc::channel(BATCHES_CAPACITY);
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        let keys = KeyFetching::new(self.config.keys.clone()).counted_by(self.metrics.keys.clone());

        self.boot
            .spawn_until_stop("keys", keys.run(demands, sender));
        (to_keys, events)
    }

    /// Starts the source of mesh config: files if there are any, otherwise ConfigMaps if there is a
    /// cluster.
    fn start_mesh(
        &mut self,
        client: Option<&kube::Client>,
        reloads: &mut Vec<Arc<Notify>>,
    ) -> mpsc::Receiver<Batch> {
        let config = &self.config.sources;
        let there = |file: &Option<PathBuf>| {
            file.clone()
                .filter(|file| client.is_none() || regular_file::may_exist(file))
        };
        let mesh = there(&config.mesh_config);
        let networks = there(&config.networks_config);

        let base = MeshConfig::istio_defaults();
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        let reload = Arc::new(Notify::new());
        let own = map_name(&config.scope.revision);
        let shared = config
            .shared_mesh_config
            .clone()
            .filter(|shared| *shared != own);
        let maps = client.map(|client| MeshMapSourceConfig {
            client: client.clone(),
            namespace: self.config.settings.system_namespace.clone(),
            names: shared.iter().cloned().chain([own]).collect(),
            base: base.clone(),
            idle_timeout: config.idle_timeout,
        });

        let run: Pin<Box<dyn Future<Output = Result<(), SourceError>> + Send>> = match maps {
            Some(maps) if mesh.is_none() && networks.is_none() => {
                Box::pin(MeshMapSource::new(maps).run(sender))
            }
            Some(maps) => Box::pin(
                MeshLayers {
                    maps,
                    shared,
                    mesh,
                    networks,
                }
                .run(sender, reload.clone()),
            ),
            None => {
                let files = MeshFileSource::new(MeshFileSourceConfig {
                    mesh,
                    networks,
                    base,
                });
                Box::pin(files.run(sender, reload.clone()))
            }
        };

        reloads.push(reload);
        self.boot.spawn_until_stop("mesh config", run);
        events
    }

    /// Starts the source for a directory.
    fn start_files(
        &mut self,
        root: PathBuf,
        reloads: &mut Vec<Arc<Notify>>,
    ) -> mpsc::Receiver<Batch> {
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        let reload = Arc::new(Notify::new());
        reloads.push(reload.clone());
        let files = FileSource::new(FileSourceConfig { root });

        self.boot
            .spawn_until_stop("files", files.run(sender, reload));
        events
    }

    /// Starts the source for another control plane.
    fn start_xds(
        &mut self,
        server: XdsServer,
        secrets: Option<kube::Client>,
    ) -> mpsc::Receiver<Batch> {
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        let XdsServer {
            address,
            tls,
            services_alone,
        } = server;
        let source = XdsSource::new(XdsSourceConfig {
            address,
            tls,
            services_alone,
            scope: self.scope(),
            pod: self.config.pod.clone(),
            secrets,
            metrics: self.metrics.xds.clone(),
        });

        self.boot.spawn_until_stop("xDS", source.run(sender));
        events
    }

    /// Starts the source for the Kubernetes API.
    fn start_kubernetes(&mut self, config: KubernetesSourceConfig) -> mpsc::Receiver<Batch> {
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        let source = KubernetesSource::new(config);
        self.boot.spawn_until_stop("Kubernetes", source.run(sender));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn flags_come_before_the_directory_and_mesh_config() {
        let config_dir = Some(PathBuf::from("/a"));
        let mut config = SourcesConfig {
            config_dir,
            kubernetes_registry: false,
            ..SourcesConfig::default()
        };
        let namespace = Namespace::new("istio-system");
        assert_eq!(
            Plan::make(&config, &namespace).await.unwrap().describe(),
            "fs:///a"
        );

        config.addresses = vec![
            SourceAddress::Files(PathBuf::from("/b")),
            SourceAddress::Files(PathBuf::from("/c")),
        ];
        assert_eq!(
            Plan::make(&config, &namespace).await.unwrap().describe(),
            "fs:///b, fs:///c"
        );

        assert!(
            Plan::make(&config, &namespace)
                .await
                .unwrap()
                .client
                .is_none(),
            "nothing is left to ask it for"
        );

        let nowhere = Plan::make(&SourcesConfig::default(), &namespace)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(nowhere.contains("--kubeconfig"), "{nowhere}");
    }

    #[test]
    fn a_mesh_config_that_cannot_be_read_does_not_count_as_one_without_sources() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(
            path("mesh"),
            "configSources: [{address: 'fs:///objects'}]\n",
        )
        .unwrap();
        std::fs::write(path("binary"), b"\xff").unwrap();
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();

        assert_eq!(
            addresses_in_file(&path("mesh")).unwrap(),
            [SourceAddress::Files(PathBuf::from("/objects"))]
        );
        assert!(addresses_in_file(&path("none")).unwrap().is_empty());
        for name in ["binary", "loop"] {
            let error = addresses_in_file(&path(name)).unwrap_err().to_string();
            assert!(error.ends_with(name), "{error}");
        }
    }
}
