//! The limit on all downstream connections.

use serde_json::{Value, json};

use super::BootstrapInput;

/// The overload manager with the connection limit.
pub(super) fn limit(input: &BootstrapInput<'_>) -> Value {
    json!({ "resource_monitors": [{
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            "max_active_downstream_connections": most(input),
        },
    }] })
}

/// The limit from the proxy config, else proxy metadata, else the legacy runtime value; without
/// these, unlimited.
pub(super) fn most(input: &BootstrapInput<'_>) -> i64 {
    let config = input.config;
    let settings = config.connection_settings.as_ref();
    let set = settings
        .and_then(|settings| settings.global_downstream_connection_limit)
        .filter(|limit| *limit > 0);
    let metadata = || {
        number(
            config
                .proxy_metadata
                .get("ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"),
        )
    };

    let runtime = || {
        number(
            config
                .runtime_values
                .get("overload.global_downstream_max_connections"),
        )
    };

    set.map(i64::from)
        .or_else(metadata)
        .or_else(runtime)
        .unwrap_or(i64::from(i32::MAX))
}

/// Parses an integer; `None` for other text.
fn number(text: Option<&String>) -> Option<i64> {
    text?.parse().ok()
}
