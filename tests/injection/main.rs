//! Invariants of injection for any pod: the user's containers change only as documented, injecting
//! twice equals injecting once, and the result is deterministic.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::cell::Cell;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use navarch::webhook::inject::{
    InjectRequest, Injection, Injector, InjectorInputs, Note, inject_object,
};
use navarch_tests::injection::{default, installations, pods};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use serde_json::{Value, json};

/// An injector with the default configuration and other values.
fn injector(values: &Value) -> Injector {
    Injector::new(&default::inputs(&json!({ "values": values }))).unwrap()
}

fn inject(injector: &Injector, pod: &Value) -> Option<Injection> {
    let request = InjectRequest {
        pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };
    injector.inject(&request).ok()
}

/// Fields of a user's container that injection may change: probes and hooks go through the agent,
/// and the gRPC templates add environment and mounts.
const CHANGED: [&str; 6] = [
    "readinessProbe",
    "livenessProbe",
    "startupProbe",
    "lifecycle",
    "env",
    "volumeMounts",
];

/// Checks that a user's container changed only as documented.
fn check_container(before: &Value, after: &Value) {
    let kept = |container: &Value| -> BTreeMap<String, Value> {
        let fields = container.as_object().unwrap().iter();
        let fields =
            fields.filter(|(name, _)| !CHANGED.contains(&name.as_str()) && *name != "resources");
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };

    assert_eq!(kept(before), kept(after));

    for list in ["env", "volumeMounts"] {
        for item in before
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            assert!(
                after[list].as_array().unwrap().contains(item),
                "{list} has lost {item}"
            );
        }
    }

    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        for field in ["periodSeconds", "failureThreshold", "exec"] {
            assert_eq!(
                before[probe].get(field),
                after[probe].get(field),
                "{probe}.{field}"
            );
        }
    }
}

fn containers(pod: &Value) -> Vec<&Value> {
    let lists = ["/spec/containers", "/spec/initContainers"];
    lists
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten()
        .collect()
}

/// The number of generated pods.
const PODS: u32 = 400;

#[test]
fn injection_is_idempotent_and_keeps_user_fields() {
    // The default is one file for the `main.rs` of all programs of tests.
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    let config = ProptestConfig {
        cases: PODS,
        failure_persistence: Some(Box::new(beside)),
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let injected = Cell::new(0);
    let again = Cell::new(0);
    let outcome =
        TestRunner::new(config).run(&(pods::pod(), installations::values()), |(pod, values)| {
            let injector = injector(&values);
            let Some(injection) = inject(&injector, &pod) else {
                return Ok(());
            };

            let same = inject(&injector, &pod);
            prop_assert_eq!(Some(&injection), same.as_ref());
            let Some(patch) = injection.patch() else {
                return Ok(());
            };

            injected.set(injected.get() + 1);
            let patched = default::patched(&pod, patch);
            serde_json::from_value::<Pod>(patched.clone()).unwrap();
            for before in containers(&pod)
                .into_iter()
                .filter(|container| container["name"] != "istio-proxy")
            {
                let after = containers(&patched)
                    .into_iter()
                    .find(|after| after["name"] == before["name"])
                    .unwrap();
                check_container(before, after);
            }

            // Two proxy templates and a proxy container of the pod's own can result in two
            // containers with one name, as with istiod. No API server accepts that.
            let names: Vec<_> = containers(&patched)
                .into_iter()
                .map(|container| &container["name"])
                .collect();
            if names.iter().filter(|name| **name == "istio-proxy").count() > 1 {
                return Ok(());
            }

            let once_more =
                inject(&injector, &patched).expect("an injected pod can be injected again");
            let once_more = default::patched(&patched, once_more.patch().unwrap());
            prop_assert_eq!(&once_more, &patched);
            again.set(again.get() + 1);

            Ok(())
        });

    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    let injected = injected.get();
    let again = again.get();
    assert!(
        injected > PODS / 2 && again > PODS / 4,
        "of {PODS} pods {injected} were injected, {again} twice"
    );
}

#[test]
fn an_invalid_config_is_rejected_and_the_previous_one_kept() {
    let good = default::inputs(&json!({}));
    let injector = Injector::new(&good).unwrap();
    let with = |config: &str| InjectorInputs {
        config: config.to_owned(),
        ..good.clone()
    };

    for (config, expected) in [
        ("policy: maybe", "policy"),
        ("policy: [", "config"),
        (
            "policy: enabled\ntemplates: {a: '{{ if }}'}",
            "template \"a\"",
        ),
        (
            "policy: enabled\ntemplates: {a: '{{ nothing 1 }}'}",
            "unknown function \"nothing\"",
        ),
        (
            "policy: enabled\ntemplates: {a: '{{ define \"x\" }}{{ template \"x\" }}{{ end }}{{ template \"x\" }}'}",
            "itself",
        ),
    ] {
        let error = injector.update(&with(config)).unwrap_err().to_string();
        assert!(error.contains(expected), "{config}: {error}");
    }

    let values = InjectorInputs {
        values: "global: {proxy: {privileged: maybe}}".to_owned(),
        ..good.clone()
    };
    assert!(
        injector
            .update(&values)
            .unwrap_err()
            .to_string()
            .contains("privileged")
    );

    let pod =
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "web" }] } });
    assert!(inject(&injector, &pod).unwrap().patch().is_some());
}

