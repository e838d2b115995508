//! What a cluster does after an edit, in memory: istio-cni redirects pods to ztunnel, the gateway
//! controller deploys waypoints, and restarted pods come back without a sidecar.

use serde_json::{Value, json};

use super::objects::{
    GATEWAY, ObjectName, Objects, POD, SERVICE, annotation, label, set_metadata, text,
};
use super::pods::{
    DataPlane, GATEWAY_NAME, PROXY_CONTAINER, REDIRECTION, SIDECAR_STATUS, is_alive,
};
use super::steps::{AMBIENT, DATAPLANE_MODE, WAYPOINT_CLASS};

/// The labels of pods that injection sets.
const INJECTED_LABELS: [&str; 2] = ["security.istio.io/tlsMode", "networking.istio.io/tunnel"];
/// Containers that injection adds beside the proxy.
const INJECTED_CONTAINERS: [&str; 3] = [PROXY_CONTAINER, "istio-init", "istio-validation"];
/// The node of pods without one, so that each has a ztunnel.
const ANY_NODE: &str = "any-node";

/// Brings the objects to the state in which a cluster comes to rest after edits. `domain` is that of services.
pub(crate) fn bring_to_rest(objects: &mut Objects, domain: &str) {
    deploy_waypoints(objects, domain);
    redirect_pods(objects);
}

