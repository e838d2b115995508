//! A mesh in ambient mode of any number of workloads.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::json;

use super::api::{Listing, World};
use super::kubernetes::{
    Container, Endpoint, EndpointPort, EndpointSlice, Form, ObjectMeta, ObjectReference, Pod,
    PodSpec, PodStatus, Served as _, Service, ServiceSpec, json_event,
};
use super::mesh::{self, SLICES, behind};
use crate::xds::world::{MAX_ENDPOINTS, MAX_SERVICES};

/// The path of pods.
pub(super) const PODS: &str = "/api/v1/pods";
/// Services of each namespace.
const SERVICES_PER_NAMESPACE: u32 = 50;
/// The first address of pods.
const FIRST_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
/// The first address of services.
const FIRST_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 0);

/// The mesh. Pods, services and namespaces have numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AmbientMesh {
    pub(super) pods: u32,
    pub(super) pods_per_service: u32,
    /// Nodes over which pods are spread in turn.
    pub(super) nodes: u32,
}

impl AmbientMesh {
    /// Checks that all addresses are unique.
    ///
    /// # Errors
    /// If there are too many pods or services.
    pub(super) fn check(&self) -> Result<()> {
        let pods = usize::try_from(self.pods)?;
        let services = usize::try_from(self.services())?;
        ensure!(
            pods <= MAX_ENDPOINTS && services <= MAX_SERVICES,
            "{pods} pods and {services} services, but there are addresses for {MAX_ENDPOINTS} and \
             {MAX_SERVICES}"
        );
        Ok(())
    }

    pub(super) fn services(&self) -> u32 {
        self.pods.div_ceil(self.pods_per_service)
    }

    fn namespaces(&self) -> u32 {
        self.services().div_ceil(SERVICES_PER_NAMESPACE)
    }

    /// The addresses that a ztunnel receives: of pods and of services.
    pub(super) fn addresses(&self) -> usize {
        usize::try_from(self.pods + self.services()).unwrap_or(usize::MAX)
    }

    /// The metadata of an object of a service; `number` makes its UID unique.
    fn metadata(&self, service: u32, name: String, number: u64, version: u64) -> ObjectMeta {
        let namespace = mesh::namespace(service / SERVICES_PER_NAMESPACE);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        ObjectMeta::new(&namespace, name, number, version).label("app", &app(service))
    }

    /// A pod.
    pub(super) fn pod(&self, number: u32, is_ready: bool, version: u64) -> Pod {
        let service = number / self.pods_per_service;
        let app = app(service);
        let mut metadata = self.metadata(service, pod_name(number), number.into(), version);
        let captured = ("ambient.istio.io/redirection", "enabled");
        metadata
            .annotations
            .insert(captured.0.to_owned(), captured.1.to_owned());
        let spec = PodSpec {
            containers: vec![Container {
                name: "app".to_owned(),
                image: "registry.example.com/team/app:1.2.3".to_owned(),
            }],
            service_account: app,
            node: format!("node-{}", number % self.nodes),
        };

        let address = behind(FIRST_POD, number).to_string();
        Pod {
            metadata: Some(metadata),
            spec: Some(spec),
            status: Some(PodStatus::running(address, is_ready)),
        }
    }

    fn service(&self, number: u32) -> Service {
        let name = app(number);
        let address = behind(FIRST_SERVICE, number).to_string();
        let id = u64::from(self.pods) + u64::from(number);
        Service {
            spec: Some(ServiceSpec::http(&name, address)),
            metadata: Some(self.metadata(number, name, id, 1)),
        }
    }

