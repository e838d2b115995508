//! Builds groups of Envoy endpoints from the registry's: which are sent, and their metadata.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::HealthStatus;
use navarch_proto::envoy::config::endpoint::v3::LbEndpoint;

use super::gateways::{self, GatewayIndex, Gateways, is_in_network};
use super::group::{EndpointWorkload, Group, Member, carries_label, workload_label};
use super::health;
use super::target::{EndpointPath, Target};
use super::tunnel::{self, Tunnel};
use super::wire::{self, More, Names};
use crate::build::MAX_UNIX_PATH;
use crate::filters::metrics_log;
use crate::mtls::{self, MtlsMode, NamespaceMtls};
use navarch_ambient::networks::{self, ServiceReach};
use navarch_api::istio::{ClientTlsMode, TrafficPolicy};
use navarch_api::names::Namespace;
use navarch_push::proxy::{Locality, ProxyKind};
use navarch_push::view::View;
use navarch_registry::model::{Discoverability, Endpoint, Health, TlsMode, Workload};

/// The length of the prefix `unix://` of socket paths.
const UNIX_PREFIX: usize = 7;

/// Builds endpoints of one target.
struct Builder<'a, 'v> {
    view: &'a View<'v>,
    target: &'a Target<'a>,
    /// The TLS mode of the DestinationRule; `None` leaves it to the endpoint.
    tls: Option<ClientTlsMode>,
    /// Whether unhealthy endpoints are sent.
    unhealthy: bool,
    /// Whether only endpoints of the proxy's cluster are sent.
    cluster_local: bool,
    /// The scope of the service in a multi-network ambient mesh.
    reach: Option<ServiceReach>,
    /// Cached policies by namespace.
    policies: BTreeMap<Namespace, NamespaceMtls>,
    /// The gateways between networks.
    gateways: Arc<GatewayIndex>,
}

/// Builds the endpoints of a target from `candidates`, by locality.
pub(crate) fn groups<'e>(
    view: &View<'_>,
    target: &Target<'_>,
    candidates: impl Iterator<Item = &'e Arc<Endpoint>>,
) -> Vec<Group> {
    let mut builder = Builder::new(view, target);
    let mut groups: BTreeMap<Arc<str>, Group> = BTreeMap::new();

    for endpoint in candidates {
        if !builder.is_in_subset(endpoint) || !builder.is_sent(endpoint) {
            continue;
        }
        let member = builder.member(endpoint);
        let locality = &endpoint.workload.location.locality;
        let group = groups.entry(locality.clone()).or_insert_with(|| Group {
            locality: Locality::parse(locality),
            priority: 0,
            weight: None,
            members: Vec::new(),
        });
        group.members.push(member);
    }

    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.iter_mut().for_each(Group::set_weight);

    // A gateway passes a sidecar's mutual TLS to the pods of a service, not to its waypoint.
    if !(target.way == EndpointPath::ToWaypoint && view.proxy().kind() == ProxyKind::Sidecar) {
        gateways::apply(view, &builder.gateways, target, &mut groups);
    }

    if target.sni_routed {
        // The gateway cannot detect whether the traffic that it passes through is mutual TLS, so
        // the receiver must accept it.
        for group in &mut groups {
            group
                .members
                .retain(|member| wire::speaks_mtls(&member.wire));
            group.set_weight();
        }
    }

    groups
}

/// Whether an address is valid in EDS: an IP, a path, or none if a gateway replaces it.
pub(super) fn is_resolved(endpoint: &Endpoint) -> bool {
    let address = endpoint.addresses.first().map_or("", |address| address);
    address.is_empty() || endpoint.port == 0 || address.parse::<IpAddr>().is_ok()
}

impl<'a, 'v> Builder<'a, 'v> {
    /// Reads the settings that apply to all endpoints.
    fn new(view: &'a View<'v>, target: &'a Target<'a>) -> Self {
        let settings = &view.mesh().settings;
        let outlier = target
            .policy
            .and_then(|policy| policy.outlier_detection.as_deref());
        Self {
            view,
            target,
            tls: tls_of_rule(target),
            unhealthy: health::sends_unhealthy_under(settings, target.service, outlier),
            cluster_local: super::cluster_local::is_cluster_local(
                view,
                &target.service.key.hostname,
            ),
            reach: networks::reach(view, &target.service.key),
            policies: BTreeMap::new(),
            gateways: view.get(&Gateways {
                with_names: target.by_dns,
            }),
        }
    }

    /// Whether an endpoint has the labels of the subset.
    fn is_in_subset(&self, endpoint: &Endpoint) -> bool {
        let labels = self.target.subset.map(|subset| subset.labels.iter());
        labels
            .into_iter()
            .flatten()
            .all(|(key, value)| carries_label(&endpoint.workload, key, value))
    }

