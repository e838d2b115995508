//! Writes the addresses of ServiceEntries.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use kube::api::{ApiResource, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::address_pool::Range;
use super::allocation::{Allocation, ServiceEntryFields};
use super::cluster::Cluster;
use super::namespaces::{self, NamespaceScope, Namespaces};
use navarch_api::istio::{ServiceEntry, ServiceEntryAddress, ServiceEntryStatus};
use navarch_api::object::NamespacedName;
use navarch_api::typed::Typed;
use navarch_kubernetes::{InWords, is_stale, status_patch};

/// Retry delay.
const RETRY: Duration = Duration::from_secs(2);

/// Allocates addresses for the hosts of ServiceEntries without addresses
/// (`PILOT_ENABLE_IP_AUTOALLOCATE`).
#[derive(Clone, Debug)]
pub struct AddressAllocation {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The address ranges, IPv4 and IPv6.
    pub ranges: [Range; 2],
    /// Selects the namespaces.
    pub scope: watch::Receiver<NamespaceScope>,
}

struct ClusterState {
    namespaces: Namespaces,
    /// The entries and their addresses.
    allocation: Allocation,
    /// The entries of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// Whether the initial list is complete.
    complete: bool,
}

impl ClusterState {
    /// Applies an event about an entry.
    fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(name(&object));
                self.put(&object);
            }
            Event::InitDone => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<_> = self
                    .allocation
                    .names()
                    .filter(|name| !listed.contains(*name))
                    .cloned()
                    .collect();
                gone.iter().for_each(|name| self.allocation.remove(name));
            }
            Event::Apply(object) => self.put(&object),
            Event::Delete(object) => self.allocation.remove(&name(&object)),
        }
    }

    /// Adds or updates an entry. An invalid one is ignored.
    fn put(&mut self, object: &DynamicObject) {
        match entry(object) {
            Some(entry) => self.allocation.put(name(object), entry),
            None => self.allocation.remove(&name(object)),
        }
    }

    /// Schedules all entries of these namespaces.
    fn due_in(&mut self, counts: impl Fn(&str) -> bool) {
        let due: Vec<_> = self
            .allocation
            .names()
            .filter(|name| counts(name.namespace.as_str()))
            .cloned()
            .collect();
        due.into_iter()
            .for_each(|name| self.allocation.is_due(name));
    }
}

impl AddressAllocation {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut namespaces = namespaces::watch(&self.cluster);
        let entries = Api::<DynamicObject>::all_with(self.cluster.0.clone(), &resource());
        let mut entries =
            std::pin::pin!(watcher(entries, watcher::Config::default()).default_backoff());
        let mut cluster_state = ClusterState {
            namespaces: Namespaces::default(),
            allocation: Allocation::new(self.ranges),
            listed: BTreeSet::new(),
            complete: false,
        };

        let mut failed = false;
        let mut last = None;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = namespaces.next() => match event {
                    Some(event) => {
                        let due = cluster_state.namespaces.take(event);
                        cluster_state.due_in(|name| due.iter().any(|due| due == name));
                    }
                    None => return,
                },
                event = entries.next() => match event {
                    Some(Ok(event)) => cluster_state.take(event),
                    // Without the CustomResourceDefinition there are no objects; the watch keeps
                    // retrying.
                    Some(Err(error)) => tracing::debug!(error = %InWords(&error), "failed to watch ServiceEntries"),
                    None => return,
                },
                Ok(()) = self.scope.changed() => {}
                () = tokio::time::sleep(RETRY), if failed => {}
            }

            if cluster_state.complete && cluster_state.namespaces.complete {
                let scope = self.scope.borrow_and_update().clone();
                // The scope may have changed together with the event.
                if last.as_ref() != Some(&scope) {
                    cluster_state.due_in(|_| true);
                    last = Some(scope.clone());
                }
                failed = tokio::select! {
                    () = stop.cancelled() => return,
                    failed = self.settle(&mut cluster_state, &scope) => failed,
                };
            }
        }
    }

    /// Writes the scheduled entries; returns whether a write must be retried.
    async fn settle(&self, cluster_state: &mut ClusterState, scope: &NamespaceScope) -> bool {
        let mut failed = false;

        for name in cluster_state.allocation.take_due() {
            if !cluster_state
                .namespaces
                .counts(name.namespace.as_str(), scope)
            {
                continue;
            }
            let Some(before) = cluster_state.allocation.entry(&name).cloned() else {
                continue;
            };

            let Some(granted) = cluster_state.allocation.plan(&name) else {
                continue;
            };

            if let Err(error) = self.write(&name, &before, &granted).await {
                // The planned addresses are released; the current version decides what to do, here
                // or through the watch.
                cluster_state.allocation.put(name.clone(), before);
                if is_stale(&error) {
                    tracing::debug!(ns = %name.namespace, name = %name.name, error = %InWords(&error), "ServiceEntry changed concurrently; retrying");
                } else {
                    tracing::warn!(ns = %name.namespace, name = %name.name, error = %InWords(&error), "failed to write allocated addresses");
                }
                failed = true;
            }
        }

        failed
    }

    /// Writes the addresses, if the entry is unchanged.
    async fn write(
        &self,
        name: &NamespacedName,
        before: &ServiceEntryFields,
        granted: &[ServiceEntryAddress],
    ) -> Result<(), kube::Error> {
        let addresses = [("addresses", json!(granted))];
        let patch = status_patch(
            before.resource_version.clone(),
            before.has_status,
            addresses,
        )?;
        let entries = Api::<DynamicObject>::namespaced_with(
            self.cluster.0.clone(),
            name.namespace.as_str(),
            &resource(),
        );
        entries
            .patch_status(&name.name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }
}

/// The API resource of ServiceEntries.
fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("networking.istio.io", "v1", "ServiceEntry");
    ApiResource::from_gvk_with_plural(&kind, "serviceentries")
}

fn name(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// The relevant fields of an object; `None` if its spec is invalid.
fn entry(object: &DynamicObject) -> Option<ServiceEntryFields> {
    let spec =
        Typed::<ServiceEntry>::from_proto_json(object.data.get("spec").unwrap_or(&Value::Null))
            .ok()?
            .value;
    let status = object.data.get("status");
    let given = status.and_then(|status| Typed::<ServiceEntryStatus>::from_proto_json(status).ok());

    Some(ServiceEntryFields {
        created: object.creation_timestamp().map(|time| time.0),
        resource_version: object.resource_version().unwrap_or_default(),
        switch: object.labels().get(ServiceEntryFields::SWITCH).cloned(),
        hosts: spec.hosts,
        addresses: spec.addresses,
        resolution: spec.resolution,
        has_status: status.is_some(),
        given: given
            .map(|status| status.value.addresses)
            .unwrap_or_default(),
    })
}
