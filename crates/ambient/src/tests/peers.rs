//! The policies that workloads get from PeerAuthentications.

use super::*;

/// A PeerAuthentication of a namespace with this spec.
fn peers(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{ apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{ name: {name}, namespace: {namespace} }}, \
         spec: {spec} }}\n---\n"
    )
}

/// A pod of a namespace on the ztunnel's node.
fn pod_in(namespace: &str) -> String {
    format!(
        "{{ apiVersion: v1, kind: Pod, metadata: {{ name: web, namespace: {namespace}, labels: {{ app: web }} }}, \
         spec: {{ nodeName: n1, containers: [] }}, status: {{ phase: Running, podIP: 10.1.0.1 }} }}\n---\n"
    )
}

/// The policies that the pod of a namespace lists.
fn listed(namespace: &str, policies: &str) -> Vec<String> {
    let mut mesh = Mesh::new();
    mesh.put(&(pod_in(namespace) + policies));
    let ztunnel = mesh.ztunnel("n1");
    let shown = mesh.ask(ztunnel, ResourceType::Workload, &[]);
    let body = shown[&format!("Kubernetes//Pod/{namespace}/web")].clone();
    Workload::decode(body).unwrap().authorization_policies
}

#[test]
fn an_empty_selector_in_the_root_namespace_selects_only_that_namespace() {
    let strict = ["istio-system/istio_converted_static_strict"];
    let empty = peers(
        "istio-system",
        "empty",
        "{ selector: {}, mtls: { mode: STRICT } }",
    );
    assert_eq!(listed("shop", &empty), [""; 0], "as in istiod");
    assert_eq!(listed("istio-system", &empty), strict);

    // Of equally old ones the first by name applies; one with an empty selector does not apply to
    // other namespaces.
    let both = peers(
        "istio-system",
        "a",
        "{ selector: {}, mtls: { mode: PERMISSIVE } }",
    ) + &peers("istio-system", "b", "{ mtls: { mode: STRICT } }");
    assert_eq!(listed("shop", &both), strict);

    assert_eq!(listed("istio-system", &both), [""; 0]);
    let own = peers("shop", "empty", "{ selector: {}, mtls: { mode: STRICT } }");
    assert_eq!(listed("shop", &own), strict);
}

#[test]
fn a_strict_port_is_strict_though_the_mesh_is() {
    // istiod lists a policy here that it does not generate.
    for mode in ["PERMISSIVE", "DISABLE"] {
        let spec = format!(
            "{{ selector: {{ matchLabels: {{ app: web }} }}, mtls: {{ mode: {mode} }}, portLevelMtls: {{ 9090: {{ mode: STRICT }} }} }}"
        );
        let policies = peers("istio-system", "mesh", "{ mtls: { mode: STRICT } }")
            + &peers("shop", "port", &spec);
        assert_eq!(
            listed("shop", &policies),
            ["shop/converted_peer_authentication_port"]
        );

        let mut mesh = Mesh::new();
        mesh.put(&(pod_in("shop") + &policies));
        let ztunnel = mesh.ztunnel("n1");
        let made = mesh.ask(ztunnel, ResourceType::Authorization, &[]);
        let made =
            Authorization::decode(made["shop/converted_peer_authentication_port"].clone()).unwrap();
        let ports = made
            .groups
            .iter()
            .flat_map(|group| &group.rules)
            .flat_map(|rules| &rules.matches);

        assert_eq!(
            ports
                .flat_map(|fit| fit.destination_ports.clone())
                .collect::<Vec<_>>(),
            [9090]
        );
    }
}
