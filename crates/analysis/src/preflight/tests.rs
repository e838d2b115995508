//! A whole installation: the report about it, and the values that keep it.

use serde_json::{Value, json};

use super::*;

/// An installation with something of everything.
const INSTALLATION: &str = include_str!("installation.yaml");

fn objects(text: &str) -> Objects {
    let mut objects = Objects::default();
    for document in navarch_api::yaml::documents(text) {
        let schema = navarch_api::yaml::Schema::V1_1;
        objects.add(navarch_api::yaml::parse(document.text, schema).unwrap());
    }
    objects
}

fn find(objects: &Objects) -> Installation<'_> {
    Installation::find(objects, "istio-system", None).unwrap()
}

/// The report about the objects of a text, without the rows of flags and variables.
fn preflight(text: &str) -> Preflight {
    let objects = objects(text);
    let installation = find(&objects);
    installation.preflight(&HelmValues::of(installation), Vec::new(), &BTreeSet::new())
}

/// The values for the objects of a text.
fn values(text: &str) -> Value {
    let objects = objects(text);
    let yaml = HelmValues::of(find(&objects)).yaml();
    navarch_api::yaml::parse(&yaml, navarch_api::yaml::Schema::V1_2).unwrap()
}

#[track_caller]
fn assert_row(preflight: &Preflight, outcome: Outcome, object: &str, part: &str) {
    let is_there = preflight.of(outcome).any(|row| {
        let text = format!("{}: {}", row.field, row.reason);
        row.object.contains(object) && text.contains(part)
    });
    assert!(is_there, "{outcome:?} {object} {part}:\n{preflight}");
}

#[test]
fn what_must_be_done_first_is_named_with_the_next_step() {
    let preflight = preflight(INSTALLATION);
    for (object, part) in [
        ("pods with istio-proxy", "proxyv2:1.18.0"),
        ("VirtualService shop/broken", "has no routes"),
        ("virtualservices.networking.istio.io", "does not serve v1"),
        ("Helm values", "env.VAULT_TOKEN"),
        (
            "Helm values",
            "meshConfig.defaultConfig.tracing.lightstep.accessToken",
        ),
    ] {
        assert_row(&preflight, Outcome::DoFirst, object, part);
    }

    assert!(preflight.is_blocked());
    assert!(
        preflight
            .of(Outcome::DoFirst)
            .all(|row| !row.action.is_empty())
    );
    let text = preflight.to_string();
    assert!(
        text.starts_with("Deployment istio-system/istiod-canary\nDo first ("),
        "{text}"
    );
}

#[test]
fn what_has_no_effect_is_named_with_its_reason() {
    let preflight = preflight(INSTALLATION);
    for (object, part) in [
        ("ConfigMap istio-system/istio-canary", "mesh: colour"),
        (
            "ConfigMap istio-system/istio-canary",
            "mesh: verifyCertificateAtClient",
        ),
        (
            "ConfigMap istio-system/istio-sidecar-injector-canary",
            "global.oneNamespace",
        ),
        (
            "IstioOperator istio-system/installed",
            "install.istio.io/v1alpha1",
        ),
    ] {
        assert_row(&preflight, Outcome::NoEffect, object, part);
    }
}

#[test]
fn what_stays_the_same_is_named() {
    let preflight = preflight(INSTALLATION);
    for (object, part) in [
        ("Deployment istio-system/istiod-canary", "Istio 1.30"),
        (
            "Deployment istio-system/istiod-canary",
            "release istiod-canary",
        ),
        (
            "Secret istio-system/cacerts",
            "ca-cert.pem, ca-key.pem: the plugged-in CA",
        ),
        ("Secret istio-system/istio-remote-secret-west", "west"),
        ("istio-revision-tag-prod", "the tag prod"),
        ("pods with istio-proxy", "proxyv2:1.30.2"),
        ("DaemonSet istio-system/ztunnel", "served by Navarch"),
        ("Gateways of class istio", "controller's name"),
        ("EnvoyFilter shop/peers", "istio.metadata_exchange"),
        ("objects", "1 VirtualService"),
    ] {
        assert_row(&preflight, Outcome::Same, object, part);
    }
}

#[test]
fn no_credential_is_shown() {
    let shown = [
        preflight(INSTALLATION).to_string(),
        serde_json::to_string(&preflight(INSTALLATION)).unwrap(),
        values(INSTALLATION).to_string(),
        format!(
            "{:?}",
            objects(INSTALLATION)
                .of(objects::SECRET)
                .collect::<Vec<_>>()
        ),
    ];
    for text in shown {
        assert!(
            !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
            "{text}"
        );
    }
}

