//! Maintains the objects of Gateways.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InWords, is_absent, is_conflict};
use navarch_net::backoff::Backoff;
use navarch_webhook::CurrentInjector;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster_state::{ClusterState, Plan};
use super::objects::ObjectsError;
use super::overlays;
use super::rejected_overlays;
use super::settings::GatewayControllerSettings;
use super::watches::{self, DeployedKind, Source};
use super::writer::{ApplyOutcome, Writer};
use crate::cluster::Cluster;
use crate::namespaces::NamespaceScope;

/// Retry delays.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(64));
/// Interval of the check whether a foreign object of the same name still exists, as no watch covers
/// it.
const CONFLICT_RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Deploys the proxies of Gateways (`PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER`).
#[derive(Clone, Debug)]
pub struct GatewayDeployments {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Settings from flags and environment.
    pub settings: GatewayControllerSettings,
    /// The injector's configuration, whose templates render the objects.
    pub injector: CurrentInjector,
    /// Selects the namespaces.
    pub scope: watch::Receiver<NamespaceScope>,
}

/// A queue of Gateways with their due times.
#[derive(Debug, Default)]
struct Queue {
    /// The due time of each Gateway.
    due: BTreeMap<NamespacedName, Instant>,
    /// The backoff of each failed Gateway.
    failures: BTreeMap<NamespacedName, Backoff>,
}

/// Errors of reconciling a Gateway.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The objects cannot be rendered until something changes.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// A request to the API server failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The API server rejected an object that has overlays.
    #[error("ConfigMap {maps}: overlay {key:?}: the API server rejects the {kind} {object}")]
    Rejected {
        /// The ConfigMaps with the overlays.
        maps: String,
        /// The key of the ConfigMaps, such as `deployment`.
        key: &'static str,
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        object: String,
        /// The API server's answer.
        #[source]
        error: kube::Error,
    },
}

impl Failure {
    /// What the status of the Gateway reports of it; `None` if an overlay is not the cause.
    fn rejection(&self) -> Option<String> {
        match self {
            Self::Objects(error) if error.is_rejected_overlay() => {
                Some(rejected_overlays::message(&error.to_string()))
            }
            Self::Rejected { error, .. } => Some(rejected_overlays::message(&format!(
                "{self}: {}",
                InWords(error)
            ))),
            Self::Objects(_) | Self::Api(_) => None,
        }
    }
}

/// Whether the API server rejects an object for what is in it: 400 and 422, and 500 for a field of
/// another type than the object's schema has.
fn is_for_content(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 400 | 422)
            || status.code == 500 && status.message.contains("typed patch object"))
}

/// The failure of a write, attributed to the overlays of the object if the API server rejects its
/// content.
fn of_write(
    gateway: &NamespacedName,
    kind: &str,
    object: &str,
    cluster_state: &ClusterState,
    error: kube::Error,
) -> Failure {
    let Some(key) = overlays::key_of(kind).filter(|_| is_for_content(&error)) else {
        return Failure::Api(error);
    };
    let maps = cluster_state.overlaid_by(gateway, key);
    if maps.is_empty() {
        return Failure::Api(error);
    }

    let maps: Vec<String> = maps.into_iter().map(ToString::to_string).collect();
    Failure::Rejected {
        maps: maps.join(", "),
        key,
        kind: kind.to_owned(),
        object: object.to_owned(),
        error,
    }
}

impl Queue {
    /// The due time and name of the next Gateway.
    fn first(&self) -> Option<(Instant, &NamespacedName)> {
        self.due.iter().map(|(name, at)| (*at, name)).min()
    }

    /// Removes and returns the next Gateway.
    fn pop(&mut self) -> Option<NamespacedName> {
        let name = self.first()?.1.clone();
        self.due.remove(&name);
        Some(name)
    }

    /// Schedules a Gateway at once.
    fn push(&mut self, name: NamespacedName, now: Instant) {
        self.due.insert(name, now);
    }

    /// Schedules a failed Gateway after a delay.
    fn failed(&mut self, name: NamespacedName, now: Instant) {
        let wait = self
            .failures
            .entry(name.clone())
            .or_insert(RETRY)
            .next_delay();
        self.due.insert(name, now + wait);
    }

    /// Resets the backoff of a Gateway.
    fn succeeded(&mut self, name: &NamespacedName) {
        self.failures.remove(name);
    }
}

impl GatewayDeployments {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut events = watches::all(&self.cluster, &self.settings);
        let mut changes = self.injector.changes();
        let mut cluster_state = ClusterState::new(
            self.settings.clone(),
            self.scope.borrow_and_update().clone(),
        );
        let mut writer = Writer::new(self.cluster.clone(), self.settings.api.controller.clone());
        let mut queue = Queue::default();

        let version = OnceCell::new();

