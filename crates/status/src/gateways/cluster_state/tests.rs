use std::sync::Arc;

use navarch_api::mesh::MeshConfig;
use navarch_webhook::inject::{Injector, InjectorInputs};
use serde_json::{Value, json};

use super::super::objects::ObjectsError;
use super::*;

/// A cluster with a Gateway `shop/web`, and an injector.
struct Fixture {
    cluster_state: ClusterState,
    injector: Injector,
}

impl Fixture {
    fn new() -> Self {
        let injector =
            Injector::new(&InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()))).unwrap();
        let mut fixture = Self {
            cluster_state: ClusterState::new(
                GatewayControllerSettings::default(),
                NamespaceScope::default(),
            ),
            injector,
        };
        fixture.put(
            Source::Namespaces,
            json!({ "metadata": { "name": "shop" } }),
        );
        fixture.gateway(&json!({}), &json!({}));
        fixture
    }

    fn put(&mut self, source: Source, object: Value) {
        self.cluster_state.take(
            source,
            Event::Apply(serde_json::from_value(object).unwrap()),
        );
    }

    fn gateway(&mut self, meta: &Value, spec: &Value) {
        let listeners = json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]);
        let mut object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "spec": { "gatewayClassName": "istio", "listeners": listeners },
        });
        for (part, over) in [("metadata", meta), ("spec", spec)] {
            object[part]
                .as_object_mut()
                .unwrap()
                .extend(over.as_object().unwrap().clone());
        }
        self.put(Source::Gateways, object);
    }

    fn plan(&self) -> Result<Plan, ObjectsError> {
        self.cluster_state
            .plan(&NamespacedName::new("shop", "web"), &self.injector, 136)
    }

    /// Why no objects are created; empty if some are.
    fn reason(&self) -> &'static str {
        match self.plan().unwrap() {
            Plan::Nothing(reason) | Plan::WithoutProxies(reason) => reason,
            Plan::Reads(_) => "a ConfigMap is read",
            Plan::Objects { .. } => "",
        }
    }

    fn objects(&self) -> Vec<Value> {
        match self.plan().unwrap() {
            Plan::Objects { objects, .. } => objects,
            Plan::Reads(_) | Plan::Nothing(_) | Plan::WithoutProxies(_) => panic!("no objects"),
        }
    }

    fn is_due(&mut self) -> bool {
        self.cluster_state
            .take_due()
            .contains(&NamespacedName::new("shop", "web"))
    }
}

#[test]
fn only_gateways_of_this_control_plane_have_objects() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.reason(), "");
    let kinds: Vec<_> = fixture
        .objects()
        .iter()
        .map(|object| object["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["ServiceAccount", "Deployment", "Service"]);

    for (meta, spec, reason) in [
        (
            json!({}),
            json!({ "gatewayClassName": "other" }),
            "its GatewayClass belongs to another controller",
        ),
        (
            json!({}),
            json!({ "gatewayClassName": "istio-remote" }),
            "no proxies are deployed for its GatewayClass",
        ),
        (
            json!({}),
            json!({ "addresses": [{ "type": "Hostname", "value": "a" }] }),
            "its address refers to a manual deployment",
        ),
        (
            json!({}),
            json!({ "addresses": [{ "value": "192.0.2.1" }, { "value": "192.0.2.2" }] }),
            "its address refers to a manual deployment",
        ),
        (
            json!({}),
            json!({ "addresses": [{ "type": "IPAddress", "value": "192.0.2.1" }] }),
            "",
        ),
        (
            json!({ "labels": { "istio.io/rev": "b" } }),
            json!({}),
            "it belongs to another revision",
        ),
        (
            json!({ "annotations": { "gateway.istio.io/controller-version": "6" } }),
            json!({}),
            "a newer controller version manages it",
        ),
        (
            json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }),
            json!({}),
            "it is being deleted",
        ),
    ] {
        fixture.gateway(&meta, &spec);
        assert!(fixture.is_due());
        assert_eq!(fixture.reason(), reason, "{meta} {spec}");
    }

    fixture.gateway(&json!({}), &json!({}));
    let class = json!({ "metadata": { "name": "istio" }, "spec": { "controllerName": "example.com/theirs" } });
    fixture.put(Source::Classes, class);
    assert_eq!(
        fixture.reason(),
        "its GatewayClass belongs to another controller"
    );
    let class = json!({ "metadata": { "name": "istio" }, "spec": { "controllerName": "istio.io/gateway-controller" } });
    fixture.put(Source::Classes, class);

    fixture.put(
        Source::Namespaces,
        json!({ "metadata": { "name": "shop", "labels": { "istio.io/rev": "b" } } }),
    );
    assert!(fixture.is_due());
    assert_eq!(fixture.reason(), "it belongs to another revision");
    fixture.put(
        Source::TagServices,
        json!({ "metadata": { "name": "t", "namespace": "istio-system", "labels": { "istio.io/rev": "default", "istio.io/tag": "b" } } }),
    );

    assert!(fixture.is_due());
    assert_eq!(fixture.reason(), "");
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    fixture
        .cluster_state
        .take(Source::Namespaces, Event::Delete(namespace));
    fixture.gateway(&json!({ "labels": { "istio.io/rev": "c" } }), &json!({}));
    assert_eq!(
        fixture.reason(),
        "it belongs to another revision",
        "though its namespace is not known"
    );
}

