//! The DestinationRule that applies to a service and a proxy.
//!
//! ```text
//! rules of a namespace ──index──▶ names by host ──merge──▶ rules of one host ──choose──▶ the one for this proxy
//! ```
//!
//! The client's own namespace is first, then the exported rules of the service's namespace, then
//! those of the root namespace. Agrees with Istio's `destinationRule` in
//! `pilot/pkg/model/push_context.go` and with `destination_rule.go`. Each step is a query whose
//! equal result stops the update, so an edited rule affects only the clusters of its host.

mod index;
mod merge;
mod policy;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use merge::MergedRule;
pub use policy::{port_policy, subset_policy, with_mesh_defaults};

use self::index::{ClientNamespaces, Pool, RulesOfHost};
use super::root_and_own::root_namespace;
use super::{config_objects, sidecar_waypoint};
use navarch_api::istio::{DestinationRule, Subset};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::Object;
use navarch_push::view::View;
use navarch_registry::model::{Labels, Service, ServiceKey};

/// The rule for traffic of the proxy to a service. If the service's waypoint applies it, only its
/// subsets.
#[must_use]
pub fn for_service(view: &View<'_>, service: &Service) -> Option<Arc<MergedRule>> {
    for_key(view, &service.key)
}

/// As [`for_service`], by the service's key.
#[must_use]
pub fn for_key(view: &View<'_>, service: &ServiceKey) -> Option<Arc<MergedRule>> {
    let rules = candidates(view, service);
    let selected = |rule: &&Arc<MergedRule>| {
        rule.selector
            .as_ref()
            .is_some_and(|selector| view.proxy().selected_by(selector))
    };
    let rule = rules.iter().find(selected).or_else(|| unselected(&rules))?;

    if sidecar_waypoint::is_in_front(view, service) {
        return Some(Arc::new(rule.without_policies()));
    }
    Some(rule.clone())
}

/// All candidate rules for traffic of the proxy to a service, in the order in which they were
/// merged.
#[must_use]
pub fn all_for_service(view: &View<'_>, service: &Service) -> Vec<Arc<MergedRule>> {
    candidates(view, &service.key)
}

/// A merged rule as an object: the first rule with the settings of the others.
#[must_use]
pub fn object_of(view: &View<'_>, rule: &MergedRule) -> Option<Object<DestinationRule>> {
    let mut object = Object::clone(&*config_objects::destination_rule(view, &rule.name)?);
    let domain = &view.mesh().settings.domain_suffix;
    object.spec.host = Hostname::resolve(
        &object.spec.host,
        object.meta.key.namespace.as_str(),
        domain,
    )
    .to_string();
    object.spec.traffic_policy = rule.policy.as_deref().cloned().map(Box::new);
    object.spec.subsets = rule
        .subsets
        .iter()
        .map(|subset| Subset::clone(subset))
        .collect();
    Some(object)
}

/// The rule for inbound traffic of the proxy for a service of its workload. Rules with a selector
/// apply only to clients.
#[must_use]
pub fn for_inbound(view: &View<'_>, service: &ServiceKey) -> Option<Arc<MergedRule>> {
    unselected(&candidates(view, service)).cloned()
}

/// The last rule without a selector.
fn unselected(rules: &[Arc<MergedRule>]) -> Option<&Arc<MergedRule>> {
    rules.iter().rev().find(|rule| rule.selector.is_none())
}

/// All rules of the first namespace with one for this service, in the order in which they were
/// merged.
fn candidates(view: &View<'_>, service: &ServiceKey) -> Vec<Arc<MergedRule>> {
    let host = &service.hostname;
    let root = root_namespace(view);
    let clients = view.get(&ClientNamespaces(host.clone()));
    if !clients.is_empty()
        && let Some(own) = view.proxy().namespace_in(&clients)
    {
        let pool = if own == root {
            Pool::RootPrivate
        } else {
            Pool::Local
        };

        let rules = view.get(&RulesOfHost {
            namespace: own,
            pool,
            host: host.clone(),
        });
        if !rules.is_empty() {
            return (*rules).clone();
        }
    }

    for namespace in [&service.namespace, &root] {
        let exported = exported_by(view, namespace, host);
        if !exported.is_empty() {
            return exported;
        }
    }

    Vec::new()
}

/// The rules for a host that a namespace exports to the proxy's namespace.
fn exported_by(view: &View<'_>, namespace: &Namespace, host: &Hostname) -> Vec<Arc<MergedRule>> {
    let query = RulesOfHost {
        namespace: namespace.clone(),
        pool: Pool::Exported,
        host: host.clone(),
    };
    let rules = view.get(&query);
    let named: BTreeSet<Namespace> = rules
        .iter()
        .filter(|rule| !rule.is_public())
        .flat_map(|rule| rule.export_to.iter().map(Namespace::new))
        .collect();

    let client = if named.is_empty() {
        None
    } else {
        view.proxy().namespace_among(named)
    };

    let shown = |rule: &&Arc<MergedRule>| {
        rule.is_public()
            || client
                .as_ref()
                .is_some_and(|client| rule.export_to.contains(client.as_str()))
    };

    rules.iter().filter(shown).cloned().collect()
}

/// The required labels of a workload, converted to the registry's type.
fn selector_labels(labels: &std::collections::BTreeMap<String, String>) -> Labels {
    labels
        .iter()
        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
        .collect()
}
