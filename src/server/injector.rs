//! Keeps the injector in step with what decides on injection: the chart's ConfigMap or the files of it, the mesh config,
//! ProxyConfigs, the versions of nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Tasks, spawn, until};
use crate::push::worker::PushHandle;
use crate::webhook::CurrentInjector;
use crate::webhook::inject::{Injector, InjectorInputs, NativeSidecars};

/// How often files, mesh config and objects are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// The ConfigMap of the default revision; those of others have the revision behind it.
const NAME: &str = "istio-sidecar-injector";

/// What flags and environment say of injection.
#[derive(Clone, Debug)]
pub struct InjectionSettings {
    /// `INJECT_ENABLED`: pods are injected at all. Default true.
    pub enabled: bool,
    /// The folder with the files `config` and `values`, which go before the ConfigMap. Default `./var/lib/istio/inject`.
    pub folder: PathBuf,
    /// `ENABLE_NATIVE_SIDECARS`.
    pub native_sidecars: NativeSidecars,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// Variables that templates may read.
    pub environment: BTreeMap<String, String>,
    /// `PLATFORM` is `openshift`.
    pub openshift: bool,
}

impl Default for InjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            folder: PathBuf::from("./var/lib/istio/inject"),
            native_sidecars: NativeSidecars::Auto,
            compliance_policy: String::new(),
            environment: BTreeMap::new(),
            openshift: false,
        }
    }
}

/// The two texts of the chart's ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Texts {
    /// `values`.
    values: String,
    /// `config`.
    config: String,
}

/// What follows the inputs.
pub(super) struct InjectorSource<'a> {
    /// What flags and environment say.
    pub(super) settings: &'a InjectionSettings,
    /// The revision of this control plane.
    pub(super) revision: &'a str,
    /// The namespace of this control plane.
    pub(super) namespace: &'a str,
    /// The client of the Kubernetes API, where it is used.
    pub(super) client: Option<&'a kube::Client>,
    /// The snapshot in force.
    pub(super) push: &'a PushHandle,
}

impl InjectorSource<'_> {
    /// Starts to follow. Empty until a config is found.
    pub(super) fn start(&self, stop: &CancellationToken, tasks: &mut Tasks) -> CurrentInjector {
        let current: CurrentInjector = Arc::new(ArcSwapOption::empty());
        if !self.settings.enabled {
            return current;
        }
        let is_in_files = self.settings.folder.join("config").exists();
        let texts = match self.client {
            Some(client) if !is_in_files => self.follow_map(client, stop, tasks),
            _ => watch::channel(None).1,
        };
        let mut follower = Follower {
            settings: self.settings.clone(),
            revision: self.revision.to_owned(),
            folder: is_in_files.then(|| self.settings.folder.clone()),
            texts,
            push: self.push.clone(),
            current: current.clone(),
            last: None,
        };
        let stop = stop.clone();
        spawn("injector", tasks, async move {
            until(&stop, follower.run()).await;
            Ok(())
        });
        current
    }

    /// Follows the ConfigMap.
    fn follow_map(
        &self,
        client: &kube::Client,
        stop: &CancellationToken,
        tasks: &mut Tasks,
    ) -> watch::Receiver<Option<Texts>> {
        let name = match self.revision {
            "" | "default" => NAME.to_owned(),
            revision => format!("{NAME}-{revision}"),
        };
        let maps = Api::<ConfigMap>::namespaced(client.clone(), self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (sender, receiver) = watch::channel(None);
        let stop = stop.clone();
        spawn("injector config", tasks, async move {
            let mut events = std::pin::pin!(watcher(maps, config).default_backoff());
            while let Some(Some(event)) = until(&stop, events.next()).await {
                match event {
                    Ok(Event::Apply(map) | Event::InitApply(map)) => {
                        let mut data = map.data.unwrap_or_default();
                        let mut text = |key: &str| data.remove(key).unwrap_or_default();
                        sender.send_replace(Some(Texts { values: text("values"), config: text("config") }));
                    }
                    Ok(Event::Delete(_)) => tracing::warn!(name, "the injector's config is gone; the last one stays"),
                    Ok(Event::Init | Event::InitDone) => {}
                    Err(error) => tracing::warn!(name, %error, "cannot see the injector's config"),
                }
            }
            stop.cancelled().await;
            Ok(())
        });
        receiver
    }
}

