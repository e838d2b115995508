//! Istio's chart of istiod, then this project's chart with the values of `navarch preflight`: the
//! control plane has the same settings.

use std::collections::BTreeMap;
use std::path::Path;

use navarch_testkit::helm::Helm;
use navarch_testkit::{istio, skip};
use serde_json::{Value, json};

use super::preflight;

/// What decides how a control plane works.
#[derive(Debug, PartialEq)]
struct ControlPlane {
    /// Its flags with their values.
    flags: BTreeMap<String, String>,
    /// Its variables with a fixed value.
    variables: BTreeMap<String, String>,
    replicas: Option<u64>,
    resources: Value,
    /// Mesh config and networks of its ConfigMap.
    mesh: BTreeMap<String, Value>,
}

impl ControlPlane {
    /// Reads rendered manifests.
    fn read(manifests: &str) -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
        let deployment = one(&objects, "Deployment", "istiod");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        Self {
            flags: flags(&container["args"]),
            variables: variables(&container["env"]),
            replicas: deployment["spec"]["replicas"].as_u64(),
            resources: container["resources"].clone(),
            mesh: mesh(one(&objects, "ConfigMap", "istio")),
        }
    }
}

/// The object of a kind with this name, or with a revision behind it.
fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_wanted = |object: &&Value| {
        let own = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_named = own == name || own == format!("{name}-canary");
        object["kind"] == kind && is_named
    };
    objects
        .iter()
        .find(is_wanted)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Flags by name: the value follows after `=`, or as an argument of its own.
fn flags(arguments: &Value) -> BTreeMap<String, String> {
    let arguments = arguments.as_array().unwrap().iter();
    let words: Vec<&str> = arguments
        .flat_map(|argument| argument.as_str().unwrap().splitn(2, '='))
        .collect();
    assert_eq!(words[0], "discovery");
    let pairs = words[1..].chunks(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
        .collect()
}

fn variables(env: &Value) -> BTreeMap<String, String> {
    let named = |one: &Value| {
        let value = one["value"].as_str()?;
        Some((one["name"].as_str()?.to_owned(), value.to_owned()))
    };
    env.as_array().unwrap().iter().filter_map(named).collect()
}

fn mesh(map: &Value) -> BTreeMap<String, Value> {
    let data = map["data"].as_object().unwrap().iter();
    let parsed = |text: &Value| serde_saphyr::from_str(text.as_str().unwrap()).unwrap();
    data.map(|(key, text)| (key.clone(), parsed(text)))
        .collect()
}

/// The values of preflight for rendered manifests, of this revision.
fn values(manifests: &str, revision: &str) -> Value {
    let dump = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(dump.path(), manifests).unwrap();
    let from = dump.path().to_str().unwrap();
    let (_, yaml, error) = preflight(&["--from", from, "-r", revision, "--values", "-"]);
    serde_saphyr::from_str(&yaml).unwrap_or_else(|parse| panic!("{parse}: {yaml}{error}"))
}

#[test]
fn the_values_of_preflight_keep_the_settings_of_istios_chart() {
    let Some(of_istio) = istio::chart("istio-control/istio-discovery") else {
        skip::skip("Istio's charts are missing: run `make tools` (scripts/istio-chart)");
        return;
    };
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let helm = Helm::find().unwrap();
    let template = |chart: &Path, values: &Value| {
        helm.template(chart, "istiod", "istio-system", values)
            .unwrap()
    };

    let many = json!({
        "revision": "canary",
        "pilot": {
            "replicaCount": 3, "autoscaleEnabled": false, "traceSampling": 5,
            "env": {"PILOT_ENABLE_ALPHA_GATEWAY_API": "true", "ENABLE_NATIVE_SIDECARS": "true"},
            "resources": {"requests": {"cpu": "1500m", "memory": "4Gi"}},
        },
        "meshConfig": {
            "accessLogFile": "/dev/stdout", "trustDomain": "bank.example",
            "defaultConfig": {"holdApplicationUntilProxyStarts": true},
        },
        "global": {
            "meshID": "m1", "network": "n1", "multiCluster": {"clusterName": "c1"},
            "logging": {"level": "default:warn"},
            "meshNetworks": {"n2": {
                "endpoints": [{"fromRegistry": "c2"}],
                "gateways": [{"address": "192.0.2.7", "port": 15443}],
            }},
        },
    });
    for (settings, revision) in [
        (json!({}), "default"),
        (json!({"profile": "ambient"}), "default"),
        (many, "canary"),
    ] {
        let before = template(&of_istio, &settings);
        let after = template(&own, &values(&before, revision));
        let expected = ControlPlane::read(&before);
        assert!(!expected.variables.is_empty() && !expected.mesh.is_empty());
        assert_eq!(ControlPlane::read(&after), expected, "{settings}");
    }
}
