//! The debug port, from pilot-agent's variables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::prepare::Prepared;
use crate::ads::DebugClient;
use crate::tap::{self, Tap};
use crate::variables::Variables;
use navarch_net::listen::listen;
use navarch_net::rejections::Rejections;

/// The running port, unless it is disabled or in use by another process. The agent works without
/// it, also beside another agent in the network of a node.
pub(super) fn start(
    prepared: &Prepared,
    variables: &Variables,
    client: DebugClient,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let port: u16 = variables.number("PROXY_XDS_DEBUG_VIA_AGENT_PORT", 15004);
    if !variables.flag("PROXY_XDS_DEBUG_VIA_AGENT", false) || port == 0 {
        return None;
    }

    let ip: IpAddr = if prepared.localhost() == "::1" {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };

    let address = SocketAddr::new(ip, port);
    match listen(address) {
        Ok(listener) => {
            tracing::info!(%address, "debug port listening");
            let tap = Tap::new(client, &prepared.identity);
            Some(tap::serve(listener, tap, Rejections::default()))
        }
        Err(error) => {
            tracing::warn!(
                %address,
                %error,
                "failed to listen for debug requests; set PROXY_XDS_DEBUG_VIA_AGENT_PORT, or PROXY_XDS_DEBUG_VIA_AGENT=false"
            );
            None
        }
    }
}
