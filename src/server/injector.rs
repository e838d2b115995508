//! Keeps the injector up to date with its inputs: the chart's ConfigMap or files, the mesh config,
//! ProxyConfigs, and the versions of nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::boot::{Boot, until};
use crate::admin::Readiness;
use navarch_api::regular_file;
use navarch_kubernetes::InWords;
use navarch_push::worker::{Ended, PushHandle};
use navarch_store::Objects;
use navarch_webhook::inject::{ConfigError, Injector, InjectorInputs, NativeSidecars};
use navarch_webhook::{CurrentInjector, InjectorState, Metrics};

/// Poll interval of files, mesh config and objects.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The ConfigMap of the default revision; those of others have the revision as suffix.
const NAME: &str = "istio-sidecar-injector";
/// The name of the state in readiness reasons.
const INJECTION: &str = "injection";

/// From flags and environment. The templates and values are read from the directory or ConfigMap
/// later.
#[derive(Clone, Debug)]
pub struct InjectionSettings {
    /// `INJECT_ENABLED`: whether pods are injected. Default true.
    pub enabled: bool,
    /// The directory with the files `config` and `values`, which take precedence over the
    /// ConfigMap. Default `./var/lib/istio/inject`.
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
    values: String,
    config: String,
}

/// The state of the injector's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextsState {
    /// Not read yet, and why.
    Unknown(Arc<str>),
    /// They do not exist, and why.
    Missing(Arc<str>),
    Texts(Texts),
}

/// The task that follows the inputs.
pub(super) struct InjectorSource<'a> {
    /// Settings from flags and environment.
    pub(super) settings: &'a InjectionSettings,
    /// The revision of this control plane.
    pub(super) revision: &'a str,
    /// The namespace of this control plane.
    pub(super) namespace: &'a str,
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<&'a kube::Client>,
    /// The current snapshot.
    pub(super) push: &'a PushHandle,
    /// Publishes the state.
    pub(super) metrics: &'a Metrics,
}

impl InjectorSource<'_> {
    /// Starts to follow. Readiness waits until the first configuration was tried.
    pub(super) fn start(&self, boot: &mut Boot) -> CurrentInjector {
        let config = self.settings.folder.join("config");
        let folder = regular_file::may_exist(&config).then(|| self.settings.folder.clone());
        let found = match (self.settings.enabled, &folder, self.client) {
            (false, _, _) => return self.disabled("INJECT_ENABLED is false"),
            (true, None, None) => {
                return self.disabled("there are no configuration files and no cluster");
            }
            (true, Some(_), _) => watch::channel(TextsState::Unknown(Arc::from(""))).1,
            (true, None, Some(client)) => self.follow_map(client, boot),
        };

        let pending: Arc<str> = Arc::from("the configuration of the mesh has not been read yet");
        let state = InjectorState::Pending(pending.clone());
        self.metrics.injector(&state);
        boot.readiness.hold(INJECTION, &*pending);
        let current = CurrentInjector::new(state);
        let mut follower = Follower {
            settings: self.settings.clone(),
            revision: self.revision.to_owned(),
            folder,
            found,
            push: self.push.clone(),
            current: current.clone(),
            readiness: boot.readiness.clone(),
            metrics: self.metrics.clone(),
            injector: None,
            last: None,
            refused: None,
        };

        boot.spawn_until_stop("injector", async move { follower.run().await });

        current
    }

    /// Disables injection.
    fn disabled(&self, reason: &'static str) -> CurrentInjector {
        tracing::info!(reason, "injection is disabled");
        let state = InjectorState::Off(reason);
        self.metrics.injector(&state);
        CurrentInjector::new(state)
    }

    /// Follows the ConfigMap.
    fn follow_map(&self, client: &kube::Client, boot: &mut Boot) -> watch::Receiver<TextsState> {
        let name = match self.revision {
            "" | "default" => NAME.to_owned(),
            revision => format!("{NAME}-{revision}"),
        };
        let place: Arc<str> = Arc::from(format!("ConfigMap {}/{name}", self.namespace));
        let maps = Api::<ConfigMap>::namespaced(client.clone(), self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (sender, receiver) = watch::channel(TextsState::Unknown(Arc::from(format!(
            "{place} has not been read yet"
        ))));

        let stop = boot.stop.clone();
        boot.spawn("injector config", async move {
            let mut events = std::pin::pin!(watcher(maps, config).default_backoff());
            let mut is_listed = false;

            while let Some(Some(event)) = until(&stop, events.next()).await {
                let found = match event {
                    Ok(Event::Apply(map)) => texts(map, &place),
                    Ok(Event::InitApply(map)) => {
                        is_listed = true;
                        texts(map, &place)
                    }
                    Ok(Event::Init) => {
                        is_listed = false;
                        continue;
                    }
                    Ok(Event::InitDone) if is_listed => continue,
                    Ok(Event::InitDone | Event::Delete(_)) => {
                        TextsState::Missing(Arc::from(format!("{place} does not exist")))
                    }
                    Err(error) => {
                        tracing::warn!(%place, error = %InWords(&error), "failed to watch the injector's configuration");
                        if matches!(
                            *sender.borrow(),
                            TextsState::Missing(_) | TextsState::Texts(_)
                        ) {
                            continue;
                        }
                        TextsState::Unknown(Arc::from(format!("failed to read {place}: {error}")))
                    }
                };

                sender.send_replace(found);
            }

            stop.cancelled().await;
        });

        receiver
    }
}