#[test]
fn the_values_keep_what_runs() {
    let values = values(INSTALLATION);
    for (pointer, expected) in [
        ("/revision", json!("canary")),
        ("/compatibilityVersion", json!("1.30")),
        ("/autoscaleEnabled", json!(false)),
        ("/replicaCount", json!(3)),
        ("/resources/requests/memory", json!("2Gi")),
        ("/nodeSelector", json!({"pool": "control"})),
        (
            "/tolerations",
            json!([{"key": "dedicated", "operator": "Exists"}]),
        ),
        ("/env/PILOT_ENABLE_AMBIENT", json!("true")),
        ("/envVarFrom/0/name", json!("EXTRA")),
        (
            "/extraContainerArgs",
            json!(["--clusterAliases=east=Kubernetes"]),
        ),
        ("/global/logging/level", json!("default:warn")),
        ("/keepaliveMaxServerConnectionAge", json!("10m")),
        ("/meshConfig/accessLogFile", json!("/dev/stdout")),
        ("/cni", json!({"enabled": true})),
        ("/global/meshID", json!("mesh")),
        (
            "/sidecarInjectorWebhook/defaultTemplates",
            json!(["sidecar", "ours"]),
        ),
        ("/hub", json!("ghcr.io/navarch")),
        ("/global/hub", json!("mirror.example.com/istio")),
        ("/global/proxy/image", json!("proxyv2")),
    ] {
        assert_eq!(
            values.pointer(pointer),
            Some(&expected),
            "{pointer}: {values:#}"
        );
    }

    let templates = values.pointer("/sidecarInjectorWebhook/templates").unwrap();
    assert!(templates.get("ours").is_some() && templates.get("sidecar").is_none());
    for absent in [
        "/env/REVISION",
        "/env/VAULT_TOKEN",
        "/envVarFrom/1",
        "/global/oneNamespace",
        "/meshConfig/trustDomain",
        "/meshConfig/defaultConfig/discoveryAddress",
        "/global/meshNetworks",
    ] {
        assert_eq!(values.pointer(absent), None, "{absent}: {values:#}");
    }
}

#[test]
fn the_values_that_users_have_set_are_kept_where_istios_chart_recorded_them() {
    let recorded = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: values-canary, namespace: istio-system}
data:
  original-values: |-
    {"revision": "canary", "profile": "ambient", "compatibilityVersion": "1.28",
     "pilot": {"image": "pilot", "podLabels": {"team": "mesh"}},
     "global": {"proxy": {"logLevel": "warning"}}}
"#;
    let values = values(&format!("{INSTALLATION}---{recorded}"));

    for (pointer, expected) in [
        ("/profile", json!("ambient")),
        ("/compatibilityVersion", json!("1.28")),
        ("/podLabels/team", json!("mesh")),
        ("/global/proxy/logLevel", json!("warning")),
    ] {
        assert_eq!(
            values.pointer(pointer),
            Some(&expected),
            "{pointer}: {values:#}"
        );
    }

    assert_eq!(
        values.get("image"),
        None,
        "the image of pilot is not Navarch's"
    );
    assert_eq!(values.get("pilot"), None);
}

#[test]
fn an_autoscaler_decides_on_the_replicas() {
    let autoscaler = r"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: istiod-canary, namespace: istio-system}
spec:
  scaleTargetRef: {kind: Deployment, name: istiod-canary}
  minReplicas: 4
  maxReplicas: 9
";
    let values = values(&format!("{INSTALLATION}---{autoscaler}"));
    assert_eq!(values["autoscaleEnabled"], json!(true));
    assert_eq!(values["autoscaleMin"], json!(4));
    assert_eq!(values["autoscaleMax"], json!(9));
}

#[test]
fn without_a_ca_or_a_release_of_helm_something_must_be_done_first() {
    let bare = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod}}
spec:
  template:
    spec:
      containers: [{name: discovery, image: 'istio/pilot:1.19.0'}]
";
    let preflight = preflight(bare);
    let istiod = "Deployment istio-system/istiod";
    for part in [
        "older than 1.25",
        "no release of Helm",
        "neither cacerts nor istio-ca-secret",
    ] {
        assert_row(&preflight, Outcome::DoFirst, istiod, part);
    }

    let objects = objects(bare);
    let installation = find(&objects);
    let missing = BTreeSet::from([Kind::Secret]);
    let preflight = installation.preflight(&HelmValues::default(), Vec::new(), &missing);
    let is_about_ca = |row: &Row| row.field == "CA";
    assert!(
        !preflight.rows.iter().any(is_about_ca),
        "nothing is said of what was not read"
    );
}

#[test]
fn the_release_is_that_of_the_image_the_proxies_or_the_chart() {
    let digest = "istio/pilot@sha256:abc";
    for (image, proxies, chart, release) in [
        ("istio/pilot:1.30.2", "1.29.0", "1.28.0", Some("Istio 1.30")),
        (digest, "1.29.0-distroless", "1.28.0", Some("Istio 1.29")),
        ("istio/pilot:ours", "ours", "1.28.0", Some("Istio 1.28")),
        // A chart of Istio's repository, which is of no release.
        (digest, "latest", "1.0.0", None),
        (digest, "", "", None),
    ] {
        let preflight = preflight(&format!(
            r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: istiod
  namespace: istio-system
  labels: {{app: istiod, app.kubernetes.io/version: "{chart}"}}
spec:
  template:
    spec:
      containers: [{{name: discovery, image: "{image}"}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: istio-sidecar-injector, namespace: istio-system}}
data:
  values: '{{"global": {{"tag": "{proxies}"}}}}'
"#
        ));

        let of_image: Vec<&Row> = preflight
            .rows
            .iter()
            .filter(|row| row.field == "image")
            .collect();
        let [row] = of_image.as_slice() else {
            panic!("{image}: {of_image:?}");
        };
        let expected = release.unwrap_or("no release of Istio can be told");
        assert!(row.reason.starts_with(expected), "{image}: {}", row.reason);
    }
}

#[test]
fn one_of_several_control_planes_must_be_named() {
    let other = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod, istio.io/rev: default}}
";
    let objects = objects(&format!("{INSTALLATION}---{other}"));
    let find = |revision| Installation::find(&objects, "istio-system", revision);
    assert!(find(None).unwrap_err().contains("canary, default"));
    assert!(find(Some("next")).unwrap_err().contains("canary, default"));
    assert_eq!(
        find(Some("default")).unwrap().title(),
        "Deployment istio-system/istiod"
    );
    assert!(
        Installation::find(&objects, "mesh", None)
            .unwrap_err()
            .contains("--istioNamespace")
    );
}
