//! The static clusters of the bootstrap.

use serde_json::{Map, Value, json};

use super::remote::{Alpn, keepalive, transport_socket};
use super::tracers::Tracer;
use super::{BootstrapError, BootstrapInput, Local, socket_address, stats};
use navarch_api::istio::{ClientTlsSettings, TcpKeepalive};

/// The socket on which the agent serves file secrets when another SDS server serves the workload's
/// certificate.
const FILE_SECRETS_SOCKET: &str = "./var/run/secrets/credential-uds/files-socket";

pub(super) fn all(input: &BootstrapInput<'_>, local: Local) -> Result<Vec<Value>, BootstrapError> {
    let config = input.config;
    let secrets = format!(
        "./var/run/secrets/workload-spiffe-uds/{}",
        input.settings.workload_identity_socket
    );
    let mut clusters = vec![
        on_localhost("prometheus_stats", local, config.proxy_admin_port),
        on_localhost("agent", local, config.status_port),
        on_socket("sds-grpc", &secrets),
    ];

    if input.node.raw.contains_key("file-credential") {
        clusters.push(on_socket("sds-files-grpc", FILE_SECRETS_SOCKET));
    }

    clusters.push(control_plane(&format!("{}/XDS", config.config_path)));
    clusters.extend(tracer(input, local)?);

    if let Some(address) = stats::metrics_service(input) {
        let service = config.envoy_metrics_service.as_ref();
        let tls = service.and_then(|service| service.tls_settings.as_ref());
        let keepalive = service.and_then(|service| service.tcp_keepalive.as_ref());
        clusters.push(service_cluster(
            input,
            local,
            "envoy_metrics_service",
            address,
            tls,
            keepalive,
        )?);
    }

    if let Some(service) = config
        .envoy_access_log_service
        .as_ref()
        .filter(|service| !service.address.is_empty())
    {
        clusters.push(service_cluster(
            input,
            local,
            "envoy_accesslog_service",
            &service.address,
            service.tls_settings.as_ref(),
            service.tcp_keepalive.as_ref(),
        )?);
    }

    if input.node.flag("ENABLE_SELF_DISCOVERY") {
        clusters.push(own());
    }

    Ok(clusters)
}

