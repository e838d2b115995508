//! GatewayClasses, and the objects created for Gateways.

use std::sync::Arc;

use navarch::api::mesh::MeshConfig;
use navarch::status::{
    GatewayClasses, GatewayControllerSettings, GatewayDeployments, NamespaceScope,
};
use navarch::webhook::inject::{Injector, InjectorInputs};
use navarch::webhook::{CurrentInjector, InjectorState};
pub(crate) use navarch_testkit::cluster::gateway_api_definition as definition;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, until};

/// The namespace of this test.
const SHOP: &str = "gateways";

/// Creates the CRDs.
fn define(deployed: &Deployed) {
    for (kind, plural, scope) in [
        ("GatewayClass", "gatewayclasses", "Cluster"),
        ("Gateway", "gateways", "Namespaced"),
    ] {
        deployed
            .cluster
            .apply(&definition(kind, plural, scope).to_string())
            .unwrap();
    }
    deployed.cluster.wait_for_crds().unwrap();
}

fn gateway(name: &str, port: u16, infrastructure: &Value) -> String {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": name, "namespace": SHOP },
        "spec": {
            "gatewayClassName": "istio", "infrastructure": infrastructure,
            "listeners": [{ "name": "http", "port": port, "protocol": "HTTP" }],
        },
    })
    .to_string()
}

/// The path of an object created for a Gateway.
fn path(kind: &str, name: &str) -> String {
    let group = match kind {
        "deployments" => "/apis/apps/v1",
        "gateways" => "/apis/gateway.networking.k8s.io/v1",
        "poddisruptionbudgets" => "/apis/policy/v1",
        _ => "/api/v1",
    };
    format!("{group}/namespaces/{SHOP}/{kind}/{name}")
}

/// The number of writes to the objects of a Gateway.
fn writes(deployed: &Deployed, name: &str) -> usize {
    let calls = deployed.requests(&format!("/namespaces/{SHOP}/"));
    calls
        .iter()
        .filter(|call| call.contains("patch") && call.contains(&format!("/{name}?")))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_gateways_get_their_objects_without_changing_others() {
    let mut deployed = Deployed::start().await;
    define(&deployed);
    deployed
        .cluster
        .start_controllers(&["garbage-collector-controller".to_owned()])
        .unwrap();
    follow(&deployed).await;
    assert_eq!(deployed.denied(), Vec::<String>::new());
}

/// The ConfigMap with the overlays of the Gateway `web`.
fn options(replicas: u32) -> String {
    let overlay = format!("spec: {{replicas: {replicas}}}");
    let data = json!({ "deployment": overlay, "podDisruptionBudget": "spec: {minAvailable: 1}" });
    let meta = json!({ "name": "opts", "namespace": SHOP });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data }).to_string()
}

/// Overlays of the Gateway `web` are rejected, by this control plane or by the API server, which
/// its status tells until they are corrected. Its Deployment stays as it is.
async fn rejections_are_reported(deployed: &Deployed) {
    let told = async || {
        let gateway = deployed.get(&path("gateways", "web")).await;
        let conditions = gateway["status"]["conditions"].as_array().cloned();
        let told = conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition["type"] == "navarch.io/Deployed");
        told.unwrap_or_default()
    };

    for overlay in [
        "metadata: {name: other}",
        "spec: {replicas: three}",
        "spec: {replicas: -1}",
    ] {
        let mut rejected: Value = serde_json::from_str(&options(4)).unwrap();
        rejected["data"]["deployment"] = json!(overlay);
        deployed.cluster.apply(&rejected.to_string()).unwrap();
        until("the rejection is reported", async || {
            let told = told().await;
            let message = told["message"].as_str().unwrap_or_default();
            told["status"] == "False"
                && told["reason"] == "InvalidParameters"
                && message.starts_with(&format!("ConfigMap {SHOP}/opts: overlay \"deployment\""))
        })
        .await;
        let deployment = deployed.get(&path("deployments", "web-istio")).await;
        assert_eq!(deployment["spec"]["replicas"], 3, "{overlay}");

        deployed.cluster.apply(&options(3)).unwrap();
        until("the rejection is gone", async || {
            told().await["status"] == "True"
        })
        .await;
    }
}

