//! The Services of InferencePools (istiod's `inferencepool_collection.go`): routes to a pool refer
//! to its Service, and Kubernetes finds the endpoints by the pool's selector.
//!
//! A pool has a Service once its status has a parent Gateway of this control plane. The pool owns
//! the Service, so that Kubernetes deletes it with the pool. A Service of the same name without the
//! label of pools is foreign, and never written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, ResourceExt as _};
use navarch_api::gateway_api::{
    InferencePool, PICKER_FAILURE_MODE_LABEL, PICKER_PORT_LABEL, PICKER_SERVICE_LABEL, POOL_LABEL,
    POOL_SEMANTICS, SEMANTICS_LABEL, pool_service_name,
};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InWords, is_absent, is_stale};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::default_revision::REVISION;
use crate::gateways::resource;
use crate::object_status::ISTIO_GROUP;
use crate::revisions::Responsibility;

/// The field manager, as in istiod.
const MANAGER: &str = "istio.io/inference-pool-controller";
/// The Service port for the first target port of a pool; further ones follow.
const FIRST_PORT: usize = 54_321;
/// Retry delay.
const RETRY: Duration = Duration::from_secs(5);

/// Maintains the Services of InferencePools (`ENABLE_GATEWAY_API_INFERENCE_EXTENSION`).
#[derive(Clone, Debug)]
pub struct InferencePoolServices {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Selects the pools.
    pub responsibility: Responsibility,
}

/// The relevant fields of a pool.
#[derive(Debug, PartialEq)]
struct Pool {
    uid: String,
    /// The value of its revision label.
    revision: Option<String>,
    spec: InferencePool,
}

#[derive(Debug, Default)]
struct ClusterState {
    /// The pools with a parent Gateway.
    pools: BTreeMap<NamespacedName, Pool>,
    /// The pools of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// The resource versions of the applied Services, by pool.
    applied: BTreeMap<NamespacedName, String>,
    /// The pools to reconcile, with their due times.
    due: BTreeMap<NamespacedName, Instant>,
}

impl Pool {
    /// Extracts a pool.
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let uid = object.uid().unwrap_or_default();
        let revision = object.labels().get(REVISION).cloned();
        Ok(Self {
            uid,
            revision,
            spec: serde_json::from_value(spec)?,
        })
    }
}

impl ClusterState {
    /// Applies an event about a pool.
    fn take_pool(&mut self, event: Event<DynamicObject>, now: Instant) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pool) => {
                self.listed.insert(name_of(&pool));
                self.put(&pool, now);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.pools.retain(|name, _| listed.contains(name));
            }
            Event::Apply(pool) => self.put(&pool, now),
            Event::Delete(pool) => _ = self.pools.remove(&name_of(&pool)),
        }
        self.applied.retain(|name, _| self.pools.contains_key(name));
    }

    /// Adds or updates a pool. It is scheduled when it gets a parent Gateway, and when it changes
    /// afterwards.
    fn put(&mut self, object: &DynamicObject, now: Instant) {
        let name = name_of(object);
        if object.metadata.deletion_timestamp.is_some() || !has_gateway(&object.data) {
            self.pools.remove(&name);
            return;
        }
        match Pool::read(object) {
            Ok(pool) => {
                let is_new = self.pools.get(&name) != Some(&pool);
                self.pools.insert(name.clone(), pool);
                if is_new {
                    self.due.insert(name, now);
                }
            }
            Err(error) => {
                tracing::warn!(pool = %name, %error, "no Service for an InferencePool: its spec is invalid")
            }
        }
    }

    /// Applies an event about the Service of a pool: a Service that differs from the applied
    /// version is applied again.
    fn take_service(&mut self, event: Event<PartialObjectMeta<Service>>, now: Instant) {
        let (service, is_gone) = match event {
            Event::InitApply(service) | Event::Apply(service) => (service, false),
            Event::Delete(service) => (service, true),
            Event::Init | Event::InitDone => return,
        };
        let Some(pool) = service.labels().get(POOL_LABEL) else {
            return;
        };
        let pool = NamespacedName::new(&service.namespace().unwrap_or_default(), pool);
        let is_own = self
            .applied
            .get(&pool)
            .is_some_and(|version| Some(version) == service.resource_version().as_ref());
        if self.pools.contains_key(&pool) && (is_gone || !is_own) {
            self.due.insert(pool, now);
        }
    }

    /// Schedules all pools.
    fn all_due(&mut self, now: Instant) {
        self.due
            .extend(self.pools.keys().map(|name| (name.clone(), now)));
    }

    /// The due time of the next pool.
    fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// Removes and returns the due pools.
    fn take_due(&mut self, now: Instant) -> Vec<NamespacedName> {
        self.due
            .extract_if(.., |_, at| *at <= now)
            .map(|(name, _)| name)
            .collect()
    }
}

