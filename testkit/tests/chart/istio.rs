//! Istio's own charts of ztunnel and istio-cni together with this project's chart: the objects to
//! which they refer exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use navarch_testkit::helm::Helm;
use navarch_testkit::{istio, skip};
use serde_json::{Value, json};

use super::{Rendered, chart, objects};

/// A chart of Istio; `None` if it has not been fetched.
fn chart_of_istio(name: &str) -> Option<PathBuf> {
    let found = istio::chart(name);
    if found.is_none() {
        skip::skip("Istio's charts are missing: run `make tools` (scripts/istio-chart)");
    }
    found
}

/// Renders an Istio chart with exactly one DaemonSet.
fn daemon(
    helm: &Helm,
    chart: &Path,
    namespace: &str,
    settings: &Value,
) -> (BTreeMap<String, Value>, Value) {
    let objects = objects(&helm.template(chart, "it", namespace, settings).unwrap());
    let mut daemons = objects
        .iter()
        .filter(|(name, _)| name.starts_with("DaemonSet "));
    let daemon = daemons.next().unwrap().1["spec"]["template"].clone();
    assert_eq!(daemons.next(), None);
    (objects, daemon)
}

#[test]
fn istios_chart_of_ztunnel_finds_this_control_plane() {
    let Some(chart_of_ztunnel) = chart_of_istio("ztunnel") else {
        return;
    };

    let helm = Helm::find().unwrap();

    for (revision, namespace) in [("", "istio-system"), ("canary", "kube-system")] {
        let settings = json!({"profile": "ambient", "revision": revision});
        let (objects, pod) = daemon(&helm, &chart_of_ztunnel, namespace, &settings);
        let settings = json!({"profile": "ambient", "revision": revision, "trustedZtunnelNamespace": namespace});
        let own = Rendered::of(&helm, &chart("navarch"), &settings)
            .unwrap()
            .objects;
        let env = |container: &Value, name: &str| -> String {
            let all = container["env"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).unwrap()["value"]
                .as_str()
                .unwrap()
                .to_owned()
        };

        // The address for configuration and certificates is one of our Services, with a name in our
        // certificate.
        let name = if revision.is_empty() {
            "istiod".to_owned()
        } else {
            format!("istiod-{revision}")
        };

        let ports = own[&format!("Service {name}")]["spec"]["ports"]
            .as_array()
            .unwrap();
        assert!(ports.iter().any(|port| port["port"] == 15012), "{ports:?}");
        let container = &pod["spec"]["containers"][0];

        for variable in ["XDS_ADDRESS", "CA_ADDRESS"] {
            assert_eq!(
                env(container, variable),
                format!("{name}.istio-system.svc:15012"),
                "{variable}"
            );
        }

        // Its service account is one that may request certificates for others.
        let control_plane =
            &own[&format!("Deployment {name}")]["spec"]["template"]["spec"]["containers"][0];
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
        assert_eq!(
            objects[&format!("ServiceAccount {account}")]["metadata"]["namespace"],
            namespace
        );

        assert_eq!(
            env(control_plane, "CA_TRUSTED_NODE_ACCOUNTS"),
            format!("{namespace}/{account}")
        );

        // The root comes from the ConfigMap that the leader writes into every namespace, and the
        // token's audience is istiod's CA.
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let volume = |name: &str| {
            volumes
                .iter()
                .find(|volume| volume["name"] == name)
                .unwrap()
        };

        assert_eq!(
            volume("istiod-ca-cert")["configMap"]["name"],
            "istio-ca-root-cert"
        );
        let token = &volume("istio-token")["projected"]["sources"][0]["serviceAccountToken"];
        assert_eq!(token["audience"], "istio-ca");
    }
}

#[test]
fn istios_cni_chart_is_independent_of_the_control_plane_which_recognizes_its_pods() {
    let Some(chart_of_cni) = chart_of_istio("istio-cni") else {
        return;
    };

    let helm = Helm::find().unwrap();
    let (objects, pod) = daemon(
        &helm,
        &chart_of_cni,
        "istio-system",
        &json!({"profile": "ambient"}),
    );

    assert!(
        objects
            .values()
            .all(|object| !object.to_string().contains("istiod")),
        "it does not connect to a control plane"
    );

    // With this label its pods are found when nodes lose their taint (`navarch_status`,
    // untaint.rs).
    assert_eq!(pod["metadata"]["labels"]["k8s-app"], "istio-cni-node");
}