/// The controllers of Gateways.
struct Controllers {
    injector: CurrentInjector,
    /// Keeps the scope of namespaces.
    _scope: watch::Sender<NamespaceScope>,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Controllers {
    async fn start(deployed: &Deployed) -> Self {
        let injector =
            Injector::new(&InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()))).unwrap();
        let injector = CurrentInjector::new(InjectorState::Ready {
            injector: Arc::new(injector),
            rejected: None,
        });

        let (sender, scope) = watch::channel(NamespaceScope::default());
        let cluster = deployed.as_navarch().await;
        let settings = GatewayControllerSettings::default();
        let classes = GatewayClasses {
            cluster: cluster.clone(),
            settings: settings.clone(),
        };
        let deployments = GatewayDeployments {
            cluster,
            settings,
            injector: injector.clone(),
            scope,
        };

        let stop = CancellationToken::new();
        let tasks = [
            tokio::spawn(classes.run(stop.clone())),
            tokio::spawn(deployments.run(stop.clone())),
        ];

        Self {
            injector,
            _scope: sender,
            stop,
            tasks,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Gateways from creation to deletion.
async fn follow(deployed: &Deployed) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SHOP } });
    deployed.cluster.apply(&namespace.to_string()).unwrap();
    let controllers = Controllers::start(deployed).await;

    classes_are_restored(deployed).await;
    objects_are_created_and_restored(deployed).await;
    edits_are_reverted(deployed).await;
    changes_are_applied(deployed, &controllers.injector).await;
    others_are_left_alone(deployed).await;
    foreign_fields_cause_no_write(deployed).await;
    objects_are_deleted_with_their_gateway(deployed).await;

    controllers.stop().await;
}

/// Navarch creates the classes, and restores them.
async fn classes_are_restored(deployed: &Deployed) {
    let class = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio";
    until("the class exists", async || {
        deployed.get(class).await["spec"]["controllerName"].is_string()
    })
    .await;
    deployed
        .cluster
        .call("DELETE", class, "application/json", &Value::Null)
        .await
        .unwrap();

    until("the class is back", async || {
        deployed.get(class).await["spec"]["controllerName"].is_string()
    })
    .await;
}

/// Navarch creates the objects of a Gateway, and restores them.
async fn objects_are_created_and_restored(deployed: &Deployed) {
    deployed
        .cluster
        .apply(&gateway("web", 80, &json!({})))
        .unwrap();

    for kind in ["serviceaccounts", "deployments", "services"] {
        until("the objects exist", async || {
            deployed.get(&path(kind, "web-istio")).await["metadata"].is_object()
        })
        .await;
    }

    let service = deployed.get(&path("services", "web-istio")).await;
    assert_eq!(service["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(
        service["metadata"]["labels"]["gateway.istio.io/managed"],
        "istio.io-gateway-controller"
    );
    deployed
        .cluster
        .call(
            "DELETE",
            &path("services", "web-istio"),
            "application/json",
            &Value::Null,
        )
        .await
        .unwrap();

    until("the Service is back", async || {
        deployed.get(&path("services", "web-istio")).await["metadata"].is_object()
    })
    .await;
}

/// Changes to applied fields are reverted; fields of other managers stay.
async fn edits_are_reverted(deployed: &Deployed) {
    let edited =
        json!({ "metadata": { "labels": { "mine": "too" } }, "spec": { "type": "ClusterIP" } });
    deployed
        .cluster
        .call(
            "PATCH",
            &path("services", "web-istio"),
            "application/merge-patch+json",
            &edited,
        )
        .await
        .unwrap();

    let kind = async || deployed.get(&path("services", "web-istio")).await["spec"]["type"].clone();
    until("an edit is undone", async || kind().await == "LoadBalancer").await;
    assert_eq!(
        deployed.get(&path("services", "web-istio")).await["metadata"]["labels"]["mine"],
        "too"
    );
}

/// Changes of the Gateway, of its ConfigMap and of the templates are applied.
async fn changes_are_applied(deployed: &Deployed, injector: &CurrentInjector) {
    let parameters =
        json!({ "parametersRef": { "group": "", "kind": "ConfigMap", "name": "opts" } });
    deployed
        .cluster
        .apply(&gateway("web", 8080, &parameters))
        .unwrap();
    let replicas =
        async || deployed.get(&path("deployments", "web-istio")).await["spec"]["replicas"].clone();

    for wanted in [2, 3] {
        deployed.cluster.apply(&options(wanted)).unwrap();
        until("the ConfigMap is followed", async || {
            replicas().await == wanted
        })
        .await;
    }

    rejections_are_reported(deployed).await;

    let ports =
        async || deployed.get(&path("services", "web-istio")).await["spec"]["ports"].clone();
    until("the Gateway is followed", async || {
        ports().await.to_string().contains("8080")
    })
    .await;
    let budget = path("poddisruptionbudgets", "web-istio");
    until("the PodDisruptionBudget exists", async || {
        deployed.get(&budget).await["spec"]["minAvailable"] == 1
    })
    .await;
    let inputs = InjectorInputs {
        values: json!({ "global": { "tag": "another" } }).to_string(),
        ..InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()))
    };
    injector.store(InjectorState::Ready {
        injector: Arc::new(Injector::new(&inputs).unwrap()),
        rejected: None,
    });

    let image = async || {
        let deployment = deployed.get(&path("deployments", "web-istio")).await;
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    until("the values are followed", async || {
        image()
            .await
            .as_str()
            .is_some_and(|image| image.ends_with(":another"))
    })
    .await;
}

