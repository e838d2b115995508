//! The `protocol` of a port, as far as validation distinguishes them.

/// The families of protocols that ports of Istio's kinds declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortProtocol {
    Http,
    Http2,
    Grpc,
    /// Another form of HTTP: `GRPC-WEB`, `HTTP_PROXY`.
    OtherHttp,
    Tls,
    Https,
    /// Bytes without TLS: `TCP`, `MONGO`, `REDIS`, `MYSQL`.
    Tcp,
    Udp,
}

impl PortProtocol {
    /// The names, for messages.
    pub(super) const NAMES: &str =
        "HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, REDIS or MYSQL";

    /// Reads a name, ignoring case.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "http" => Self::Http,
            "http2" => Self::Http2,
            "grpc" => Self::Grpc,
            "grpc-web" | "http_proxy" => Self::OtherHttp,
            "tls" => Self::Tls,
            "https" => Self::Https,
            "tcp" | "mongo" | "redis" | "mysql" => Self::Tcp,
            "udp" => Self::Udp,
            _ => return None,
        })
    }

    /// Whether it is HTTP without TLS.
    pub(super) fn is_http(self) -> bool {
        match self {
            Self::Http | Self::Http2 | Self::Grpc | Self::OtherHttp => true,
            Self::Tls | Self::Https | Self::Tcp | Self::Udp => false,
        }
    }

    /// Whether it starts with TLS.
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Https)
    }

    /// Whether it is a TCP protocol, with or without TLS, other than HTTP without TLS.
    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Self::Tls | Self::Https | Self::Tcp)
    }
}

/// A protocol, or empty for detection.
pub(super) fn optional_protocol(name: &str) -> Result<(), String> {
    if name.is_empty() || PortProtocol::parse(name).is_some() {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not a protocol; write {}, or leave it out for detection",
        PortProtocol::NAMES
    ))
}
