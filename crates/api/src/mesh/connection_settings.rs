//! Limits on a proxy's connections and requests.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;

/// Limits on connections and requests. What is unset is as `profile` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionSettings {
    /// Where the proxy stands.
    pub profile: ConnectionProfile,
    /// Most bytes held for a connection that comes in.
    pub listener_per_connection_buffer_limit_bytes: Option<i32>,
    /// Most bytes held for a connection that goes out.
    pub cluster_per_connection_buffer_limit_bytes: Option<i32>,
    /// How long a connection may be without requests.
    pub http_idle_timeout: Option<Duration>,
    /// How long a connection may live.
    pub http_max_connection_duration: Option<Duration>,
    /// How long a connection is drained.
    pub http_drain_timeout: Option<Duration>,
    /// How long a request may take to arrive wholly.
    pub http_request_timeout: Option<Duration>,
    /// How long the headers of a request may take to arrive.
    pub http_request_headers_timeout: Option<Duration>,
    /// How long a stream may be idle.
    pub http_stream_idle_timeout: Option<Duration>,
    /// How long a stream may live.
    pub http_max_stream_duration: Option<Duration>,
    /// Most streams at a time on one connection.
    pub http_max_concurrent_streams: Option<i32>,
    /// First flow-control window of a stream, in bytes.
    pub http2_initial_stream_window_size: Option<i32>,
    /// First flow-control window of a connection, in bytes.
    pub http2_initial_connection_window_size: Option<i32>,
    /// What becomes of headers with underscores in their names.
    pub http_headers_with_underscores_action: HeadersWithUnderscoresAction,
    /// Whether runs of slashes in paths become one.
    pub http_merge_slashes: Option<bool>,
    /// What becomes of escaped slashes in paths.
    pub http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction,
    /// Most connections of one listener.
    pub listener_connection_limit: Option<i32>,
    /// Most connections that come into the proxy.
    pub global_downstream_connection_limit: Option<i32>,
}

wire_enum! {
    /// Where a proxy stands.
    ConnectionProfile {
        /// Beside an application.
        Sidecar = 0, "SIDECAR";
        /// At the edge, with clients that are not trusted.
        Edge = 1, "EDGE";
    }
}

wire_enum! {
    /// What becomes of headers with underscores in their names.
    HeadersWithUnderscoresAction {
        /// As the profile says.
        Unspecified = 0, "HEADERS_WITH_UNDERSCORES_UNSPECIFIED";
        /// They pass.
        Allow = 1, "HEADERS_WITH_UNDERSCORES_ALLOW";
        /// The request is refused.
        RejectRequest = 2, "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST";
        /// They are dropped.
        DropHeader = 3, "HEADERS_WITH_UNDERSCORES_DROP_HEADER";
    }
}

wire_enum! {
    /// What becomes of escaped slashes in paths.
    PathWithEscapedSlashesAction {
        /// As the profile says.
        Unspecified = 0, "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED";
        /// They stay.
        KeepUnchanged = 1, "KEEP_UNCHANGED";
        /// The request is refused.
        RejectRequest = 2, "REJECT_REQUEST";
        /// The client is sent to the path without escapes.
        UnescapeAndRedirect = 3, "UNESCAPE_AND_REDIRECT";
        /// They are unescaped on the way.
        UnescapeAndForward = 4, "UNESCAPE_AND_FORWARD";
    }
}
