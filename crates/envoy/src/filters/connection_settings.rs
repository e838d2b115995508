//! Limits and timeouts of connections and requests (`ProxyConfig.connectionSettings`).

use navarch_proto::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction as Underscores;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::PathWithEscapedSlashesAction as EscapedSlashes;

use crate::proxy_settings::EffectiveProxyConfig;
use navarch_api::duration::Duration;
use navarch_api::mesh::{
    ConnectionProfile, ConnectionSettings, HeadersWithUnderscoresAction,
    PathWithEscapedSlashesAction,
};
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The connection settings of the proxy: its own, else the mesh's; for edge gateways with Envoy's
/// recommended defaults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectiveConnectionSettings;

impl Query for EffectiveConnectionSettings {
    type Value = Option<ConnectionSettings>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let own = view.get(&EffectiveProxyConfig).connection_settings.clone();
        let settings = own.or_else(|| {
            view.mesh()
                .config
                .default_config
                .connection_settings
                .clone()
        })?;
        note_rejected(view, &settings);
        if settings.profile == ConnectionProfile::Edge && view.proxy().kind() == ProxyKind::Router {
            Some(hardened(settings))
        } else {
            Some(settings)
        }
    }
}

/// The minimum flow-control window in Envoy, in bytes.
const MIN_WINDOW: u32 = 65_535;

/// Records remarks on HTTP/2 settings that Envoy would reject, which are skipped.
fn note_rejected(view: &View<'_>, settings: &ConnectionSettings) {
    if settings.http_max_concurrent_streams == Some(0) {
        view.remark(
            "ProxyConfig: connectionSettings.httpMaxConcurrentStreams is ignored: Envoy accepts only 1 or more",
        );
    }

    let windows = [
        (
            "http2InitialStreamWindowSize",
            settings.http2_initial_stream_window_size,
        ),
        (
            "http2InitialConnectionWindowSize",
            settings.http2_initial_connection_window_size,
        ),
    ];

    for (field, _) in windows
        .iter()
        .filter(|(_, size)| unsigned(*size).is_some_and(|size| size < MIN_WINDOW))
    {
        view.remark(format!(
            "ProxyConfig: connectionSettings.{field} is ignored: Envoy accepts only {MIN_WINDOW} or more"
        ));
    }
}

/// Sets unset fields to Envoy's recommendations for edge proxies.
fn hardened(mut settings: ConnectionSettings) -> ConnectionSettings {
    let minutes = |minutes: i64| Duration::from_secs(minutes * 60);
    settings
        .listener_per_connection_buffer_limit_bytes
        .get_or_insert(32 * 1024);
    settings.http_idle_timeout.get_or_insert(minutes(60));
    settings.http_stream_idle_timeout.get_or_insert(minutes(5));
    settings.http_request_timeout.get_or_insert(minutes(5));
    settings
        .http_request_headers_timeout
        .get_or_insert(minutes(1));

    settings.http_max_concurrent_streams.get_or_insert(100);
    settings
        .http2_initial_stream_window_size
        .get_or_insert(64 * 1024);
    settings
        .http2_initial_connection_window_size
        .get_or_insert(1024 * 1024);
    settings.http_merge_slashes.get_or_insert(true);

    if settings.http_headers_with_underscores_action == HeadersWithUnderscoresAction::Unspecified {
        settings.http_headers_with_underscores_action = HeadersWithUnderscoresAction::RejectRequest;
    }

    if settings.http_path_with_escaped_slashes_action == PathWithEscapedSlashesAction::Unspecified {
        settings.http_path_with_escaped_slashes_action =
            PathWithEscapedSlashesAction::UnescapeAndRedirect;
    }

    settings
}

/// Applies the settings to a connection manager, overriding path settings of mesh config.
pub(crate) fn apply(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    apply_lifetimes(settings, manager);
    apply_http2(settings, manager);
    let underscores = match settings.http_headers_with_underscores_action {
        HeadersWithUnderscoresAction::Unspecified => None,
        HeadersWithUnderscoresAction::Allow => Some(Underscores::Allow),
        HeadersWithUnderscoresAction::RejectRequest => Some(Underscores::RejectRequest),
        HeadersWithUnderscoresAction::DropHeader => Some(Underscores::DropHeader),
    };

    if let Some(action) = underscores {
        let options = manager.common_http_protocol_options.get_or_insert_default();
        options.headers_with_underscores_action = action.into();
    }

    if let Some(merge) = settings.http_merge_slashes {
        manager.merge_slashes = merge;
    }

    let escaped = match settings.http_path_with_escaped_slashes_action {
        PathWithEscapedSlashesAction::Unspecified => None,
        PathWithEscapedSlashesAction::KeepUnchanged => Some(EscapedSlashes::KeepUnchanged),
        PathWithEscapedSlashesAction::RejectRequest => Some(EscapedSlashes::RejectRequest),
        PathWithEscapedSlashesAction::UnescapeAndRedirect => {
            Some(EscapedSlashes::UnescapeAndRedirect)
        }
        PathWithEscapedSlashesAction::UnescapeAndForward => {
            Some(EscapedSlashes::UnescapeAndForward)
        }
    };

    if let Some(action) = escaped {
        manager.path_with_escaped_slashes_action = action.into();
    }
}

/// Maximum durations of connections, requests and streams.
fn apply_lifetimes(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let set = |field: &mut Option<prost_types::Duration>, value: Option<Duration>| {
        if let Some(value) = value {
            *field = Some(value.to_proto());
        }
    };

    let of_connection = [
        settings.http_idle_timeout,
        settings.http_max_connection_duration,
        settings.http_max_stream_duration,
    ];

    if of_connection.iter().any(Option::is_some) {
        let options = manager.common_http_protocol_options.get_or_insert_default();
        set(&mut options.idle_timeout, settings.http_idle_timeout);
        set(
            &mut options.max_connection_duration,
            settings.http_max_connection_duration,
        );
        set(
            &mut options.max_stream_duration,
            settings.http_max_stream_duration,
        );
    }

    set(
        &mut manager.stream_idle_timeout,
        settings.http_stream_idle_timeout,
    );
    set(&mut manager.request_timeout, settings.http_request_timeout);
    set(
        &mut manager.request_headers_timeout,
        settings.http_request_headers_timeout,
    );

    set(&mut manager.drain_timeout, settings.http_drain_timeout);
}

/// Streams and windows of HTTP/2. The options are set if any field is set, even to an invalid
/// value, which is skipped.
fn apply_http2(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let sizes = [
        settings.http_max_concurrent_streams,
        settings.http2_initial_stream_window_size,
        settings.http2_initial_connection_window_size,
    ];
    if sizes.iter().all(Option::is_none) {
        return;
    }

    let options = manager.http2_protocol_options.get_or_insert_default();
    let [streams, stream_window, connection_window] = sizes.map(unsigned);

    let streams = streams.filter(|streams| *streams > 0);
    let [stream_window, connection_window] = [stream_window, connection_window]
        .map(|window| window.filter(|window| *window >= MIN_WINDOW));

    options.max_concurrent_streams = streams.or(options.max_concurrent_streams);
    options.initial_stream_window_size = stream_window.or(options.initial_stream_window_size);
    options.initial_connection_window_size =
        connection_window.or(options.initial_connection_window_size);
}

/// A size, if not negative.
#[must_use]
pub fn unsigned(size: Option<i32>) -> Option<u32> {
    size.and_then(|size| u32::try_from(size).ok())
}
