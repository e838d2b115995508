//! Encoding of Kubernetes' own kinds, of which only some fields are kept.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::kubernetes::{
    AddressType, ClusterIps, ConfigMap, ContainerPort, Endpoint, EndpointPort, EndpointSlice,
    Ingress, IngressBackend, IngressClass, IngressPath, IngressPort, IpFamilies,
    LoadBalancerIngress, LoadBalancerPort, Node, NodeAddress, NodeAddressType, PathType, Pod,
    PodPhase, Secret, Service, ServiceAccount, ServicePort, ServiceType, SessionAffinity,
    TargetPort, TrafficDistribution, TrafficPolicy,
};

/// The fields of an object.
type Fields = Map<String, Value>;

/// The fields of a value that is an object.
fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Fields::new()
        }
    }
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

pub(super) fn node(node: &Node) -> Fields {
    let address = |address: &NodeAddress| {
        let kind = match address.kind {
            NodeAddressType::InternalIp => "InternalIP",
            NodeAddressType::ExternalIp => "ExternalIP",
            NodeAddressType::Hostname => "Hostname",
            NodeAddressType::InternalDns => "InternalDNS",
            NodeAddressType::ExternalDns => "ExternalDNS",
        };
        json!({ "type": kind, "address": &*address.address })
    };
    let addresses: Vec<Value> = node.addresses.iter().map(address).collect();
    fields(
        json!({ "status": { "addresses": addresses, "nodeInfo": { "kubeletVersion": &*node.kubelet_version } } }),
    )
}

pub(super) fn pod(pod: &Pod) -> Fields {
    let port = |port: &ContainerPort| json!({ "name": port.name, "containerPort": port.port, "protocol": port.protocol.as_str() });
    let dns = pod.dns.as_deref();
    let ports: Vec<Value> = pod.ports.iter().map(port).collect();
    let phase = match pod.phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    };

    let ready = if pod.ready { "True" } else { "False" };
    let ips: Vec<Value> = texts(&pod.pod_ips)
        .into_iter()
        .map(|ip| json!({ "ip": ip }))
        .collect();
    let mut all = fields(json!({
        "spec": {
            "serviceAccountName": pod.service_account, "nodeName": pod.node.as_deref(), "hostNetwork": pod.host_network,
            "hostname": dns.and_then(|dns| dns.hostname.as_deref()),
            "subdomain": dns.and_then(|dns| dns.subdomain.as_deref()),
            "containers": [{ "name": "all", "ports": ports }],
        },
        "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }], "podIPs": ips },
    }));

    if pod.name_is_generated {
        all.insert(
            "metadata".to_owned(),
            json!({ "generateName": "generated-" }),
        );
    }

    all
}

pub(super) fn endpoint_slice(slice: &EndpointSlice) -> Fields {
    let endpoint = |endpoint: &Endpoint| {
        let conditions = &endpoint.conditions;
        let mut one = fields(json!({
            "addresses": texts(&endpoint.addresses),
            "conditions": {
                "ready": conditions.ready, "serving": conditions.serving, "terminating": conditions.terminating,
            },
        }));
        if let Some(pod) = &endpoint.pod {
            let target = json!({ "kind": "Pod", "namespace": pod.namespace, "name": &*pod.name });
            one.insert("targetRef".to_owned(), target);
        }
        Value::Object(one)
    };

    let port = |port: &EndpointPort| json!({ "name": port.name, "port": port.port });
    let address_type = match slice.address_type {
        AddressType::Ipv4 => "IPv4",
        AddressType::Ipv6 => "IPv6",
        AddressType::Fqdn => "FQDN",
    };

    fields(json!({
        "addressType": address_type,
        "endpoints": slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": slice.ports.iter().map(port).collect::<Vec<_>>(),
    }))
}

pub(super) fn secret(secret: &Secret) -> Fields {
    let data = secret.data.iter().map(|(key, value)| {
        (
            key.to_string(),
            json!(BASE64_STANDARD.encode(value.expose())),
        )
    });
    fields(json!({ "type": &*secret.secret_type, "data": data.collect::<Fields>() }))
}

pub(super) fn config_map(map: &ConfigMap) -> Fields {
    let mut data = Fields::new();
    let mut binary = Fields::new();
    for (key, value) in &map.data {
        match std::str::from_utf8(value) {
            Ok(text) => data.insert(key.to_string(), json!(text)),
            Err(_) => binary.insert(key.to_string(), json!(BASE64_STANDARD.encode(value))),
        };
    }
    fields(json!({ "data": data, "binaryData": binary }))
}

pub(super) fn service_account(account: &ServiceAccount) -> Fields {
    let names = |names: &[std::sync::Arc<str>]| -> Vec<Value> {
        names
            .iter()
            .map(|name| json!({ "name": &**name }))
            .collect()
    };
    fields(
        json!({ "imagePullSecrets": names(&account.image_pull_secrets), "secrets": names(&account.secrets) }),
    )
}

