//! Networks of endpoints, and the gateways between networks.

use std::collections::BTreeSet;

use super::{House, a_service, a_shop, key, parse_networks};
use navarch_api::settings::Settings;

#[test]
fn network_gateways_come_from_mesh_networks_load_balancers_and_nodes() {
    let networks = parse_networks(
        "networks: { n1: { endpoints: [{ fromRegistry: Kubernetes }], gateways: [{ address: 198.51.100.1, port: 443 }, \
         { registryServiceName: gw.shop.svc.cluster.local, port: 443 }] } }",
    );
    let balanced = "type: LoadBalancer, clusterIP: 10.0.0.3, ports: [{ name: tls, port: 443 }] }\nstatus: { loadBalancer: { ingress: [{ ip: 203.0.113.1 }] }";
    let behind_nodes = a_service("nodes", "type: NodePort, clusterIP: 10.0.0.4, ports: [{ name: tls, port: 15443, nodePort: 30443 }]").replace(
        "namespace: shop",
        "namespace: shop, labels: { topology.istio.io/network: n2 }, annotations: { traffic.istio.io/nodeSelector: '{\"gw\":\"yes\"}' }",
    );

    let mut house = House::with(
        Settings::default(),
        &networks,
        &(a_service("gw", balanced) + &behind_nodes),
    );

    let gateways = |house: &House| -> Vec<String> {
        let gateways = house
            .registry
            .directory()
            .network_gateways
            .values()
            .flat_map(|gateways| gateways.iter());
        gateways
            .map(|gateway| format!("{} {}:{}", gateway.network, gateway.address, gateway.port))
            .collect()
    };

    assert_eq!(
        gateways(&house),
        ["n1 198.51.100.1:443", "n1 203.0.113.1:443"]
    );
    let change = house.put(
        "apiVersion: v1\nkind: Node\nmetadata: { name: n1, labels: { gw: 'yes' } }\n\
         status: { addresses: [{ type: ExternalIP, address: 192.0.2.7 }] }\n",
    );
    assert!(change.network_gateways);

    assert_eq!(
        gateways(&house),
        [
            "n1 198.51.100.1:443",
            "n1 203.0.113.1:443",
            "n2 192.0.2.7:30443"
        ]
    );
}

#[test]
fn the_system_namespace_label_sets_the_default_network() {
    let mut house = a_shop();
    let change = house.put("apiVersion: v1\nkind: Namespace\nmetadata: { name: istio-system, labels: { topology.istio.io/network: n1 } }\n");
    assert_eq!(change.endpoints, BTreeSet::from([key("web")]));
    let endpoints = house
        .registry
        .directory()
        .endpoints
        .get(&key("web"))
        .unwrap();
    assert_eq!(endpoints.endpoints[0].workload.location.network, "n1");
}