/// The texts of a ConfigMap. As in istiod, both keys are required.
fn texts(map: ConfigMap, place: &str) -> TextsState {
    let mut data = map.data.unwrap_or_default();
    let mut take = |key: &str| {
        data.remove(key)
            .ok_or_else(|| format!("{place} has no key {key:?}"))
    };
    match take("values").and_then(|values| {
        Ok(Texts {
            values,
            config: take("config")?,
        })
    }) {
        Ok(texts) => TextsState::Texts(texts),
        Err(reason) => TextsState::Missing(Arc::from(reason)),
    }
}

/// Follows the inputs.
struct Follower {
    /// Settings from flags and environment.
    settings: InjectionSettings,
    /// The revision of this control plane.
    revision: String,
    /// The directory of the texts, if they are files.
    folder: Option<PathBuf>,
    /// The texts of the ConfigMap, if they are not files.
    found: watch::Receiver<TextsState>,
    /// The current snapshot.
    push: PushHandle,
    /// The state that answers requests.
    current: CurrentInjector,
    /// Readiness guard, held until the first configuration was tried.
    readiness: Readiness,
    /// Publishes the state.
    metrics: Metrics,
    /// The injector, once there was a valid configuration.
    injector: Option<Arc<Injector>>,
    /// The inputs that were last tried.
    last: Option<InjectorInputs>,
    /// Why they were rejected, if they were.
    refused: Option<Arc<str>>,
}