/// Objects of others, and Gateways of other revisions, stay as they are.
async fn others_are_left_alone(deployed: &Deployed) {
    // An existing object without our label is not changed; the other objects are created.
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "taken-istio", "namespace": SHOP },
        "spec": { "ports": [{ "name": "http", "port": 1234 }], "selector": { "app": "theirs" } },
    });
    deployed.cluster.apply(&theirs.to_string()).unwrap();
    let before = deployed.get(&path("services", "taken-istio")).await;
    deployed
        .cluster
        .apply(&gateway("taken", 80, &json!({})))
        .unwrap();

    until("its Deployment exists", async || {
        deployed.get(&path("deployments", "taken-istio")).await["metadata"].is_object()
    })
    .await;

    // A Gateway of another revision is read, but its own revision deploys it.
    let mut other: Value = serde_json::from_str(&gateway("other", 80, &json!({}))).unwrap();
    other["metadata"]["labels"] = json!({ "istio.io/rev": "canary" });
    deployed.cluster.apply(&other.to_string()).unwrap();

    // A marker: once the objects of this later Gateway exist, all earlier writes have happened.
    deployed
        .cluster
        .apply(&gateway("last", 80, &json!({})))
        .unwrap();
    until("the last object exists", async || {
        deployed.get(&path("services", "last-istio")).await["metadata"].is_object()
    })
    .await;
    assert_eq!(deployed.get(&path("services", "taken-istio")).await, before);
    assert_eq!(
        deployed.get(&path("deployments", "other-istio")).await,
        Value::Null
    );
}

/// Changes of a status or of annotations of other managers cause no write.
async fn foreign_fields_cause_no_write(deployed: &Deployed) {
    let settled = writes(deployed, "web-istio");
    let noted =
        json!({ "metadata": { "annotations": { "theirs": "yes" } }, "status": { "replicas": 0 } });
    deployed
        .cluster
        .call(
            "PATCH",
            &path("deployments", "web-istio"),
            "application/merge-patch+json",
            &noted,
        )
        .await
        .unwrap();

    deployed
        .cluster
        .apply(&gateway("later", 80, &json!({})))
        .unwrap();
    until("a later object exists", async || {
        deployed.get(&path("services", "later-istio")).await["metadata"].is_object()
    })
    .await;

    assert!(settled > 3);

    // One write may have been in flight.
    assert!(writes(deployed, "web-istio") <= settled + 1);
    let marked = deployed
        .requests("/status?")
        .iter()
        .filter(|call| call.contains("/gateways/") && call.contains("fieldManager"))
        .count();
    assert_eq!(
        marked, 1,
        "if the API server drops an annotation in a status update, it is written only once"
    );
}

async fn objects_are_deleted_with_their_gateway(deployed: &Deployed) {
    deployed
        .cluster
        .call(
            "DELETE",
            &path("gateways", "web"),
            "application/json",
            &Value::Null,
        )
        .await
        .unwrap();

    for kind in ["deployments", "services", "serviceaccounts"] {
        until("the objects are deleted", async || {
            deployed.get(&path(kind, "web-istio")).await == Value::Null
        })
        .await;
    }

    assert_eq!(
        deployed.get(&path("services", "taken-istio")).await["spec"]["ports"][0]["port"],
        1234
    );
}
