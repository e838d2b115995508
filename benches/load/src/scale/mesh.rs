//! A mesh of namespaces with a few services each, whose proxies see their own namespace alone.

use std::net::Ipv4Addr;

use serde_json::json;

use super::api::{Listing, World};
use super::kubernetes::{
    Endpoint, EndpointPort, EndpointSlice, Form, ObjectMeta, Served as _, Service, ServiceSpec,
    json_event,
};
use super::order::{self, Order, Place};

/// The path of EndpointSlices.
pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// The first address of endpoints.
const ENDPOINTS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
/// The first address of services.
const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 0);

/// The mesh before the first update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mesh {
    pub(super) order: Order,
    /// Endpoints of each service, beside that of its last update.
    pub(super) endpoints: u32,
}

/// The address that is a number of addresses behind another.
pub(super) fn behind(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).wrapping_add(number))
}

impl Mesh {
    /// All services, by namespace.
    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let Order { namespaces, slots } = self.order;
        (0..namespaces)
            .flat_map(move |namespace| (0..slots).map(move |slot| Place { namespace, slot }))
    }

    /// The number of a service among all of them.
    fn number(&self, place: Place) -> u32 {
        place.namespace * self.order.slots + place.slot
    }

    /// The metadata of an object of a service.
    fn metadata(&self, place: Place, name: String, version: u64) -> ObjectMeta {
        let number = usize::try_from(self.number(place)).unwrap_or(usize::MAX);
        ObjectMeta::new(&namespace(place.namespace), name, number, version)
    }

    fn service(&self, place: Place) -> Service {
        let name = service(place.slot);
        let address = behind(SERVICES, self.number(place));
        Service {
            spec: Some(ServiceSpec::http(&name, address.to_string())),
            metadata: Some(self.metadata(place, name, 1)),
        }
    }

    /// The EndpointSlice of a service, with the endpoint of an update.
    pub(super) fn slice(&self, place: Place, update: Option<u32>, version: u64) -> EndpointSlice {
        let service = service(place.slot);
        let first = self.number(place) * self.endpoints;
        let own = (0..self.endpoints).map(|number| behind(ENDPOINTS, first + number));
        let endpoints = own
            .chain(update.map(order::address))
            .map(|address| Endpoint::ready(address.to_string()));

        EndpointSlice {
            metadata: Some(
                self.metadata(place, format!("{service}-x"), version)
                    .label("kubernetes.io/service-name", &service),
            ),
            endpoints: endpoints.collect(),
            ports: vec![EndpointPort::http()],
            address_type: "IPv4".to_owned(),
        }
    }
}

/// The name of a namespace.
pub(super) fn namespace(number: u32) -> String {
    format!("ns{number}")
}

/// The name of a service in its namespace.
fn service(slot: u32) -> String {
    format!("svc{slot}")
}

impl World for Mesh {
    fn listing(&self, path: &str) -> Option<Listing<'_>> {
        let namespaces = 0..self.order.namespaces;

        let (form, events): (Form, Box<dyn Iterator<Item = Vec<u8>> + Send + '_>) = match path {
            "/api/v1/namespaces" => {
                let events = namespaces.map(|number| {
                    let metadata = json!({ "name": namespace(number), "resourceVersion": "1" });
                    let object =
                        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
                    json_event("ADDED", &object)
                });
                (Form::Json, Box::new(events))
            }
            "/apis/networking.istio.io/v1/sidecars" => {
                let events = namespaces.map(|number| json_event("ADDED", &sidecar(number)));
                (Form::Json, Box::new(events))
            }
            "/api/v1/services" => {
                let services = self.places().map(|place| self.service(place));
                let events = services.map(|service| service.event("ADDED"));
                (Form::Protobuf, Box::new(events))
            }
            SLICES => {
                let slices = self.places().map(|place| self.slice(place, None, 1));
                let events = slices.map(|slice| slice.event("ADDED"));
                (Form::Protobuf, Box::new(events))
            }
            _ => return None,
        };

        Some(Listing { form, events })
    }
}

/// The Sidecar that limits a namespace's proxies to its own services.
fn sidecar(number: u32) -> serde_json::Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
        "metadata": { "name": "default", "namespace": namespace(number), "resourceVersion": "1" },
        "spec": { "egress": [{ "hosts": ["./*"] }] },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MESH: Mesh = Mesh {
        order: Order {
            namespaces: 300,
            slots: 4,
        },
        endpoints: 100,
    };

    #[test]
    fn all_objects_are_listed_once_and_nothing_else() {
        let count = |path: &str| {
            let listing = MESH.listing(path)?;
            Some(listing.events.collect::<BTreeSet<_>>().len())
        };
        assert_eq!(count("/api/v1/namespaces"), Some(300));
        assert_eq!(count("/apis/networking.istio.io/v1/sidecars"), Some(300));
        assert_eq!(count("/api/v1/services"), Some(1_200));
        assert_eq!(count(SLICES), Some(1_200));
        assert_eq!(count("/api/v1/pods"), None);
    }

    #[test]
    fn addresses_of_endpoints_are_unique_and_an_update_adds_one() {
        let slices = MESH.places().map(|place| MESH.slice(place, None, 1));
        let endpoints = slices.flat_map(|slice| slice.endpoints);
        let addresses: BTreeSet<_> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
        assert_eq!(addresses.len(), 120_000);

        let place = MESH.order.place(7);
        let slice = MESH.slice(place, Some(7), 2);
        let last = slice.endpoints.last().unwrap();
        assert_eq!(slice.endpoints.len(), 101);
        assert_eq!(last.addresses, ["11.0.0.7"]);
        assert_eq!(slice.metadata.unwrap().namespace, "ns7");
    }
}