#[test]
fn templates_of_the_config_are_merged_onto_the_pod() {
    let config = r#"
policy: enabled
defaultTemplates: [both]
aliases: {both: [sidecar, own]}
templates:
  own: |
    metadata:
      annotations:
        names: {{ range $i, $c := .Spec.Containers }}{{ if $i }}-{{ end }}{{ $c.Name }}{{ end }}
        mode: {{ .ProxyConfig.InterceptionMode.String | toLower | quote }}
        ports: "{{ includeInboundPorts .Spec.Containers }}"
        image: {{ .ProxyImage }}
        port: "{{ .MeshConfig.ProxyListenPort | default 1 }}"
    spec:
      containers:
      - name: istio-proxy
        env:
        - {name: OWN, value: {{ annotation .ObjectMeta "own" "none" | quote }}}
      - name: web
        resources:
          {{- toYaml .Values.global.proxy.resources | nindent 10 }}
"#;

    let inputs = InjectorInputs {
        config: config.to_owned(),
        ..default::inputs(&json!({}))
    };
    let injector = Injector::new(&inputs).unwrap();
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "own": "a\"b\n", "sidecar.istio.io/nativeSidecar": "false" } },
        "spec": { "containers": [{ "name": "web", "ports": [{ "containerPort": 80 }, { "containerPort": 81 }] }] }
    });
    let injected = default::patched(&pod, inject(&injector, &pod).unwrap().patch().unwrap());
    let annotations = &injected["metadata"]["annotations"];
    assert_eq!(annotations["names"], "web");

    assert_eq!(annotations["mode"], "redirect");
    assert_eq!(annotations["ports"], "80,81");
    assert_eq!(
        annotations["image"],
        "registry.istio.io/testing/proxyv2:latest"
    );
    assert_eq!(annotations["port"], "15001");
    let find = |name: &str| {
        containers(&injected)
            .into_iter()
            .find(|container| container["name"] == name)
            .unwrap()
    };

    assert!(
        find("istio-proxy")["env"]
            .as_array()
            .unwrap()
            .contains(&json!({ "name": "OWN", "value": "a\"b\n" }))
    );

    assert_eq!(find("web")["resources"]["limits"]["cpu"], "2");
}

#[test]
fn a_user_volume_may_be_named_once_more_than_by_the_template() {
    let config = r#"
policy: enabled
templates:
  sidecar: |
    spec:
      containers: [{name: istio-proxy}]
      volumes:
      {{- range $index, $value := fromJSON (index .ObjectMeta.Annotations `sidecar.istio.io/userVolume`) }}
      - name: "{{ $index }}"
        {{ toYaml $value | indent 4 | trim }}
      {{- end }}
"#;

    let inputs = InjectorInputs {
        config: config.to_owned(),
        ..default::inputs(&json!({}))
    };
    let volume = r#"[{"name": "u", "emptyDir": {}}]"#;
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "sidecar.istio.io/userVolume": volume } },
        "spec": { "containers": [{ "name": "web" }] }
    });
    let injected = inject(&Injector::new(&inputs).unwrap(), &pod).unwrap();
    let injected = default::patched(&pod, injected.patch().unwrap());

    assert_eq!(
        injected["spec"]["volumes"],
        json!([{ "name": "u", "emptyDir": {} }])
    );
}

