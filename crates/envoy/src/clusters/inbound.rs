//! Clusters of the workload's own ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::endpoint::v3::{LbEndpoint, LocalityLbEndpoints};

use super::builder::{ClusterBuilder, Discovery, stat_name};
use super::fixed::{LOCALHOST_V4, LOCALHOST_V6, bind_config};
use super::http::HttpOptions;
use super::metadata::NamedService;
use super::traffic_policy;
use crate::destination_rule::{self, port_policy, with_mesh_defaults};
use crate::endpoints::wire;
use crate::names::inbound_cluster;
use crate::sidecar_scope;
use crate::stat_prefix::{self, ShortNames, StatService};
use navarch_api::istio::{
    ConnectionPoolSettings, IstioIngressListener, SidecarPort, TrafficPolicy,
};
use navarch_api::mesh::InboundTrafficPolicyMode;
use navarch_api::names::{Hostname, PortName, ResourceName};
use navarch_push::proxy::IpFamilies;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServicePort, ServiceTarget};
use navarch_registry::protocol::Protocol;

/// The maximum duration in Istio's encoding: connections to the workload's address do not expire.
const FOR_EVER_SECONDS: i64 = 9_223_372_035;

/// The destination of an inbound cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    Original,
    /// To this address, or path with port 0.
    Fixed(String, u16),
}

/// The inputs of one inbound cluster.
struct Inbound {
    /// The port in its name.
    port: u16,
    /// The port in the service or Sidecar.
    declared: ServicePort,
    /// Its service; `None` if only a Sidecar declares the port.
    service: Option<Arc<Service>>,
    /// All services on the port, for metrics.
    named: Vec<NamedService>,
    /// The destination of its traffic.
    destination: Destination,
}

/// The names of the inbound clusters of the proxy.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let ingress = sidecar_scope::ingress_listeners(view);
    let mut ports: BTreeSet<u16> = ingress.iter().filter_map(ingress_port).collect();
    if services_listen(view, ingress) {
        ports.extend(
            view.proxy()
                .targets()
                .iter()
                .map(|target| target.target_port),
        );
    }
    ports.into_iter().map(inbound_cluster).collect()
}

/// The cluster of a port of the workload.
pub(super) fn build(view: &View<'_>, port: u16) -> Option<Cluster> {
    let ingress = sidecar_scope::ingress_listeners(view);
    let listener = ingress
        .iter()
        .find(|listener| ingress_port(listener) == Some(port));
    let inbound = match listener {
        Some(listener) => of_ingress(view, port, listener)?,
        None if services_listen(view, ingress) => of_targets(view, port)?,
        None => return None,
    };
    Some(inbound.builder(view).finish())
}

/// The hosts of the services of a port's cluster.
pub(super) fn hosts(view: &View<'_>, port: u16) -> Vec<Hostname> {
    let targets = view.proxy().targets();
    let of_port = targets.iter().filter(|target| target.target_port == port);
    let hosts = of_port.map(|target| target.service.key.hostname.clone());
    match sidecar_scope::ingress_listeners(view)
        .iter()
        .any(|listener| ingress_port(listener) == Some(port))
    {
        true => hosts.take(1).collect(),
        false => hosts.collect(),
    }
}

/// Whether there are listeners for ports of services, and not only for those that a Sidecar
/// declares.
fn services_listen(view: &View<'_>, ingress: &[IstioIngressListener]) -> bool {
    if ingress.is_empty() {
        // Without interception the proxy cannot bind to the ports of the workload.
        view.proxy().meta("INTERCEPTION_MODE").as_deref() != Some("NONE")
    } else {
        view.mesh().settings.merge_sidecar_ingress
    }
}

fn ingress_port(listener: &IstioIngressListener) -> Option<u16> {
    u16::try_from(listener.port.as_ref()?.number).ok()
}