        loop {
            let now = Instant::now();
            cluster_state
                .take_due()
                .into_iter()
                .for_each(|name| queue.push(name, now));
            let next = queue
                .first()
                .filter(|_| cluster_state.is_complete())
                .map(|(at, _)| at.max(writer.free()));

            let turn = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };

            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some((source, event)) => hear(&mut cluster_state, source, event),
                    None => return,
                },
                Ok(()) = changes.changed() => cluster_state.all_due(),
                Ok(()) = self.scope.changed() => {
                    cluster_state.select(self.scope.borrow_and_update().clone());
                }
                () = turn => {
                    let Some(name) = queue.pop() else { continue };
                    let settled = tokio::select! {
                        () = stop.cancelled() => return,
                        settled = self.settle(&name, &mut cluster_state, &version, &mut writer) => settled,
                    };
                    note(&name, settled, &mut queue);
                }
            }
        }
    }

    /// Reconciles a Gateway, and reports in its status whether an overlay is rejected.
    async fn settle(
        &self,
        name: &NamespacedName,
        cluster_state: &mut ClusterState,
        version: &OnceCell<i64>,
        writer: &mut Writer,
    ) -> Result<ApplyOutcome, Failure> {
        let settled = self
            .deploy(name, &mut *cluster_state, version, writer)
            .await;
        let rejection = match &settled {
            Ok(None) => return Ok(ApplyOutcome::Applied),
            Ok(Some(_)) => None,
            Err(failure) => match failure.rejection() {
                Some(rejection) => Some(rejection),
                // Another failure is not about the overlays, so that what was reported stays.
                None => return settled.map(Option::unwrap_or_default),
            },
        };

        if cluster_state.told(name) != rejection.as_deref() {
            writer.tell(name, rejection.as_deref()).await?;
        }
        settled.map(Option::unwrap_or_default)
    }

    /// Applies the objects of a Gateway. `None` if it is not this control plane's, or cannot be
    /// decided yet.
    async fn deploy(
        &self,
        name: &NamespacedName,
        cluster_state: &mut ClusterState,
        version: &OnceCell<i64>,
        writer: &mut Writer,
    ) -> Result<Option<ApplyOutcome>, Failure> {
        let injector = match self.injector.load().injector() {
            Ok(injector) => injector,
            Err((_, reason)) => {
                // A change of the injector's configuration makes all Gateways due.
                tracing::warn!(ns = %name.namespace, gateway = %name.name, %reason, "gateway deployment delayed: injection is not configured");
                return Ok(None);
            }
        };

        let version = *version.get_or_try_init(|| self.version()).await?;
        let mut plan = cluster_state.plan(name, &injector, version)?;
        if let Plan::Reads(map) = plan {
            let maps = Api::<ConfigMap>::namespaced(self.cluster.0.clone(), map.namespace.as_str());
            let found = maps.get_opt(&map.name).await?;
            cluster_state.put_parameters(map, found.map(|map| map.data.unwrap_or_default()));
            plan = cluster_state.plan(name, &injector, version)?;
        }

        let (takes, objects) = match plan {
            Plan::Objects { takes, objects } => (takes, objects),
            Plan::Nothing(reason) => {
                tracing::debug!(ns = %name.namespace, gateway = %name.name, reason, "gateway is not deployed by this controller");
                return Ok(None);
            }
            Plan::WithoutProxies(reason) => {
                tracing::debug!(ns = %name.namespace, gateway = %name.name, reason, "gateway has no proxies to deploy");
                return Ok(Some(ApplyOutcome::Applied));
            }
            Plan::Reads(_) => return Ok(None),
        };

        if takes {
            writer.take(name).await?;
        }

        let mut outcome = ApplyOutcome::Applied;

        for object in objects {
            let Some(made) = DeployedKind::of(&object) else {
                continue;
            };

            let text = |field: &str| {
                object
                    .pointer(field)
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let kind = text("/kind");
            let of = text("/metadata/name");

            let applied = writer
                .apply(made, object, cluster_state)
                .await
                .map_err(|error| of_write(name, &kind, &of, cluster_state, error))?;
            if applied == ApplyOutcome::Foreign {
                tracing::warn!(
                    ns = %name.namespace, gateway = %name.name, kind = ?made, object = %of,
                    "an object of the same name is not managed by this controller; not changed"
                );
                outcome = ApplyOutcome::Foreign;
            }
        }

        Ok(Some(outcome))
    }

    /// The version of the API server: 136 is 1.36.
    async fn version(&self) -> Result<i64, kube::Error> {
        let info = self.cluster.0.apiserver_version().await?;
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<i64>().unwrap_or_default()
        };
        Ok(number(&info.major)
            .saturating_mul(100)
            .saturating_add(number(&info.minor)))
    }
}