impl InferencePoolServices {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let client = self.cluster.0.clone();
        let kind = resource(
            "inference.networking.k8s.io",
            "v1",
            "InferencePool",
            "inferencepools",
        );

        let mut pools = watch(
            Api::<DynamicObject>::all_with(client.clone(), &kind),
            Config::default(),
        );
        let labels = Config::default().labels(&format!("{SEMANTICS_LABEL}={POOL_SEMANTICS}"));
        let mut services = watch(
            Api::<PartialObjectMeta<Service>>::all(client.clone()),
            labels,
        );
        let mut cluster_state = ClusterState::default();

        loop {
            let next = cluster_state.next();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = pools.next() => match event {
                    Ok(event) => cluster_state.take_pool(event, Instant::now()),
                    Err(error) => warn(&error, "InferencePools"),
                },
                Some(event) = services.next() => match event {
                    Ok(event) => cluster_state.take_service(event, Instant::now()),
                    Err(error) => warn(&error, "Services of InferencePools"),
                },
                () = self.responsibility.changed() => cluster_state.all_due(Instant::now()),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    for name in cluster_state.take_due(Instant::now()) {
                        let pool = cluster_state.pools.get(&name);
                        let Some(wanted) = pool.and_then(|pool| self.wanted(&name, pool)) else {
                            continue;
                        };
                        let outcome = tokio::select! {
                            () = stop.cancelled() => return,
                            outcome = self.apply(&name, wanted) => outcome,
                        };
                        note(&mut cluster_state, name, outcome);
                    }
                }
            }
        }
    }

    /// The Service for a pool of this control plane.
    fn wanted(&self, name: &NamespacedName, pool: &Pool) -> Option<Value> {
        let is_ours = self
            .responsibility
            .has(name.namespace.as_str(), pool.revision.as_deref());
        is_ours.then(|| service(name, pool)).flatten()
    }

    /// Applies the Service of a pool. Returns its resource version, or `None` if a foreign Service
    /// has the name.
    async fn apply(
        &self,
        pool: &NamespacedName,
        mut wanted: Value,
    ) -> Result<Option<String>, kube::Error> {
        let services = Api::<Service>::namespaced(self.cluster.0.clone(), pool.namespace.as_str());
        let name = pool_service_name(&pool.name);
        if let Some(there) = services.get_metadata_opt(&name).await? {
            if !there.labels().contains_key(POOL_LABEL) {
                return Ok(None);
            }
            // The write must fail if the Service is no longer the one that was checked.
            if let Some(meta) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.insert(
                    "resourceVersion".to_owned(),
                    json!(there.resource_version()),
                );
            }
        }

        let parameters = PatchParams::apply(MANAGER).force();
        let applied = services
            .patch(&name, &parameters, &Patch::Apply(wanted))
            .await?;
        Ok(Some(applied.resource_version().unwrap_or_default()))
    }
}

/// A watch of a kind, which is reopened after a delay if it fails.
fn watch<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, Error>> + Unpin
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    Box::pin(watcher(api, config).default_backoff())
}

