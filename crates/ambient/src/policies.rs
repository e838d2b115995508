//! Authorization policies for ztunnel, and which of them apply to a workload (Istio's
//! `serviceregistry/ambient/policies.go`).
//!
//! ztunnel applies policies of a namespace or of the mesh by scope; policies with a selector are
//! listed in the workloads that they select.

mod acceptance;
mod attached;
mod authorization;
mod peer;

use std::collections::BTreeSet;

use bytes::Bytes;
use navarch_proto::istio::security::{
    Action, Authorization, Group, Match, Rules, Scope, StringMatch, string_match::MatchType,
};
use prost::Message;

pub(super) use acceptance::{Acceptance, acceptance, targets};
pub(super) use attached::policies_of;

use super::mesh::MeshFacts;
use super::waypoint::{Waypoint, WaypointOf};
use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::istio::{AuthorizationPolicy, PeerAuthentication, PolicyWorkloadSelector};
use navarch_api::names::ResourceName;
use navarch_api::object::NamespacedName;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Labels;

/// The policy that requires mutual TLS. The name is not valid for objects.
const STATIC_STRICT: &str = "istio_converted_static_strict";
/// Prefix of the names of policies that are converted from PeerAuthentications.
const CONVERTED: &str = "converted_peer_authentication_";
/// Prefix of the names of policies that allow a waypoint.
const ALLOW_WAYPOINT: &str = "istio_allow_waypoint_";

/// Whether there is any PeerAuthentication.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsAnyPeerAuthentication;

impl Query for IsAnyPeerAuthentication {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.list_all::<PeerAuthentication>().next().is_some()
    }
}

/// The labels that a policy requires of workloads; none if it applies to all.
fn selected_labels(selector: Option<&PolicyWorkloadSelector>) -> Labels {
    selector
        .iter()
        .flat_map(|selector| &selector.match_labels)
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

/// Candidate names of all policies.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let mesh = view.get(&MeshFacts);
    let name = |namespace: &dyn std::fmt::Display, name: &str| {
        ResourceName::new(format!("{namespace}/{name}"))
    };
    let mut names = BTreeSet::new();
    for policy in view.list_all::<AuthorizationPolicy>() {
        names.insert(name(&policy.meta.key.namespace, &policy.meta.key.name));
    }

    for policy in view
        .list_all::<PeerAuthentication>()
        .filter(|policy| policy.spec.port_level_mtls.is_some())
    {
        names.insert(name(
            &policy.meta.key.namespace,
            &format!("{CONVERTED}{}", policy.meta.key.name),
        ));
    }

    if *view.get(&IsAnyPeerAuthentication) {
        names.insert(name(&mesh.root_namespace, STATIC_STRICT));
    }

    if mesh.auto_allow_waypoints {
        for gateway in view.list_all::<KubernetesGateway>() {
            let key = &gateway.meta.key;
            names.insert(name(&key.namespace, &name_of_waypoint_policy(key)));
        }
    }

    names.into_iter().collect()
}

/// The policy of this name, encoded.
pub(super) fn resource(name: &str, view: &View<'_>) -> Option<Bytes> {
    policy(name, view).map(|policy| policy.encode_to_vec().into())
}

fn policy(name: &str, view: &View<'_>) -> Option<Authorization> {
    let (namespace, name) = name.split_once('/')?;
    let mesh = view.get(&MeshFacts);

    if name == STATIC_STRICT {
        let exists = mesh.root_namespace == *namespace && *view.get(&IsAnyPeerAuthentication);
        return exists.then(|| strict(namespace));
    }

    if let Some(name) = name.strip_prefix(CONVERTED) {
        return peer::converted(&NamespacedName::new(namespace, name), view);
    }

    if let Some(rest) = name.strip_prefix(ALLOW_WAYPOINT) {
        let gateway = rest.strip_prefix(namespace)?.strip_prefix('_')?;
        let waypoint = (*view.get(&WaypointOf(
            ClusterRef::Config,
            NamespacedName::new(namespace, gateway),
        )))
        .clone()?;
        return allow_waypoint(&waypoint, &mesh.trust_domain);
    }

    let policy = view.object::<AuthorizationPolicy>(&NamespacedName::new(namespace, name))?;
    authorization::convert(policy, &mesh)
}

/// The policy that requires mutual TLS for workloads that reference it.
fn strict(namespace: &str) -> Authorization {
    Authorization {
        name: STATIC_STRICT.to_owned(),
        namespace: namespace.to_owned(),
        scope: Scope::WorkloadSelector.into(),
        action: Action::Deny.into(),
        groups: vec![Group {
            rules: vec![without_identity(None)],
        }],
        ..Authorization::default()
    }
}

/// A rule that matches unauthenticated peers, on a port if given.
fn without_identity(port: Option<u32>) -> Rules {
    let anybody = StringMatch {
        match_type: Some(MatchType::Presence(())),
    };
    let destination_ports = port.into_iter().collect();
    Rules {
        matches: vec![Match {
            not_principals: vec![anybody],
            destination_ports,
            ..Match::default()
        }],
    }
}

/// The name of the policy that allows a waypoint, without its namespace.
fn name_of_waypoint_policy(waypoint: &NamespacedName) -> String {
    format!("{ALLOW_WAYPOINT}{}_{}", waypoint.namespace, waypoint.name)
}

/// The policy that allows a waypoint; `None` while it has no pods.
fn allow_waypoint(waypoint: &Waypoint, trust_domain: &str) -> Option<Authorization> {
    let name = &waypoint.name;
    let principal = |account: &navarch_api::names::ServiceAccount| {
        let identity = format!("{trust_domain}/ns/{}/sa/{account}", name.namespace);
        StringMatch {
            match_type: Some(MatchType::Exact(identity)),
        }
    };

    let principals: Vec<StringMatch> = waypoint.accounts.iter().map(principal).collect();
    let rules = vec![Rules {
        matches: vec![Match {
            principals,
            ..Match::default()
        }],
    }];

    (!waypoint.accounts.is_empty()).then(|| Authorization {
        name: name_of_waypoint_policy(name),
        namespace: name.namespace.to_string(),
        scope: Scope::WorkloadSelector.into(),
        action: Action::Allow.into(),
        groups: vec![Group { rules }],
        ..Authorization::default()
    })
}
