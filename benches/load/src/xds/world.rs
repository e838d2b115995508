//! Generates a mesh of any size: objects by number.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON that is built here adds missing fields"
)]

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::xds::target::Target;

/// The size of a mesh.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub(crate) struct Size {
    /// Services, one HTTP port each.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) services: usize,
    /// Endpoints of each service.
    #[arg(long, default_value_t = 10)]
    pub(crate) endpoints: usize,
    /// Namespaces over which the services are spread.
    #[arg(long, default_value_t = 10)]
    pub(crate) namespaces: usize,
    /// VirtualServices, for the first services.
    #[arg(long, default_value_t = 200)]
    pub(crate) virtual_services: usize,
    /// DestinationRules, for the first services.
    #[arg(long, default_value_t = 200)]
    pub(crate) destination_rules: usize,
    /// Sidecars, for the first namespaces: each limits the egress of its namespace to the namespace
    /// itself.
    #[arg(long, default_value_t = 0)]
    pub(crate) sidecars: usize,
    /// AuthorizationPolicies, for the pods of the first services.
    #[arg(long, default_value_t = 0)]
    pub(crate) policies: usize,
    /// Hosts at a gateway, one VirtualService each.
    #[arg(long, default_value_t = 0)]
    pub(crate) gateway_hosts: usize,
    /// Whether each endpoint has a pod.
    #[arg(long)]
    pub(crate) pods: bool,
    /// Headless services: without a cluster IP. Gateways get their endpoints, sidecars do not.
    #[arg(long)]
    pub(crate) headless: bool,
}

/// The services that have addresses of their own: from 10.96.1.0 up to the proxies' addresses.
pub(crate) const MAX_SERVICES: usize = (104 << 16) - 256;
/// The endpoints that have addresses of their own: from 10.1.0.0 up to those of services.
pub(crate) const MAX_ENDPOINTS: usize = 95 << 16;

impl Size {
    fn namespace(&self, service: usize) -> String {
        format!("ns{}", service % self.namespaces.max(1))
    }

    fn host(&self, service: usize) -> String {
        format!("svc{service}.{}.svc.cluster.local", self.namespace(service))
    }

    /// Checks that all addresses are unique.
    ///
    /// # Errors
    /// If there are too many services or endpoints.
    fn check(&self) -> Result<()> {
        let services = self.services;
        ensure!(
            services <= MAX_SERVICES,
            "{services} services, but there are addresses for {MAX_SERVICES}"
        );

        let endpoints = services.saturating_mul(self.endpoints);
        ensure!(
            endpoints <= MAX_ENDPOINTS,
            "{endpoints} endpoints, but there are addresses for {MAX_ENDPOINTS}"
        );
        Ok(())
    }
}

/// The address of an endpoint; unique in meshes of up to [`MAX_ENDPOINTS`].
pub(crate) fn endpoint_ip(size: &Size, service: usize, endpoint: usize) -> String {
    let n = service * size.endpoints + endpoint;
    format!("10.{}.{}.{}", 1 + (n >> 16), (n >> 8) & 255, n & 255)
}

/// The cluster IP of a service: in the range that most API servers use, beyond the part that they
/// allocate first.
fn service_ip(service: usize) -> String {
    let n = service + 256;
    format!("10.{}.{}.{}", 96 + (n >> 16), (n >> 8) & 255, n & 255)
}

/// The metadata of an object.
fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z" })
}

fn service(size: &Size, n: usize) -> Value {
    let cluster_ip = match size.headless {
        true => "None".to_owned(),
        false => service_ip(n),
    };
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(&size.namespace(n), &format!("svc{n}")),
        "spec": {
            "clusterIP": cluster_ip,
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }],
            "selector": { "app": format!("svc{n}") },
        },
    })
}

fn pod(size: &Size, n: usize, endpoint: usize) -> Value {
    let mut metadata = meta(&size.namespace(n), &format!("svc{n}-{endpoint}"));
    metadata["labels"] =
        json!({ "app": format!("svc{n}"), "version": format!("v{}", endpoint % 2) });
    let ip = endpoint_ip(size, n, endpoint);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "serviceAccountName": format!("svc{n}"), "nodeName": "node-1", "containers": [{ "name": "app", "image": "app" }] },
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// Endpoints of a slice: the default maximum of Kubernetes' endpoint slice controller.
const SLICE: usize = 100;

/// The slices of a service.
fn slices(size: &Size, n: usize) -> impl Iterator<Item = Value> {
    (0..size.endpoints.div_ceil(SLICE).max(1)).map(move |part| slice_part(size, n, part, None))
}

