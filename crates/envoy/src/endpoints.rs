//! EDS: the endpoints of a cluster, also for clusters with inline endpoints.
//!
//! ```text
//! registry's endpoints ─build─▶ groups by locality ─gateways─▶ own network ─priority─▶ order for this proxy ─▶ Envoy
//! ```

mod build;
pub use cluster_local::ClusterLocalHosts;
mod cluster_local;
mod gateways;
mod group;
pub(super) mod health;
pub(super) mod locality_setting;
mod own_workload;
mod priority;
mod target;
mod tunnel;
mod waypoint;
pub(super) mod wire;

use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};

pub(super) use build::groups;
pub(super) use group::Group;
pub(super) use priority::arrange;
pub(super) use target::{EndpointPath, Target};
pub(super) use tunnel::all_take_hbone;

use self::locality_setting::LocalitySetting;
use crate::build::encode;
use crate::destination_rule::{self, MergedRule, port_policy, subset_policy};
use crate::filters::ext_proc;
use crate::names::{ClusterName, OutboundCluster, SELF_DISCOVERY, VipCluster};
use crate::service_port::of_port_name;
use crate::sidecar_scope;
use navarch_api::istio::{Subset, TrafficPolicy};
use navarch_api::names::ResourceName;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Endpoint, Resolution, Service};

/// The endpoints of the cluster of this name. An unknown name has an empty list, so that the proxy
/// does not wait for it.
pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let endpoints = match ClusterName::parse(name.as_str()) {
        Some(ClusterName::Outbound(cluster)) => match waypoint::endpoints(view, &cluster) {
            Some(of_waypoint) => of_waypoint,
            None => of_cluster(view, &cluster, Role::Client),
        },
        Some(ClusterName::SniRouted(cluster)) => of_cluster(view, &cluster, Role::SniRouted),
        Some(ClusterName::InboundVip(cluster)) => {
            let VipCluster {
                port, subset, host, ..
            } = &cluster;
            of_cluster(
                view,
                &OutboundCluster::new(*port, subset, host),
                Role::Waypoint,
            )
        }
        _ if name.as_str() == SELF_DISCOVERY => own_workload::endpoints(view),
        _ => Vec::new(),
    };

    Some(encode(&ClusterLoadAssignment {
        cluster_name: name.as_str().to_owned(),
        endpoints,
        ..ClusterLoadAssignment::default()
    }))
}

/// The type of client of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    /// A gateway that passes mutual TLS through.
    SniRouted,
    /// The waypoint of the service.
    Waypoint,
}

/// The endpoints of a service's cluster.
fn of_cluster(view: &View<'_>, cluster: &OutboundCluster, role: Role) -> Vec<LocalityLbEndpoints> {
    let Some(service) = sidecar_scope::host_service(view, &cluster.host) else {
        return Vec::new();
    };

    if service.port(cluster.port).is_none() || is_resolved_by_proxy(&service) {
        return Vec::new();
    }

    let rule = destination_rule::for_service(view, &service);
    let subset = rule.as_ref().and_then(|rule| rule.subset(&cluster.subset));
    let policy = policy(
        rule.as_deref(),
        subset.map(|subset| &**subset),
        cluster.port,
    );

    let target = Target {
        service: &service,
        port: cluster.port,
        rule: rule.as_deref(),
        subset: subset.map(|subset| &**subset),
        policy: policy.as_ref(),
        sni_routed: role == Role::SniRouted,
        by_dns: false,
        way: if role == Role::Waypoint {
            EndpointPath::OfWaypoint
        } else {
            EndpointPath::Client
        },
    };

    let mut groups = groups(
        view,
        &target,
        candidates(view, &service, cluster.port).iter(),
    );
    if groups.is_empty() {
        view.count("pilot_eds_no_instances", cluster.to_string());
    }

    let rule = policy
        .as_ref()
        .and_then(|policy| policy.load_balancer.as_deref());
    if let Some(setting) = LocalitySetting::effective(&view.mesh().config, rule, &service)
        && !(matches!(setting, LocalitySetting::ZoneAware(_))
            && view.proxy().kind() == ProxyKind::Waypoint)
        && !groups.is_empty()
    {
        let fails_over = policy
            .as_ref()
            .is_some_and(|policy| policy.outlier_detection.is_some());
        arrange(view, &setting, &mut groups, fails_over, true);
    }

    groups.into_iter().map(Group::into_wire).collect()
}

/// The endpoints of a service port with known addresses.
fn candidates(view: &View<'_>, service: &Service, port: u16) -> Vec<Arc<Endpoint>> {
    let Some(endpoints) = view.endpoints(&service.key) else {
        return Vec::new();
    };
    if ext_proc::is_pool(service) {
        return endpoints
            .endpoints
            .iter()
            .filter(|endpoint| build::is_resolved(endpoint))
            .cloned()
            .collect();
    }
    let of_port = of_port_name(endpoints, service, port);
    of_port
        .filter(|endpoint| build::is_resolved(endpoint))
        .cloned()
        .collect()
}

/// Whether proxies resolve the addresses of a service by DNS.
pub(super) fn is_resolved_by_proxy(service: &Service) -> bool {
    matches!(
        service.resolution,
        Resolution::DnsLb | Resolution::DnsRoundRobinLb
    )
}

/// The policy of a port: the subset's overrides the host's. As in Istio, the mesh defaults do not
/// apply to endpoints.
pub(super) fn policy(
    rule: Option<&MergedRule>,
    subset: Option<&Subset>,
    port: u16,
) -> Option<TrafficPolicy> {
    let host = port_policy(rule.and_then(|rule| rule.policy.as_deref()), port);
    subset_policy(
        host.as_ref(),
        subset.and_then(|subset| subset.traffic_policy.as_deref()),
        port,
    )
}

#[cfg(test)]
pub(super) mod tests;
