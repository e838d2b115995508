//! Limits on a proxy's connections and requests.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;

/// Limits on connections and requests. The defaults of unset fields depend on `profile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionSettings {
    /// Whether the proxy is a sidecar or at the edge, which selects the defaults.
    pub profile: ConnectionProfile,
    /// Buffer limit of a downstream connection, in bytes.
    pub listener_per_connection_buffer_limit_bytes: Option<i32>,
    /// Buffer limit of an upstream connection, in bytes.
    pub cluster_per_connection_buffer_limit_bytes: Option<i32>,
    /// Maximum time of a connection without requests.
    pub http_idle_timeout: Option<Duration>,
    /// Maximum lifetime of a connection.
    pub http_max_connection_duration: Option<Duration>,
    /// Drain time of a connection.
    pub http_drain_timeout: Option<Duration>,
    /// Timeout for receiving a whole request.
    pub http_request_timeout: Option<Duration>,
    /// Timeout for receiving the headers of a request.
    pub http_request_headers_timeout: Option<Duration>,
    /// Maximum time without activity on a stream (Envoy's `stream_idle_timeout`); 5 minutes with
    /// the profile `EDGE`.
    pub http_stream_idle_timeout: Option<Duration>,
    /// Maximum lifetime of a stream.
    pub http_max_stream_duration: Option<Duration>,
    /// Maximum number of concurrent streams of one connection.
    pub http_max_concurrent_streams: Option<i32>,
    /// Initial flow-control window of a stream, in bytes.
    pub http2_initial_stream_window_size: Option<i32>,
    /// Initial flow-control window of a connection, in bytes.
    pub http2_initial_connection_window_size: Option<i32>,
    /// The handling of headers with underscores in their names.
    pub http_headers_with_underscores_action: HeadersWithUnderscoresAction,
    /// Whether adjacent slashes in paths are merged.
    pub http_merge_slashes: Option<bool>,
    /// The handling of escaped slashes in paths.
    pub http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction,
    /// Maximum number of connections of one listener.
    pub listener_connection_limit: Option<i32>,
    /// Maximum number of downstream connections of the proxy.
    pub global_downstream_connection_limit: Option<i32>,
}

wire_enum! {
    /// The role of a proxy, which selects the defaults.
    ConnectionProfile {
        /// A proxy next to an application.
        Sidecar = 0, "SIDECAR";
        /// A proxy at the edge, with untrusted clients.
        Edge = 1, "EDGE";
    }
}

wire_enum! {
    /// The handling of headers with underscores in their names.
    HeadersWithUnderscoresAction {
        /// The profile's default.
        Unspecified = 0, "HEADERS_WITH_UNDERSCORES_UNSPECIFIED";
        /// Such headers are forwarded.
        Allow = 1, "HEADERS_WITH_UNDERSCORES_ALLOW";
        /// Requests with such headers are rejected.
        RejectRequest = 2, "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST";
        /// Such headers are dropped.
        DropHeader = 3, "HEADERS_WITH_UNDERSCORES_DROP_HEADER";
    }
}

wire_enum! {
    /// The handling of escaped slashes in paths.
    PathWithEscapedSlashesAction {
        /// The profile's default.
        Unspecified = 0, "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED";
        /// Escaped slashes are unchanged.
        KeepUnchanged = 1, "KEEP_UNCHANGED";
        /// Requests with escaped slashes are rejected.
        RejectRequest = 2, "REJECT_REQUEST";
        /// The client is redirected to the unescaped path.
        UnescapeAndRedirect = 3, "UNESCAPE_AND_REDIRECT";
        /// Escaped slashes are unescaped before forwarding.
        UnescapeAndForward = 4, "UNESCAPE_AND_FORWARD";
    }
}
