//! The filter chains of one served port.

use navarch_proto::envoy::config::core::v3::TransportSocket;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

use super::address::{VIRTUAL_INBOUND, listener_name};
use super::inbound_match::{Application, ChainMatch, ClientProtocol, chains, own_tls};
use super::inbound_plan::ServedPort;
use super::inspectors::plaintext_http;
use crate::authorization::{AuthorizationOf, Peers};
use crate::config_info;
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::downstream_tls::{self, MeshTlsOf, Payload, transport_socket};
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::network::{http_filter, metadata_exchange, protocol_stack, tcp_proxy};
use crate::mtls::MtlsMode;
use crate::names::{INBOUND_PASSTHROUGH, inbound_cluster};
use crate::proxy_settings::idle_timeout;
use crate::routes::{self, InboundRoute};
use crate::stat_prefix::{self, ShortNames, StatService};
use crate::traffic_extension;
use navarch_api::names::Hostname;
use navarch_api::object::Kind;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The class of these listeners.
const CLASS: ListenerClass = ListenerClass::SidecarInbound;

/// The target of chains.
pub(super) enum Target<'a> {
    Served(&'a ServedPort),
    /// Undeclared ports: one port that a policy lists, or (0) all others.
    Unknown {
        port: u16,
        /// The mutual TLS mode.
        mtls: MtlsMode,
    },
}

/// The chains of a target for connections from a tunnel, which terminated TLS.
pub(super) fn tunnelled(view: &View<'_>, target: &Target<'_>) -> Vec<FilterChain> {
    let protocol = match target {
        Target::Served(port) => ClientProtocol::of(port.protocol),
        Target::Unknown { .. } => ClientProtocol::Sniffed,
    };
    let matched = chains(MtlsMode::Disable, protocol);
    matched
        .iter()
        .map(|matched| chain(view, target, *matched, None, Peers::Tunnel))
        .collect()
}

pub(super) fn build(view: &View<'_>, target: &Target<'_>) -> Vec<FilterChain> {
    let (mode, protocol) = match target {
        Target::Served(port) => (port.mtls, ClientProtocol::of(port.protocol)),
        Target::Unknown { mtls, .. } => (*mtls, ClientProtocol::Sniffed),
    };

    // Istio's own TLS takes precedence over the user's.
    if let Target::Served(port) = target
        && let Some(tls) = port.tls.as_ref().filter(|_| mode == MtlsMode::Disable)
    {
        let socket = transport_socket(&downstream_tls::of_server(view, tls, Payload::Http));
        return vec![chain(
            view,
            target,
            own_tls(protocol),
            Some(socket),
            Peers::Tls,
        )];
    }

    let socket = |matched: &ChainMatch| {
        let payload = if matched.http {
            Payload::Http
        } else {
            Payload::Tcp
        };
        matched
            .ends_tls
            .then(|| transport_socket(&view.get(&MeshTlsOf { payload })))
    };

    chains(mode, protocol)
        .iter()
        .map(|matched| chain(view, target, *matched, socket(matched), Peers::Tls))
        .collect()
}

fn chain(
    view: &View<'_>,
    target: &Target<'_>,
    matched: ChainMatch,
    socket: Option<TransportSocket>,
    peers: Peers,
) -> FilterChain {
    let sidecar = match target {
        Target::Served(port) => port.sidecar.as_ref(),
        Target::Unknown { .. } => None,
    };

    FilterChain {
        name: target.chain_name(matched.http),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(u32::from(target.port())).filter(|port| *port != 0),
            application_protocols: match matched.application {
                Application::Any => Vec::new(),
                Application::PlainHttp => plaintext_http(view),
                Application::These(protocols) => protocols
                    .iter()
                    .map(|&protocol| protocol.to_owned())
                    .collect(),
            },
            transport_protocol: matched.transport.to_owned(),
            ..FilterChainMatch::default()
        }),
        filters: if matched.http {
            http_filters(view, target, peers)
        } else {
            tcp_filters(view, target, peers)
        },
        transport_socket: socket,
        metadata: sidecar.map(|name| config_info::metadata(Kind::Sidecar, name)),
        ..FilterChain::default()
    }
}

