//! Matches of inbound connections: mutual TLS or not, HTTP or not.

use super::filter_chain::{RAW_BUFFER, TLS};
use crate::mtls::MtlsMode;
use navarch_registry::protocol::Protocol;

/// What the ALPN filter of clients names HTTP over mutual TLS.
const MESH_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// What mutual TLS without known content is named.
const MESH_TCP: [&str; 2] = ["istio-peer-exchange", "istio"];
/// All names of mutual TLS within the mesh.
pub(super) const MESH: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// How a port is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    /// As HTTP.
    Http,
    /// As bytes.
    Tcp,
    /// As whichever is found.
    Sniffed,
}

/// The application protocols that a chain matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    Any,
    /// Plain HTTP, as the inspector calls it.
    PlainHttp,
    These(&'static [&'static str]),
}

/// One chain of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainMatch {
    /// The application protocols.
    pub(super) application: Application,
    /// What the connection starts with.
    pub(super) transport: &'static str,
    /// Whether the chain takes the connection apart as HTTP.
    pub(super) http: bool,
    /// Whether the chain ends TLS.
    pub(super) ends_tls: bool,
}

impl ClientProtocol {
    /// How a declared protocol is to be taken. Ports for UDP are not known to be closed for TCP.
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

/// A chain that takes HTTP.
const fn http(application: Application, transport: &'static str, ends_tls: bool) -> ChainMatch {
    ChainMatch { application, transport, http: true, ends_tls }
}

/// A chain that takes bytes.
const fn tcp(application: Application, transport: &'static str, ends_tls: bool) -> ChainMatch {
    ChainMatch { application, transport, http: false, ends_tls }
}

/// The chains of a port, in the order in which Istio lists them.
pub(super) fn chains(mode: MtlsMode, protocol: ClientProtocol) -> &'static [ChainMatch] {
    use Application::{Any, PlainHttp, These};
    match (mode, protocol) {
        (MtlsMode::Strict, ClientProtocol::Http) => const { &[http(Any, TLS, true)] },
        (MtlsMode::Strict, ClientProtocol::Tcp) => const { &[tcp(Any, TLS, true)] },
        (MtlsMode::Strict, ClientProtocol::Sniffed) => {
            const { &[http(These(&MESH_HTTP), TLS, true), tcp(Any, TLS, true)] }
        }
        // What is declared as HTTP is never TLS of another kind.
        (MtlsMode::Permissive, ClientProtocol::Http) => {
            const { &[http(These(&MESH), TLS, true), http(Any, RAW_BUFFER, false)] }
        }
        (MtlsMode::Permissive, ClientProtocol::Tcp) => {
            const { &[tcp(These(&MESH), TLS, true), tcp(Any, TLS, false), tcp(Any, RAW_BUFFER, false)] }
        }
        // TLS with none of the mesh's names is the application's own, and is passed on.
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
            const { &[http(PlainHttp, RAW_BUFFER, false), tcp(Any, RAW_BUFFER, false)] }
        }
    }
}

/// The chain of a port whose TLS a Sidecar sets.
pub(super) fn own_tls(protocol: ClientProtocol) -> ChainMatch {
    ChainMatch { application: Application::Any, transport: TLS, http: protocol == ClientProtocol::Http, ends_tls: true }
}
