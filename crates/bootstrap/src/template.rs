//! A user's own bootstrap as a Go template with pilot-agent's parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{Template, Value};
use serde_json::{Map, json};

use super::remote::Alpn;
use super::tracers::Tracer;
use super::{BootstrapError, BootstrapInput, Local, bootstrap, discovers_metadata, socket_address};
use super::{connections, remote, runtime, service_name, stats};
use navarch_api::proto_json::to_proto_json;

/// Why rendering a bootstrap template fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template's parameters cannot be computed.
    #[error(transparent)]
    Parameters(#[from] BootstrapError),
    /// The template cannot be parsed or rendered.
    #[error("bootstrap template: {0}")]
    Template(String),
}

/// Renders a template.
///
/// # Errors
/// When the template cannot be parsed or rendered, or its parameters cannot be computed.
pub fn render(template: &str, input: &BootstrapInput<'_>) -> Result<String, TemplateError> {
    let json = |arguments: &[Value]| {
        let text = arguments
            .first()
            .map(|value| from_template(value).to_string());
        Ok(Value::String(
            text.unwrap_or_else(|| "{}".to_owned()).into(),
        ))
    };
    let parameters = to_template(&serde_json::Value::Object(parameters(input)?));
    let fault = |error: gotmpl::TemplateError| TemplateError::Template(error.to_string());
    let template = Template::new("bootstrap")
        .func("toJSON", json)
        .func("toJson", json)
        .parse(template)
        .map_err(fault)?;
    template.execute_to_string(&parameters).map_err(fault)
}

/// The template's parameters. Unset parameters are absent, as `if` in templates expects.
fn parameters(
    input: &BootstrapInput<'_>,
) -> Result<Map<String, serde_json::Value>, BootstrapError> {
    let node = input.node;
    let config = input.config;
    let settings = input.settings;
    let local = Local::new(input.addresses, settings.dual_stack);
    let built = bootstrap(input)?;
    let of_built = |path: &str| built.pointer(path).cloned().unwrap_or_default();
    let host = config
        .discovery_address
        .split(':')
        .next()
        .unwrap_or_default();

    let mut all = json!({
        "nodeID": node.id,
        "nodeType": node.id.split('~').next(),
        "cluster": service_name::service_cluster(node, config),
        "region": node.locality.region, "zone": node.locality.zone, "sub_zone": node.locality.sub_zone,
        "meta_json_str": of_built("/node/metadata").to_string(),
        "runtime_flags": runtime::layers(input).pointer("/layers/0/static_layer").map(ToString::to_string),
        "config": go_names(&to_proto_json(config)),
        "discovery_address": config.discovery_address,
        "discovery_host": host,
        "pilot_grpc_address": socket_address(input, "pilot", &config.discovery_address)?.to_string(),
        "pilot_SAN": json!([{ "exact": host }]).to_string(),
        "xds_type": of_built("/dynamic_resources/ads_config/api_type"),
        "metadata_discovery": discovers_metadata(input),
        "localhost": local.localhost, "wildcard": local.wildcard, "dns_lookup_family": local.lookup,
        "additional_localhost": local.other.map(|other| other.0),
        "additional_wildcard": local.other.map(|other| other.1),
        "dual_stack": local.other.is_some(),
        "inclusionPrefix": stats::prefixes(input),
        "inclusionSuffix": stats::suffixes(input),
        "inclusionRegexps": stats::regexps(input),
        "extraStatTags": stats::extra_tags(input),
        "histogram_buckets": of_built("/stats_config/histogram_bucket_settings"),
        "stats_flush_interval": of_built("/stats_flush_interval"),
        "stats_eviction_interval": of_built("/stats_eviction_interval"),
        "envoy_metrics_stats_compression": config.stats_compression.unwrap_or(true),
        "envoy_status_port": settings.envoy_status_port,
        "envoy_prometheus_port": settings.envoy_prometheus_port,
        "secure_metrics_port": settings.secure_metrics_port,
        "secure_merged_metrics_port": settings.secure_merged_metrics_port,
        "envoy_status_port_enable_proxy_protocol": settings.status_proxy_protocol,
        "enable_self_discovery": node.flag("ENABLE_SELF_DISCOVERY"),
        "workload_identity_socket_file": settings.workload_identity_socket,
        "outlier_log_path": settings.outlier_log_path,
        "log_json": settings.log_json,
        "global_downstream_max_connections": connections::most(input),
        "load_stats_config_json_str": node.raw.get("LOAD_STATS_CONFIG_JSON"),
    });

    if let Some(all) = all.as_object_mut() {
        add_servers(input, all)?;
    }

    let serde_json::Value::Object(all) = all else {
        return Ok(Map::new());
    };

    Ok(all
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect())
}

