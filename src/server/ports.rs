//! The ports, opened first and served last.

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::boot::Boot;
use super::http::OpenHttpPort;
use super::plain_ports::PlainPorts;
use super::start_log::Addresses;
use super::{Config, ListenAddress};
use navarch_net::budget::Budget;
use navarch_net::port::{Port, PortLimits};

/// Memory of unread responses of all HTTP ports.
const MAX_ANSWER_BYTES: usize = 128 << 20;

/// An open port and its connections.
pub(super) type OpenPort = (TcpListener, Arc<Port>);

pub(super) struct Ports {
    /// Those without TLS.
    pub(super) plain: PlainPorts,
    /// xDS and certificates over TLS.
    pub(super) secure: Option<OpenPort>,
    /// Webhooks over TLS.
    pub(super) https: Option<OpenHttpPort>,
    pub(super) addresses: Addresses,
}

impl Ports {
    /// Opens the enabled ports, and logs their addresses.
    pub(super) async fn bind(config: &Config, boot: &Boot) -> anyhow::Result<Self> {
        let limits = &config.connections;
        limits.log(config.files);
        let xds = limits.tls(limits.xds);
        let webhooks = limits.tls(limits.webhooks);
        let plain = PortLimits::plain(limits.xds);
        let web = PortLimits::plain(limits.http);

        // Without a port for plaintext xDS, the HTTP port also serves its connections.
        let http = if config.grpc == ListenAddress::Off {
            plain
        } else {
            web
        };

        let answers = Budget::new(MAX_ANSWER_BYTES);
        let rejections = &boot.rejections;
        let open =
            |name, listener, limits| Some((listener?, Port::new(name, limits, rejections.clone())));
        let open_http = |name, listener, limits| {
            let (listener, port) = open(name, listener, limits)?;
            Some(OpenHttpPort {
                listener,
                port,
                answers: answers.clone(),
            })
        };

        let listeners = [
            ("http", bind(config.http, "--http-addr")?),
            ("grpc", bind(config.grpc, "--grpc-addr")?),
            ("secure-grpc", bind(config.secure, "--secure-grpc-addr")?),
            ("https", bind(config.https, "--https-addr")?),
            ("monitoring", bind(config.monitoring, "--monitoring-addr")?),
        ];

        let addresses = Addresses::of(&listeners)?;
        addresses.log();
        let [for_http, for_grpc, for_secure, for_https, for_monitoring] =
            listeners.map(|(_, listener)| listener);

        Ok(Self {
            plain: PlainPorts {
                grpc: open("grpc", for_grpc, plain),
                http: open_http("http", for_http, http),
                monitoring: open_http("monitoring", for_monitoring, web),
            },
            secure: open("secure-grpc", for_secure, xds),
            https: open_http("https", for_https, webhooks),
            addresses,
        })
    }
}

/// Opens a port; errors name its flag.
fn bind(address: ListenAddress, flag: &str) -> anyhow::Result<Option<TcpListener>> {
    address
        .bind()
        .with_context(|| format!("{flag}: failed to listen on {address}"))
}