pub(super) fn ingress_class(class: &IngressClass) -> Fields {
    fields(json!({ "spec": { "controller": &*class.controller } }))
}

pub(super) fn ingress(ingress: &Ingress) -> Fields {
    let tls = ingress.tls.iter().map(|tls| {
        let hosts: Vec<&str> = tls.hosts.iter().map(|host| &**host).collect();
        json!({ "hosts": hosts, "secretName": &*tls.secret_name })
    });
    let rules = ingress.rules.iter().map(|rule| {
        let paths = |paths: &Vec<IngressPath>| json!({ "paths": paths.iter().map(path).collect::<Vec<_>>() });
        json!({ "host": &*rule.host, "http": rule.paths.as_ref().map(paths) })
    });
    fields(json!({ "spec": {
        "ingressClassName": ingress.class_name.as_deref(), "defaultBackend": ingress.default_backend.as_ref().map(backend),
        "tls": tls.collect::<Vec<_>>(), "rules": rules.collect::<Vec<_>>(),
    } }))
}

fn path(path: &IngressPath) -> Value {
    let path_type = match path.path_type {
        PathType::Exact => "Exact",
        PathType::Prefix => "Prefix",
        PathType::ImplementationSpecific => "ImplementationSpecific",
    };
    json!({ "path": &*path.path, "pathType": path_type, "backend": backend(&path.backend) })
}

fn backend(backend: &IngressBackend) -> Value {
    match backend {
        IngressBackend::Resource => json!({ "resource": { "kind": "", "name": "" } }),
        IngressBackend::Service {
            name,
            port: IngressPort::Number(number),
        } => {
            json!({ "service": { "name": &**name, "port": { "number": number } } })
        }
        IngressBackend::Service {
            name,
            port: IngressPort::Name(port),
        } => {
            json!({ "service": { "name": &**name, "port": { "name": port } } })
        }
    }
}

pub(super) fn service(service: &Service) -> Fields {
    let external_name = match &service.service_type {
        ServiceType::ExternalName(name) => Some(name),
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => None,
    };
    let cluster_ips = match &service.cluster_ips {
        ClusterIps::Unassigned => Vec::new(),
        ClusterIps::Headless => vec!["None".to_owned()],
        ClusterIps::Assigned(addresses) => texts(addresses),
    };

    let families: &[&str] = match service.ip_families {
        IpFamilies::Unsaid => &[],
        IpFamilies::V4 => &["IPv4"],
        IpFamilies::V6 => &["IPv6"],
        IpFamilies::Dual => &["IPv4", "IPv6"],
    };

    let policy = |policy: TrafficPolicy| match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    };
    let distribution = service
        .traffic_distribution
        .map(|distribution| match distribution {
            TrafficDistribution::PreferSameZone => "PreferSameZone",
            TrafficDistribution::PreferSameNode => "PreferSameNode",
        });

    let affinity = match service.session_affinity {
        SessionAffinity::None => "None",
        SessionAffinity::ClientIp => "ClientIP",
    };

    fields(json!({
        "spec": {
            "type": service.service_type.as_str(), "externalName": external_name, "clusterIPs": cluster_ips,
            "ipFamilies": families, "ports": service.ports.iter().map(service_port).collect::<Vec<_>>(),
            "selector": service.selector, "externalIPs": texts(&service.external_ips),
            "publishNotReadyAddresses": service.publish_not_ready_addresses,
            "internalTrafficPolicy": policy(service.internal_traffic_policy),
            "externalTrafficPolicy": policy(service.external_traffic_policy),
            "trafficDistribution": distribution, "sessionAffinity": affinity,
        },
        "status": { "loadBalancer": { "ingress": service.load_balancer.iter().map(load_balancer).collect::<Vec<_>>() } },
    }))
}

fn service_port(port: &ServicePort) -> Value {
    let target = match &port.target {
        TargetPort::Number(number) => json!(number),
        TargetPort::Name(name) => json!(name),
    };
    json!({
        "name": port.name, "port": port.port, "protocol": port.protocol.as_str(),
        "appProtocol": port.app_protocol.as_deref(), "targetPort": target, "nodePort": port.node_port,
    })
}

fn load_balancer(ingress: &LoadBalancerIngress) -> Value {
    let port = |port: &LoadBalancerPort| json!({ "port": port.port, "protocol": port.protocol.as_str(), "error": port.error.as_deref() });
    json!({
        "ip": ingress.ip.map(|ip| ip.to_string()), "hostname": ingress.hostname,
        "ports": ingress.ports.iter().map(port).collect::<Vec<_>>(),
    })
}