/// The filters of an HTTP chain.
fn http_filters(view: &View<'_>, target: &Target<'_>, peers: Peers) -> Vec<Filter> {
    // For served ports, peer metadata of connections from a tunnel was already exchanged.
    let is_known = peers == Peers::Tunnel && matches!(target, Target::Served(_));
    let (host, port, protocol) = match target {
        Target::Served(port) => (port.host.as_str(), port.service_port, port.protocol),
        Target::Unknown { .. } => ("", 0, Protocol::Unsupported),
    };
    let to = InboundRoute {
        cluster: &target.cluster(),
        host: &Hostname::new(host),
        port,
        protocol,
        waypoint: None,
        domain: None,
    };

    let routes = routes::inbound(view, &to);
    let stat_prefix = match target {
        Target::Served(_) => format!("inbound_{}", target.chain_name(true)),
        Target::Unknown { .. } => INBOUND_PASSTHROUGH.to_owned(),
    };
    let mut manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: &stat_prefix,
            port: target.port(),
            hbone: is_known,
            peers,
            ..HttpOptions::new(CLASS, Routes::Inline(Box::new(routes)), protocol)
        },
    );

    if protocol.is_http2() {
        manager.http2_protocol_options.get_or_insert_default();
    }

    let mut filters: Vec<Filter> = metadata_exchange(view)
        .into_iter()
        .filter(|_| !is_known)
        .collect();
    let extensions = traffic_extension::network_filters(view, CLASS, target.port());
    filters.extend(extensions.in_order());
    filters.push(http_filter(&manager));

    filters
}

/// The filters of a TCP chain.
fn tcp_filters(view: &View<'_>, target: &Target<'_>, peers: Peers) -> Vec<Filter> {
    let cluster = target.cluster();
    let empty = ShortNames::default();
    let (protocol, short, of) = match target {
        Target::Served(port) => {
            let of = StatService {
                host: &port.host,
                subset: "",
                port: port.service_port,
                port_name: &port.port_name,
            };
            (port.protocol, &port.short, of)
        }
        Target::Unknown { .. } => {
            let of = StatService {
                host: "",
                subset: "",
                port: 0,
                port_name: VIRTUAL_INBOUND,
            };
            (Protocol::Unsupported, &empty, of)
        }
    };

    let prefix = stat_prefix::inbound(view, short, of, &cluster);
    let mut proxy = tcp_proxy(&prefix, &cluster);
    proxy.idle_timeout = idle_timeout(view);
    view.get(&AccessLogsOf::of_class(CLASS)).put(&mut proxy);

    let mut filters: Vec<Filter> = metadata_exchange(view).into_iter().collect();
    let authorization = view.get(&AuthorizationOf {
        service: None,
        peers,
    });
    let custom = view.get(&AuthorizationOf::PROXY);
    let extensions = traffic_extension::network_filters(view, CLASS, of.port);
    filters.extend(custom.custom_tcp.iter().cloned());

    filters.extend(extensions.authn.into_iter().chain(extensions.authz));
    filters.extend(authorization.tcp.iter().cloned());
    filters.extend(extensions.rest);
    filters.extend(
        view.get(&MetricsFiltersOf::of_class(CLASS))
            .tcp
            .iter()
            .cloned(),
    );

    filters.extend(protocol_stack(view, protocol, &proxy, &prefix, &cluster));
    filters
}

impl Target<'_> {
    /// The port of the workload; 0 means any.
    fn port(&self) -> u16 {
        match self {
            Self::Served(port) => port.target,
            Self::Unknown { port, .. } => *port,
        }
    }

    /// The cluster of the application.
    fn cluster(&self) -> String {
        match self {
            Self::Served(port) => inbound_cluster(port.target).to_string(),
            Self::Unknown { .. } => INBOUND_PASSTHROUGH.to_owned(),
        }
    }

    /// The name of a chain; chains of one port for the same protocol share one.
    fn chain_name(&self, http: bool) -> String {
        match self {
            Self::Served(port) => {
                listener_name(port.binds.first().map_or("", String::as_str), port.target)
            }
            Self::Unknown { .. } if http => "virtualInbound-catchall-http".to_owned(),
            Self::Unknown { .. } => VIRTUAL_INBOUND.to_owned(),
        }
    }
}