/// The cluster of a service port. If several services have the port, the first one decides.
fn of_targets(view: &View<'_>, port: u16) -> Option<Inbound> {
    let targets = view.proxy().targets();
    let of_port: Vec<&ServiceTarget> = targets
        .iter()
        .filter(|target| target.target_port == port)
        .collect();
    let first = of_port.first()?;
    let policy = view.mesh().config.inbound_traffic_policy.as_ref();
    let destination = match policy.map(|policy| policy.mode).unwrap_or_default() {
        InboundTrafficPolicyMode::Passthrough => Destination::Original,
        InboundTrafficPolicyMode::Localhost => Destination::Fixed(localhost(view).to_owned(), port),
    };

    let mut seen = BTreeSet::new();
    let same_port = of_port
        .iter()
        .filter(|target| target.port.port == first.port.port);
    let named = same_port.filter(|target| seen.insert(target.service.key.hostname.clone()));

    Some(Inbound {
        port,
        declared: first.port.clone(),
        named: if first.service.mesh_external {
            Vec::new()
        } else {
            named
                .map(|target| NamedService::new(&target.service))
                .collect()
        },
        service: Some(first.service.clone()),
        destination,
    })
}

/// The cluster of a port that a Sidecar declares.
fn of_ingress(view: &View<'_>, port: u16, listener: &IstioIngressListener) -> Option<Inbound> {
    let SidecarPort {
        number,
        protocol,
        name,
        ..
    } = listener.port.as_ref()?;

    let declared = ServicePort {
        name: PortName::new(name),
        port: u16::try_from(*number).ok()?,
        protocol: Protocol::parse(protocol),
    };
    let targets = view.proxy().targets();
    let service = targets
        .iter()
        .find(|target| target.target_port == port)
        .map(|target| target.service.clone());
    let external = service.as_ref().is_none_or(|service| service.mesh_external);

    let named = service
        .iter()
        .filter(|_| !external)
        .map(|service| NamedService::new(service))
        .collect();
    let destination = default_endpoint(view, &listener.default_endpoint)?;

    Some(Inbound {
        port,
        declared,
        service,
        named,
        destination,
    })
}

/// The `defaultEndpoint` of a port of a Sidecar; `None` if invalid.
fn default_endpoint(view: &View<'_>, text: &str) -> Option<Destination> {
    if text.is_empty() {
        return Some(Destination::Original);
    }

    if text.starts_with("unix://") {
        return Some(Destination::Fixed(text.to_owned(), 0));
    }

    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }

    let families = view.proxy().families();
    let own = |v4: bool| {
        view.proxy()
            .ips()
            .iter()
            .find(|ip| ip.is_ipv4() == v4)
            .map(ToString::to_string)
    };

    let address = match host {
        "0.0.0.0" => own(true).unwrap_or_else(|| LOCALHOST_V4.to_owned()),
        "[::]" => own(false).unwrap_or_else(|| LOCALHOST_V6.to_owned()),
        "127.0.0.1" if families.has_v4() => LOCALHOST_V4.to_owned(),
        "[::1]" if !families.has_v6() => LOCALHOST_V4.to_owned(),
        "127.0.0.1" | "[::1]" => LOCALHOST_V6.to_owned(),
        _ => return Some(Destination::Original),
    };

    Some(Destination::Fixed(address, port))
}

