//! Selects the namespaces that are written to.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::cluster::Cluster;
use navarch_api::mesh::LabelSelector;
use navarch_api::text_map::TextMap;
use navarch_kubernetes::InWords;

/// The limits of the namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceScope {
    /// `discoverySelectors` of mesh config; an empty list selects all.
    pub selectors: Vec<LabelSelector>,
    /// The only namespace, if there is just one (`PILOT_WATCH_NAMESPACE`… of the source).
    pub only: Option<String>,
}

impl NamespaceScope {
    /// Whether a namespace with these labels, `None` if unknown, is within the scope.
    #[must_use]
    pub fn includes(&self, name: &str, labels: Option<&TextMap>) -> bool {
        let is_selected = |labels: &TextMap| {
            self.selectors
                .iter()
                .any(|selector| selector.selects(labels))
        };
        self.only.as_ref().is_none_or(|only| only == name)
            && (self.selectors.is_empty() || labels.is_some_and(is_selected))
    }
}

/// Events about namespaces for [`Namespaces`]. Errors are logged and retried.
pub(super) fn watch(cluster: &Cluster) -> BoxStream<'static, Event<PartialObjectMeta<Namespace>>> {
    let all = Api::<PartialObjectMeta<Namespace>>::all(cluster.0.clone());
    let events = watcher(all, watcher::Config::default()).default_backoff();
    let events = events
        .inspect_err(|error| tracing::warn!(error = %InWords(error), "failed to watch namespaces"));
    events
        .filter_map(|event| std::future::ready(event.ok()))
        .boxed()
}

/// The namespaces of the cluster, from a watch.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Labels by name, of namespaces that are not terminating.
    labels: BTreeMap<String, TextMap>,
    /// The objects of an unfinished list.
    listed: BTreeSet<String>,
    /// Whether the initial list is complete.
    pub complete: bool,
}

impl Namespaces {
    /// Applies an event of the watch; returns the namespaces whose selection may have changed.
    pub(super) fn take(&mut self, event: Event<PartialObjectMeta<Namespace>>) -> Vec<String> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(namespace) => {
                self.listed.extend(namespace.metadata.name.clone());
                self.put(namespace).into_iter().collect()
            }
            Event::InitDone => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                self.labels.retain(|name, _| listed.contains(name));
                Vec::new()
            }
            Event::Apply(namespace) => self.put(namespace).into_iter().collect(),
            Event::Delete(namespace) => {
                let name = namespace.metadata.name.unwrap_or_default();
                self.labels.remove(&name);
                Vec::new()
            }
        }
    }

    /// Adds or updates a namespace.
    fn put(&mut self, namespace: PartialObjectMeta<Namespace>) -> Option<String> {
        let name = namespace.metadata.name?;
        if namespace.metadata.deletion_timestamp.is_some() {
            self.labels.remove(&name);
            return None;
        }
        let labels = namespace.metadata.labels.unwrap_or_default();
        let labels = labels
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        self.labels.insert(name.clone(), labels);
        Some(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.labels.keys()
    }

    /// Whether a namespace exists and is within the scope.
    pub(super) fn counts(&self, name: &str, scope: &NamespaceScope) -> bool {
        let Some(labels) = self.labels.get(name) else {
            return false;
        };
        scope.includes(name, Some(labels))
    }
}
