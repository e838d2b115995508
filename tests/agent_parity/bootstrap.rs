//! Envoy's arguments and bootstrap, and the bootstrap of proxyless gRPC.

use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch::agent::bootstrap::{BootstrapInput, bootstrap};
use navarch::agent::command::ProxyCommand;
use navarch::agent::envoy_arguments::envoy_arguments;
use navarch::agent::envoy_features::Features;
use navarch::agent::go_path;
use navarch::agent::grpc_bootstrap::grpc_bootstrap;
use navarch::agent::node::{self, Addresses, Interface, MetadataInput, NodeIdentity};
use navarch::agent::platform::Platform;
use navarch::agent::proxy_config::{ConfigSources, effective};
use navarch::agent::variables::Variables;
use serde_json::{Value, json};

use super::cases::{cases, text_map, texts};

/// How the agent's output for a case differs from the expected one.
pub(crate) fn differences(case: &Value) -> Vec<String> {
    let made = match make(case) {
        Ok(made) => made,
        Err(error) => return vec![format!("rejected: {error}")],
    };
    let mut found = Vec::new();
    for key in ["envoy_args", "bootstrap", "grpc_bootstrap"] {
        if let Some(expected) = case.get(key) {
            compare(key, expected, &made[key], &mut found);
        }
    }
    found
}

/// The bootstraps of all cases whose environment and annotations set neither fragments nor runtime
/// values.
pub(crate) fn made_by_default() -> BTreeMap<String, Value> {
    let says_so = |case: &Value| {
        case.to_string().contains("RAGMENT") || case["annotations"].to_string().contains("untime")
    };
    let cases = cases("bootstrap")
        .into_iter()
        .filter(|(_, case)| case.get("bootstrap").is_some() && !says_so(case));
    cases
        .map(|(name, case)| (name, make(&case).unwrap()["bootstrap"].clone()))
        .collect()
}

/// The agent's output for a case.
fn make(case: &Value) -> anyhow::Result<Value> {
    let variables: Variables = text_map(&case["env"]).into_iter().collect();
    let arguments = texts(&case["args"]);
    let mut command = ProxyCommand::read(
        arguments.strip_prefix(&["proxy".to_owned()]).unwrap(),
        &variables,
    )?;

    // The program of the recording had no version.
    command.settings.istio_version = "unknown".to_owned();
    let labels = text_map(&case["labels"]);
    let annotations = text_map(&case["annotations"]);
    let config = effective(&ConfigSources {
        environment: variables.text("PROXY_CONFIG"),
        annotations: Some(&annotations),
        service_cluster: &command.service_cluster,
        concurrency: command.concurrency,
        cpu_limit: variables.number("ISTIO_CPU_LIMIT", 0),
        ..ConfigSources::default()
    })?;

    let config = navarch::api::mesh::ProxyConfig {
        binary_path: recorded_program(case),
        ..config
    };
    let excluded: Vec<_> = annotations
        .get("traffic.sidecar.istio.io/excludeInterfaces")
        .map_or(Vec::new(), |names| names.split(',').collect());
    let identity = NodeIdentity {
        kind: command.kind.clone(),
        addresses: Addresses::find(
            variables.text("INSTANCE_IP").parse().ok(),
            &interfaces(),
            &excluded,
        ),
        pod: variables.text("POD_NAME").to_owned(),
        namespace: variables.text("POD_NAMESPACE").to_owned(),
        domain: command.domain.clone(),
    };

    let node = node::gather(&MetadataInput {
        identity: &identity,
        variables: &variables,
        settings: &command.settings,
        config: &config,
        labels: Some(&labels),
        annotations: Some(&annotations),
        platform: &Platform::of_variables(&variables).unwrap_or_default(),
        credential_socket: false,
        serves_only_files: false,
    })?;

    let input = BootstrapInput {
        node: &node,
        addresses: &identity.addresses,
        config: &config,
        settings: &command.settings.for_bootstrap(Features::ISTIO),
    };

    let path = go_path::join(&config.config_path, "envoy-rev.json");
    let over = None;
    let socket = go_path::join(&config.config_path, "XDS");
    Ok(json!({
        "envoy_args": envoy_arguments(&config, &command.settings, &identity.addresses, &path, over),
        "bootstrap": bootstrap(&input)?,
        "grpc_bootstrap": grpc_bootstrap(&node, &socket, &command.settings.output_certs),
    }))
}

/// The program that replaced Envoy during the recording; its path is not part of the case.
fn recorded_program(case: &Value) -> String {
    let path = case.pointer("/bootstrap/node/metadata/PROXY_CONFIG/binaryPath");
    path.and_then(Value::as_str).unwrap_or("envoy").to_owned()
}

/// The network interfaces of the machine on which the cases were recorded.
fn interfaces() -> Vec<Interface> {
    let addresses = ["192.0.2.2", "fd00::2"].map(|address| address.parse::<IpAddr>().unwrap());
    vec![Interface {
        name: "eth0".to_owned(),
        up: true,
        loopback: false,
        addresses: addresses.to_vec(),
    }]
}

/// Collects the differences of two values.
fn compare(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let keys: BTreeMap<_, _> = expected
                .keys()
                .chain(actual.keys())
                .map(|key| (key, ()))
                .collect();

            for key in keys.into_keys() {
                let path = format!("{path}/{key}");
                match (expected.get(key), actual.get(key)) {
                    (Some(expected), Some(actual)) => compare(&path, expected, actual, found),
                    (expected, actual) => {
                        found.push(format!("{path}: expected {expected:?}, is {actual:?}"))
                    }
                }
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (place, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                compare(&format!("{path}/{place}"), expected, actual, found);
            }
        }
        (Value::Number(expected), Value::Number(actual))
            if expected.as_f64() == actual.as_f64() => {}
        _ if expected == actual => {}
        _ => found.push(format!("{path}: expected {expected}, is {actual}")),
    }
}
