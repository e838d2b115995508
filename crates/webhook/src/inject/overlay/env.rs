//! Environment variables of injected proxies.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::super::context::Context;
use super::super::error::InjectError;
use super::super::{go_json, image, pod};
use navarch_api::mesh::{InboundTrafficPolicyMode, ServiceAttributeEnrichment};

/// The default cluster ID.
const DEFAULT_CLUSTER: &str = "Kubernetes";

/// The annotation for Datadog's tracer, a JSON object of variables.
const DATADOG_ENV: &str = "apm.datadoghq.com/env";

/// A variable with a value.
pub(super) fn plain(name: impl Into<String>, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// A variable from a field of the pod (downward API).
pub(super) fn field(name: &str, path: &str) -> EnvVar {
    let field_ref = Some(ObjectFieldSelector {
        api_version: None,
        field_path: path.to_owned(),
    });
    let value_from = Some(EnvVarSource {
        field_ref,
        ..EnvVarSource::default()
    });
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from,
    }
}

/// A variable from a resource limit of the container.
fn limit(name: &str, resource: &str) -> EnvVar {
    let selector = ResourceFieldSelector {
        container_name: None,
        divisor: Some(Quantity("1".to_owned())),
        resource: resource.to_owned(),
    };
    let value_from = Some(EnvVarSource {
        resource_field_ref: Some(selector),
        ..EnvVarSource::default()
    });
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from,
    }
}

/// The environment of a sidecar.
///
/// # Errors
/// When the annotation for Datadog's tracer is not a JSON object.
pub(super) fn sidecar(context: &Context<'_>) -> Result<Vec<EnvVar>, InjectError> {
    let mut env = legacy_probes(context);
    env.extend(identity(context));
    env.push(limit("ISTIO_CPU_LIMIT", "limits.cpu"));
    env.extend([config(context), ports(context), app_containers(context)]);
    env.push(limit("GOMEMLIMIT", "limits.memory"));
    env.extend(compliance(context));
    env.extend(place(context));
    env.push(plain(
        "ISTIO_META_INTERCEPTION_MODE",
        context.interception_mode(),
    ));

    env.extend(network(context));
    let name = context
        .label("service.istio.io/workload-name")
        .unwrap_or(&context.workload.name);
    env.extend(workload(context, name));
    env.extend(bootstrap_override(context));
    env.extend(mesh(context));
    env.extend(datadog(context)?);

    env.extend(otel(context));
    env.extend(metadata(context));
    Ok(env)
}

/// The environment of a gateway.
pub(super) fn gateway(context: &Context<'_>) -> Vec<EnvVar> {
    let mut env = identity(context);
    env.push(limit("ISTIO_CPU_LIMIT", "limits.cpu"));
    env.extend([config(context), ports(context)]);
    env.push(limit("GOMEMLIMIT", "limits.memory"));
    env.extend(compliance(context));
    env.push(app_containers(context));
    env.extend(place(context));
    env.push(plain(
        "ISTIO_META_INTERCEPTION_MODE",
        context.proxy_config().interception_mode.as_str(),
    ));
    env.extend(network(context));
    env.extend(workload(context, &context.workload.name));
    env.extend(bootstrap_override(context));
    env.extend(mesh(context));
    env.extend(metadata(context));
    env
}

/// The environment of an agent without Envoy.
pub(super) fn grpc_agent(context: &Context<'_>) -> Vec<EnvVar> {
    let mut env = vec![
        plain("ISTIO_META_GENERATOR", "grpc"),
        plain("OUTPUT_CERTS", "/var/lib/istio/data"),
    ];
    env.extend(legacy_probes(context));
    env.extend(identity(context));
    env.extend([config(context), ports(context), app_containers(context)]);
    env.extend(place(context));

    env.extend(network(context));
    env.extend(workload(context, &context.workload.name));
    env.extend(mesh(context));
    env.extend(metadata(context));

    // Applications with native xDS resolve names by xDS, so DNS capture has no benefit.
    env.extend([
        plain("ISTIO_META_DNS_CAPTURE", "false"),
        plain("DISABLE_ENVOY", "true"),
    ]);

    env
}

/// Additional environment variables of the proxy, from the proxy config.
pub(super) fn metadata(context: &Context<'_>) -> Vec<EnvVar> {
    context
        .metadata()
        .iter()
        .map(|(name, value)| plain(name, value))
        .collect()
}

/// Enables the legacy probe destination localhost if mesh config sends inbound traffic to
/// localhost.
fn legacy_probes(context: &Context<'_>) -> Vec<EnvVar> {
    let policy = context.mesh.inbound_traffic_policy.as_ref();
    let localhost = policy.is_some_and(|policy| policy.mode == InboundTrafficPolicyMode::Localhost);
    localhost
        .then(|| plain("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true"))
        .into_iter()
        .collect()
}

/// The identity of the pod, and the CA settings.
fn identity(context: &Context<'_>) -> Vec<EnvVar> {
    let global = &context.values.global;
    let revision = context.values.revision.as_str();
    let dash = if revision.is_empty() { "" } else { "-" };
    let own = format!(
        "istiod{dash}{revision}.{}.svc:15012",
        global.istio_namespace
    );
    vec![
        plain("PILOT_CERT_PROVIDER", global.pilot_cert_provider.as_str()),
        plain("CA_ADDR", global.ca_address.or(&own)),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("INSTANCE_IP", "status.podIP"),
        field("SERVICE_ACCOUNT", "spec.serviceAccountName"),
        field("HOST_IP", "status.hostIP"),
    ]
}