/// The first slice of a service, with an additional endpoint if an address is given.
pub(crate) fn slice(size: &Size, n: usize, more: Option<&str>) -> Value {
    slice_part(size, n, 0, more)
}

/// A slice of a service, with an additional endpoint if an address is given.
fn slice_part(size: &Size, n: usize, part: usize, more: Option<&str>) -> Value {
    let mut metadata = meta(
        &size.namespace(n),
        &format!(
            "svc{n}-x{}",
            if part == 0 {
                String::new()
            } else {
                part.to_string()
            }
        ),
    );

    metadata["labels"] = json!({ "kubernetes.io/service-name": format!("svc{n}") });
    let endpoint = |endpoint: usize| {
        let mut value = json!({ "addresses": [endpoint_ip(size, n, endpoint)], "conditions": { "ready": true } });
        if size.pods {
            let name = format!("svc{n}-{endpoint}");
            value["targetRef"] =
                json!({ "kind": "Pod", "name": name, "namespace": size.namespace(n) });
        }
        value
    };

    let mut endpoints: Vec<Value> = (part * SLICE..size.endpoints.min((part + 1) * SLICE))
        .map(endpoint)
        .collect();
    endpoints.extend(more.map(|ip| json!({ "addresses": [ip], "conditions": { "ready": true } })));

    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    })
}

/// The VirtualService of a service, which sets a response header.
pub(crate) fn virtual_service(size: &Size, n: usize, header: &str) -> Value {
    let host = size.host(n);
    let route = json!([{ "destination": { "host": host }, "headers": { "response": { "set": { "x-load": header } } } }]);
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": meta(&size.namespace(n), &format!("vs{n}")),
        "spec": { "hosts": [host], "http": [{ "timeout": "10s", "route": route }] },
    })
}

/// The namespace of the gateway.
pub(crate) const GATEWAYS: &str = "gateways";

/// The gateway, which serves all hosts.
fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": meta(GATEWAYS, "door"),
        "spec": {
            "selector": { "istio": "ingressgateway" },
            "servers": [{ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] }],
        },
    })
}

/// The VirtualService of a host at the gateway, which sets a response header.
pub(crate) fn gateway_host(size: &Size, n: usize, header: &str) -> Value {
    let destination = size.host(n % size.services.max(1));
    let route = json!([{ "destination": { "host": destination }, "headers": { "response": { "set": { "x-load": header } } } }]);
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta(GATEWAYS, &format!("host{n}")),
        "spec": { "hosts": [format!("host{n}.load.example")], "gateways": ["door"], "http": [{ "route": route }] },
    })
}

/// The AuthorizationPolicy of a service's pods: its own namespace may call.
fn policy(size: &Size, n: usize) -> Value {
    json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": meta(&size.namespace(n), &format!("policy{n}")),
        "spec": {
            "selector": { "matchLabels": { "app": format!("svc{n}") } },
            "rules": [{ "from": [{ "source": { "namespaces": [size.namespace(n)] } }] }],
        },
    })
}

/// A VirtualService that is exported only to its own namespace, which has no proxies.
pub(crate) fn unseen(size: &Size, header: &str) -> Value {
    let mut object = virtual_service(size, 0, header);
    object["metadata"] = meta("nobody", "unseen");
    object["spec"]["exportTo"] = json!(["."]);
    object
}

/// The DestinationRule of a service: a connection limit, and TLS with an SNI.
pub(crate) fn destination_rule(size: &Size, n: usize, sni: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": meta(&size.namespace(n), &format!("dr{n}")),
        "spec": {
            "host": size.host(n),
            "trafficPolicy": {
                "connectionPool": { "tcp": { "maxConnections": 100 } },
                "tls": { "mode": "SIMPLE", "sni": sni },
            },
        },
    })
}

/// The Sidecar of a namespace.
fn sidecar(n: usize) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": meta(&format!("ns{n}"), "default"),
        "spec": { "egress": [{ "hosts": ["./*"] }] },
    })
}

fn file_of(dir: &Path, object: &Value) -> PathBuf {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]);
    let meta = &object["metadata"];
    dir.join(kind.to_lowercase()).join(format!(
        "{}.{}.yaml",
        text(&meta["name"]),
        text(&meta["namespace"])
    ))
}

