//! What the running objects say, as values.

use navarch_api::yaml::{self, Schema};
use serde_json::{Map, Value, json};

use super::super::mesh_settings::{CONFIG, NETWORKS};
use super::super::objects::{AUTOSCALER, items, name, namespace, text};
use super::super::{Installation, process::Process};
use super::{INJECTOR, at, mesh_entry, set};

/// Variables that the chart sets by itself, from the revision and a path in the image.
const SET_BY_CHART: [&str; 2] = ["REVISION", "KUBECONFIG"];
/// Variables with values of the pod that the chart sets by itself, or that only Go reads.
const OF_POD: [&str; 5] = [
    "POD_NAME",
    "POD_NAMESPACE",
    "SERVICE_ACCOUNT",
    "GOMEMLIMIT",
    "GOMAXPROCS",
];
/// The taint that pods of every control plane tolerate.
const CNI_TAINT: &str = "cni.istio.io/not-ready";
/// The templates that Istio's chart puts into the ConfigMap of the injector, and Navarch has.
const TEMPLATES: [&str; 8] = [
    "sidecar",
    "gateway",
    "grpc-simple",
    "grpc-agent",
    "kube-gateway",
    "waypoint",
    "agentgateway",
    "agentgateway-waypoint",
];

/// Sets everything that is observed.
pub(super) fn set_all(values: &mut Value, installation: Installation<'_>) {
    set_replicas(values, installation);
    set_pod(values, installation);
    let process = installation.process();
    set_environment(values, &process);
    set_flags(values, &process.flags);
    set_mesh(values, installation);
    set_injection(values, installation);
}

/// Number of replicas: the autoscaler's, or that of the Deployment.
fn set_replicas(values: &mut Value, installation: Installation<'_>) {
    let mut autoscalers = installation.objects.of(AUTOSCALER);
    let autoscaler = autoscalers.find(|autoscaler| {
        namespace(autoscaler) == installation.namespace()
            && text(autoscaler, "/spec/scaleTargetRef/name") == name(installation.deployment())
    });
    set(values, "autoscaleEnabled", autoscaler.is_some().into());

    let counts = match autoscaler {
        Some(autoscaler) => vec![
            ("autoscaleMin", autoscaler.pointer("/spec/minReplicas")),
            ("autoscaleMax", autoscaler.pointer("/spec/maxReplicas")),
        ],
        None => vec![(
            "replicaCount",
            installation.deployment().pointer("/spec/replicas"),
        )],
    };
    for (path, count) in counts {
        if let Some(count) = count {
            set(values, path, count.clone());
        }
    }
}

/// Resources of the container, and where the pod may run.
fn set_pod(values: &mut Value, installation: Installation<'_>) {
    if let Some(resources) = installation.container().get("resources")
        && *resources != json!({})
    {
        set(values, "resources", resources.clone());
    }

    let Some(pod) = installation.deployment().pointer("/spec/template/spec") else {
        return;
    };
    for (field, path) in [
        ("nodeSelector", "nodeSelector"),
        ("affinity", "affinity"),
        ("topologySpreadConstraints", "topologySpreadConstraints"),
        ("priorityClassName", "global.priorityClassName"),
    ] {
        if let Some(value) = pod.get(field) {
            set(values, path, value.clone());
        }
    }

    let tolerations: Vec<_> = items(pod, "/tolerations")
        .filter(|toleration| text(toleration, "/key") != CNI_TAINT)
        .cloned()
        .collect();
    if !tolerations.is_empty() {
        set(values, "tolerations", tolerations.into());
    }
}

/// Variables, and entries of variables whose values are elsewhere.
fn set_environment(values: &mut Value, process: &Process) {
    let written = process
        .variables
        .iter()
        .filter(|(name, _)| !SET_BY_CHART.contains(&name.as_str()));
    for (name, value) in written {
        let env = at(values, "env").and_then(Value::as_object);
        let mut env = env.cloned().unwrap_or_default();
        env.insert(name.clone(), value.as_str().into());
        set(values, "env", env.into());
    }

    let references: Vec<_> = process
        .references
        .iter()
        .filter(|entry| !OF_POD.contains(&text(entry, "/name")))
        .cloned()
        .collect();
    if !references.is_empty() {
        set(values, "envVarFrom", references.into());
    }
}

