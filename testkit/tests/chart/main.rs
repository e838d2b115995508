//! The charts, value by value: the effect of each on the rendered manifests. The tables are in
//! tests/chart.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use navarch_testkit::helm::Helm;
use serde_json::{Map, Value, json};

mod istio;
mod rights;

/// The root of the checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A line of a table.
#[derive(Debug)]
struct Row {
    /// The path of the value, such as `global.hub`.
    path: String,
    setting: Value,
    /// Further settings, in both renderings.
    others: Vec<(String, Value)>,
    /// The differences in the rendered manifests.
    effect: BTreeSet<String>,
}

impl Row {
    /// Reads `PATH = SETTING [with OTHERS] -> EFFECT`.
    fn parse(line: &str) -> Self {
        let (values, effect) = line.rsplit_once(" -> ").unwrap();
        let (path, values) = values.split_once(" = ").unwrap();
        let (setting, others) = values.split_once(" with ").unwrap_or((values, "{}"));
        let json = |text: &str| {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        let Value::Object(others) = json(others) else {
            panic!("{line}: other settings are a map")
        };

        let effect = effect
            .split(", ")
            .filter(|word| *word != "nothing")
            .map(str::to_owned)
            .collect();

        Self {
            path: path.to_owned(),
            setting: json(setting),
            others: others.into_iter().collect(),
            effect,
        }
    }
}

/// The rows of a table.
fn rows(name: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("tests/chart").join(name)).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(Row::parse)
        .collect()
}

/// A chart of this project.
fn chart(name: &str) -> PathBuf {
    Path::new(ROOT).join("deploy/charts").join(name)
}

/// Settings by path, in Helm's nested form.
fn nested<'a>(settings: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Value {
    let mut all = json!({});
    for (path, setting) in settings {
        let member = path.split('.').fold(&mut all, |member, key| {
            if !member.is_object() {
                *member = json!({});
            }
            &mut member[key]
        });
        *member = setting.clone();
    }
    all
}

/// The objects of a text of YAML documents, by kind and name.
fn objects(text: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let name = |object: &Value| {
        format!(
            "{} {}",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        )
    };
    documents
        .into_iter()
        .filter(|object| !object.is_null())
        .map(|object| (name(&object), object))
        .collect()
}

/// A rendered chart.
struct Rendered {
    /// All objects except the one that repeats the values.
    objects: BTreeMap<String, Value>,
    /// The chart's warnings.
    warnings: BTreeSet<String>,
}

impl Rendered {
    /// Renders a chart.
    ///
    /// # Errors
    /// If the chart rejects the settings.
    fn of(helm: &Helm, chart: &Path, settings: &Value) -> anyhow::Result<Self> {
        let mut objects = objects(&helm.template(chart, "it", "istio-system", settings)?);
        let is_values = |name: &String| name.strip_prefix("ConfigMap values").is_some();
        let values: Vec<String> = objects
            .keys()
            .filter(|name| is_values(name))
            .cloned()
            .collect();
        let values = values.into_iter().filter_map(|name| objects.remove(&name));
        let warnings: Vec<String> = values
            .filter_map(|map| Some(map["data"]["warnings"].as_str()?.to_owned()))
            .collect();
        let warnings = warnings
            .iter()
            .flat_map(|text| text.lines())
            .map(str::to_owned)
            .collect();
        Ok(Self { objects, warnings })
    }

    /// The differences from another rendering, in the form of the tables.
    fn differs(&self, other: &Self) -> BTreeSet<String> {
        let names: BTreeSet<&String> = self.objects.keys().chain(other.objects.keys()).collect();
        let changed: Vec<_> = names
            .iter()
            .filter(|name| self.objects.get(**name) != other.objects.get(**name))
            .collect();
        if changed.len() == names.len() {
            return BTreeSet::from(["everything".to_owned()]);
        }
        let word = |name: &&&String| match name.as_str() {
            "ConfigMap istio" => "mesh".to_owned(),
            "ConfigMap istio-sidecar-injector" => "injector".to_owned(),
            name => name.split(' ').next().unwrap_or_default().to_owned(),
        };
        changed.iter().map(word).collect()
    }
}

/// The charts rendered with further settings only; most rows have none.
type Usual = Mutex<BTreeMap<String, Arc<Rendered>>>;