/// Applies an event of a watch.
fn hear(
    cluster_state: &mut ClusterState,
    source: Source,
    event: Result<Event<DynamicObject>, watcher::Error>,
) {
    match event {
        Ok(event) => cluster_state.take(source, event),
        Err(error) if is_absent(&error) => {
            tracing::debug!(?source, error = %InWords(&error), "the cluster has no CustomResourceDefinition for the kind");
            cluster_state.absent(source);
        }
        Err(error) => {
            tracing::warn!(?source, error = %InWords(&error), "failed to watch objects of gateway deployments")
        }
    }
}

/// Records the outcome.
fn note(name: &NamespacedName, settled: Result<ApplyOutcome, Failure>, queue: &mut Queue) {
    let now = Instant::now();

    match settled {
        Ok(ApplyOutcome::Applied) => queue.succeeded(name),
        Ok(ApplyOutcome::Foreign) => {
            queue.succeeded(name);
            queue.push(name.clone(), now + CONFLICT_RECHECK_INTERVAL);
        }
        Err(Failure::Objects(error)) => {
            queue.succeeded(name);
            tracing::warn!(ns = %name.namespace, gateway = %name.name, error = %InWords(&error), "failed to render the gateway deployment");
        }
        Err(error @ Failure::Rejected { .. }) => {
            tracing::warn!(ns = %name.namespace, gateway = %name.name, error = error.rejection(), "failed to apply the gateway deployment");
            queue.failed(name.clone(), now);
        }
        Err(Failure::Api(error)) => {
            if is_conflict(&error) {
                tracing::debug!(ns = %name.namespace, gateway = %name.name, error = %InWords(&error), "an object of the gateway deployment changed concurrently; retrying");
            } else {
                tracing::warn!(ns = %name.namespace, gateway = %name.name, error = %InWords(&error), "failed to apply the gateway deployment");
            }

            queue.failed(name.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the API server answers with this code.
    fn answer(code: u16, message: &str) -> kube::Error {
        let status = kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::default()
        };
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn a_rejected_object_is_attributed_to_its_overlays() {
        let mut cluster_state = ClusterState::default();
        let gateway = json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": {
                "gatewayClassName": "istio", "listeners": [],
                "infrastructure": { "parametersRef": { "group": "", "kind": "ConfigMap", "name": "opts" } },
            },
        });
        cluster_state.take(
            Source::Gateways,
            Event::Apply(serde_json::from_value(gateway).unwrap()),
        );
        let data = BTreeMap::from([("deployment".to_owned(), "spec: {replicas: x}".to_owned())]);
        cluster_state.put_parameters(NamespacedName::new("shop", "opts"), Some(data));

        let rejection = |kind: &str, error: kube::Error| {
            let gateway = NamespacedName::new("shop", "web");
            of_write(&gateway, kind, "web-istio", &cluster_state, error).rejection()
        };
        for (code, message) in [
            (422, "spec.replicas is wrong"),
            (400, "spec.replicas is wrong"),
            (500, "failed to create typed patch object: expected numeric"),
        ] {
            let told = rejection("Deployment", answer(code, message)).unwrap();
            let expected = r#"ConfigMap shop/opts: overlay "deployment": the API server rejects the Deployment web-istio: "#;
            assert!(told.starts_with(expected), "{told}");
            assert!(told.contains(message), "{told}");
        }

        for (kind, code) in [("Service", 422), ("Deployment", 409), ("Deployment", 500)] {
            assert_eq!(rejection(kind, answer(code, "no")), None, "{kind} {code}");
        }
    }

    #[test]
    fn only_rejected_overlays_are_reported() {
        let map = NamespacedName::new("shop", "opts");
        let key = "secret".to_owned();
        let told = Failure::Objects(ObjectsError::Key { map, key }).rejection();
        assert!(told.is_some_and(|told| told.starts_with("ConfigMap shop/opts: unknown overlay")));
        let missing = ObjectsError::NoParameters("opts".to_owned());
        assert_eq!(Failure::Objects(missing).rejection(), None);
    }

    #[test]
    fn repeated_failures_back_off() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let a = NamespacedName::new("n", "a");
        let b = NamespacedName::new("n", "b");
        let wait = |queue: &Queue| queue.due.get(&a).map(|at| at.duration_since(now).as_secs());
        for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
            queue.failed(a.clone(), now);
            assert_eq!(wait(&queue), Some(expected));
        }
        queue.push(b.clone(), now);
        assert_eq!(queue.pop(), Some(b), "the first comes first");
        queue.succeeded(&a);
        queue.failed(a.clone(), now);
        assert_eq!(wait(&queue), Some(1));
        queue.push(a.clone(), now);
        assert_eq!(wait(&queue), Some(0), "a change is looked at at once");
    }
}
