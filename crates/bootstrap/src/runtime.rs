//! Envoy's runtime settings.

use serde_json::{Map, Value, json};

use super::BootstrapInput;

/// The runtime layers: the static layer, and above it the layer of the admin API.
pub(super) fn layers(input: &BootstrapInput<'_>) -> Value {
    json!({ "layers": [
        { "name": "global config", "static_layer": flags(input) },
        { "name": "admin", "admin_layer": {} },
    ] })
}

/// Default runtime flags with the user's values. An empty value removes a default.
fn flags(input: &BootstrapInput<'_>) -> Map<String, Value> {
    const USE_ORIGINAL_DST: &str = "envoy.deprecated_features:envoy.config.listener.v3.Listener.hidden_envoy_deprecated_use_original_dst";
    let mut flags = Map::new();
    let mut set = |key: &str, value: Value| flags.insert(key.to_owned(), value);
    set("re2.max_program_size.error_level", "32768".into());
    set(USE_ORIGINAL_DST, true.into());
    set(
        "envoy.reloadable_features.http_reject_path_with_fragment",
        false.into(),
    );

    set(
        "envoy.reloadable_features.fixed_heap_use_allocated",
        true.into(),
    );

    // Works around Envoy issue 45212.
    set(
        "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update",
        false.into(),
    );

    if input.settings.compliance_policy == "fips-140-2" {
        set(
            "envoy.reloadable_features.google_grpc_disable_tls_13",
            true.into(),
        );
    }

    if !input.settings.strip_fragment {
        set(
            "envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled",
            "false".into(),
        );
    }

    for (key, value) in &input.config.runtime_values {
        match value.as_str() {
            "" => flags.remove(key),
            "true" => flags.insert(key.clone(), true.into()),
            "false" => flags.insert(key.clone(), false.into()),
            text => flags.insert(key.clone(), text.into()),
        };
    }

    flags
}