/// Adds the servers of the bootstrap: addresses and TLS settings as JSON text.
fn add_servers(
    input: &BootstrapInput<'_>,
    all: &mut Map<String, serde_json::Value>,
) -> Result<(), BootstrapError> {
    let mut put =
        |key: &str, value: serde_json::Value| all.insert(key.to_owned(), value.to_string().into());
    let tracing = input.config.tracing.as_ref();

    if let Some(tracer) = Tracer::of(input.config) {
        let (name, alpn) = match tracer {
            Tracer::Zipkin(_) => ("zipkin", Alpn::None),
            Tracer::Lightstep(_) => ("lightstep", Alpn::Http2),
            Tracer::Datadog(_) => ("datadog", Alpn::None),
        };
        put(name, socket_address(input, name, tracer.address())?);
        let tls = tracing.and_then(|tracing| tracing.tls_settings.as_ref());
        if let Some(socket) = remote::transport_socket(input, tls, "tracer", alpn) {
            put("tracing_tls", socket);
        }
    }

    if !input.config.statsd_udp_address.is_empty() {
        put(
            "statsd",
            socket_address(input, "statsd", &input.config.statsd_udp_address)?,
        );
    }

    let services = [
        ("envoy_metrics_service", &input.config.envoy_metrics_service),
        (
            "envoy_accesslog_service",
            &input.config.envoy_access_log_service,
        ),
    ];

    for (name, service) in services {
        let Some(service) = service
            .as_ref()
            .filter(|service| !service.address.is_empty())
        else {
            continue;
        };

        put(
            &format!("{name}_address"),
            socket_address(input, name, &service.address)?,
        );
        if let Some(socket) =
            remote::transport_socket(input, service.tls_settings.as_ref(), name, Alpn::Http2)
        {
            put(&format!("{name}_tls"), socket);
        }

        if let Some(alive) = &service.tcp_keepalive {
            put(&format!("{name}_tcp_keepalive"), remote::keepalive(alive));
        }
    }

    Ok(())
}

/// Renames a message's fields to their Go names, such as `proxyAdminPort` to `ProxyAdminPort`.
fn go_names(message: &serde_json::Value) -> serde_json::Value {
    let upper = |key: &str| {
        let mut letters = key.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    let fields = message.as_object().into_iter().flatten();
    serde_json::Value::Object(
        fields
            .map(|(key, value)| (upper(key), value.clone()))
            .collect(),
    )
}

fn to_template(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, float) => Value::Float(float.unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::String(text.as_str().into()),
        serde_json::Value::Array(values) => Value::List(values.iter().map(to_template).collect()),
        serde_json::Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (Arc::from(key.as_str()), to_template(value)));
            Value::Map(Arc::new(fields.collect::<BTreeMap<_, _>>()))
        }
    }
}

fn from_template(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::Int(whole) => (*whole).into(),
        Value::Uint(whole) => (*whole).into(),
        Value::Float(float) => (*float).into(),
        Value::String(text) => serde_json::Value::from(&**text),
        Value::List(values) => values.iter().map(from_template).collect(),
        Value::Map(fields) => serde_json::Value::Object(
            fields
                .iter()
                .map(|(key, value)| (key.to_string(), from_template(value)))
                .collect(),
        ),
        Value::Nil | Value::Function(_) => serde_json::Value::Null,
    }
}