/// Records the outcome for a pool.
fn note(
    cluster_state: &mut ClusterState,
    pool: NamespacedName,
    outcome: Result<Option<String>, kube::Error>,
) {
    match outcome {
        Ok(Some(version)) => {
            tracing::debug!(%pool, "applied the Service of an InferencePool");
            cluster_state.applied.insert(pool, version);
        }
        Ok(None) => {
            let service = pool_service_name(&pool.name);
            tracing::warn!(%pool, service, "a Service of the same name lacks the InferencePool label; not changed");
        }
        Err(error) => {
            if !is_stale(&error) {
                tracing::warn!(%pool, error = %InWords(&error), "failed to apply the Service of an InferencePool");
            }
            cluster_state.due.insert(pool, Instant::now() + RETRY);
        }
    }
}

/// Logs a failed watch. A missing CustomResourceDefinition is not an error.
fn warn(error: &Error, kinds: &str) {
    if is_absent(error) {
        tracing::debug!(kinds, error = %InWords(error), "the cluster has no CustomResourceDefinition for the kind");
    } else {
        tracing::warn!(kinds, error = %InWords(error), "failed to watch kind");
    }
}

/// Whether the status of a pool has a parent Gateway of this control plane.
fn has_gateway(pool: &Value) -> bool {
    let parents = pool.pointer("/status/parents").and_then(Value::as_array);
    let is_ours = |parent: &Value| {
        let reference = parent.get("parentRef");
        let is = |field: &str, value: &str| {
            reference
                .and_then(|parent| parent.get(field))
                .is_some_and(|text| text == value)
        };
        is("group", ISTIO_GROUP) && is("kind", "Gateway")
    };
    parents.is_some_and(|parents| parents.iter().any(is_ours))
}

/// The Service for a pool; `None` if its status has no parent Gateway of this control plane, or its
/// spec lacks required fields.
#[must_use]
pub fn service_of_pool(pool: &DynamicObject) -> Option<Value> {
    let read = has_gateway(&pool.data).then(|| Pool::read(pool))?.ok()?;
    service(&name_of(pool), &read)
}

/// The Service for a pool; `None` if its endpoint picker has no port.
fn service(name: &NamespacedName, pool: &Pool) -> Option<Value> {
    let picker = pool.spec.endpoint_picker_ref.as_ref()?;
    let Some(picker_port) = picker.port else {
        tracing::warn!(pool = %name, "no Service for an InferencePool: spec.endpointPickerRef.port is missing");
        return None;
    };

    let ports = pool.spec.target_ports.iter().enumerate().map(|(at, target)| {
        let mut port = json!({
            "name": format!("http-{at}"), "protocol": "TCP", "port": FIRST_PORT + at, "targetPort": target.number,
        });
        let protocol = &pool.spec.app_protocol;
        if let Some(port) = port.as_object_mut().filter(|_| !protocol.is_empty()) {
            port.insert("appProtocol".to_owned(), json!(protocol));
        }
        port
    });

    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": name.namespace,
            "name": pool_service_name(&name.name),
            "labels": {
                POOL_LABEL: &*name.name,
                PICKER_SERVICE_LABEL: picker.name,
                PICKER_PORT_LABEL: picker_port.number.to_string(),
                PICKER_FAILURE_MODE_LABEL: picker.failure_mode,
                SEMANTICS_LABEL: POOL_SEMANTICS,
            },
            "ownerReferences": [{
                "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "name": &*name.name, "uid": pool.uid,
            }],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": pool.spec.selector.match_labels,
            "ports": ports.collect::<Vec<_>>(),
        },
    }))
}

