//! A ServiceExport for every Service (`ENABLE_MCS_AUTO_EXPORT`), except cluster-local ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::namespaces::{self, NamespaceScope, Namespaces};
use navarch_api::mcs;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::is_conflict;

/// Maximum number of concurrent creations.
const MAX_CONCURRENT_CREATIONS: usize = 8;
/// Retry delay.
const RETRY: Duration = Duration::from_secs(5);
/// Retry delay without the CustomResourceDefinition, which may be installed later.
const UNDEFINED_RETRY: Duration = Duration::from_secs(10);

/// Returns whether a Service is not exported.
pub type StaysLocal = Arc<dyn Fn(&NamespacedName) -> bool + Send + Sync>;

/// Creates ServiceExports. Each is owned by its Service, and deleted with it. A deleted
/// ServiceExport is not created again while this control plane is the leader.
#[derive(Clone)]
pub struct ServiceExports {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Selects the namespaces.
    pub scope: watch::Receiver<NamespaceScope>,
    /// Returns whether a Service is not exported.
    pub stays_local: StaysLocal,
}

/// The state of the cluster.
#[derive(Debug, Default)]
struct World {
    namespaces: Namespaces,
    /// The Services by name, with their UIDs.
    services: BTreeMap<NamespacedName, String>,
    /// The Services of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// The Services whose exports are not created yet.
    due: BTreeSet<NamespacedName>,
}

/// The outcome of an attempt.
enum ExportOutcome {
    /// The export exists, or must not exist.
    Done,
    /// The attempt must be retried.
    Failed,
    /// The cluster has no CustomResourceDefinition.
    Undefined,
}

impl std::fmt::Debug for ServiceExports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceExports").finish_non_exhaustive()
    }
}

impl World {
    /// Applies an event about a Service.
    fn take(&mut self, event: Event<PartialObjectMeta<Service>>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(service) => {
                let name = name_of(&service);
                self.listed.insert(name.clone());
                self.put(name, &service);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.services.retain(|name, _| listed.contains(name));
            }
            Event::Apply(service) => self.put(name_of(&service), &service),
            Event::Delete(service) => {
                self.services.remove(&name_of(&service));
            }
        }
    }

    /// Adds a Service. A known one was handled before.
    fn put(&mut self, name: NamespacedName, service: &PartialObjectMeta<Service>) {
        let uid = service.metadata.uid.clone().unwrap_or_default();
        if service.metadata.deletion_timestamp.is_none() && self.services.get(&name) != Some(&uid) {
            self.services.insert(name.clone(), uid);
            self.due.insert(name);
        }
    }

    /// The due Services. Those of unselected namespaces wait.
    fn take_due(&mut self, scope: &NamespaceScope) -> Vec<(NamespacedName, String)> {
        if !self.namespaces.complete {
            return Vec::new();
        }

        self.due.retain(|name| self.services.contains_key(name));
        let counts =
            |name: &&NamespacedName| self.namespaces.counts(name.namespace.as_str(), scope);
        let now: Vec<NamespacedName> = self.due.iter().filter(counts).cloned().collect();

        let uid = |name: NamespacedName| {
            self.services
                .get(&name)
                .map(|uid| (name.clone(), uid.clone()))
        };
        let found = now.iter().cloned().filter_map(uid).collect();
        now.iter().for_each(|name| _ = self.due.remove(name));
        found
    }
}