    /// The EndpointSlice of a service.
    fn slice(&self, number: u32) -> EndpointSlice {
        let id = u64::from(self.pods) + u64::from(self.services()) + u64::from(number);
        let metadata = self.metadata(number, format!("{}-x", app(number)), id, 1);
        let first = number * self.pods_per_service;
        let pods = first..self.pods.min(first + self.pods_per_service);
        let namespace = &metadata.namespace;
        let endpoint = |pod: u32| Endpoint {
            target: Some(ObjectReference {
                kind: "Pod".to_owned(),
                namespace: namespace.clone(),
                name: pod_name(pod),
            }),
            ..Endpoint::ready(behind(FIRST_POD, pod).to_string())
        };

        EndpointSlice {
            endpoints: pods.map(endpoint).collect(),
            metadata: Some(metadata.label("kubernetes.io/service-name", &app(number))),
            ports: vec![EndpointPort::http()],
            address_type: "IPv4".to_owned(),
        }
    }
}

/// The name of a service, and the label of its pods.
fn app(service: u32) -> String {
    format!("svc{service}")
}

fn pod_name(number: u32) -> String {
    format!("pod{number}-5d8f7c9b6d")
}

/// A namespace in ambient mode.
fn namespace(number: u32) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": mesh::namespace(number), "resourceVersion": "1",
            "labels": { "istio.io/dataplane-mode": "ambient" },
        },
    })
}

impl World for AmbientMesh {
    fn listing(&self, path: &str) -> Option<Listing<'_>> {
        let services = 0..self.services();
        let (form, events): (Form, Box<dyn Iterator<Item = Vec<u8>> + Send + '_>) = match path {
            "/api/v1/namespaces" => {
                let namespaces = (0..self.namespaces()).map(namespace);
                let events = namespaces.map(|object| json_event("ADDED", &object));
                (Form::Json, Box::new(events))
            }
            "/api/v1/services" => {
                let events = services.map(|number| self.service(number).event("ADDED"));
                (Form::Protobuf, Box::new(events))
            }
            SLICES => {
                let events = services.map(|number| self.slice(number).event("ADDED"));
                (Form::Protobuf, Box::new(events))
            }
            PODS => {
                let events = (0..self.pods).map(|number| self.pod(number, true, 1).event("ADDED"));
                (Form::Protobuf, Box::new(events))
            }
            _ => return None,
        };
        Some(Listing { form, events })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MESH: AmbientMesh = AmbientMesh {
        pods: 1_003,
        pods_per_service: 10,
        nodes: 7,
    };

    #[test]
    fn every_pod_is_an_endpoint_of_one_service() {
        let slices: Vec<_> = (0..MESH.services())
            .map(|number| MESH.slice(number))
            .collect();
        let endpoints = || slices.iter().flat_map(|slice| &slice.endpoints);
        let targets: BTreeSet<_> = endpoints()
            .map(|endpoint| &endpoint.target.as_ref().unwrap().name)
            .collect();
        let addresses: BTreeSet<_> = endpoints().map(|endpoint| &endpoint.addresses[0]).collect();
        assert_eq!(slices.len(), 101);
        assert_eq!(targets.len(), 1_003);
        assert_eq!(addresses.len(), 1_003);

        let pod = MESH.pod(1_002, false, 5);
        let slice = slices.last().unwrap();
        let metadata = pod.metadata.unwrap();
        let status = pod.status.unwrap();
        assert_eq!(slice.endpoints[2].addresses, [status.ip]);
        assert_eq!(
            slice.metadata.as_ref().unwrap().namespace,
            metadata.namespace
        );
        assert_eq!(status.conditions[0].status, "False");
        assert_eq!(metadata.resource_version, "5");
    }

    #[test]
    fn all_objects_are_listed_once() {
        let count = |path: &str| {
            let events = MESH.listing(path).unwrap().events;
            events.collect::<BTreeSet<_>>().len()
        };
        assert_eq!(count(PODS), 1_003);
        assert_eq!(count("/api/v1/services") + count(PODS), MESH.addresses());
        assert_eq!(count(SLICES), 101);
        assert_eq!(count("/api/v1/namespaces"), 3);
        let million = AmbientMesh {
            pods: 1_000_000,
            ..MESH
        };
        assert!(million.check().is_ok());
        let large = AmbientMesh {
            pods: 7_000_000,
            ..MESH
        };
        assert!(large.check().is_err());
    }
}