    /// Whether an endpoint is sent to the proxy.
    fn is_sent(&self, endpoint: &Endpoint) -> bool {
        let proxy = self.view.proxy();
        let workload = &endpoint.workload;
        let on_own_node =
            || proxy.meta("NODE_NAME").as_deref().unwrap_or("") == &*workload.location.node;
        let in_own_cluster = || {
            let own = proxy.cluster_id();
            own.is_empty()
                || workload.location.cluster.is_empty()
                || own == workload.location.cluster
        };

        if self.target.service.kubernetes.node_local && !on_own_node() {
            return false;
        }

        if !workload.location.network.is_empty()
            && let Some(requested) = proxy
                .meta("REQUESTED_NETWORK_VIEW")
                .filter(|requested| !requested.is_empty())
            && !requested
                .split(',')
                .any(|network| network == workload.location.network.as_str())
        {
            return false;
        }
        if self.cluster_local && proxy.cluster_id() != workload.location.cluster
            || !self.may_serve(workload)
        {
            return false;
        }

        if endpoint.port == 0
            && endpoint
                .addresses
                .first()
                .is_some_and(|path| path.len() > MAX_UNIX_PATH + UNIX_PREFIX)
        {
            let host = &self.target.service.key.hostname;
            self.view.remark(format!(
                "ServiceEntry of {host}: an endpoint's path has more than {MAX_UNIX_PATH} bytes"
            ));
            return false;
        }

        let discoverable = match endpoint.discoverability {
            Discoverability::Mesh => true,
            Discoverability::OwnCluster => in_own_cluster(),
            Discoverability::OwnNode => on_own_node(),
        };

        let placed = endpoint
            .addresses
            .first()
            .is_some_and(|address| !address.is_empty())
            || (!self.gateways.is_empty() && !is_in_network(self.view, &workload.location.network));
        let settings = &self.view.mesh().settings;

        discoverable
            && placed
            && health::is_sent(settings, self.target.service, endpoint, self.unhealthy)
    }

    /// Whether workloads of this workload's cluster may serve the service to the proxy.
    fn may_serve(&self, workload: &Workload) -> bool {
        let proxy = self.view.proxy();
        let in_own_cluster = proxy.cluster_id() == workload.location.cluster;
        match self.reach {
            None | Some(ServiceReach::Mesh) => true,
            Some(ServiceReach::Cluster) => in_own_cluster,
            // Its endpoints are for all clusters, but gateways of ambient mode forward no requests
            // to it.
            Some(ServiceReach::Entry) => {
                let is_listed = workload.location.cluster == self.view.mesh().settings.cluster_id;
                let is_passed = proxy.kind() == ProxyKind::Sidecar
                    || is_in_network(self.view, &workload.location.network);
                in_own_cluster || is_listed && is_passed
            }
        }
    }

    /// The Envoy message of an endpoint.
    fn member(&mut self, endpoint: &Endpoint) -> Member {
        let settings = &self.view.mesh().settings;
        let named = settings.telemetry_label && settings.endpoint_telemetry_label;
        let mut names = named.then(|| self.names(endpoint));
        let tunnel = self.tunnel(endpoint);
        if let Some(names) = names.as_mut().filter(|_| metrics_log::are_taken(self.view)) {
            names.more = self.more(endpoint, names, tunnel.is_some());
        }

        let mtls = self.speaks_mtls(endpoint);
        let (first, further) = endpoint
            .addresses
            .split_first()
            .map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut metadata = wire::metadata(mtls, names.as_ref());
        let host_identifier = match tunnel {
            Some(tunnel) => {
                tunnel.add_to(&mut metadata, self.target.way != EndpointPath::OfWaypoint);
                tunnel.host(self.view)
            }
            None => wire::host(
                first,
                endpoint.port,
                if settings.dual_stack { further } else { &[] },
            ),
        };

        let wire = LbEndpoint {
            health_status: health_status(health::effective(settings, endpoint)).into(),
            load_balancing_weight: Some(endpoint.weight.max(1)),
            metadata: Some(metadata),
            host_identifier: Some(host_identifier),
        };

        Member {
            wire,
            behind: EndpointWorkload::Workload(endpoint.workload.clone()),
        }
    }

    /// The tunnel to an endpoint, if it is reached by one.
    fn tunnel(&self, endpoint: &Endpoint) -> Option<Tunnel> {
        let address = endpoint.addresses.first()?;
        if self.target.way == EndpointPath::ToWaypoint {
            return Some(Tunnel::to_waypoint(
                self.target.service,
                self.target.port,
                endpoint,
            ));
        }
        let hbone = &self.view.mesh().settings.hbone;
        let prefers_mtls = endpoint.workload.tls_mode == TlsMode::Istio && !hbone.is_preferred;
        let is_kept = (prefers_mtls && self.target.way == EndpointPath::Client)
            || !tunnel::is_reached_by_hbone(self.view, endpoint);
        (!is_kept).then(|| Tunnel::to_workload(address, endpoint.port))
    }

