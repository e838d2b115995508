use serde_json::{Value, json};

use super::super::service_port::TargetPort;
use super::*;
use crate::names::PortName;

fn service(spec: Value) -> Result<Service, FieldError> {
    let object = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec });
    let object: wire::Service = serde_json::from_value(object).unwrap();
    Object::<Service>::try_from(object).map(|object| object.spec)
}

#[test]
fn omitted_fields_get_the_api_servers_defaults() {
    let service = service(json!({ "ports": [{ "port": 80 }] })).unwrap();
    let expected = Service {
        service_type: ServiceType::ClusterIp,
        cluster_ips: ClusterIps::Unassigned,
        ip_families: IpFamilies::Unsaid,
        ports: Box::new([ServicePort {
            name: PortName::default(),
            port: 80,
            protocol: Protocol::Tcp,
            app_protocol: None,
            target: TargetPort::Number(80),
            node_port: None,
        }]),
        selector: TextMap::new(),
        external_ips: IpList::default(),
        publish_not_ready_addresses: false,
        internal_traffic_policy: TrafficPolicy::Cluster,
        external_traffic_policy: TrafficPolicy::Cluster,
        traffic_distribution: None,
        session_affinity: SessionAffinity::None,
        load_balancer: Box::default(),
    };

    assert_eq!(service, expected);
}

#[test]
fn either_cluster_ip_field_is_enough() {
    let one = service(json!({ "clusterIP": "10.0.0.1" })).unwrap();
    let many = service(json!({ "clusterIPs": ["10.0.0.1"] })).unwrap();
    assert_eq!(one, many);
    let dual =
        service(json!({ "clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.0.0.1"] })).unwrap();
    assert_eq!(dual.cluster_ips.addresses().len(), 2);
    assert!(
        service(json!({ "clusterIP": "None" }))
            .unwrap()
            .is_headless()
    );
    let error =
        service(json!({ "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.1"] })).unwrap_err();
    assert_eq!(error.path, "spec.clusterIPs[0]");
}

#[test]
fn a_target_port_is_a_number_or_a_name() {
    let ports = json!([{ "port": 1, "targetPort": "http" }, { "port": 2, "targetPort": 3 }, { "port": 4, "targetPort": 0 }]);
    let targets: Vec<_> = service(json!({ "ports": ports }))
        .unwrap()
        .ports
        .into_iter()
        .map(|port| port.target)
        .collect();
    let expected = [
        TargetPort::Name(PortName::new("http")),
        TargetPort::Number(3),
        TargetPort::Number(4),
    ];
    assert_eq!(targets, expected);
}

#[test]
fn errors_name_the_field() {
    let path = |spec| service(spec).unwrap_err().path;
    assert_eq!(
        path(json!({ "ports": [{ "port": 1 }, { "port": 70000 }] })),
        "spec.ports[1].port"
    );
    assert_eq!(
        path(json!({ "ports": [{ "port": 1, "protocol": "ICMP" }] })),
        "spec.ports[0].protocol"
    );

    assert_eq!(path(json!({ "type": "Magic" })), "spec.type");
    assert_eq!(path(json!({ "type": "ExternalName" })), "spec.externalName");
    assert_eq!(
        path(json!({ "clusterIP": "10.0.0.300" })),
        "spec.clusterIPs[0]"
    );
    assert_eq!(
        path(json!({ "externalIPs": ["1.1.1.1", "x"] })),
        "spec.externalIPs[1]"
    );
}

#[test]
fn the_load_balancer_is_read_from_the_status() {
    let object: wire::Service = serde_json::from_value(json!({
        "metadata": { "name": "ingress" },
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [
            { "ip": "203.0.113.9", "ports": [{ "port": 443, "protocol": "TCP" }] },
            { "hostname": "lb.example.com" },
        ] } },
    }))
    .unwrap();
    let service = Object::<Service>::try_from(object).unwrap().spec;
    let expected = [
        LoadBalancerIngress {
            ip: Some("203.0.113.9".parse().unwrap()),
            hostname: None,
            ports: vec![LoadBalancerPort {
                port: 443,
                protocol: Protocol::Tcp,
                error: None,
            }],
        },
        LoadBalancerIngress {
            ip: None,
            hostname: Some(Hostname::new("lb.example.com")),
            ports: Vec::new(),
        },
    ];

    assert_eq!(*service.load_balancer, expected);
}