impl Follower {
    /// Follows the inputs until the process ends.
    ///
    /// # Errors
    /// If the push thread has stopped.
    async fn run(&mut self) -> Result<(), Ended> {
        // Mesh config, nodes and ProxyConfigs are inputs, too.
        self.push.wait_synced().await?;
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look();
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.found.changed() => {}
            }
        }
    }

    /// Updates the injector. An invalid configuration changes nothing if there was a valid one
    /// before.
    fn look(&mut self) {
        let found = match &self.folder {
            Some(folder) => read(folder),
            None => self.found.borrow_and_update().clone(),
        };
        let problem = match found {
            TextsState::Unknown(reason) => return self.publish(InjectorState::Pending(reason)),
            TextsState::Missing(reason) => Some(reason),
            TextsState::Texts(texts) => {
                self.take(texts);
                self.refused.clone()
            }
        };

        match (&self.injector, problem) {
            (Some(injector), refused) => self.publish(InjectorState::Ready {
                injector: injector.clone(),
                refused,
            }),
            (None, Some(reason)) => self.publish(InjectorState::Failed(reason)),
            (None, None) => {}
        }
    }

    /// Builds the injector of these texts, if they have changed.
    fn take(&mut self, texts: Texts) {
        let inputs = self.inputs(texts);

        if self
            .last
            .as_ref()
            .is_some_and(|last| are_equal(last, &inputs))
        {
            return;
        }
        let outcome = match &self.injector {
            Some(injector) => injector.update(&inputs),
            None => Injector::new(&inputs).map(|injector| self.injector = Some(Arc::new(injector))),
        };
        self.refused = outcome
            .err()
            .map(|error: ConfigError| Arc::from(error.to_string()));

        self.last = Some(inputs);

        if self.refused.is_none() {
            tracing::info!("injection is configured");
            self.current.notify();
        }
    }

    /// Publishes this state for requests, and reports it.
    fn publish(&self, state: InjectorState) {
        {
            let before = self.current.load();
            if before.label() == state.label() && before.problem() == state.problem() {
                return;
            }
        }

        let reason = state.problem().unwrap_or_default();

        match &state {
            InjectorState::Off(_) | InjectorState::Ready { refused: None, .. } => {
                self.readiness.release(INJECTION)
            }
            InjectorState::Pending(_) => {
                tracing::warn!(reason, "injection is not configured yet; rejecting pods");
                self.readiness.hold(INJECTION, reason);
            }
            InjectorState::Failed(_) => {
                tracing::error!(
                    reason,
                    "injection is not configured; rejecting pods until it is"
                );
                self.readiness.add_optional(
                    INJECTION,
                    format!("not configured, pods are rejected: {reason}"),
                );
            }
            InjectorState::Ready {
                refused: Some(_), ..
            } => {
                tracing::error!(
                    reason,
                    "invalid injector configuration; keeping the last valid one"
                );
                self.readiness.add_optional(
                    INJECTION,
                    format!("the last valid configuration is in use: {reason}"),
                );
            }
        }

        self.metrics.injector(&state);
        self.current.store(state);
    }

    /// The current inputs.
    fn inputs(&self, texts: Texts) -> InjectorInputs {
        let context = self.push.context();

        // A pod runs in the requesting cluster, whose nodes may be older than the local ones.
        let own = std::iter::once((&context.mesh.settings.cluster_id, &context.objects));
        let kubelets = own
            .chain(&context.remotes)
            .map(|(cluster, objects)| (cluster.to_string(), kubelets(objects)));
        InjectorInputs {
            values: texts.values,
            config: texts.config,
            mesh: self.mesh(&context.mesh.config),
            proxy_configs: context.objects.proxy_configs.iter().cloned().collect(),
            revision: self.revision.clone(),
            native_sidecars: self.settings.native_sidecars,
            kubelets: kubelets.collect(),
            compliance_policy: self.settings.compliance_policy.clone(),
            environment: self.settings.environment.clone(),
            openshift: self.settings.openshift,
        }
    }

    /// The mesh config; shared with the last inputs if it is equal.
    fn mesh(&self, now: &navarch_api::mesh::MeshConfig) -> Arc<navarch_api::mesh::MeshConfig> {
        match &self.last {
            Some(last) if *last.mesh == *now => last.mesh.clone(),
            _ => Arc::new(now.clone()),
        }
    }
}

/// The versions of the kubelets of a cluster, by node.
fn kubelets(objects: &Objects) -> BTreeMap<String, String> {
    let nodes = objects.nodes.iter();
    nodes
        .map(|node| {
            (
                node.meta.key.name.to_string(),
                node.spec.kubelet_version.to_string(),
            )
        })
        .collect()
}