#[test]
fn a_reported_rejection_is_a_change_until_it_is_withdrawn() {
    let mut fixture = Fixture::new();
    let name = NamespacedName::new("shop", "web");
    assert!(fixture.is_due());
    assert_eq!(fixture.cluster_state.told(&name), None);

    let mut object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
        "spec": { "gatewayClassName": "istio", "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }] },
        "status": { "conditions": [{
            "type": "navarch.io/Deployed", "status": "False", "reason": "InvalidParameters", "message": "no",
        }] },
    });
    fixture.put(Source::Gateways, object.clone());
    assert!(
        fixture.is_due(),
        "another leader told it: it may have been corrected since"
    );
    assert_eq!(fixture.cluster_state.told(&name), Some("no"));

    object["status"]["conditions"][0]["status"] = json!("True");
    fixture.put(Source::Gateways, object);
    assert!(fixture.is_due());
    assert_eq!(fixture.cluster_state.told(&name), None);
}

#[test]
fn overlays_are_known_by_their_config_maps() {
    let mut fixture = Fixture::new();
    let gateway = NamespacedName::new("shop", "web");
    let parameters = json!({ "group": "", "kind": "ConfigMap", "name": "opts" });
    fixture.gateway(
        &json!({}),
        &json!({ "infrastructure": { "parametersRef": parameters } }),
    );
    let map = NamespacedName::new("shop", "opts");
    let data = BTreeMap::from([("service".to_owned(), "[]".to_owned())]);
    fixture
        .cluster_state
        .put_parameters(map.clone(), Some(data));
    let defaults = json!({
        "metadata": {
            "name": "all", "namespace": "istio-system",
            "labels": { "gateway.istio.io/defaults-for-class": "istio" },
        },
        "data": { "service": "{}", "deployment": "{}" },
    });
    fixture.put(Source::Defaults, defaults);

    let maps = |key: &str| fixture.cluster_state.overlaid_by(&gateway, key);
    let of_class = NamespacedName::new("istio-system", "all");
    assert_eq!(maps("service"), [&of_class, &map]);
    assert_eq!(maps("deployment"), [&of_class]);
    assert!(maps("podDisruptionBudget").is_empty());

    let rejected = fixture.plan().unwrap_err();
    assert!(
        matches!(&rejected, ObjectsError::Overlay { map: named, .. } if *named == map),
        "{rejected}"
    );
}

#[test]
fn a_status_is_no_change_and_a_label_is() {
    let mut fixture = Fixture::new();
    assert!(fixture.is_due());
    let mut object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "8", "managedFields": [] },
        "spec": { "gatewayClassName": "istio", "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }] },
        "status": { "conditions": [] },
    });
    fixture.put(Source::Gateways, object.clone());
    assert!(!fixture.is_due());
    object["metadata"]["labels"] = json!({ "a": "b" });
    fixture.put(Source::Gateways, object);
    assert!(fixture.is_due());
}

#[test]
fn config_maps_are_laid_over_those_of_the_class_first() {
    let mut fixture = Fixture::new();
    let parameters = json!({ "group": "", "kind": "ConfigMap", "name": "opts" });
    fixture.gateway(
        &json!({}),
        &json!({ "infrastructure": { "parametersRef": parameters } }),
    );
    let map = NamespacedName::new("shop", "opts");
    assert!(matches!(fixture.plan(), Ok(Plan::Reads(name)) if name == map));

    fixture.cluster_state.put_parameters(map.clone(), None);
    assert!(matches!(fixture.plan(), Err(ObjectsError::NoParameters(_))));
    let data = |text: &str| Some(BTreeMap::from([("deployment".to_owned(), text.to_owned())]));
    fixture
        .cluster_state
        .put_parameters(map.clone(), data("spec: {replicas: 3}"));
    let defaults = |name: &str, created: &str, text: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "istio-system", "creationTimestamp": created,
                "labels": { "gateway.istio.io/defaults-for-class": "istio" },
            },
            "data": { "deployment": text, "horizontalPodAutoscaler": "spec: {maxReplicas: 9}" },
        })
    };

    fixture.put(
        Source::Defaults,
        defaults("b", "2026-01-02T00:00:00Z", "spec: {paused: true}"),
    );
    fixture.put(
        Source::Defaults,
        defaults(
            "c",
            "2026-01-01T00:00:00Z",
            "spec: {replicas: 2, minReadySeconds: 7}",
        ),
    );

    let objects = fixture.objects();
    let deployment = &objects[1]["spec"];
    assert_eq!(
        (
            &deployment["replicas"],
            &deployment["minReadySeconds"],
            &deployment["paused"]
        ),
        (&json!(3), &json!(7), &Value::Null)
    );

    assert_eq!(objects[3]["spec"]["maxReplicas"], 9);

    // A change of the ConfigMap's metadata causes another read.
    assert!(fixture.is_due());
    fixture.put(
        Source::ConfigMaps,
        json!({ "metadata": { "name": "opts", "namespace": "shop" } }),
    );
    assert!(fixture.is_due());
    assert!(matches!(fixture.plan(), Ok(Plan::Reads(_))));

    fixture.put(
        Source::ConfigMaps,
        json!({ "metadata": { "name": "other", "namespace": "shop" } }),
    );
    assert!(!fixture.is_due());
    let secret = json!({ "group": "", "kind": "Secret", "name": "opts" });
    fixture.gateway(
        &json!({}),
        &json!({ "infrastructure": { "parametersRef": secret } }),
    );

    assert!(matches!(
        fixture.plan(),
        Err(ObjectsError::Parameters { .. })
    ));
}

