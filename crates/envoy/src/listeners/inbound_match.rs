//! Matches of inbound connections: mutual TLS or not, HTTP or not.

use super::filter_chain::{RAW_BUFFER, TLS};
use crate::mtls::MtlsMode;
use navarch_registry::protocol::Protocol;

/// The ALPN protocols of HTTP over mutual TLS that the ALPN filter of clients sets.
const MESH_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// The ALPN protocols of mutual TLS with unknown content.
const MESH_TCP: [&str; 2] = ["istio-peer-exchange", "istio"];
/// All ALPN protocols of mutual TLS within the mesh.
pub(super) const MESH: [&str; 5] = [
    "istio",
    "istio-peer-exchange",
    "istio-http/1.0",
    "istio-http/1.1",
    "istio-h2",
];

/// The protocol that a port accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    Http,
    Tcp,
    /// Detected by an inspector.
    Sniffed,
}

/// The application protocols that a chain matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    Any,
    /// Plain HTTP, by the HTTP inspector.
    PlainHttp,
    These(&'static [&'static str]),
}

/// One chain of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainMatch {
    /// The application protocols.
    pub(super) application: Application,
    /// The transport protocol.
    pub(super) transport: &'static str,
    /// Whether the chain parses HTTP.
    pub(super) http: bool,
    /// Whether the chain terminates TLS.
    pub(super) ends_tls: bool,
}

impl ClientProtocol {
    /// The accepted protocol of a declared one. Ports for UDP are not assumed to be closed for TCP.
    pub(super) fn of(protocol: Protocol) -> Self {
        if protocol.is_http() {
            Self::Http
        } else if protocol.is_tcp() || protocol == Protocol::Udp {
            Self::Tcp
        } else {
            Self::Sniffed
        }
    }
}

const fn http(application: Application, transport: &'static str, ends_tls: bool) -> ChainMatch {
    ChainMatch {
        application,
        transport,
        http: true,
        ends_tls,
    }
}

const fn tcp(application: Application, transport: &'static str, ends_tls: bool) -> ChainMatch {
    ChainMatch {
        application,
        transport,
        http: false,
        ends_tls,
    }
}

/// The chains of a port, in Istio's order.
pub(super) fn chains(mode: MtlsMode, protocol: ClientProtocol) -> &'static [ChainMatch] {
    use Application::{Any, PlainHttp, These};

    match (mode, protocol) {
        (MtlsMode::Strict, ClientProtocol::Http) => const { &[http(Any, TLS, true)] },
        (MtlsMode::Strict, ClientProtocol::Tcp) => const { &[tcp(Any, TLS, true)] },
        (MtlsMode::Strict, ClientProtocol::Sniffed) => {
            const { &[http(These(&MESH_HTTP), TLS, true), tcp(Any, TLS, true)] }
        }
        // Ports declared as HTTP are assumed to have no other TLS.
        (MtlsMode::Permissive, ClientProtocol::Http) => {
            const { &[http(These(&MESH), TLS, true), http(Any, RAW_BUFFER, false)] }
        }
        (MtlsMode::Permissive, ClientProtocol::Tcp) => {
            const {
                &[
                    tcp(These(&MESH), TLS, true),
                    tcp(Any, TLS, false),
                    tcp(Any, RAW_BUFFER, false),
                ]
            }
        }
        // TLS without an ALPN protocol of the mesh is the application's own, and is passed through.
        (MtlsMode::Permissive, ClientProtocol::Sniffed) => {
            const {
                &[
                    http(These(&MESH_HTTP), TLS, true),
                    http(PlainHttp, RAW_BUFFER, false),
                    tcp(These(&MESH_TCP), TLS, true),
                    tcp(Any, RAW_BUFFER, false),
                    tcp(Any, TLS, false),
                ]
            }
        }
        (MtlsMode::Disable, ClientProtocol::Http) => const { &[http(Any, RAW_BUFFER, false)] },
        (MtlsMode::Disable, ClientProtocol::Tcp) => const { &[tcp(Any, RAW_BUFFER, false)] },
        (MtlsMode::Disable, ClientProtocol::Sniffed) => {
            const {
                &[
                    http(PlainHttp, RAW_BUFFER, false),
                    tcp(Any, RAW_BUFFER, false),
                ]
            }
        }
    }
}

/// The chain of a port with TLS settings of a Sidecar.
pub(super) fn own_tls(protocol: ClientProtocol) -> ChainMatch {
    ChainMatch {
        application: Application::Any,
        transport: TLS,
        http: protocol == ClientProtocol::Http,
        ends_tls: true,
    }
}