impl ServiceExports {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut namespaces = namespaces::watch(&self.cluster);
        let all = Api::<PartialObjectMeta<Service>>::all(self.cluster.0.clone());
        let mut services =
            std::pin::pin!(watcher(all, watcher::Config::default()).default_backoff());
        let mut world = World::default();
        let mut wait = None;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = namespaces.next() => match event {
                    Some(event) => _ = world.namespaces.take(event),
                    None => return,
                },
                event = services.next() => match event {
                    Some(Ok(event)) => world.take(event),
                    Some(Err(error)) => tracing::warn!(%error, "failed to watch Services"),
                    None => return,
                },
                Ok(()) = self.scope.changed() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => wait = None,
            }

            if wait.is_some() {
                continue;
            }

            let scope = self.scope.borrow_and_update().clone();
            let due = world.take_due(&scope);
            let outcomes = tokio::select! {
                () = stop.cancelled() => return,
                outcomes = self.export_all(due) => outcomes,
            };

            for (name, outcome) in outcomes {
                wait = match outcome {
                    ExportOutcome::Done => continue,
                    ExportOutcome::Failed => wait.max(Some(RETRY)),
                    ExportOutcome::Undefined => Some(UNDEFINED_RETRY),
                };
                world.due.insert(name);
            }
        }
    }

    /// Creates the exports of these Services; returns the outcome of each.
    async fn export_all(
        &self,
        services: Vec<(NamespacedName, String)>,
    ) -> Vec<(NamespacedName, ExportOutcome)> {
        let export = |(name, uid): (NamespacedName, String)| async move {
            if (self.stays_local)(&name) {
                return (name, ExportOutcome::Done);
            }

            let outcome = match self.export(&name, &uid).await {
                Ok(true) => ExportOutcome::Done,
                Ok(false) => ExportOutcome::Failed,
                Err(kube::Error::Api(status))
                    if status.code == 404 && !is_about_namespace(&status) =>
                {
                    tracing::debug!(
                        group = mcs::api().group,
                        "the cluster has no CustomResourceDefinition for ServiceExport"
                    );
                    ExportOutcome::Undefined
                }
                // The namespace or the Service is being deleted.
                Err(kube::Error::Api(status))
                    if matches!(status.code, 403 | 404) && is_about_namespace(&status) =>
                {
                    ExportOutcome::Done
                }
                Err(error) => {
                    tracing::warn!(service = %name, %error, "failed to create the ServiceExport");
                    ExportOutcome::Failed
                }
            };

            (name, outcome)
        };

        let exports = futures_util::stream::iter(services.into_iter().map(export));
        exports
            .buffer_unordered(MAX_CONCURRENT_CREATIONS)
            .collect()
            .await
    }

    /// Creates the export of a Service. `false` if an earlier Service of the same name still has
    /// one, which Kubernetes will delete.
    async fn export(&self, name: &NamespacedName, uid: &str) -> Result<bool, kube::Error> {
        let mcs::Api { group, version, .. } = mcs::api();
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, "ServiceExport"),
            "serviceexports",
        );
        let exports = Api::<DynamicObject>::namespaced_with(
            self.cluster.0.clone(),
            name.namespace.as_str(),
            &resource,
        );

        let mut export = DynamicObject::new(&name.name, &resource);
        export.metadata.owner_references = serde_json::from_value(json!([
            { "apiVersion": "v1", "kind": "Service", "name": &*name.name, "uid": uid }
        ]))
        .map_err(kube::Error::SerdeError)?;

        match exports.create(&PostParams::default(), &export).await {
            Ok(_) => {
                tracing::debug!(service = %name, "created the ServiceExport");
                Ok(true)
            }
            Err(error) if is_conflict(&error) => {
                let Some(there) = exports.get_opt(&name.name).await? else {
                    return Ok(false);
                };
                let owners = there.metadata.owner_references.unwrap_or_default();
                Ok(!owners
                    .iter()
                    .any(|owner| owner.kind == "Service" && owner.uid != uid))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a request failed because the namespace is missing or terminating.
fn is_about_namespace(status: &kube::core::Status) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| {
        details.kind == "namespaces"
            || details
                .causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
    })
}

fn name_of(service: &PartialObjectMeta<Service>) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(
        &text(&service.metadata.namespace),
        &text(&service.metadata.name),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    fn service(name: &str, uid: &str) -> PartialObjectMeta<Service> {
        let metadata = json!({ "metadata": { "namespace": "shop", "name": name, "uid": uid } });
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn each_service_of_a_selected_namespace_is_processed_once() {
        let mut world = World::default();
        let scope = NamespaceScope::default();
        let due = |world: &mut World| -> Vec<String> {
            world
                .take_due(&scope)
                .into_iter()
                .map(|(name, uid)| format!("{name} {uid}"))
                .collect()
        };

        world.take(Event::Apply(service("a", "1")));
        assert!(due(&mut world).is_empty(), "the namespaces are not known");
        world.namespaces.take(Event::InitDone);
        assert!(due(&mut world).is_empty(), "the namespace does not count");
        let shop: PartialObjectMeta<Namespace> =
            serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
        world.namespaces.take(Event::Apply(shop));
        assert_eq!(due(&mut world), ["shop/a 1"]);

        world.take(Event::Apply(service("a", "1")));
        assert!(due(&mut world).is_empty(), "it had its turn");
        world.take(Event::Apply(service("a", "2")));
        assert_eq!(due(&mut world), ["shop/a 2"], "another of the name");
        world.take(Event::Apply(service("b", "3")));
        world.take(Event::Delete(service("b", "3")));
        assert!(due(&mut world).is_empty(), "it is gone");
    }
}