/// Sets one row's value. Returns an error message if the effect differs.
fn try_row(helm: &Helm, chart: &Path, usual: &Usual, row: &Row) -> Option<String> {
    let others = || row.others.iter().map(|(path, value)| (path, value));
    let key = nested(others());
    let known = usual.lock().unwrap().get(&key.to_string()).cloned();
    let without = known.unwrap_or_else(|| {
        let rendered = Arc::new(Rendered::of(helm, chart, &key).unwrap());
        usual
            .lock()
            .unwrap()
            .insert(key.to_string(), rendered.clone());
        rendered
    });

    let is_named_in = |text: &str| {
        let parts: Vec<&str> = row.path.split('.').collect();
        // A row for a section covers its members; keys of a schema contain slashes.
        (1..=parts.len())
            .rev()
            .any(|count| text.contains(&parts[..count].join(".")))
            || text.contains(parts[parts.len() - 1])
    };

    let found = match Rendered::of(
        helm,
        chart,
        &nested(others().chain([(&row.path, &row.setting)])),
    ) {
        Err(error) => {
            let error = error.to_string();
            if !is_named_in(&error) {
                return Some(format!("{}: rejected without its name: {error}", row.path));
            }
            BTreeSet::from(["rejected".to_owned()])
        }
        Ok(with) => {
            let mut found = with.differs(&without);
            let warnings: Vec<&String> = with.warnings.difference(&without.warnings).collect();
            if !warnings.is_empty() {
                if !warnings.iter().any(|text| is_named_in(text)) {
                    return Some(format!(
                        "{}: warned of without its name: {warnings:?}",
                        row.path
                    ));
                }
                found.insert("warned".to_owned());
            }

            found
        }
    };

    (found != row.effect).then(|| {
        format!(
            "{} = {}: {found:?} instead of {:?}",
            row.path, row.setting, row.effect
        )
    })
}

