//! Endpoints that are reached by HBONE, and their messages.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use navarch_proto::envoy::config::core::v3::Metadata;
use navarch_proto::envoy::config::endpoint::v3::Endpoint as WireEndpoint;
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::wire;
use crate::build::internal_address;
use crate::hbone::{self, FORWARD, INNER, ORIGINAL_DST, ORIGINATE};
use crate::service_address::UNSPECIFIED;
use crate::service_port::of_port;
use navarch_ambient::tunnel::takes_hbone;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::WorkloadLabels;
use navarch_registry::directory::NetworkGateway;
use navarch_registry::model::{Endpoint, Service, ServiceKey};

/// The label of workloads with the tunnels that they support.
const TUNNEL_LABEL: &str = "networking.istio.io/tunnel";
/// The label of objects that a controller created for a Gateway, and its value for waypoints.
const WAYPOINT_LABEL: (&str, &str) = ("gateway.istio.io/managed", "istio.io-mesh-controller");

/// A tunnel to an endpoint.
pub(super) struct Tunnel {
    /// The destination of the tunnel: an address and port.
    local: String,
    /// The address of the waypoint, if the tunnel ends there.
    waypoint: Option<String>,
}

/// Whether all endpoints of a service port are reached by HBONE, and there is at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllAcceptHbone(ServiceKey, u16);

impl Tunnel {
    pub(super) fn to_workload(address: &str, port: u16) -> Self {
        Self {
            local: joined(address, port),
            waypoint: None,
        }
    }

    /// A tunnel to a port of a service, through one endpoint of its waypoint.
    pub(super) fn to_waypoint(service: &Service, port: u16, waypoint: &Endpoint) -> Self {
        let address = waypoint.addresses.first().map_or("", |address| address);
        let vips = service
            .cluster_vips
            .get(&waypoint.workload.location.cluster);
        let vip = match vips.and_then(|vips| vips.first()) {
            Some(vip) => vip.to_string(),
            None => main_address(service),
        };
        Self {
            local: joined(&vip, port),
            waypoint: Some(joined(address, waypoint.port)),
        }
    }

    /// The address that Envoy connects to.
    pub(super) fn host(&self, view: &View<'_>) -> HostIdentifier {
        let entry = self.waypoint.as_ref().unwrap_or(&self.local);
        let listener = if hbone::joins_networks(view) {
            FORWARD
        } else {
            ORIGINATE
        };
        let address = internal_address(listener, entry);
        HostIdentifier::Endpoint(WireEndpoint {
            address: Some(address),
            ..WireEndpoint::default()
        })
    }

    /// Adds the destination of the tunnel, and, with `is_chosen`, selects the tunnel transport
    /// socket.
    pub(super) fn add_to(&self, metadata: &mut Metadata, is_chosen: bool) {
        let text = |text: &str| Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let mut fields = BTreeMap::from([("local".to_owned(), text(&self.local))]);
        if let Some(waypoint) = &self.waypoint {
            fields.insert("waypoint".to_owned(), text(waypoint));
        }
        metadata
            .filter_metadata
            .insert(ORIGINAL_DST.to_owned(), Struct { fields });
        if is_chosen {
            metadata
                .filter_metadata
                .insert(wire::SOCKET_MATCH.to_owned(), wire::field("tunnel", "http"));
        }
    }
}

/// A port of a service behind the gateway of another network, as an endpoint: the inner tunnel is
/// to the host, the outer one to the gateway. With `is_chosen` the endpoint metadata selects the
/// tunnel transport socket.
pub(super) fn to_gateway(
    host: &str,
    port: u16,
    gateway: &NetworkGateway,
    metadata: &mut Metadata,
    is_chosen: bool,
) -> HostIdentifier {
    let entry = joined(&gateway.address, gateway.hbone_port);
    metadata
        .filter_metadata
        .insert(ORIGINAL_DST.to_owned(), wire::field("local", &entry));
    let target = wire::field("hbone_target_address", &joined(host, port));
    let target = Value {
        kind: Some(Kind::StructValue(target)),
    };

    let own = metadata
        .filter_metadata
        .entry(wire::ISTIO.to_owned())
        .or_default();
    own.fields.insert("double_hbone".to_owned(), target);

    if is_chosen {
        metadata
            .filter_metadata
            .insert(wire::SOCKET_MATCH.to_owned(), wire::field("tunnel", "http"));
    }

    let address = internal_address(INNER, &entry);
    HostIdentifier::Endpoint(WireEndpoint {
        address: Some(address),
        ..WireEndpoint::default()
    })
}

/// Whether the view's proxy reaches an endpoint by HBONE.
pub(super) fn is_reached_by_hbone(view: &View<'_>, endpoint: &Endpoint) -> bool {
    let (key, waypoint) = WAYPOINT_LABEL;
    let labels = endpoint.workload.labels();
    hbone::sends(view)
        && (labels.get(key).is_some_and(|managed| **managed == *waypoint) || is_supported(view, endpoint, labels))
        && !hbone::is_declined(view)
        // gRPC applications do not terminate tunnels, though their node type is sidecar.
        && !view.proxy().has_text("GENERATOR", "grpc")
}

/// Whether a workload accepts HBONE.
fn is_supported(view: &View<'_>, endpoint: &Endpoint, labels: WorkloadLabels<'_>) -> bool {
    let says_so = labels
        .get(TUNNEL_LABEL)
        .is_some_and(|tunnels| tunnels.split(',').any(|tunnel| tunnel == "http"));
    let addresses = endpoint
        .addresses
        .iter()
        .filter_map(|address| address.parse::<IpAddr>().ok());
    says_so
        || addresses
            .into_iter()
            .any(|address| takes_hbone(view, &endpoint.workload.location.network, address))
}

/// Whether all endpoints of a service port accept HBONE, and there is at least one.
pub(crate) fn all_take_hbone(view: &View<'_>, service: &ServiceKey, port: u16) -> bool {
    *view.get(&AllAcceptHbone(service.clone(), port))
}

impl Query for AllAcceptHbone {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let Some(service) = view.service(&self.0) else {
            return false;
        };
        let Some(endpoints) = view.endpoints(&self.0) else {
            return false;
        };
        let mut of_port = of_port(endpoints, service, self.1).peekable();
        of_port.peek().is_some()
            && of_port.all(|endpoint| is_supported(view, endpoint, endpoint.workload.labels()))
    }
}

/// The address of a service without VIPs: its own, else the one that was allocated to it.
fn main_address(service: &Service) -> String {
    match service.auto_ipv4.or(service.auto_ipv6) {
        Some(allocated) if *service.default_address == *UNSPECIFIED => allocated.to_string(),
        Some(_) | None => service.default_address.to_string(),
    }
}

/// Formats an address and port.
fn joined(address: &str, port: u16) -> String {
    if address.parse::<Ipv6Addr>().is_ok() {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}