/// The texts of a directory. As in istiod, both files are required.
fn read(folder: &Path) -> TextsState {
    let text = |name: &str| {
        let path = folder.join(name);
        regular_file::read_text(&path)
            .map_err(|error| format!("failed to read {}: {error}", path.display()))
    };
    match text("values").and_then(|values| {
        Ok(Texts {
            values,
            config: text("config")?,
        })
    }) {
        Ok(texts) => TextsState::Texts(texts),
        Err(reason) => TextsState::Missing(Arc::from(reason)),
    }
}

/// Whether both result in the same injector; settings from flags do not change.
fn are_equal(a: &InjectorInputs, b: &InjectorInputs) -> bool {
    a.values == b.values
        && a.config == b.config
        && Arc::ptr_eq(&a.mesh, &b.mesh)
        && a.kubelets == b.kubelets
        && a.proxy_configs.len() == b.proxy_configs.len()
        && a.proxy_configs
            .iter()
            .zip(&b.proxy_configs)
            .all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt as _;
    use prometheus_client::registry::Registry;
    use tower_service::Service as _;

    use super::*;
    use navarch_api::settings::Settings;
    use navarch_envoy::EnvoyTranslator;
    use navarch_push::worker::{self, Debounce};
    use navarch_webhook::{Limits, Webhooks, routes};

    /// An injector over a folder, before anything is read.
    struct Started {
        folder: tempfile::TempDir,
        push: PushHandle,
        readiness: Readiness,
        current: CurrentInjector,
        registry: Registry,
        _boot: Boot,
    }

    impl Started {
        /// Starts it; `texts` are written before.
        fn new(texts: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in texts {
                fs::write(folder.path().join(name), text).unwrap();
            }

            let (push, _) = worker::start(
                Settings::default(),
                Debounce::default(),
                Arc::new(EnvoyTranslator),
            )
            .unwrap();
            let settings = InjectionSettings {
                folder: folder.path().to_owned(),
                ..InjectionSettings::default()
            };

            let mut registry = Registry::default();
            let mut boot = Boot::new();
            let metrics = Metrics::register(&mut registry);
            let source = InjectorSource {
                settings: &settings,
                revision: "default",
                namespace: "istio-system",
                client: None,
                push: &push,
                metrics: &metrics,
            };

            let current = source.start(&mut boot);
            Self {
                folder,
                push,
                readiness: boot.readiness.clone(),
                current,
                registry,
                _boot: boot,
            }
        }

        /// Waits until the state has this label, and checks that the metric says so.
        async fn becomes(&self, label: &str) {
            let is_there = async {
                while self.current.load().label() != label {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let waited = tokio::time::timeout(Duration::from_secs(60), is_there).await;
            assert!(waited.is_ok(), "{:?} is not {label}", self.current);
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
            assert!(
                text.contains(&format!("navarch_injector_state{{state=\"{label}\"}} 1\n")),
                "{text}"
            );
            assert_eq!(text.matches("} 1\n").count(), 1, "{text}");
        }

        /// The status and the body of the answer about a pod.
        async fn response(&self) -> (StatusCode, String) {
            let webhooks = Webhooks::new(
                Arc::new(|| true),
                Arc::new(|| None),
                self.current.clone(),
                Limits::default(),
                Metrics::default(),
            );
            let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":
                {"metadata":{"name":"p","labels":{"sidecar.istio.io/inject":"true"}},"spec":{"containers":[{"name":"app"}]}}}}"#;
            let request = Request::post("/inject").header("content-type", "application/json");
            let answer = routes(Arc::new(webhooks))
                .call(request.body(Body::from(review)).unwrap())
                .await
                .unwrap();
            let status = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8_lossy(&body).into_owned())
        }
    }

    #[tokio::test]
    async fn no_pod_is_admitted_without_an_injector() {
        let started = Started::new([
            (
                "config",
                "{policy: enabled, templates: {sidecar: '{{ nonsense'}}",
            ),
            ("values", "{}"),
        ]);

        // The mesh config is not known yet.
        assert!(!started.readiness.is_ready());
        started.becomes("pending").await;
        let (status, body) = started.response().await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");

        started.push.full_sync().await.unwrap();
        started.becomes("failed").await;
        let (status, body) = started.response().await;
        assert!(
            status == StatusCode::SERVICE_UNAVAILABLE && body.contains("sidecar"),
            "{body}"
        );

        // It was tried: other answers do not wait for it, but everybody can see what is wrong.
        assert!(
            started.readiness.is_ready() && started.readiness.missing_parts().contains("sidecar")
        );

        fs::write(started.folder.path().join("config"), "").unwrap();
        started.becomes("ready").await;
        let (status, body) = started.response().await;
        assert!(
            status == StatusCode::OK && body.contains("JSONPatch"),
            "{body}"
        );
        assert_eq!(started.readiness.missing_parts(), "");

        // A later one that is broken or gone takes nothing away.
        for broken in [
            "policy: [",
            "{policy: enabled, templates: {sidecar: '{{ nonsense'}}",
        ] {
            fs::write(started.folder.path().join("config"), broken).unwrap();
            started.becomes("stale").await;
            assert!(started.response().await.1.contains("JSONPatch"));
        }

        fs::write(started.folder.path().join("config"), "").unwrap();
        started.becomes("ready").await;
        fs::remove_file(started.folder.path().join("values")).unwrap();
        started.becomes("stale").await;
        assert!(
            started.readiness.is_ready() && started.readiness.missing_parts().contains("values")
        );
        assert!(started.response().await.1.contains("JSONPatch"));
    }

    #[tokio::test]
    async fn readiness_waits_until_the_map_was_looked_for() {
        let started = Started::new([]);
        let (sender, found) = watch::channel(TextsState::Unknown(Arc::from(
            "ConfigMap n/m has not been read yet",
        )));
        started.push.full_sync().await.unwrap();
        let mut follower = Follower {
            settings: InjectionSettings::default(),
            revision: String::new(),
            folder: None,
            found,
            push: started.push.clone(),
            current: started.current.clone(),
            readiness: started.readiness.clone(),
            metrics: Metrics::default(),
            injector: None,
            last: None,
            refused: None,
        };

        follower.look();
        assert!(
            !started.readiness.is_ready()
                && started.readiness.missing_parts().contains("ConfigMap n/m")
        );
        assert_eq!(started.response().await.0, StatusCode::SERVICE_UNAVAILABLE);
        sender.send_replace(TextsState::Missing(Arc::from(
            "ConfigMap n/m does not exist",
        )));

        follower.look();
        assert!(
            started.readiness.is_ready()
                && started.readiness.missing_parts().contains("does not exist")
        );
        assert_eq!(started.response().await.0, StatusCode::SERVICE_UNAVAILABLE);
        sender.send_replace(TextsState::Texts(Texts::default()));
        follower.look();

        assert_eq!(
            (
                started.response().await.0,
                started.readiness.missing_parts().as_str()
            ),
            (StatusCode::OK, "")
        );
    }

    #[tokio::test]
    async fn without_any_configuration_there_is_no_webhook() {
        let started = Started::new([]);
        started.becomes("off").await;
        assert!(started.readiness.is_ready());
        assert_eq!(started.response().await.0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_map_without_both_keys_configures_nothing() {
        let map = |keys: &[&str]| {
            let data = keys
                .iter()
                .map(|key| ((*key).to_owned(), String::new()))
                .collect();
            texts(
                ConfigMap {
                    data: Some(data),
                    ..ConfigMap::default()
                },
                "ConfigMap n/m",
            )
        };

        assert_eq!(
            map(&["config", "values", "other"]),
            TextsState::Texts(Texts::default())
        );
        assert_eq!(
            map(&["config"]),
            TextsState::Missing(Arc::from("ConfigMap n/m has no key \"values\""))
        );

        assert_eq!(
            map(&["values"]),
            TextsState::Missing(Arc::from("ConfigMap n/m has no key \"config\""))
        );
    }
}
