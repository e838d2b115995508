//! Maintains the objects of Gateways.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InWords, is_absent};
use navarch_net::backoff::Backoff;
use navarch_webhook::CurrentInjector;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster_state::{ClusterState, Plan};
use super::objects::ObjectsError;
use super::settings::GatewayControllerSettings;
use super::watches::{self, DeployedKind, TaggedEvent};
use super::writer::{Outcome, Writer};
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
                    Some(event) => hear(&mut cluster_state, event),
                    None => return,
                },
                Ok(()) = changes.changed() => cluster_state.all_due(),
                Ok(()) = self.scope.changed() => cluster_state.select(self.scope.borrow_and_update().clone()),
                () = turn => {
                    let Some(name) = queue.pop() else { continue };
                    let settled = tokio::select! {
                        () = stop.cancelled() => return,
                        settled = self.settle(&name, (&mut cluster_state, &version), &mut writer) => settled,
                    };
                    note(&name, settled, &mut queue);
                }
            }
        }
    }

    /// Reconciles a Gateway.
    async fn settle(
        &self,
        name: &NamespacedName,
        (cluster_state, version): (&mut ClusterState, &OnceCell<i64>),
        writer: &mut Writer,
    ) -> Result<Outcome, Failure> {
        let injector = match self.injector.load().injector() {
            Ok(injector) => injector,
            Err((_, reason)) => {
                // A change of the injector's configuration makes all Gateways due.
                tracing::warn!(ns = %name.namespace, gateway = %name.name, %reason, "gateway deployment delayed: injection is not configured");
                return Ok(Outcome::Applied);
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
                return Ok(Outcome::Applied);
            }
            Plan::Reads(_) => return Ok(Outcome::Applied),
        };

        if takes {
            writer.take(name).await?;
        }

        let mut outcome = Outcome::Applied;

        for object in objects {
            let Some(made) = DeployedKind::of(&object) else {
                continue;
            };

            let of = object
                .pointer("/metadata/name")
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
                .to_owned();

            if writer.apply(made, object, cluster_state).await? == Outcome::Foreign {
                tracing::warn!(
                    ns = %name.namespace, gateway = %name.name, kind = ?made, object = %of,
                    "an object of the same name is not managed by this controller; not changed"
                );
                outcome = Outcome::Foreign;
            }
        }

        Ok(outcome)
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
fn hear(cluster_state: &mut ClusterState, (source, event): TaggedEvent) {
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
fn note(name: &NamespacedName, settled: Result<Outcome, Failure>, queue: &mut Queue) {
    let now = Instant::now();

    match settled {
        Ok(Outcome::Applied) => queue.succeeded(name),
        Ok(Outcome::Foreign) => {
            queue.succeeded(name);
            queue.push(name.clone(), now + CONFLICT_RECHECK_INTERVAL);
        }
        Err(Failure::Objects(error)) => {
            queue.succeeded(name);
            tracing::warn!(ns = %name.namespace, gateway = %name.name, error = %InWords(&error), "failed to render the gateway deployment");
        }
        Err(Failure::Api(error)) => {
            let is_stale = matches!(&error, kube::Error::Api(status) if status.code == 409);
            if is_stale {
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
    use super::*;

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
