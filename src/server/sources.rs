//! Starts the tasks of the selected sources.

mod plan;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc};

pub(super) use self::plan::Plan;
use self::plan::{Planned, map_name};
use super::boot::{Boot, until};
use super::{Config, pump};
use navarch_api::mesh::MeshConfig;
use navarch_base::regular_file;
use navarch_kubernetes::ApiRate;
use navarch_push::worker::PushHandle;
use navarch_rollout::StoredRollouts;
use navarch_source::{
    Aggregate, Batch, Demand, FileSource, FileSourceConfig, IDLE_TIMEOUT, KeyFetching, KeyMetrics,
    KubernetesScope, KubernetesSource, KubernetesSourceConfig, MeshFileSource,
    MeshFileSourceConfig, MeshLayers, MeshMapSource, MeshMapSourceConfig, MockSource,
    RejectedConfigs, SourceAddress, SourceError, XdsMetrics, XdsServer, XdsSource, XdsSourceConfig,
};

/// Capacity of the channel of batches to the push thread; sources block when it is full, and merge
/// their events.
const BATCHES_CAPACITY: usize = 64;

/// Settings of sources from flags and environment.
#[derive(Clone, Debug)]
pub struct SourcesConfig {
    /// `--config-source`: the sources of configuration; earlier ones take precedence.
    pub addresses: Vec<SourceAddress>,
    /// `--registries`: whether Kubernetes' services are read.
    pub kubernetes_registry: bool,
    /// `--registries`: whether the services of Istio's own tests are added.
    pub mock_registry: bool,
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
        Self {
            addresses: Vec::new(),
            kubernetes_registry: true,
            mock_registry: false,
            config_dir: None,
            mesh_config: None,
            networks_config: None,
            kubeconfig: None,
            scope: KubernetesScope::default(),
            idle_timeout: IDLE_TIMEOUT,
            rate: None,
            shared_mesh_config: None,
        }
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
    pub(super) rejected_configs: RejectedConfigs,
    keys: KeyMetrics,
    /// Metrics of streams from other control planes.
    xds: XdsMetrics,
}

/// Registers the metrics of sources; those of key fetches have istiod's names.
pub(super) fn metrics(registry: &mut Registry) -> SourceMetrics {
    let rejected_configs = RejectedConfigs::register(registry);
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
        rejected_configs,
        keys,
        xds: XdsMetrics::register(registry),
    }
}

impl Starter<'_> {
    /// Starts the sources and the pump. `remotes` sends an event when remote clusters were read;
    /// `rollouts` are restored when all objects are.
    pub(super) fn start(
        mut self,
        plan: Plan,
        remotes: mpsc::Receiver<Batch>,
        push: &PushHandle,
        rollouts: StoredRollouts,
    ) -> anyhow::Result<()> {
        let mut reloads = Vec::new();
        let mesh = self.start_mesh(plan.client.as_ref(), &mut reloads);
        let mut sources = Vec::new();
        for source in plan.sources {
            let name = source.name();
            let events = match source {
                Planned::Files(root) => self.start_files(root, &mut reloads),
                Planned::Xds(server) => self.start_xds(*server, plan.client.clone()),
                Planned::Mock => self.start_mock(),
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
            rejected_configs: self.metrics.rejected_configs,
            rollouts,
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

    /// Starts the source of the services of Istio's own tests.
    fn start_mock(&mut self) -> mpsc::Receiver<Batch> {
        let (sender, events) = mpsc::channel(BATCHES_CAPACITY);
        self.boot
            .spawn_until_stop("mock services", MockSource.run(sender));
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
