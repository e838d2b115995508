//! The services of a namespace that select a workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::service_facts::{FactsOf, Origin, ServiceFacts, facts_of_service};
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::Service;
use navarch_api::names::{Hostname, Namespace};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Labels, ServiceKey};
use navarch_registry::selects;

/// The services of a namespace that select workloads of a cluster. In a remote cluster these are
/// its multi-cluster Services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SelectingServices(pub(super) ClusterRef, pub(super) Namespace);

/// Services by the first label of their selectors.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selecting(BTreeMap<Label, Vec<Arc<ServiceFacts>>>);

/// The key and the value of a label.
type Label = (Arc<str>, Arc<str>);

/// The host of a Service.
pub(super) fn host_of(name: &str, namespace: &Namespace, suffix: &str) -> Hostname {
    Hostname::new(format!("{name}.{namespace}.svc.{suffix}"))
}

impl Selecting {
    /// Adds a service, if it has a selector.
    fn add(&mut self, facts: &Arc<ServiceFacts>) {
        if let Some((key, value)) = facts.selector.iter().next() {
            self.0
                .entry((key.clone(), value.clone()))
                .or_default()
                .push(facts.clone());
        }
    }

    /// The services that select these labels, by host.
    pub(super) fn of(
        &self,
        labels: &Labels,
        is_wanted: impl Fn(&Origin) -> bool,
    ) -> Vec<Arc<ServiceFacts>> {
        let candidates = labels
            .iter()
            .filter_map(|(key, value)| self.0.get(&(key.clone(), value.clone())));
        let selecting = candidates
            .flatten()
            .filter(|facts| is_wanted(&facts.origin) && selects(&facts.selector, labels));
        let mut found: Vec<Arc<ServiceFacts>> = selecting.cloned().collect();
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        found
    }
}

impl Query for SelectingServices {
    type Value = Selecting;

    fn compute(&self, view: &View<'_>) -> Selecting {
        let Self(cluster_ref, namespace) = self;
        let services = view.list_in::<Service>(cluster_ref, namespace).into_iter();
        let services = services.filter(|service| !service.spec.selector.is_empty());
        let mut selecting = Selecting::default();

        if *cluster_ref != ClusterRef::Config {
            for facts in services
                .filter_map(|service| facts_of_service(cluster_ref, &service.meta.key(), view))
            {
                selecting.add(&facts);
            }
            return selecting;
        }

        let suffix = &view.mesh().settings.domain_suffix;
        let mut hosts: BTreeSet<Hostname> = services
            .map(|service| host_of(&service.meta.key.name, namespace, suffix))
            .collect();
        let entries = view
            .list::<ServiceEntry>(namespace)
            .filter(|entry| entry.spec.workload_selector.is_some());
        hosts.extend(
            entries
                .flat_map(|entry| &entry.spec.hosts)
                .map(Hostname::new),
        );

        for hostname in hosts {
            let key = ServiceKey {
                namespace: namespace.clone(),
                hostname,
            };
            if let Some(facts) = (*view.get(&FactsOf(key))).clone() {
                selecting.add(&facts);
            }
        }

        selecting
    }
}
