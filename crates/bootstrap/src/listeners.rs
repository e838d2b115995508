//! The static listeners of the bootstrap: metrics and readiness.

use serde_json::{Map, Value, json};

use super::remote::sds;
use super::{BootstrapInput, Local};

pub(super) fn all(input: &BootstrapInput<'_>, local: Local) -> Vec<Value> {
    let settings = input.settings;
    let mut listeners = vec![prometheus(input, local)];
    let envoys = [("/stats/prometheus", "prometheus_stats")];
    let all = [("/stats/prometheus", "agent"), ("/metrics", "agent")];

    if settings.secure_metrics_port != 0 {
        listeners.push(secure(
            local,
            settings.secure_metrics_port,
            "secure_stats",
            &envoys,
        ));
    }

    if settings.secure_merged_metrics_port != 0 {
        listeners.push(secure(
            local,
            settings.secure_merged_metrics_port,
            "secure_merged_stats",
            &all,
        ));
    }

    listeners.push(readiness(input, local));
    listeners
}

/// A listener that is exempt from the global connection limit and the overload manager.
fn listener(address: &str, port: u16) -> Map<String, Value> {
    let mut listener = Map::new();
    listener.insert("name".to_owned(), format!("{address}_{port}").into());
    listener.insert("address".to_owned(), tcp(address, port));
    listener.insert("ignore_global_conn_limit".to_owned(), true.into());
    listener.insert("bypass_overload_manager".to_owned(), true.into());
    listener
}

/// A socket address to listen on.
fn tcp(address: &str, port: u16) -> Value {
    json!({ "socket_address": { "protocol": "TCP", "address": address, "port_value": port } })
}

/// Adds the address of the second family.
fn also_on(listener: &mut Map<String, Value>, address: Option<&str>, port: u16) {
    if let Some(address) = address {
        listener.insert(
            "additionalAddresses".to_owned(),
            json!([{ "address": tcp(address, port) }]),
        );
    }
}

/// An HTTP connection manager that routes some paths to clusters, through `filters` and the router.
fn http(stat_prefix: &str, routes: &[(&str, &str)], mut filters: Vec<Value>) -> Value {
    let routes: Vec<_> = routes
        .iter()
        .map(|(prefix, cluster)| json!({ "match": { "prefix": prefix }, "route": { "cluster": cluster } }))
        .collect();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
    }));

    let url = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": url,
            "codec_type": "AUTO",
            "stat_prefix": stat_prefix,
            "route_config": { "virtual_hosts": [{ "name": "backend", "domains": ["*"], "routes": routes }] },
            "http_filters": filters,
        },
    })
}

/// The listener for Envoy's own metrics.
fn prometheus(input: &BootstrapInput<'_>, local: Local) -> Value {
    let port = input.settings.envoy_prometheus_port;
    let closed = input
        .config
        .proxy_metadata
        .get("METRICS_LOCALHOST_ACCESS_ONLY")
        .is_some_and(|value| value == "true");
    let pick = |(localhost, wildcard): (&'static str, &'static str)| {
        if closed { localhost } else { wildcard }
    };

    let mut listener = listener(pick((local.localhost, local.wildcard)), port);
    also_on(&mut listener, local.other.map(pick), port);
    let filters = if compresses(input) {
        ["brotli", "zstd", "gzip"].map(compressor).to_vec()
    } else {
        Vec::new()
    };

    let http = http(
        "stats",
        &[("/stats/prometheus", "prometheus_stats")],
        filters,
    );
    listener.insert("filter_chains".to_owned(), json!([{ "filters": [http] }]));

    Value::Object(listener)
}

/// Whether metrics are compressed. The injector copies the annotation to the proxy config, so it is
/// not read here.
fn compresses(input: &BootstrapInput<'_>) -> bool {
    input.config.stats_compression.unwrap_or(true)
}

/// An HTTP filter that compresses metrics.
fn compressor(kind: &str) -> Value {
    let message = match kind {
        "brotli" => "brotli.compressor.v3.Brotli",
        "zstd" => "zstd.compressor.v3.Zstd",
        _ => "gzip.compressor.v3.Gzip",
    };

    let types = [
        "text/plain",
        "application/vnd.google.protobuf",
        "application/openmetrics-text",
        "application/openmetrics-protobuf",
    ];

    json!({
        "name": format!("envoy.filters.http.compressor.{kind}"),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor",
            "compressor_library": {
                "name": format!("stats_{kind}"),
                "typed_config": { "@type": format!("type.googleapis.com/envoy.extensions.compression.{message}") },
            },
            "response_direction_config": { "common_config": { "content_type": types } },
        },
    })
}

/// A listener for metrics over mTLS with the workload's certificate.
fn secure(local: Local, port: u16, stat_prefix: &str, routes: &[(&str, &str)]) -> Value {
    let secret = |name: &str| json!({ "name": name, "sds_config": sds() });
    let mut listener = listener(local.wildcard, port);
    let inspector = json!([{
        "name": "envoy.filters.listener.tls_inspector",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector" },
    }]);
    listener.insert("listener_filters".to_owned(), inspector);
    let socket = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": true,
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [secret("default")],
                "combined_validation_context": {
                    "default_validation_context": {},
                    "validation_context_sds_secret_config": secret("ROOTCA"),
                },
            },
        },
    });

    let chain = json!({
        "filter_chain_match": { "transport_protocol": "tls" },
        "transport_socket": socket,
        "filters": [http(stat_prefix, routes, Vec::new())],
    });
    listener.insert("filter_chains".to_owned(), json!([chain]));

    Value::Object(listener)
}

/// The readiness listener, which routes through Envoy to the agent and therefore covers both.
fn readiness(input: &BootstrapInput<'_>, local: Local) -> Value {
    let port = input.settings.envoy_status_port;
    let mut listener = listener(local.wildcard, port);
    also_on(
        &mut listener,
        local.other.map(|(_, wildcard)| wildcard),
        port,
    );

    if input.settings.status_proxy_protocol {
        let filter = json!([{
            "name": "envoy.listener.proxy_protocol",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
                "allow_requests_without_proxy_protocol": true,
            },
        }]);
        listener.insert("listener_filters".to_owned(), filter);
    }

    let http = http("agent", &[("/healthz/ready", "agent")], Vec::new());
    listener.insert("filter_chains".to_owned(), json!([{ "filters": [http] }]));
    Value::Object(listener)
}
