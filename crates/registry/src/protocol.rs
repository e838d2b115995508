//! Application protocols as ports declare them (Istio's `pkg/config/protocol`).

/// The protocol spoken on a service port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 in clear text.
    Http2,
    /// TLS that carries HTTP.
    Https,
    /// gRPC.
    Grpc,
    /// gRPC-Web.
    GrpcWeb,
    /// A generic forward proxy (`HTTP_PROXY`), for Sidecar egress listeners.
    HttpProxy,
    /// Opaque bytes.
    Tcp,
    /// TLS with SNI.
    Tls,
    /// UDP, which proxies do not support.
    Udp,
    /// MongoDB.
    Mongo,
    /// Opaque bytes; Envoy's Redis filter applies if `PILOT_ENABLE_REDIS_FILTER` is set.
    Redis,
    /// Opaque bytes; Envoy's MySQL filter applies if `PILOT_ENABLE_MYSQL_FILTER` is set.
    MySql,
    /// Not declared: the proxy sniffs it.
    #[default]
    Unsupported,
}

impl Protocol {
    /// Parses a protocol name, ignoring case; unknown names are `Unsupported`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "grpc" => Self::Grpc,
            "grpc-web" => Self::GrpcWeb,
            "http" => Self::Http,
            "http_proxy" => Self::HttpProxy,
            "http2" => Self::Http2,
            "https" => Self::Https,
            "tls" => Self::Tls,
            "mongo" => Self::Mongo,
            "redis" => Self::Redis,
            "mysql" => Self::MySql,
            _ => Self::Unsupported,
        }
    }

    /// Istio's name, as in debug output and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Http2 => "HTTP2",
            Self::Https => "HTTPS",
            Self::Grpc => "GRPC",
            Self::GrpcWeb => "GRPC-Web",
            Self::HttpProxy => "HTTP_PROXY",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Udp => "UDP",
            Self::Mongo => "Mongo",
            Self::Redis => "Redis",
            Self::MySql => "MySQL",
            Self::Unsupported => "UnsupportedProtocol",
        }
    }

    /// HTTP/2 on the wire: HTTP2, gRPC, gRPC-Web.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// HTTP in clear text of any version.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(
            self,
            Self::Http | Self::Http2 | Self::HttpProxy | Self::Grpc | Self::GrpcWeb
        )
    }

    /// HTTP, or possibly HTTP once sniffed.
    #[must_use]
    pub fn is_http_or_sniffed(self) -> bool {
        self.is_http() || self == Self::Unsupported
    }

    /// Carried as opaque bytes (TCP and the protocols on it that are not HTTP).
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(
            self,
            Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Redis | Self::MySql
        )
    }

    /// TLS from the first byte: HTTPS or TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// gRPC or gRPC-Web.
    #[must_use]
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// Not declared.
    #[must_use]
    pub fn is_unsupported(self) -> bool {
        self == Self::Unsupported
    }

    /// What the proxy reads after it ended TLS: HTTP for HTTPS, TCP for TLS, otherwise the protocol
    /// itself.
    #[must_use]
    pub fn after_tls_termination(self) -> Self {
        match self {
            Self::Https => Self::Http,
            Self::Tls => Self::Tcp,
            other @ (Self::Http
            | Self::Http2
            | Self::Grpc
            | Self::GrpcWeb
            | Self::HttpProxy
            | Self::Tcp
            | Self::Udp
            | Self::Mongo
            | Self::Redis
            | Self::MySql
            | Self::Unsupported) => other,
        }
    }
}