/// The proxy config as JSON.
fn config(context: &Context<'_>) -> EnvVar {
    plain("PROXY_CONFIG", format!("{}\n", context.proxy.json))
}

/// The ports of the pod as JSON, one port per line.
fn ports(context: &Context<'_>) -> EnvVar {
    let ports = context
        .containers()
        .iter()
        .filter_map(|container| container.get("ports")?.as_array())
        .flatten();
    let mut text = "[".to_owned();
    for (at, port) in ports.enumerate() {
        text.push_str(if at == 0 { "\n    " } else { "\n    ," });
        text.push_str(&go_json::text(port));
    }
    text.push_str("\n]");
    plain("ISTIO_META_POD_PORTS", text)
}

/// The names of the application's containers.
fn app_containers(context: &Context<'_>) -> EnvVar {
    plain(
        "ISTIO_META_APP_CONTAINERS",
        context.app_containers().collect::<Vec<_>>().join(","),
    )
}

/// The compliance policy for cryptography.
fn compliance(context: &Context<'_>) -> Vec<EnvVar> {
    let policy = context.compliance_policy;
    let mut env = Vec::new();
    if !policy.is_empty() {
        env.push(plain("COMPLIANCE_POLICY", policy));
    }
    if policy == "fips-140-3" {
        env.push(plain("GODEBUG", "fips140=only"));
    }
    env
}

/// The cluster ID and the node name.
fn place(context: &Context<'_>) -> [EnvVar; 2] {
    let cluster = context
        .values
        .global
        .multi_cluster
        .cluster_name
        .or(DEFAULT_CLUSTER);
    [
        plain("ISTIO_META_CLUSTER_ID", cluster),
        field("ISTIO_META_NODE_NAME", "spec.nodeName"),
    ]
}

fn network(context: &Context<'_>) -> Option<EnvVar> {
    let network = context.values.global.network.as_str();
    (!network.is_empty()).then(|| plain("ISTIO_META_NETWORK", network))
}

/// The name of the workload, and the path of its object.
fn workload(context: &Context<'_>, name: &str) -> Vec<EnvVar> {
    let workload = context.workload;
    let mut env = Vec::new();
    if !name.is_empty() {
        env.push(plain("ISTIO_META_WORKLOAD_NAME", name));
    }

    if !workload.api_version.is_empty() && !workload.name.is_empty() {
        let namespace = if workload.namespace.is_empty() {
            "default"
        } else {
            &workload.namespace
        };
        let kind = workload.kind.to_lowercase();
        let path = format!(
            "kubernetes://apis/{}/namespaces/{namespace}/{kind}s/{}",
            workload.api_version, workload.name
        );
        env.push(plain("ISTIO_META_OWNER", path));
    }

    env
}

/// The path of the user's bootstrap file.
fn bootstrap_override(context: &Context<'_>) -> Option<EnvVar> {
    context.annotation(super::volumes::BOOTSTRAP_OVERRIDE)?;
    Some(plain(
        "ISTIO_BOOTSTRAP_OVERRIDE",
        "/etc/istio/custom-bootstrap/custom_bootstrap.json",
    ))
}

/// The mesh ID and the trust domain.
fn mesh(context: &Context<'_>) -> Vec<EnvVar> {
    let domain = context.trust_domain();
    let mesh = context.values.global.mesh_id.or(domain);
    let mesh = (!mesh.is_empty()).then(|| plain("ISTIO_META_MESH_ID", mesh));
    let domain = (!domain.is_empty()).then(|| plain("TRUST_DOMAIN", domain));
    mesh.into_iter().chain(domain).collect()
}

/// Variables for Datadog's tracer.
fn datadog(context: &Context<'_>) -> Result<Vec<EnvVar>, InjectError> {
    if context.values.global.proxy.tracer.as_str() != "datadog" {
        return Ok(Vec::new());
    }
    let entries = super::volumes::json_entries(context, DATADOG_ENV)?;
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    Ok(entries
        .into_iter()
        .map(|(name, value)| plain(name, text(&value)))
        .collect())
}

/// The service's OpenTelemetry resource attributes, if a tracing provider requires them.
fn otel(context: &Context<'_>) -> Option<EnvVar> {
    let wanted = ServiceAttributeEnrichment::OtelSemanticConventions;
    let providers = context
        .mesh
        .extension_providers
        .iter()
        .filter_map(|provider| provider.opentelemetry.as_ref());
    if !providers
        .into_iter()
        .any(|provider| provider.service_attribute_enrichment == wanted)
    {
        return None;
    }
    let annotations = pod::annotations(context.pod).into_iter().flatten();
    let annotations: BTreeMap<_, _> = annotations
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .collect();
    let image = |container| {
        Value::get(container, "image")
            .and_then(Value::as_str)
            .unwrap_or_default()
    };

    let containers: Vec<_> = context
        .containers()
        .iter()
        .map(|container| (pod::name(container), image(container)))
        .collect();
    let version = context.label("app.kubernetes.io/version");
    let attributes = image::otel_attributes(
        &annotations,
        version,
        &context.workload.namespace,
        &containers,
    );

    (!attributes.is_empty()).then(|| plain("OTEL_RESOURCE_ATTRIBUTES", attributes))
}