/// Follows the inputs.
struct Follower {
    /// What flags and environment say.
    settings: InjectionSettings,
    /// The revision of this control plane.
    revision: String,
    /// Where the texts are, if in files.
    folder: Option<PathBuf>,
    /// The texts, if not in files.
    texts: watch::Receiver<Option<Texts>>,
    /// The snapshot in force.
    push: PushHandle,
    /// The injector.
    current: CurrentInjector,
    /// The inputs that were last tried.
    last: Option<InjectorInputs>,
}

impl Follower {
    /// Follows for ever.
    async fn run(&mut self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.texts.changed() => {}
            }
            self.look();
        }
    }

    /// Brings the injector up to date; a config that is broken changes nothing.
    fn look(&mut self) {
        if !self.push.is_synced() {
            return;
        }
        let texts = match &self.folder {
            Some(folder) => read(folder),
            None => self.texts.borrow().clone(),
        };
        let Some(texts) = texts else { return };
        let inputs = self.inputs(texts);
        if self.last.as_ref().is_some_and(|last| are_equal(last, &inputs)) {
            return;
        }
        let outcome = match &*self.current.load() {
            Some(injector) => injector.update(&inputs),
            None => Injector::new(&inputs).map(|injector| self.current.store(Some(Arc::new(injector)))),
        };
        match outcome {
            Ok(()) => tracing::info!("injection is configured"),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the injector's config is refused; the last good one stays"
                );
            }
        }
        self.last = Some(inputs);
    }

    /// What injection is decided by now.
    fn inputs(&self, texts: Texts) -> InjectorInputs {
        let context = self.push.context();
        let kubelets = context.objects.nodes.iter();
        let kubelets = kubelets.map(|node| (node.meta.key.name.to_string(), node.spec.kubelet_version.to_string()));
        InjectorInputs {
            values: texts.values,
            config: texts.config,
            mesh: self.mesh(&context.mesh.config),
            proxy_configs: context.objects.proxy_configs.iter().cloned().collect(),
            revision: self.revision.clone(),
            native_sidecars: self.settings.native_sidecars,
            kubelets: BTreeMap::from([(context.mesh.settings.cluster_id.to_string(), kubelets.collect())]),
            compliance_policy: self.settings.compliance_policy.clone(),
            environment: self.settings.environment.clone(),
            openshift: self.settings.openshift,
        }
    }

    /// The mesh config; the one of the last inputs where it is equal.
    fn mesh(&self, now: &crate::api::mesh::MeshConfig) -> Arc<crate::api::mesh::MeshConfig> {
        match &self.last {
            Some(last) if *last.mesh == *now => last.mesh.clone(),
            _ => Arc::new(now.clone()),
        }
    }
}

/// The texts of a folder; `None` while they cannot be read.
fn read(folder: &Path) -> Option<Texts> {
    let config = std::fs::read_to_string(folder.join("config")).ok()?;
    let values = std::fs::read_to_string(folder.join("values")).unwrap_or_default();
    Some(Texts { values, config })
}

/// Whether the same injector is made from both; what flags say does not change.
fn are_equal(a: &InjectorInputs, b: &InjectorInputs) -> bool {
    a.values == b.values
        && a.config == b.config
        && Arc::ptr_eq(&a.mesh, &b.mesh)
        && a.kubelets == b.kubelets
        && a.proxy_configs.len() == b.proxy_configs.len()
        && a.proxy_configs.iter().zip(&b.proxy_configs).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
}