fn name_of(pool: &DynamicObject) -> NamespacedName {
    NamespacedName::new(&pool.namespace().unwrap_or_default(), &pool.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool, with Gateways of these groups in its status.
    fn pool(groups: &[&str], target: i32) -> DynamicObject {
        let parents: Vec<Value> = groups
            .iter()
            .map(|group| json!({ "parentRef": { "group": group, "kind": "Gateway", "name": "web" } }))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": { "namespace": "shop", "name": "llama", "uid": "u1" },
            "spec": {
                "selector": { "matchLabels": { "app": "llama" } },
                "targetPorts": [{ "number": target }, { "number": target + 1 }],
                "endpointPickerRef": { "name": "epp", "port": { "number": 9002 } },
            },
            "status": { "parents": parents },
        }))
        .unwrap()
    }

    /// A Service of the pool, at a resource version.
    fn made(version: &str) -> PartialObjectMeta<Service> {
        let metadata = json!({
            "namespace": "shop", "name": "llama-ip-fc5a1047", "resourceVersion": version, "labels": { POOL_LABEL: "llama" },
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[tokio::test]
    async fn a_pool_is_due_when_a_gateway_leads_to_it_and_when_it_or_its_service_changes() {
        let mut cluster_state = ClusterState::default();
        let now = Instant::now();
        let mut due_after =
            |event: Result<Event<DynamicObject>, Event<PartialObjectMeta<Service>>>,
             applied: &str| {
                match event {
                    Ok(event) => cluster_state.take_pool(event, now),
                    Err(event) => cluster_state.take_service(event, now),
                }
                let due = cluster_state.take_due(now);
                due.iter().for_each(|name| {
                    _ = cluster_state
                        .applied
                        .insert(name.clone(), applied.to_owned())
                });
                due.len()
            };

        assert_eq!(
            due_after(Ok(Event::Apply(pool(&[], 8000))), "1"),
            0,
            "no Gateway leads to it"
        );

        assert_eq!(
            due_after(Ok(Event::Apply(pool(&["example.com"], 8000))), "1"),
            0,
            "somebody else's does"
        );

        assert_eq!(
            due_after(
                Ok(Event::Apply(pool(&["example.com", ISTIO_GROUP], 8000))),
                "1"
            ),
            1
        );

        assert_eq!(
            due_after(Err(Event::Apply(made("1"))), "1"),
            0,
            "it is as it was applied"
        );

        assert_eq!(
            due_after(Ok(Event::Apply(pool(&[ISTIO_GROUP], 8000))), "2"),
            0,
            "nothing of it has changed"
        );

        assert_eq!(
            due_after(Ok(Event::Apply(pool(&[ISTIO_GROUP], 9000))), "2"),
            1,
            "its ports have"
        );

        assert_eq!(
            due_after(Err(Event::Apply(made("3"))), "4"),
            1,
            "somebody has changed the Service"
        );

        assert_eq!(
            due_after(Err(Event::Delete(made("4"))), "5"),
            1,
            "somebody has deleted the Service"
        );
        assert_eq!(
            due_after(Ok(Event::Delete(pool(&[ISTIO_GROUP], 9000))), "5"),
            0
        );

        assert_eq!(
            due_after(Err(Event::Delete(made("5"))), "5"),
            0,
            "it went with the pool"
        );
    }

    #[test]
    fn the_service_is_istiods() {
        let mut cluster_state = ClusterState::default();
        cluster_state.put(&pool(&[ISTIO_GROUP], 8000), Instant::now());
        let (name, pool) = cluster_state.pools.first_key_value().unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "namespace": "shop", "name": "llama-ip-fc5a1047",
                "labels": {
                    "istio.io/inferencepool-name": "llama",
                    "istio.io/inferencepool-extension-service": "epp",
                    "istio.io/inferencepool-extension-port": "9002",
                    "istio.io/inferencepool-extension-failure-mode": "FailClose",
                    "internal.istio.io/service-semantics": "inferencepool",
                },
                "ownerReferences": [{
                    "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "name": "llama", "uid": "u1",
                }],
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": "None", "selector": { "app": "llama" },
                "ports": [
                    { "name": "http-0", "protocol": "TCP", "port": 54321, "targetPort": 8000, "appProtocol": "http" },
                    { "name": "http-1", "protocol": "TCP", "port": 54322, "targetPort": 8001, "appProtocol": "http" },
                ],
            },
        });

        assert_eq!(service(name, pool), Some(expected));
    }
}
