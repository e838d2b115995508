//! A ConfigMap of the CA in every namespace: the mesh's roots, which workloads use to verify the
//! control plane, or CRLs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::namespaces::{self, NamespaceScope, Namespaces};
use navarch_kubernetes::{InWords, is_conflict_or_gone};

/// The key of the roots in their ConfigMap.
pub const ROOTS_KEY: &str = "root-cert.pem";
/// The name of the ConfigMap with CRLs.
pub const REVOCATIONS: &str = "istio-ca-crl";
/// The key of the CRLs.
pub const REVOCATIONS_KEY: &str = "ca-crl.pem";
/// Namespaces without workloads of the mesh. kube-system is not among them, as node agents of the
/// mesh may run there.
const SKIPPED: [&str; 3] = ["kube-public", "kube-node-lease", "local-path-storage"];
/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 8;
/// Retry delay.
const RETRY: Duration = Duration::from_secs(5);

/// Maintains the ConfigMap in every namespace, also when another writer edits or deletes it.
#[derive(Clone, Debug)]
pub struct RootCertificates {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The ConfigMap's name: `istio-ca-root-cert` (`PILOT_CA_CERT_CONFIGMAP`) or `istio-ca-crl`.
    pub name: String,
    /// The key of the text in it.
    pub key: &'static str,
    /// The text; while it is empty nothing new is written, and existing ConfigMaps are emptied.
    pub roots: watch::Receiver<Arc<str>>,
    /// Selects the namespaces.
    pub scope: watch::Receiver<NamespaceScope>,
}

/// The state of the cluster.
#[derive(Debug, Default)]
struct World {
    /// The key of the text.
    key: &'static str,
    namespaces: Namespaces,
    /// Digests of the text in each namespace; `None` for a ConfigMap without the key.
    maps: BTreeMap<String, Option<[u8; 32]>>,
    /// The ConfigMaps of an unfinished list.
    listed: BTreeSet<String>,
    /// Whether all ConfigMaps are known.
    complete: bool,
    /// Namespaces to reconcile.
    due: BTreeSet<String>,
}

impl World {
    /// Applies an event about a ConfigMap.
    fn take(&mut self, event: Event<ConfigMap>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(map) => {
                self.listed.extend(map.metadata.namespace.clone());
                self.put(&map);
            }
            Event::InitDone => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                let gone = self
                    .maps
                    .keys()
                    .filter(|namespace| !listed.contains(*namespace))
                    .cloned();
                self.due.extend(gone);
                self.maps.retain(|namespace, _| listed.contains(namespace));
            }
            Event::Apply(map) => self.put(&map),
            Event::Delete(map) => {
                let namespace = map.metadata.namespace.unwrap_or_default();
                self.maps.remove(&namespace);
                self.due.insert(namespace);
            }
        }
    }

    /// Adds or updates a ConfigMap.
    fn put(&mut self, map: &ConfigMap) {
        let namespace = map.metadata.namespace.clone().unwrap_or_default();
        self.maps
            .insert(namespace.clone(), text_of(map, self.key).map(digest));
        self.due.insert(namespace);
    }

    /// Schedules all namespaces.
    fn all_due(&mut self) {
        self.due.extend(self.namespaces.names().cloned());
    }

    /// The due namespaces whose ConfigMap must be written. None before the initial lists are
    /// complete.
    fn take_due(&mut self, roots: &str, scope: &NamespaceScope) -> Vec<String> {
        if !self.complete || !self.namespaces.complete {
            return Vec::new();
        }
        let wanted = digest(roots);
        let mut due = std::mem::take(&mut self.due);
        if roots.is_empty() {
            due.retain(|name| self.maps.get(name).is_some_and(Option::is_some));
        }
        due.retain(|name| !SKIPPED.contains(&name.as_str()) && self.namespaces.counts(name, scope));
        due.retain(|name| self.maps.get(name) != Some(&Some(wanted)));
        due.into_iter().collect()
    }
}

impl RootCertificates {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut namespaces = namespaces::watch(&self.cluster);
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let all = Api::<ConfigMap>::all(self.cluster.0.clone());
        let mut maps = std::pin::pin!(watcher(all, mine).default_backoff());
        let mut world = World {
            key: self.key,
            ..World::default()
        };
        let mut failed = false;
        let mut last = None;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = namespaces.next() => match event {
                    Some(event) => {
                        let due = world.namespaces.take(event);
                        world.due.extend(due);
                    }
                    None => return,
                },
                event = maps.next() => match event {
                    Some(Ok(event)) => world.take(event),
                    Some(Err(error)) => tracing::warn!(error = %InWords(&error), name = %self.name, "failed to watch ConfigMaps"),
                    None => return,
                },
                Ok(()) = self.roots.changed() => {}
                Ok(()) = self.scope.changed() => {}
                () = tokio::time::sleep(RETRY), if failed => {}
            }

            let roots = self.roots.borrow_and_update().clone();
            let scope = self.scope.borrow_and_update().clone();

            // They may have changed together with the event.
            let now = Some((roots.clone(), scope.clone()));
            if last != now {
                world.all_due();
                last = now;
            }

            let due = world.take_due(&roots, &scope);
            let again = tokio::select! {
                () = stop.cancelled() => return,
                again = self.write_all(due, &roots) => again,
            };
            failed = !again.is_empty();
            world.due.extend(again);
        }
    }

    /// Writes the ConfigMaps of these namespaces; returns those that must be retried.
    async fn write_all(&self, namespaces: Vec<String>, roots: &str) -> Vec<String> {
        let write = |namespace: String| async move {
            match self.write(&namespace, roots).await {
                Ok(()) => None,
                // A retry is pointless before a change: the namespace is gone, or another writer has
                // just changed the object. A forbidden write may be allowed later.
                Err(error) if is_conflict_or_gone(&error) => {
                    tracing::debug!(ns = %namespace, error = %InWords(&error), "skipped writing the ConfigMap with the root certificates");
                    None
                }
                Err(error) => {
                    tracing::warn!(ns = %namespace, name = %self.name, error = %InWords(&error), "failed to write the ConfigMap");
                    Some(namespace)
                }
            }
        };

        let writes = futures_util::stream::iter(namespaces.into_iter().map(write));
        writes
            .buffer_unordered(MAX_CONCURRENT_WRITES)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    /// Writes the ConfigMap of a namespace. Other keys keep their values.
    async fn write(&self, namespace: &str, roots: &str) -> Result<(), kube::Error> {
        let maps = Api::<ConfigMap>::namespaced(self.cluster.0.clone(), namespace);
        let Some(mut map) = maps.get_opt(&self.name).await? else {
            let labels = BTreeMap::from([("istio.io/config".to_owned(), "true".to_owned())]);
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    labels: Some(labels),
                    ..ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(self.key.to_owned(), roots.to_owned())])),
                ..ConfigMap::default()
            };
            return maps.create(&PostParams::default(), &map).await.map(drop);
        };

        if text_of(&map, self.key) == Some(roots) {
            return Ok(());
        }

        map.data
            .get_or_insert_default()
            .insert(self.key.to_owned(), roots.to_owned());
        maps.replace(&self.name, &PostParams::default(), &map)
            .await
            .map(drop)
    }
}

fn text_of<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a str> {
    map.data.as_ref()?.get(key).map(String::as_str)
}

/// The digest of a text. Thousands of namespaces have the same text, so only digests are stored.
fn digest(roots: &str) -> [u8; 32] {
    Sha256::digest(roots).into()
}