/// Writes an object's file atomically.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn put(dir: &Path, object: &Value) -> Result<()> {
    let file = file_of(dir, object);
    let next = file.with_extension("next");

    // JSON is valid YAML.
    let write = || -> io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&next, object.to_string())?;
        fs::rename(&next, &file)
    };

    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Writes a whole mesh.
///
/// # Errors
/// If there are more services or endpoints than addresses, or an object cannot be written.
pub(crate) async fn generate(target: &Target, size: &Size) -> Result<()> {
    size.check()?;
    let namespace =
        |n: String| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": n } });
    let names = (0..size.namespaces)
        .map(|n| format!("ns{n}"))
        .chain(["nobody", GATEWAYS].map(str::to_owned));
    target.put_all(names.map(namespace).collect()).await?;
    let mut objects = Vec::new();

    for n in 0..size.services {
        objects.push(service(size, n));
        objects.extend(slices(size, n));
        objects.extend(
            (0..if size.pods { size.endpoints } else { 0 }).map(|endpoint| pod(size, n, endpoint)),
        );
    }

    objects.extend((0..size.virtual_services).map(|n| virtual_service(size, n, "0")));
    objects.extend((0..size.destination_rules).map(|n| destination_rule(size, n, "start.example")));
    objects.extend((0..size.sidecars).map(sidecar));
    objects.extend((0..size.policies).map(|n| policy(size, n)));
    objects.extend((size.gateway_hosts > 0).then(gateway));
    objects.extend((0..size.gateway_hosts).map(|n| gateway_host(size, n, "0")));

    target.put_all(objects).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::run::Plan;

    #[tokio::test]
    async fn a_generated_mesh_has_the_requested_size() {
        let folder = tempfile::tempdir().unwrap();
        let size = Size {
            services: 3,
            endpoints: 2,
            namespaces: 2,
            virtual_services: 2,
            destination_rules: 1,
            sidecars: 1,
            policies: 2,
            gateway_hosts: 3,
            pods: true,
            headless: false,
        };

        generate(&Target::Directory(folder.path().to_owned()), &size)
            .await
            .unwrap();
        let count = |kind: &str| fs::read_dir(folder.path().join(kind)).unwrap().count();
        let kinds = [
            "namespace",
            "service",
            "endpointslice",
            "pod",
            "virtualservice",
            "destinationrule",
            "sidecar",
        ]
        .map(count);
        assert_eq!(kinds, [4, 3, 3, 6, 5, 1, 1]);
        assert_eq!(["gateway", "authorizationpolicy"].map(count), [1, 2]);
        put(folder.path(), &slice(&size, 1, Some("10.99.0.1"))).unwrap();
        let text = fs::read_to_string(folder.path().join("endpointslice/svc1-x.ns1.yaml")).unwrap();
        assert!(
            text.contains("10.99.0.1") && text.contains(&endpoint_ip(&size, 1, 1)),
            "{text}"
        );

        assert_eq!(count("endpointslice"), 3);
        let lengths = |endpoints: usize| {
            let size = Size {
                endpoints,
                pods: false,
                ..size
            };
            slices(&size, 0)
                .map(|slice| slice["endpoints"].as_array().unwrap().len())
                .collect::<Vec<_>>()
        };

        assert_eq!(
            (lengths(0), lengths(100), lengths(201)),
            (vec![0], vec![100], vec![100, 100, 1])
        );
    }
    #[test]
    fn addresses_are_unique_or_the_mesh_is_rejected() {
        let size = |services, endpoints| Size {
            services,
            endpoints,
            ..Plan::default().size
        };
        assert!(size(62_000, 90).check().is_ok());
        assert!(size(MAX_SERVICES + 1, 0).check().is_err());
        assert!(size(1, MAX_ENDPOINTS + 1).check().is_err());

        assert_eq!(service_ip(0), "10.96.1.0");
        assert_eq!(service_ip(MAX_SERVICES - 1), "10.199.255.255");
        assert_eq!(endpoint_ip(&size(1, 1), 0, 0), "10.1.0.0");
        let last = endpoint_ip(&size(1, MAX_ENDPOINTS), 0, MAX_ENDPOINTS - 1);
        assert_eq!(last, "10.95.255.255");
    }

    #[test]
    fn headless_services_have_no_cluster_ip() {
        let cluster_ip = |headless| {
            let size = Size {
                headless,
                ..Plan::default().size
            };
            service(&size, 0)["spec"]["clusterIP"].clone()
        };
        assert_eq!(cluster_ip(true), "None");
        assert_eq!(cluster_ip(false), "10.96.1.0");
    }
}
