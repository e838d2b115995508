//! Transport sockets: plain text, TLS, by endpoint, and with a PROXY header.

use std::collections::BTreeMap;

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use navarch_proto::envoy::config::core::v3::{
    ProxyProtocolConfig, TransportSocket, proxy_protocol_config, transport_socket,
};
use navarch_proto::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use navarch_proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};

use super::builder::{ClusterBuilder, Discovery};
use super::tls::TlsOrigin;
use crate::tunnel_sockets::{self as sockets, PassedMetadata};
use navarch_api::istio::{ProxyProtocol, ProxyProtocolVersion};
use navarch_push::view::View;

/// The name of the TLS socket.
const TLS: &str = "envoy.transport_sockets.tls";
/// The name of the plain socket.
const RAW: &str = "envoy.transport_sockets.raw_buffer";
/// The name of the socket that sends a PROXY header.
const PROXY: &str = "envoy.transport_sockets.upstream_proxy_protocol";

/// Sets TLS of a cluster: always if a rule requires it, else for endpoints with the metadata key.
pub(super) fn apply_tls(
    builder: &mut ClusterBuilder,
    context: &UpstreamTlsContext,
    by: TlsOrigin,
    istio: bool,
) {
    let tls = socket(TLS, any::pack(context));
    // Endpoints of original destination clusters are unknown and have no metadata.
    if by == TlsOrigin::Mesh && istio && builder.discovery != Discovery::OriginalDst {
        builder.cluster.transport_socket_matches = vec![
            matching("tlsMode-istio", Some("istio"), tls),
            matching("tlsMode-disabled", None, raw(RAW)),
        ];
    } else {
        builder.cluster.transport_socket = Some(tls);
    }
}

/// Sets HBONE for endpoints with its metadata key, and the other transport for the others. `istio`
/// means that TLS is Istio's own, which HBONE replaces; user TLS is also used inside the tunnel.
pub(super) fn apply_hbone(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    decided: Option<(TlsOrigin, bool)>,
) {
    let hbone = |inner| {
        with_tunnel(sockets::internal_socket_with_metadata(
            view,
            PassedMetadata::EndpointAndCluster,
            inner,
        ))
    };

    let disabled = || matching("tlsMode-disabled", None, raw(RAW));
    let istio = |socket| matching("tlsMode-istio", Some("istio"), socket);
    let is_original = builder.discovery == Discovery::OriginalDst;
    let cluster = &mut builder.cluster;
    let (by, is_istio) = match decided {
        None => {
            cluster.transport_socket_matches = vec![hbone(raw(RAW)), disabled()];
            return;
        }
        Some(_) if is_original => return,
        Some(decided) => decided,
    };

    if !cluster.transport_socket_matches.is_empty() {
        cluster.transport_socket_matches.insert(0, hbone(raw(RAW)));
        return;
    }

    cluster.transport_socket_matches = match cluster.transport_socket.take() {
        None => vec![hbone(raw(RAW)), disabled()],
        Some(socket) if is_istio && by == TlsOrigin::Rule => {
            let unmatched = TransportSocketMatch {
                r#match: None,
                ..istio(socket)
            };
            vec![hbone(raw(RAW)), unmatched]
        }
        Some(socket) => {
            builder.metadata.keeps_baggage = view.mesh().settings.hbone.baggage;
            let user = TransportSocketMatch {
                r#match: None,
                ..matching("user", None, socket.clone())
            };
            vec![hbone(socket), user]
        }
    };
}

/// A socket for endpoints that are reached by HBONE.
fn with_tunnel(socket: TransportSocket) -> TransportSocketMatch {
    let value = Value {
        kind: Some(Kind::StringValue("http".to_owned())),
    };
    let fields = BTreeMap::from([("tunnel".to_owned(), value)]);
    TransportSocketMatch {
        name: "hbone".to_owned(),
        r#match: Some(Struct { fields }),
        transport_socket: Some(socket),
    }
}

/// Adds the upstream PROXY protocol.
pub(super) fn apply_proxy_protocol(
    builder: &mut ClusterBuilder,
    proxy_protocol: Option<&ProxyProtocol>,
) {
    let Some(proxy_protocol) = proxy_protocol else {
        return;
    };
    let wrap = |inner: TransportSocket| with_header(proxy_protocol.version, inner);
    let cluster = &mut builder.cluster;
    match cluster.transport_socket.take() {
        Some(inner) => cluster.transport_socket = Some(wrap(inner)),
        None if cluster.transport_socket_matches.is_empty() => {
            cluster.transport_socket = Some(wrap(raw("raw_buffer")));
        }
        None => {}
    }
    for choice in &mut cluster.transport_socket_matches {
        choice.transport_socket = choice.transport_socket.take().map(wrap);
    }
}

pub(super) fn tls(context: &UpstreamTlsContext) -> TransportSocket {
    socket(TLS, any::pack(context))
}

/// A raw buffer socket with this name.
fn raw(name: &str) -> TransportSocket {
    socket(name, any::pack(&RawBuffer {}))
}

fn socket(name: &str, config: Any) -> TransportSocket {
    TransportSocket {
        name: name.to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(config)),
    }
}

/// A socket that sends a PROXY header.
pub(super) fn with_header(
    version: ProxyProtocolVersion,
    inner: TransportSocket,
) -> TransportSocket {
    let version = match version {
        ProxyProtocolVersion::V1 => proxy_protocol_config::Version::V1,
        ProxyProtocolVersion::V2 => proxy_protocol_config::Version::V2,
    };
    let config = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig {
            version: version.into(),
            ..ProxyProtocolConfig::default()
        }),
        transport_socket: Some(inner),
        ..ProxyProtocolUpstreamTransport::default()
    };
    socket(PROXY, any::pack(&config))
}

/// A socket for endpoints with this TLS mode, or for all.
fn matching(name: &str, tls_mode: Option<&str>, socket: TransportSocket) -> TransportSocketMatch {
    let value = |mode: &str| Value {
        kind: Some(Kind::StringValue(mode.to_owned())),
    };
    let fields: BTreeMap<String, Value> = tls_mode
        .into_iter()
        .map(|mode| ("tlsMode".to_owned(), value(mode)))
        .collect();
    TransportSocketMatch {
        name: name.to_owned(),
        r#match: Some(Struct { fields }),
        transport_socket: Some(socket),
    }
}