/// Flags: those that other values stand for, and all others.
fn set_flags(values: &mut Value, flags: &[String]) {
    let mut extra: Vec<Value> = Vec::new();
    let mut rest = flags.iter().peekable();

    while let Some(word) = rest.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (
                word.as_str(),
                rest.next_if(|next| !next.starts_with("--")).cloned(),
            ),
        };
        let path = match flag {
            "--monitoringAddr" => continue,
            "--log_as_json" => {
                set(
                    values,
                    "global.logAsJson",
                    (value.as_deref() != Some("false")).into(),
                );
                continue;
            }
            "--log_output_level" => "global.logging.level",
            "--domain" => "global.proxy.clusterDomain",
            "--cniNamespace" => "taint.namespace",
            "--keepaliveMaxServerConnectionAge" => "keepaliveMaxServerConnectionAge",
            _ => {
                extra.push(match value {
                    Some(value) => format!("{flag}={value}").into(),
                    None => flag.into(),
                });
                continue;
            }
        };

        if let Some(value) = value {
            set(values, path, value.into());
        }
    }

    if !extra.is_empty() {
        set(values, "extraContainerArgs", extra.into());
    }
}

/// Mesh config without what the chart derives from other values, and the networks.
fn set_mesh(values: &mut Value, installation: Installation<'_>) {
    let parsed = |key| yaml::parse(mesh_entry(installation, key)?, Schema::V1_1).ok();
    if let Some(Value::Object(mut mesh)) = parsed(CONFIG) {
        let address = format!(
            "{}.{}.svc:15012",
            installation.istiod.named("istiod"),
            installation.namespace()
        );
        remove_if(&mut mesh, "rootNamespace", installation.namespace());
        remove_if(&mut mesh, "trustDomain", "cluster.local");

        if let Some(Value::Object(proxy)) = mesh.get_mut("defaultConfig") {
            remove_if(proxy, "discoveryAddress", &address);
            if proxy.is_empty() {
                mesh.remove("defaultConfig");
            }
        }
        set(values, "meshConfig", mesh.into());
    }

    let networks = parsed(NETWORKS).and_then(|mut text| text.get_mut("networks").map(Value::take));
    if let Some(Value::Object(networks)) = networks
        && !networks.is_empty()
    {
        set(values, "global.meshNetworks", networks.into());
    }
}

/// Removes a field with this value.
fn remove_if(fields: &mut Map<String, Value>, field: &str, value: &str) {
    if fields.get(field).and_then(Value::as_str) == Some(value) {
        fields.remove(field);
    }
}

/// How pods are injected, of which the templates of Istio's chart are Navarch's own.
fn set_injection(values: &mut Value, installation: Installation<'_>) {
    let Some(Value::Object(mut config)) = installation
        .entry(INJECTOR.map, "config")
        .and_then(|text| yaml::parse(text, Schema::V1_1).ok())
    else {
        return;
    };

    if let Some(Value::String(policy)) = config.get("policy") {
        set(values, "global.proxy.autoInject", policy.as_str().into());
    }
    if let Some(Value::Object(templates)) = config.get_mut("templates") {
        templates.retain(|name, _| !TEMPLATES.contains(&name.as_str()));
    }

    for field in [
        "defaultTemplates",
        "alwaysInjectSelector",
        "neverInjectSelector",
        "injectedAnnotations",
        "templates",
    ] {
        let value = config.get(field).cloned().unwrap_or_default();
        let is_default = [json!(null), json!([]), json!({}), json!(["sidecar"])].contains(&value);
        if !is_default {
            set(values, &format!("sidecarInjectorWebhook.{field}"), value);
        }
    }
}