/// Replaces a pod by one without a sidecar. Its name and addresses stay: requests do not depend on
/// them.
pub(crate) fn restart(objects: &mut Objects, pod: &ObjectName) {
    let Some(object) = objects.get_mut(pod) else {
        return;
    };
    if DataPlane::of(object) != DataPlane::Sidecar {
        return;
    }

    for field in ["containers", "initContainers"] {
        let containers = object
            .pointer_mut(&format!("/spec/{field}"))
            .and_then(Value::as_array_mut);
        if let Some(containers) = containers {
            containers.retain(|container| !INJECTED_CONTAINERS.contains(&text(container, "/name")));
        }
    }
    for (field, keys) in [
        ("labels", &INJECTED_LABELS[..]),
        ("annotations", &[SIDECAR_STATUS][..]),
    ] {
        let known = object
            .pointer_mut(&format!("/metadata/{field}"))
            .and_then(Value::as_object_mut);
        if let Some(known) = known {
            known.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
}

/// Redirects the pods that ambient mode applies to.
fn redirect_pods(objects: &mut Objects) {
    let is_captured = |pod: &Value| {
        let namespace = objects.namespace(super::objects::namespace(pod));
        let of_namespace = namespace.map_or("", |(_, object)| label(object, DATAPLANE_MODE));
        let mode = match label(pod, DATAPLANE_MODE) {
            "" => of_namespace,
            own => own,
        };
        let on_host = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool);
        mode == AMBIENT
            && on_host != Some(true)
            && is_alive(pod)
            && DataPlane::of(pod) == DataPlane::Outside
    };

    let captured: Vec<ObjectName> = objects
        .of(POD)
        .filter(|(_, pod)| is_captured(pod))
        .map(|(name, _)| name.clone())
        .collect();
    for name in captured {
        if let Some(pod) = objects.get_mut(&name) {
            set_metadata(pod, "annotations", REDIRECTION, "enabled");
        }
    }

    let without_node: Vec<ObjectName> = objects
        .of(POD)
        .filter(|(_, pod)| text(pod, "/spec/nodeName").is_empty())
        .filter(|(_, pod)| annotation(pod, REDIRECTION) == "enabled")
        .map(|(name, _)| name.clone())
        .collect();
    for name in without_node {
        if let Some(pod) = objects.get_mut(&name) {
            super::edit::merge(pod, &json!({ "spec": { "nodeName": ANY_NODE } }));
        }
    }
}

/// Gives each waypoint without an address one, with a Service and a pod.
fn deploy_waypoints(objects: &mut Objects, domain: &str) {
    let new: Vec<ObjectName> = objects
        .of(GATEWAY)
        .filter(|(_, gateway)| text(gateway, "/spec/gatewayClassName") == WAYPOINT_CLASS)
        .filter(|(_, gateway)| gateway.pointer("/status/addresses/0").is_none())
        .map(|(name, _)| name.clone())
        .collect();

    for name in new {
        let used = objects
            .of(SERVICE)
            .filter(|(_, service)| text(service, "/spec/clusterIP").starts_with("198.18."))
            .count();
        let host = format!("{}.{}.svc.{domain}", name.name, name.namespace);
        if let Some(gateway) = objects.get_mut(&name) {
            let address = json!([{ "type": "Hostname", "value": host }]);
            super::edit::merge(gateway, &json!({ "status": { "addresses": address } }));
        }
        for object in deployed(&name, used) {
            objects.add(object);
        }
    }
}

/// The objects that the gateway controller creates for a waypoint. Addresses are of the range for
/// benchmarks (RFC 2544); `used` are taken.
fn deployed(waypoint: &ObjectName, used: usize) -> [Value; 3] {
    let suffix = format!("{}.{}", used / 250, used % 250 + 1);
    let service_ip = format!("198.18.{suffix}");
    let pod_ip = format!("198.19.{suffix}");
    let ObjectName {
        name, namespace, ..
    } = waypoint;
    let pod_name = format!("{name}-0");
    let labels = json!({
        GATEWAY_NAME: name,
        "gateway.istio.io/managed": "istio.io-mesh-controller",
    });

    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "clusterIP": service_ip,
            "clusterIPs": [service_ip],
            "selector": { GATEWAY_NAME: name },
            "ports": [{ "name": "mesh", "port": 15008, "targetPort": 15008 }],
        },
    });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod_name, "namespace": namespace, "labels": labels },
        "spec": {
            "nodeName": ANY_NODE,
            "serviceAccountName": name,
            "containers": [{ "name": PROXY_CONTAINER, "args": ["proxy", "waypoint"] }],
        },
        "status": {
            "phase": "Running",
            "podIP": pod_ip,
            "podIPs": [{ "ip": pod_ip }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-0"),
            "namespace": namespace,
            "labels": { "kubernetes.io/service-name": name },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "mesh", "port": 15008, "protocol": "TCP" }],
        "endpoints": [{
            "addresses": [pod_ip],
            "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "name": pod_name, "namespace": namespace },
        }],
    });
    [service, pod, slice]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> (ObjectName, Value) {
        (ObjectName::of(&value), value)
    }

    #[test]
    fn pods_without_a_sidecar_are_redirected_in_ambient_namespaces_alone() {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "shop", "labels": { "istio.io/dataplane-mode": "ambient" },
        } });
        let pod = |name: &str, labels: Value, container: &str| {
            object(json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "namespace": "shop", "labels": labels },
                "spec": { "containers": [{ "name": container }] } }))
        };
        let (plain, plain_pod) = pod("plain", json!({}), "app");
        let (left_out, left_out_pod) = pod(
            "left-out",
            json!({ "istio.io/dataplane-mode": "none" }),
            "app",
        );
        let (injected, injected_pod) = pod(
            "injected",
            json!({ "security.istio.io/tlsMode": "istio" }),
            "istio-proxy",
        );

        let mut objects = Objects::default();
        for one in [namespace, plain_pod, left_out_pod, injected_pod] {
            objects.add(one);
        }
        bring_to_rest(&mut objects, "cluster.local");
        let plane =
            |objects: &Objects, name: &ObjectName| DataPlane::of(objects.get(name).unwrap());
        assert_eq!(plane(&objects, &plain), DataPlane::Ambient);
        assert_eq!(plane(&objects, &left_out), DataPlane::Outside);
        assert_eq!(plane(&objects, &injected), DataPlane::Sidecar);

        restart(&mut objects, &injected);
        bring_to_rest(&mut objects, "cluster.local");
        assert_eq!(plane(&objects, &injected), DataPlane::Ambient);
        assert_eq!(
            label(objects.get(&injected).unwrap(), "security.istio.io/tlsMode"),
            ""
        );
    }

    #[test]
    fn a_new_waypoint_gets_an_address_and_a_pod() {
        let (name, gateway) = object(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "waypoint", "namespace": "shop" },
            "spec": { "gatewayClassName": "istio-waypoint" },
        }));
        let mut objects = Objects::default();
        objects.add(gateway);
        bring_to_rest(&mut objects, "cluster.local");
        let gateway = objects.get(&name).unwrap();
        assert_eq!(
            text(gateway, "/status/addresses/0/value"),
            "waypoint.shop.svc.cluster.local"
        );
        assert_eq!(objects.within(POD, "shop").count(), 1);

        let before = objects.clone();
        bring_to_rest(&mut objects, "cluster.local");
        assert_eq!(objects, before);
    }
}