/// A cluster with a single address.
fn cluster(name: &str, kind: &str, timeout: &str, address: &Value) -> Map<String, Value> {
    let mut cluster = Map::new();
    let mut put = |key: &str, value: Value| cluster.insert(key.to_owned(), value);
    put("name", name.into());
    put("alt_stat_name", format!("{name};").into());
    put("type", kind.into());
    put("connect_timeout", timeout.into());
    put("lb_policy", "ROUND_ROBIN".into());
    let endpoint = json!({ "endpoint": { "address": address } });
    put(
        "load_assignment",
        json!({ "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] }),
    );
    cluster
}

/// A cluster for a port on localhost.
fn on_localhost(name: &str, local: Local, port: i32) -> Value {
    let address = json!({ "protocol": "TCP", "address": local.localhost, "port_value": port });
    Value::Object(cluster(
        name,
        "STATIC",
        "0.250s",
        &json!({ "socket_address": address }),
    ))
}

/// An HTTP/2 cluster for a Unix domain socket.
fn on_socket(name: &str, path: &str) -> Value {
    let mut cluster = cluster(name, "STATIC", "1s", &json!({ "pipe": { "path": path } }));
    http2(&mut cluster);
    Value::Object(cluster)
}

/// The agent's xDS server, which proxies to the control plane.
fn control_plane(path: &str) -> Value {
    let mut cluster = cluster(
        "xds-grpc",
        "STATIC",
        "1s",
        &json!({ "pipe": { "path": path } }),
    );

    http2(&mut cluster);
    let threshold = |priority: &str| {
        json!({
            "priority": priority, "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000,
        })
    };
    let thresholds = json!({ "thresholds": [threshold("DEFAULT"), threshold("HIGH")] });
    cluster.insert("circuit_breakers".to_owned(), thresholds);

    let keepalive = json!({ "tcp_keepalive": { "keepalive_time": 300 } });
    cluster.insert("upstream_connection_options".to_owned(), keepalive);
    cluster.insert("max_requests_per_connection".to_owned(), 1.into());
    Value::Object(cluster)
}

/// Enables HTTP/2 for a cluster.
fn http2(cluster: &mut Map<String, Value>) {
    const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let options = json!({ OPTIONS: {
        "@type": format!("type.googleapis.com/{OPTIONS}"),
        "explicit_http_config": { "http2_protocol_options": {} },
    } });
    cluster.insert("typed_extension_protocol_options".to_owned(), options);
}

/// A cluster that resolves its address by DNS.
fn by_name(
    input: &BootstrapInput<'_>,
    local: Local,
    name: &'static str,
    address: &str,
) -> Result<Map<String, Value>, BootstrapError> {
    let address = json!({ "socket_address": socket_address(input, name, address)? });
    let mut cluster = cluster(name, "STRICT_DNS", "1s", &address);
    cluster.insert("respect_dns_ttl".to_owned(), true.into());
    cluster.insert("dns_lookup_family".to_owned(), local.lookup.into());
    Ok(cluster)
}

/// The cluster of the trace collector.
fn tracer(input: &BootstrapInput<'_>, local: Local) -> Result<Option<Value>, BootstrapError> {
    let Some(tracer) = Tracer::of(input.config) else {
        return Ok(None);
    };

    let name = match tracer {
        Tracer::Zipkin(_) => "zipkin",
        Tracer::Lightstep(_) => "lightstep",
        Tracer::Datadog(_) => "datadog_agent",
    };
    let mut cluster = by_name(input, local, name, tracer.address())?;
    let alpn = match tracer {
        Tracer::Zipkin(_) => {
            cluster.insert("dns_refresh_rate".to_owned(), "30s".into());
            Alpn::None
        }
        Tracer::Lightstep(_) => {
            http2(&mut cluster);
            Alpn::Http2
        }
        Tracer::Datadog(_) => Alpn::None,
    };

    let tls = input
        .config
        .tracing
        .as_ref()
        .and_then(|tracing| tracing.tls_settings.as_ref());
    if let Some(socket) = transport_socket(input, tls, "tracer", alpn) {
        cluster.insert("transport_socket".to_owned(), socket);
    }

    Ok(Some(Value::Object(cluster)))
}

/// The cluster of a service that receives metrics or access logs.
fn service_cluster(
    input: &BootstrapInput<'_>,
    local: Local,
    name: &'static str,
    address: &str,
    tls: Option<&ClientTlsSettings>,
    tcp_keepalive: Option<&TcpKeepalive>,
) -> Result<Value, BootstrapError> {
    let mut cluster = by_name(input, local, name, address)?;
    http2(&mut cluster);
    if let Some(socket) = transport_socket(input, tls, name, Alpn::Http2) {
        cluster.insert("transport_socket".to_owned(), socket);
    }
    if let Some(settings) = tcp_keepalive {
        cluster.insert(
            "upstream_connection_options".to_owned(),
            keepalive(settings),
        );
    }
    Ok(Value::Object(cluster))
}

/// The cluster of the proxy's own service, from which Envoy computes its zone's share of endpoints.
fn own() -> Value {
    const POLICY: &str = "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
    json!({
        "name": "local_cluster",
        "alt_stat_name": "local_cluster;",
        "type": "EDS",
        "connect_timeout": "1s",
        "load_balancing_policy": { "policies": [{ "typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {
                "@type": format!("type.googleapis.com/{POLICY}"),
                "locality_lb_config": { "zone_aware_lb_config": { "min_cluster_size": "1" } },
            },
        } }] },
        "eds_cluster_config": {
            "eds_config": { "ads": {}, "resource_api_version": "V3" },
            "service_name": "local_cluster",
        },
    })
}