/// Runs all rows of a table, on all cores.
fn try_all(name: &str, rows: &[Row]) {
    let helm = Helm::find().unwrap();
    let chart = chart(name);
    let usual = Usual::default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let share = |rows: &[Row]| {
            rows.iter()
                .filter_map(|row| try_row(&helm, &chart, &usual, row))
                .collect::<Vec<_>>()
        };
        let chunks = rows.chunks(rows.len().div_ceil(cores));
        let threads: Vec<_> = chunks
            .map(|rows| scope.spawn(move || share(rows)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The paths of all settings of a chart except sections.
fn leaves(prefix: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                let path = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                leaves(&path, member, found);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            found.insert(prefix.to_owned());
        }
    }
}

/// Checks that a table has every value of a chart's file, found at a pointer.
fn is_complete(name: &str, pointer: &str, rows: &[Row]) {
    let text = std::fs::read_to_string(chart(name).join("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let mut all = BTreeSet::new();
    leaves("", values.pointer(pointer).unwrap(), &mut all);
    let is_tried = |leaf: &&String| {
        rows.iter()
            .any(|row| row.path == **leaf || leaf.starts_with(&format!("{}.", row.path)))
    };
    let missing: Vec<_> = all.iter().filter(|leaf| !is_tried(leaf)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "{name}: not in the table");
}

#[test]
fn every_chart_value_of_the_control_plane_is_tested_or_listed() {
    let rows = rows("navarch.txt");
    is_complete("navarch", "/_defaults", &rows);
    // Only values with a warning have no effect.
    assert!(rows.iter().all(|row| !row.effect.is_empty()));
    try_all("navarch", &rows);
}

#[test]
fn every_chart_value_of_gateways_is_tested_or_listed() {
    let rows = rows("gateway.txt");
    is_complete("gateway", "", &rows);
    try_all("gateway", &rows);
}

#[test]
fn every_chart_value_of_the_base_chart_is_tested_or_listed() {
    let rows = rows("base.txt");
    is_complete("base", "", &rows);
    try_all("base", &rows);
}

#[test]
fn set_values_override_the_profile_and_the_profile_defaults() {
    let helm = Helm::find().unwrap();
    let settings =
        json!({"profile": "demo", "traceSampling": 3, "pilot": {"autoscaleEnabled": true}});
    let rendered = Rendered::of(&helm, &chart("navarch"), &settings).unwrap();
    let container =
        &rendered.objects["Deployment istiod"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["resources"]["requests"]["memory"], "40Mi",
        "the profile's"
    );

    let sampling = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .find(|variable| variable["name"] == "PILOT_TRACE_SAMPLING");
    assert_eq!(sampling.unwrap()["value"], "3", "the value that is set");
    assert!(
        rendered
            .objects
            .contains_key("HorizontalPodAutoscaler istiod"),
        "the value that is set under `pilot`"
    );

    assert_eq!(
        rendered.objects["HorizontalPodAutoscaler istiod"]["spec"]["maxReplicas"], 5,
        "the default"
    );
}

#[test]
fn the_ambient_profile_is_a_control_plane_for_ztunnel_and_its_proxies_take_tunnels() {
    let helm = Helm::find().unwrap();
    let variables = |settings: Value| -> BTreeMap<String, Value> {
        let rendered = Rendered::of(&helm, &chart("navarch"), &settings).unwrap();
        let mesh = rendered.objects["ConfigMap istio"]["data"]["mesh"]
            .as_str()
            .unwrap();
        assert_eq!(
            mesh.contains("ISTIO_META_ENABLE_HBONE"),
            settings.get("profile").is_some(),
            "{mesh}"
        );

        let container =
            &rendered.objects["Deployment istiod"]["spec"]["template"]["spec"]["containers"][0];
        let all = container["env"].as_array().unwrap().iter();
        all.map(|one| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["value"].clone(),
            )
        })
        .collect()
    };

    let ambient =
        variables(json!({"profile": "ambient", "trustedZtunnelNamespace": "kube-system"}));
    assert_eq!(ambient["PILOT_ENABLE_AMBIENT"], "true");
    assert_eq!(ambient["CA_TRUSTED_NODE_ACCOUNTS"], "kube-system/ztunnel");
    let off = json!({"profile": "ambient", "env": {"PILOT_ENABLE_AMBIENT": "false", "AMBIENT_ENABLE_STATUS": "false"}});
    let off = variables(off);
    assert_eq!(
        (&off["PILOT_ENABLE_AMBIENT"], &off["AMBIENT_ENABLE_STATUS"]),
        (&json!("false"), &json!("false"))
    );

    assert!(
        !variables(json!({})).contains_key("PILOT_ENABLE_AMBIENT"),
        "only if it is requested"
    );
}

#[test]
fn two_revisions_share_only_cluster_wide_objects() {
    let helm = Helm::find().unwrap();
    let names = |settings: Value| -> BTreeSet<String> {
        let rendered = Rendered::of(&helm, &chart("navarch"), &settings).unwrap();
        rendered.objects.into_keys().collect()
    };
    let default = names(json!({}));
    let canary = names(json!({"revision": "canary"}));
    let shared: Vec<&String> = default.intersection(&canary).collect();
    // The chart looks up this object's owner during installation; see `navarch.isOfAnother`.
    assert_eq!(shared, ["ServiceAccount istio-reader-service-account"]);
    assert!(default.contains("ValidatingWebhookConfiguration istiod-default-validator"));
    assert!(
        canary
            .iter()
            .all(|name| name.contains("canary") || shared.contains(&name)),
        "{canary:?}"
    );
}

#[test]
fn a_control_plane_selects_its_own_pods_alone() {
    let helm = Helm::find().unwrap();
    let rendered = |settings: Value| {
        Rendered::of(&helm, &chart("navarch"), &settings)
            .unwrap()
            .objects
    };
    let labels = |value: &Value| -> Map<String, Value> { value.as_object().unwrap().clone() };
    let all = [
        ("istiod", rendered(json!({}))),
        (
            "istiod-canary",
            rendered(json!({"revision": "canary", "revisionTags": ["t"]})),
        ),
    ];

    for (name, objects) in &all {
        let deployment = &objects[&format!("Deployment {name}")]["spec"];
        let selectors = [
            &deployment["selector"]["matchLabels"],
            &objects[&format!("Service {name}")]["spec"]["selector"],
            &objects[&format!("PodDisruptionBudget {name}")]["spec"]["selector"]["matchLabels"],
        ];

        for selector in selectors.map(labels) {
            for (other, objects) in &all {
                let pod = &objects[&format!("Deployment {other}")]["spec"]["template"]["metadata"]
                    ["labels"];
                let selects = selector.iter().all(|(key, value)| pod[key] == *value);
                assert_eq!(
                    selects,
                    name == other,
                    "{name} selects {other}: {selector:?}"
                );
            }
        }
    }

    let tag = &all[1].1["Service istiod-revision-tag-t"]["spec"]["selector"];
    assert_eq!(*tag, all[1].1["Service istiod-canary"]["spec"]["selector"]);
}

#[test]
fn proxies_of_istios_hub_are_istios_and_the_control_plane_is_ours() {
    let helm = Helm::find().unwrap();
    let settings = json!({"image": "pilot", "global": {"hub": "docker.io/istio", "tag": "1.30.0", "variant": "distroless"}});
    let rendered = Rendered::of(&helm, &chart("navarch"), &settings).unwrap();
    let image = &rendered.objects["Deployment istiod"]["spec"]["template"]["spec"]["containers"][0]
        ["image"];
    let own = concat!("ghcr.io/navarch/navarch:", env!("CARGO_PKG_VERSION"));
    assert_eq!(*image, own);
    let injector = rendered.objects["ConfigMap istio-sidecar-injector"]["data"]["values"]
        .as_str()
        .unwrap();
    let injector: Value = serde_json::from_str(injector).unwrap();
    assert_eq!(injector["global"]["proxy"]["image"], "proxyv2");

    assert!(
        rendered.objects["ConfigMap istio"]["data"]["mesh"]
            .as_str()
            .unwrap()
            .contains("imageType: distroless")
    );

    let warned = format!(
        "global.hub is Istio's: proxies run docker.io/istio/proxyv2:1.30.0, the control plane {own}"
    );
    assert!(
        rendered.warnings.contains(&warned),
        "{:?}",
        rendered.warnings
    );
}

#[test]
fn a_control_plane_outside_of_the_mesh_has_a_side_in_its_own_cluster_and_one_in_the_meshs() {
    let helm = Helm::find().unwrap();
    let outside = json!({
        "defaultRevision": "",
        "env": {"LOCAL_CLUSTER_SECRET_WATCHER": "true", "CLUSTER_ID": "mesh", "INJECTION_WEBHOOK_CONFIG_NAME": ""},
        "global": {"externalIstiod": true, "configValidation": false, "operatorManageWebhooks": true},
    });
    let outside = Rendered::of(&helm, &chart("navarch"), &outside).unwrap();
    assert_eq!(outside.warnings, BTreeSet::new());

    let of_kind = |rendered: &Rendered, kind: &str| -> Vec<Value> {
        let is_one = |(name, object): (&String, &Value)| {
            (name.split(' ').next() == Some(kind)).then(|| object.clone())
        };
        rendered.objects.iter().filter_map(is_one).collect()
    };

    let webhooks = [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    assert!(
        webhooks
            .iter()
            .all(|kind| of_kind(&outside, kind).is_empty()),
        "no pod of its own cluster is injected"
    );

    let pod = &outside.objects["Deployment istiod"]["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| {
        env.iter()
            .find(|variable| variable["name"] == name)
            .unwrap()["value"]
            .clone()
    };

    assert_eq!(
        (value("EXTERNAL_ISTIOD"), value("CLUSTER_ID")),
        (json!("true"), json!("mesh"))
    );
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let kubeconfig = mounts
        .iter()
        .find(|mount| mount["name"] == "istio-kubeconfig")
        .unwrap();

    assert_eq!(
        value("KUBECONFIG"),
        format!("{}/config", kubeconfig["mountPath"].as_str().unwrap())
    );

    let inject = "https://istiod.example.com:15017/inject/cluster/mesh/net/n";
    let validate = "https://istiod.example.com:15017/validate";
    let inside = json!({
        "profile": "remote",
        "global": {"configCluster": true},
        "istiodRemote": {"injectionURL": inject},
        "base": {"validationURL": validate},
    });

    let inside = Rendered::of(&helm, &chart("navarch"), &inside).unwrap();
    assert_eq!(inside.warnings, BTreeSet::new());
    assert!(
        ["Deployment", "HorizontalPodAutoscaler", "Service"]
            .iter()
            .all(|kind| of_kind(&inside, kind).is_empty())
    );

    for (kind, url) in webhooks.into_iter().zip([inject, validate]) {
        let hooks = of_kind(&inside, kind)
            .into_iter()
            .flat_map(|object| object["webhooks"].as_array().unwrap().clone());
        let configs: BTreeSet<String> =
            hooks.map(|hook| hook["clientConfig"].to_string()).collect();
        assert_eq!(
            configs,
            BTreeSet::from([json!({"url": url}).to_string()]),
            "{kind}"
        );
    }

    // The control plane's service account, with the rights to configure the mesh and to hold
    // leases.
    assert!(inside.objects.contains_key("ServiceAccount istiod"));
    let writes = |role: &str, resource: &str| {
        let rules = inside.objects[role]["rules"].as_array().unwrap().iter();
        let has =
            |value: &Value, word: &str| value.as_array().unwrap().iter().any(|one| one == word);
        rules
            .clone()
            .any(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], "update"))
    };

    for role in [
        "ClusterRole istiod-clusterrole-istio-system",
        "ClusterRole istio-reader-clusterrole-istio-system",
    ] {
        assert!(
            ["configmaps", "mutatingwebhookconfigurations"]
                .iter()
                .all(|one| writes(role, one)),
            "{role}"
        );
    }
}

#[test]
fn helm_finds_nothing_wrong() {
    let helm = Helm::find().unwrap();
    for name in ["base", "gateway", "navarch"] {
        helm.lint(&chart(name)).unwrap();
    }
}