/// The loopback address of the workload.
fn localhost(view: &View<'_>) -> &'static str {
    if view.proxy().families() == IpFamilies::V6 {
        LOCALHOST_V6
    } else {
        LOCALHOST_V4
    }
}

impl Inbound {
    fn builder(self, view: &View<'_>) -> ClusterBuilder {
        let mesh = view.mesh();
        let discovery = match self.destination {
            Destination::Original => Discovery::OriginalDst,
            Destination::Fixed(..) => Discovery::Static,
        };
        let mut builder = ClusterBuilder::new(inbound_cluster(self.port).as_str(), discovery);
        builder.common_lb();
        builder.http = HttpOptions::for_protocol(view, self.declared.protocol);

        self.apply_destination(&mut builder);
        self.apply_names(view, &mut builder);
        let policy = self.policy(view, &mut builder);
        traffic_policy::apply_inbound(view, &mut builder, policy.as_ref());
        let own_host = match &self.destination {
            Destination::Fixed(address, _) => {
                matches!(address.as_str(), LOCALHOST_V4 | LOCALHOST_V6)
            }
            Destination::Original => false,
        };

        if !own_host {
            // Marks the connection as the proxy's own; otherwise it would be redirected to the
            // proxy again.
            builder.cluster.upstream_bind_config = Some(bind_config(
                view.proxy().families(),
                mesh.settings.dual_stack,
            ));
        }

        builder
    }

    /// Sets the destination.
    fn apply_destination(&self, builder: &mut ClusterBuilder) {
        match &self.destination {
            Destination::Original => {
                builder.cluster.cleanup_interval = Some(prost_types::Duration {
                    seconds: FOR_EVER_SECONDS,
                    nanos: 0,
                });
                let service = self.service.as_ref();
                let port = service
                    .and_then(|service| service.passthrough_target_ports.get(&self.declared.port));
                builder.cluster.lb_config = port.map(|port| super::original_dst_port(*port));
            }
            Destination::Fixed(address, port) => {
                let endpoint = LbEndpoint {
                    host_identifier: Some(wire::host(address, *port, &[])),
                    ..LbEndpoint::default()
                };
                builder.endpoints = vec![LocalityLbEndpoints {
                    lb_endpoints: vec![endpoint],
                    ..LocalityLbEndpoints::default()
                }];
            }
        }
    }

    /// Sets the names for metrics.
    fn apply_names(&self, view: &View<'_>, builder: &mut ClusterBuilder) {
        let mesh = view.mesh();
        if mesh.settings.telemetry_label && !self.named.is_empty() {
            builder.metadata.services = Some(self.named.clone());
        }

        let short = match &self.service {
            Some(service) => Some(stat_prefix::short_names(
                service,
                service.key.hostname.as_str(),
            )),
            None => sidecar_names(view),
        };

        let Some(short) = short else { return };
        let host = self
            .service
            .as_ref()
            .map_or(short.name.as_str(), |service| service.key.hostname.as_str());
        let port_name = self.declared.name.as_str();
        let named = StatService {
            host,
            subset: "",
            port: self.declared.port,
            port_name,
        };

        let name = stat_prefix::inbound(view, &short, named, &builder.cluster.name);
        builder.cluster.alt_stat_name =
            stat_name(&name.replace("%TARGET_PORT%", &self.port.to_string()));
    }

    /// The policy: the Sidecar's limits override the rule's, which override the mesh's. The server
    /// must accept what its clients are allowed to send.
    fn policy(&self, view: &View<'_>, builder: &mut ClusterBuilder) -> Option<TrafficPolicy> {
        let host = self.service.as_ref().map(|service| &service.key.hostname);
        let seen = host.and_then(|host| sidecar_scope::service_for_host(view, host));
        let rule = seen.and_then(|key| destination_rule::for_inbound(view, &key));
        let of_rule = rule.as_ref().and_then(|rule| {
            let policy = port_policy(rule.policy.as_deref(), self.declared.port)?;
            if builder.metadata.services.is_some() {
                builder.metadata.rule = Some(rule.name.clone());
            }
            Some(policy)
        });
        let mut policy = with_mesh_defaults(of_rule, &view.mesh().config);
        if let Some(pool) = sidecar_pool(view, self.port) {
            policy.get_or_insert_default().connection_pool = Some(Box::new(pool));
        }
        policy
    }
}

/// Names derived from the Sidecar, for ports without a service.
fn sidecar_names(view: &View<'_>) -> Option<ShortNames> {
    let meta = &sidecar_scope::sidecar(view)?.meta;
    let name = format!("{}.{}", meta.key.name, meta.key.namespace);
    Some(ShortNames {
        qualified: name.clone(),
        name,
    })
}

/// The limits that a Sidecar sets for a port, or for all ports.
fn sidecar_pool(view: &View<'_>, port: u16) -> Option<ConnectionPoolSettings> {
    let sidecar = &sidecar_scope::sidecar(view)?.spec;
    let own = sidecar
        .ingress
        .iter()
        .find(|listener| ingress_port(listener) == Some(port));
    own.and_then(|listener| listener.connection_pool.clone())
        .or_else(|| sidecar.inbound_connection_pool.clone())
}
