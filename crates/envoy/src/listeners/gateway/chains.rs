//! The filter chains of a gateway's listener, by server.

use navarch_proto::envoy::config::core::v3::Http3ProtocolOptions;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::CodecType;

use super::super::filter_chain::Chain;
use super::topology::TopologyOfProxy;
use super::{GatewayChain, Transport, l4, sni_routing};
use crate::connection_manager::{HttpOptions, Routes, connection_manager};
use crate::filters::class::ListenerClass;
use crate::filters::downstream_tls::{self, Payload};
use crate::filters::network::http_filter;
use crate::gateway::{Handling, PlannedServer, ServerGroup};
use crate::traffic_extension;
use navarch_api::istio::ServerTlsSettings;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The listener of the chains.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerContext<'a> {
    pub(super) listener: &'a str,
    pub(super) port: u16,
    /// The transport of its connections.
    pub(super) transport: Transport,
}

pub(super) fn of_groups(
    view: &View<'_>,
    at: ListenerContext<'_>,
    groups: &[ServerGroup],
) -> Vec<GatewayChain> {
    let mut chains = Vec::new();
    let mut taken = l4::UsedSni::default();
    for group in groups {
        if group.key.protocol.is_http() {
            // Plain HTTP has its host only in requests: routes distinguish the servers.
            let chain = http_chain(view, at, "", group.key.protocol, &group.route_name);
            chains.push(GatewayChain { chain, tls: None });
            continue;
        }
        for server in &group.servers {
            chains.extend(of_server(view, at, server, &mut taken));
        }
    }
    chains
}

/// The chains of a server that is not plain HTTP.
fn of_server(
    view: &View<'_>,
    at: ListenerContext<'_>,
    server: &PlannedServer,
    taken: &mut l4::UsedSni,
) -> Vec<GatewayChain> {
    match server.handling() {
        // Such servers have their own groups.
        Handling::Http => Vec::new(),

        Handling::Https(tls) => {
            let chain = http_chain(
                view,
                at,
                &server.server.name,
                server.protocol,
                &server.route_name,
            );
            let payload = match at.transport {
                Transport::Tcp => Payload::Http,
                Transport::Quic => Payload::Quic,
            };
            vec![ending_tls(view, server, tls, payload, chain)]
        }

        Handling::EndTls(tls) => {
            let filters = l4::tcp_filters(view, server);
            let chain = filters.map(|filters| Chain {
                filters,
                ..Chain::default()
            });
            chain
                .map(|chain| ending_tls(view, server, tls, Payload::Tcp, chain))
                .into_iter()
                .collect()
        }

        Handling::Opaque => {
            let filters = l4::tcp_filters(view, server);
            let chain = filters.map(|filters| Chain {
                filters,
                ..Chain::default()
            });
            chain
                .map(|chain| GatewayChain { chain, tls: None })
                .into_iter()
                .collect()
        }

        Handling::Passthrough => l4::tls_chains(view, server, taken)
            .into_iter()
            .map(unopened)
            .collect(),

        Handling::AutoPassthrough => sni_routing::chains(view, &server.sni_hosts())
            .into_iter()
            .map(unopened)
            .collect(),
    }
}

/// A chain that does not terminate TLS.
fn unopened(chain: Chain) -> GatewayChain {
    GatewayChain { chain, tls: None }
}

/// A chain that terminates TLS for the server's hosts.
fn ending_tls(
    view: &View<'_>,
    server: &PlannedServer,
    tls: &ServerTlsSettings,
    payload: Payload,
    chain: Chain,
) -> GatewayChain {
    let context = downstream_tls::of_server(view, tls, payload);
    GatewayChain {
        chain: Chain {
            sni: server.sni_hosts(),
            ..chain
        },
        tls: Some(context),
    }
}

/// An HTTP chain with routes by RDS. If `stat_prefix` is empty, the listener's name is used.
fn http_chain(
    view: &View<'_>,
    at: ListenerContext<'_>,
    stat_prefix: &str,
    protocol: Protocol,
    routes: &str,
) -> Chain {
    let mut manager = connection_manager(
        view,
        HttpOptions {
            stat_prefix: &format!("outbound_{}", at.listener),
            use_remote_address: true,
            may_skip_external_metadata: true,
            port: at.port,
            ..HttpOptions::new(
                ListenerClass::Gateway,
                Routes::Rds(routes.to_owned()),
                protocol,
            )
        },
    );

    if !stat_prefix.is_empty() {
        // A user-defined name is used as it is, without a delimiter at its end.
        stat_prefix.clone_into(&mut manager.stat_prefix);
    }

    manager.http_protocol_options.get_or_insert_default();
    view.derived(&TopologyOfProxy).apply(&mut manager);
    let mut filters = match at.transport {
        Transport::Tcp => traffic_extension::network_filters(view, ListenerClass::Gateway, at.port)
            .in_order()
            .collect(),
        Transport::Quic => {
            manager.codec_type = CodecType::Http3.into();
            manager.http3_protocol_options = Some(Http3ProtocolOptions::default());
            Vec::new()
        }
    };

    filters.push(http_filter(&manager));
    Chain {
        filters,
        ..Chain::default()
    }
}