#[test]
fn rare_pods_are_injected_as_by_istiod() {
    let made = |values: Value, pod: Value| {
        default::patched(
            &pod,
            inject(&injector(&values), &pod).unwrap().patch().unwrap(),
        )
    };

    let proxy_env = |pod: &Value, name: &str| {
        let proxy = containers(pod)
            .into_iter()
            .find(|container| container["name"] == "istio-proxy")
            .unwrap();
        let env = proxy["env"].as_array().unwrap();
        env.iter()
            .find(|variable| variable["name"] == name)
            .map(|variable| variable["value"].clone())
    };

    // An empty label overrides the network of the values for the pod, but not for its proxy.
    let pod = json!({
        "metadata": { "name": "web", "labels": { "topology.istio.io/network": "" } },
        "spec": { "containers": [{ "name": "web" }] }
    });
    let injected = made(json!({ "global": { "network": "n2" } }), pod);
    assert_eq!(
        injected["metadata"]["labels"]["topology.istio.io/network"],
        ""
    );

    assert_eq!(
        proxy_env(&injected, "ISTIO_META_NETWORK"),
        Some(json!("n2"))
    );

    // The service of a gRPC probe is optional.
    let probe = json!({ "grpc": { "port": 9000 } });
    let pod = json!({
        "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "web", "readinessProbe": probe }] }
    });
    let probers = proxy_env(&made(json!({}), pod), "ISTIO_KUBE_APP_PROBERS");
    assert_eq!(
        probers,
        Some(json!(
            r#"{"/app-health/web/readyz":{"grpc":{"port":9000,"service":null}}}"#
        ))
    );

    // A pod without labels gets no map of labels, and an empty annotation leaves the name of the
    // ConfigMap out.
    let annotations = json!({ "inject.istio.io/templates": "grpc-simple" });
    let pod = json!({ "metadata": { "name": "web", "annotations": annotations }, "spec": { "containers": [{ "name": "web" }] } });
    assert_eq!(made(json!({}), pod)["metadata"].get("labels"), None);
    let annotations = json!({ "sidecar.istio.io/bootstrapOverride": "" });
    let pod = json!({ "metadata": { "name": "web", "annotations": annotations }, "spec": { "containers": [{ "name": "web" }] } });
    let injected = made(json!({}), pod);
    let volumes = injected["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({ "name": "custom-bootstrap-volume", "configMap": {} })));
}

#[test]
fn workloads_with_pod_templates_are_injected_offline() {
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web" }] } });
    let job = json!({ "spec": { "template": template } });
    let mut list = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "template": template } },
        { "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "tick", "namespace": "x" }, "spec": { "jobTemplate": job } },
        { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bare" }, "spec": { "hostNetwork": true, "containers": [] } },
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" } },
        { "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig", "metadata": { "name": "old" }, "spec": { "template": template } }
    ] });

    let before = list.clone();
    let mut notes: Vec<Note> = Vec::new();
    inject_object(&injector(&json!({})), &mut list, "shop", &mut notes).unwrap();
    let objects: Vec<_> = notes
        .iter()
        .map(|note| (note.object.as_str(), note.skipped.is_none()))
        .collect();
    assert_eq!(
        objects,
        [
            ("Deployment shop/web", true),
            ("CronJob x/tick", true),
            ("Pod shop/bare", false),
            ("DeploymentConfig shop/old", true)
        ]
    );

    let owner = |template: &Value| {
        let proxy = &template["spec"]["initContainers"][1];
        let env = proxy["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|variable| variable["name"] == "ISTIO_META_OWNER");
        env.unwrap()["value"].clone()
    };

    let items = &list["items"];
    assert_eq!(
        owner(&items[0]["spec"]["template"]),
        "kubernetes://apis/apps/v1/namespaces/shop/deployments/web"
    );
    let job = &items[1]["spec"]["jobTemplate"]["spec"]["template"];
    assert_eq!(
        owner(job),
        "kubernetes://apis/batch/v1/namespaces/x/cronjobs/tick"
    );

    assert_eq!(items[2], before["items"][2]);
    assert_eq!(items[3], before["items"][3]);
}

#[test]
fn istio_58889_annotations_with_line_breaks_add_no_container() {
    let injector = injector(&json!({}));
    let names = [
        "sidecar.istio.io/proxyImage",
        "sidecar.istio.io/logLevel",
        "sidecar.istio.io/componentLogLevel",
        "sidecar.istio.io/agentLogLevel",
        "sidecar.istio.io/proxyCPU",
        "sidecar.istio.io/proxyMemoryLimit",
        "sidecar.istio.io/bootstrapOverride",
        "sidecar.istio.io/interceptionMode",
        "traffic.sidecar.istio.io/includeInboundPorts",
        "traffic.sidecar.istio.io/kubevirtInterfaces",
        "traffic.sidecar.istio.io/excludeInterfaces",
        "status.sidecar.istio.io/port",
        "readiness.status.sidecar.istio.io/periodSeconds",
        "prometheus.istio.io/merge-metrics",
    ];

    let evil = "\n  - name: evil\n    image: evil\n    securityContext: {privileged: true}\n";
    let mut injected = 0;

    for name in names {
        for value in [
            evil.to_owned(),
            format!("a\"{evil}"),
            format!("a:b{evil}"),
            format!("'{evil}#"),
            "a\u{b}b".to_owned(),
        ] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "annotations": {name: value}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            // The pod is rejected, or the value has no effect.
            let Some(injection) = inject(&injector, &pod) else {
                continue;
            };
            let Some(patch) = injection.patch() else {
                continue;
            };
            injected += 1;
            for container in containers(&default::patched(&pod, patch)) {
                let own = [
                    "c",
                    "istio-proxy",
                    "istio-init",
                    "istio-validation",
                    "enable-core-dump",
                ];

                assert!(
                    own.iter().any(|own| container["name"] == *own),
                    "{name}: {value:?}: {container}"
                );
                assert_ne!(
                    container["securityContext"]["privileged"], true,
                    "{name}: {value:?}"
                );
            }
        }
    }

    assert!(injected > 0, "no pod was injected");
}