    /// The names that metrics use.
    fn names<'e>(&self, endpoint: &'e Endpoint) -> Names<'e>
    where
        'a: 'e,
    {
        let workload = &endpoint.workload;
        let mut names = Names {
            workload: &workload.name,
            namespace: workload.namespace.as_str(),
            canonical: wire::canonical_name(workload.labels(), &workload.name),
            revision: wire::canonical_revision(workload.labels()),
            cluster: workload.location.cluster.as_str(),
            more: None,
        };

        let service = self.target.service;
        if self.view.mesh().settings.label_external_canonical_services && service.mesh_external {
            names.namespace = service.key.namespace.as_str();
            if let Some(canonical) = service.labels.get(wire::CANONICAL_NAME) {
                names.canonical = canonical;
                names.revision = service
                    .labels
                    .get(wire::CANONICAL_REVISION)
                    .map_or("", |revision| revision);
            }
        }

        names
    }

    /// The fields that Istio's filter would discover for an endpoint: of HTTP from the response
    /// headers of its proxy, of TCP by its exchange between proxies, else in ambient mode from the
    /// control plane, as waypoints always do.
    ///
    /// Which endpoints have a proxy is not known: gateways have no label of sidecars. So all get the
    /// fields by which a proxy would describe them.
    fn more<'e>(
        &self,
        endpoint: &'e Endpoint,
        names: &Names<'e>,
        is_tunnelled: bool,
    ) -> Option<More<'e>> {
        let workload = &endpoint.workload;
        let is_of_waypoint = self.target.way == EndpointPath::OfWaypoint;
        let has_sidecar = workload.tls_mode == TlsMode::Istio;
        let settings = &self.view.mesh().settings;
        let exchanges = settings.metadata_exchange;
        let of_labels = || More::of_labels(workload.labels(), &settings.metadata_exchange_labels);

        let more = if exchanges && has_sidecar && !is_of_waypoint {
            of_labels()
        } else if is_tunnelled || is_of_waypoint {
            More::of_discovered(names)
        } else if exchanges {
            of_labels().non_empty()?
        } else {
            return None;
        };

        // The certificate of a tunnel is on another connection than the logged requests.
        Some(if is_tunnelled {
            More {
                identity: &workload.identity,
                ..more
            }
        } else {
            more
        })
    }

    /// Whether an endpoint is reached by mutual TLS: by the rule, else if the endpoint and its
    /// policies allow it.
    fn speaks_mtls(&mut self, endpoint: &Endpoint) -> bool {
        let workload = &endpoint.workload;
        if workload.tls_mode != TlsMode::Istio {
            return false;
        }

        match self.tls {
            Some(mode) => mode == ClientTlsMode::IstioMutual,
            None => {
                let view = self.view;
                let policies = self
                    .policies
                    .entry(workload.namespace.clone())
                    .or_insert_with(|| mtls::in_namespace(view, &workload.namespace));
                let merged = policies.of(|selector| {
                    selector
                        .iter()
                        .all(|(key, value)| workload_label(workload, key) == &**value)
                });
                merged.on_port(endpoint.port) != MtlsMode::Disable
            }
        }
    }
}

/// The TLS mode of the rule: a subset overrides the host, a port overrides all ports.
fn tls_of_rule(target: &Target<'_>) -> Option<ClientTlsMode> {
    if target.way == EndpointPath::OfWaypoint && target.subset.is_none() {
        // As in Istio, where the transport in the name is parsed as a subset.
        return None;
    }
    let in_subset = target
        .subset
        .and_then(|subset| subset.traffic_policy.as_deref());
    let in_rule = target.rule.and_then(|rule| rule.policy.as_deref());
    in_subset
        .and_then(|policy| tls_on_port(policy, target.port))
        .or_else(|| in_rule.and_then(|policy| tls_on_port(policy, target.port)))
}

fn tls_on_port(policy: &TrafficPolicy, port: u16) -> Option<ClientTlsMode> {
    let for_port = policy.port_level_settings.iter().find(|own| {
        own.tls.is_some()
            && own
                .port
                .as_ref()
                .is_some_and(|selector| selector.number == u32::from(port))
    });
    for_port
        .and_then(|own| own.tls.as_deref())
        .or(policy.tls.as_deref())
        .map(|tls| tls.mode)
}

/// The health status in Envoy.
fn health_status(health: Health) -> HealthStatus {
    match health {
        Health::Unknown => HealthStatus::Unknown,
        Health::Healthy => HealthStatus::Healthy,
        Health::Unhealthy => HealthStatus::Unhealthy,
        Health::Draining => HealthStatus::Draining,
        Health::Terminating => HealthStatus::Timeout,
    }
}
