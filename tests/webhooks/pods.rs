//! Pods created by users, by a controller, and for a gateway.

use serde_json::{Value, json};

use crate::installed::Installed;
use crate::until;

/// A namespace whose pods are injected.
pub(crate) const SHOP: &str = "shop";

/// Creates the namespace.
pub(crate) fn open_shop(installed: &Installed) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SHOP, "labels": { "istio-injection": "enabled" } } });
    assert!(installed.apply(&namespace).succeeded);
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SHOP, "labels": { "app": name } },
        "spec": {
            "serviceAccountName": "default",
            "containers": [{ "name": "app", "image": "app", "ports": [{ "containerPort": 8080 }],
                "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 } } }],
        },
    })
}

/// The names of all containers of a pod.
pub(crate) fn containers(pod: &Value) -> Vec<String> {
    let of = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let all = [of("initContainers"), of("containers")].concat();
    all.iter()
        .map(|container| container["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Creates pods and checks the results.
pub(crate) async fn are_injected(installed: &Installed) {
    let created = installed.apply(&pod("plain"));
    assert!(created.succeeded, "{created:?}");
    let plain = installed
        .get(&format!("/api/v1/namespaces/{SHOP}/pods/plain"))
        .await;
    let names = containers(&plain);
    assert!(
        names.contains(&"istio-proxy".to_owned()) && names.contains(&"app".to_owned()),
        "{plain:#}"
    );

    assert!(plain["metadata"]["annotations"]["sidecar.istio.io/status"].is_string());
    control_plane_is_a_service(installed, &plain).await;

    // A server-side dry run accepts the result, and an injected pod is not injected again.
    let tried = installed.try_out(&pod("tried"));
    assert!(tried.succeeded, "{tried:?}");
    let mut again: Value = serde_json::from_str(&tried.text).unwrap();

    for field in [
        "creationTimestamp",
        "uid",
        "resourceVersion",
        "managedFields",
    ] {
        again["metadata"].as_object_mut().unwrap().remove(field);
    }

    let once = containers(&again);
    let tried = installed.try_out(&again);
    assert!(tried.succeeded, "{tried:?}");
    assert_eq!(
        containers(&serde_json::from_str(&tried.text).unwrap()),
        once
    );

    // A pod that opts out is not injected.
    let mut excluded = pod("excluded");
    excluded["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false");
    assert!(installed.apply(&excluded).succeeded);
    let excluded = installed
        .get(&format!("/api/v1/namespaces/{SHOP}/pods/excluded"))
        .await;
    assert_eq!(containers(&excluded), ["app"]);

    through_a_controller(installed).await;
    gateway(installed);
    native_where_kubelets_run_them(installed).await;
}

/// A container in a list of the pod; null without one.
fn container(pod: &Value, field: &str, name: &str) -> Value {
    let containers = pod["spec"][field].as_array().cloned().unwrap_or_default();
    containers
        .into_iter()
        .find(|container| container["name"] == name)
        .unwrap_or_default()
}

/// The proxy's control plane address is a Service of deploy/, with one of its ports.
async fn control_plane_is_a_service(installed: &Installed, pod: &Value) {
    let proxy = container(pod, "initContainers", "istio-proxy");
    let environment = proxy["env"].as_array().unwrap();
    let variable =
        |name: &str| environment.iter().find(|one| one["name"] == name).unwrap()["value"].clone();
    let config: Value = serde_saphyr::from_str(variable("PROXY_CONFIG").as_str().unwrap()).unwrap();
    let discovery = config["discoveryAddress"]
        .as_str()
        .unwrap_or("istiod.istio-system.svc:15012");

    for address in [variable("CA_ADDR").as_str().unwrap(), discovery] {
        let (host, port) = address.split_once(':').unwrap();
        let port: u64 = port.parse().unwrap();
        let [name, namespace, "svc"] = host.split('.').collect::<Vec<_>>()[..] else {
            panic!("no Service: {address}")
        };

        let service = installed
            .get(&format!("/api/v1/namespaces/{namespace}/services/{name}"))
            .await;
        let ports = service["spec"]["ports"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(
            ports.iter().any(|one| one["port"] == port),
            "{address}: {service:#}"
        );
    }
}

/// Proxies are native sidecars if the kubelets of all nodes support them, according to the binary
/// form of Nodes.
async fn native_where_kubelets_run_them(installed: &Installed) {
    for (version, policy) in [("v1.32.9", Value::Null), ("v1.36.3", json!("Always"))] {
        let info = json!({
            "kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" }, "status": { "nodeInfo": info } });

        // Only the creation of a node sets its status; an update does not change it.
        _ = installed.kubectl(&["delete", "node", "n", "--ignore-not-found"], "");
        let created = installed.kubectl(&["create", "-f", "-"], &node.to_string());
        assert!(created.succeeded, "{created:?}");
        until(
            "the proxy is a native sidecar if the kubelet runs them",
            async || {
                let tried = installed.try_out(&pod("native"));
                assert!(tried.succeeded, "{tried:?}");
                let pod: Value = serde_json::from_str(&tried.text).unwrap();
                container(&pod, "initContainers", "istio-proxy")["restartPolicy"] == policy
            },
        )
        .await;
    }

    assert!(installed.kubectl(&["delete", "node", "n"], "").succeeded);
}

/// A Deployment whose pods a controller creates.
async fn through_a_controller(installed: &Installed) {
    let template = pod("deployed");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "deployed", "namespace": SHOP },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "deployed" } },
            "template": { "metadata": { "labels": { "app": "deployed" } }, "spec": template["spec"] },
        },
    });

    assert!(installed.apply(&deployment).succeeded);
    let path = format!("/api/v1/namespaces/{SHOP}/pods?labelSelector=app=deployed");
    until("a controller's pods are injected", async || {
        let pods = installed.get(&path).await["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_injected = |pod: &Value| containers(pod).contains(&"istio-proxy".to_owned());
        pods.len() == 2 && pods.iter().all(is_injected)
    })
    .await;
}

/// A gateway: a pod whose only container is the proxy, with an image to be filled in.
fn gateway(installed: &Installed) {
    let gateway = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "gateway", "namespace": SHOP, "labels": { "istio": "ingressgateway" },
            "annotations": { "inject.istio.io/templates": "gateway" },
        },
        "spec": { "serviceAccountName": "default", "containers": [{ "name": "istio-proxy", "image": "auto" }] },
    });
    let tried = installed.try_out(&gateway);
    assert!(tried.succeeded, "{tried:?}");
    let pod: Value = serde_json::from_str(&tried.text).unwrap();
    assert_eq!(containers(&pod), ["istio-proxy"]);
    assert_ne!(pod["spec"]["containers"][0]["image"], "auto");
}