#[test]
fn names_from_annotations_and_references_cannot_leave_the_namespace() {
    let outside = "../../kube-system/x";

    for annotation in [
        "gateway.istio.io/name-override",
        "gateway.istio.io/service-account",
    ] {
        let mut fixture = Fixture::new();
        let annotations = json!({ "annotations": { annotation: outside } });
        fixture.gateway(&annotations, &json!({}));
        let rejected = fixture.plan().err().map(|error| error.to_string());
        assert!(
            rejected.is_some_and(|text| text.starts_with(annotation)),
            "{annotation}"
        );
    }

    let mut fixture = Fixture::new();
    let parameters = json!({ "group": "", "kind": "ConfigMap", "name": "../secrets/x" });
    fixture.gateway(
        &json!({}),
        &json!({ "infrastructure": { "parametersRef": parameters } }),
    );
    assert!(matches!(fixture.plan(), Err(ObjectsError::Name { .. })));
}

#[test]
fn listener_sets_that_may_attach_have_ports() {
    let mut fixture = Fixture::new();
    let set = |name: &str, namespace: &str, port: i32| {
        json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "parentRef": { "name": "web", "namespace": "shop" },
                "listeners": [{ "name": name, "port": port, "protocol": "HTTP" }],
            },
        })
    };

    fixture.put(
        Source::Namespaces,
        json!({ "metadata": { "name": "bank", "labels": { "may": "yes" } } }),
    );
    fixture.put(Source::ListenerSets, set("a", "shop", 81));
    fixture.put(Source::ListenerSets, set("b", "bank", 82));
    let ports = |fixture: &Fixture| {
        let objects = fixture.objects();
        let ports: Vec<_> = objects[2]["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].clone())
            .collect();
        json!(ports)
    };

    assert_eq!(ports(&fixture), json!([15021, 80]));

    for (from, expected) in [
        ("Same", json!([15021, 80, 81])),
        ("All", json!([15021, 80, 82, 81])),
        ("None", json!([15021, 80])),
    ] {
        fixture.gateway(
            &json!({}),
            &json!({ "allowedListeners": { "namespaces": { "from": from } } }),
        );
        assert_eq!(ports(&fixture), expected);
    }

    let selector = json!({ "from": "Selector", "selector": { "matchLabels": { "may": "yes" } } });
    fixture.gateway(
        &json!({}),
        &json!({ "allowedListeners": { "namespaces": selector } }),
    );
    assert_eq!(ports(&fixture), json!([15021, 80, 82]));
    assert!(fixture.is_due());
    fixture.put(
        Source::Namespaces,
        json!({ "metadata": { "name": "bank" } }),
    );

    assert!(fixture.is_due());
    assert_eq!(ports(&fixture), json!([15021, 80]));
}

#[test]
fn changes_by_others_to_a_deployed_object_trigger_a_reconcile() {
    let mut fixture = Fixture::new();
    let object = |fields: Value| {
        json!({
            "metadata": {
                "name": "web-istio", "namespace": "shop", "annotations": { "theirs": fields.to_string() },
                "ownerReferences": [{ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "web", "uid": "u" }],
                "managedFields": [
                    { "manager": "istio.io/gateway-controller", "operation": "Apply", "fieldsV1": fields },
                    { "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:x": {} } },
                ],
            },
        })
    };

    fixture.put(
        Source::Deployed(DeployedKind::Service),
        object(json!({ "f:spec": {} })),
    );
    assert!(fixture.is_due());
    let mut same = object(json!({ "f:spec": {} }));
    same["metadata"]["managedFields"][1]["fieldsV1"] = json!({ "f:y": {} });
    fixture.put(Source::Deployed(DeployedKind::Service), same);

    assert!(!fixture.is_due(), "fields of other managers are ignored");
    fixture.put(Source::Deployed(DeployedKind::Service), object(json!({})));
    assert!(
        fixture.is_due(),
        "another manager has changed one of our fields"
    );
    let gone: DynamicObject = serde_json::from_value(object(json!({}))).unwrap();
    fixture
        .cluster_state
        .take(Source::Deployed(DeployedKind::Service), Event::Delete(gone));
    assert!(fixture.is_due());
}
