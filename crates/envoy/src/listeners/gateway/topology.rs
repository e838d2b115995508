//! Trusted proxies in front of a gateway (`ProxyConfig.gatewayTopology`), and forwarding of client
//! certificates.

use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::SetCurrentClientCertDetails;

use crate::filters::proxy_headers::forward_client_cert;
use crate::proxy_settings::EffectiveProxyConfig;
use navarch_api::mesh::ForwardClientCertDetails;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TopologyOfProxy;

/// The topology of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Topology {
    /// The number of trusted proxies for `X-Forwarded-For`.
    trusted_proxies: u32,
    /// The handling of the client's certificate header.
    client_cert: ForwardClientCertDetails,
    /// Whether connections start with the PROXY protocol.
    pub(super) proxy_protocol: bool,
}

impl Query for TopologyOfProxy {
    type Value = Topology;

    fn compute(&self, view: &View<'_>) -> Topology {
        let topology = view
            .get(&EffectiveProxyConfig)
            .gateway_topology
            .clone()
            .unwrap_or_default();
        Topology {
            trusted_proxies: topology.num_trusted_proxies,
            client_cert: match topology.forward_client_cert_details {
                ForwardClientCertDetails::Undefined => ForwardClientCertDetails::SanitizeSet,
                set @ (ForwardClientCertDetails::Sanitize
                | ForwardClientCertDetails::ForwardOnly
                | ForwardClientCertDetails::AppendForward
                | ForwardClientCertDetails::SanitizeSet
                | ForwardClientCertDetails::AlwaysForwardOnly) => set,
            },
            proxy_protocol: topology.proxy_protocol.is_some(),
        }
    }
}

impl ProxyQuery for TopologyOfProxy {}

impl Topology {
    pub(super) fn apply(&self, manager: &mut HttpConnectionManager) {
        manager.xff_num_trusted_hops = self.trusted_proxies;
        manager.forward_client_cert_details = forward_client_cert(self.client_cert).into();

        // Certificate details are added only if the gateway itself sets the header.
        manager.set_current_client_cert_details = match self.client_cert {
            ForwardClientCertDetails::AppendForward | ForwardClientCertDetails::SanitizeSet => {
                Some(SetCurrentClientCertDetails {
                    subject: Some(true),
                    cert: true,
                    dns: true,
                    uri: true,
                    ..SetCurrentClientCertDetails::default()
                })
            }
            ForwardClientCertDetails::Undefined
            | ForwardClientCertDetails::Sanitize
            | ForwardClientCertDetails::ForwardOnly
            | ForwardClientCertDetails::AlwaysForwardOnly => None,
        };
    }
}
