//! Which service each update changes, and the address by which a proxy knows the update.
//!
//! Updates are numbered. They visit all services in turn, each time in the same order, in which
//! neighbours are of different namespaces: the updates of one proxy's services are as far apart as
//! they can be. So the service of an update, the updates of a service and those that one update
//! supersedes are arithmetic, and nothing has to be kept for each update.

use std::net::Ipv4Addr;
use std::str;

use memchr::memmem;

/// Number of updates that have addresses of their own.
pub(super) const MAX_UPDATES: u32 = 1 << 24;
/// The first octet of the addresses of updates, which no endpoint has.
const OCTET: u8 = 11;
/// The tag of `SocketAddress.address`: field 2, a text.
const ADDRESS_TAG: u8 = 0x12;

/// A service, by its namespace and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) namespace: u32,
    pub(super) slot: u32,
}

/// The order of updates of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) namespaces: u32,
    /// Services of each namespace.
    pub(super) slots: u32,
}

impl Order {
    /// All services.
    pub(super) fn services(self) -> u32 {
        self.namespaces * self.slots
    }

    /// The service that an update changes.
    pub(super) fn place(self, update: u32) -> Place {
        let turn = update % self.services();
        Place {
            namespace: turn % self.namespaces,
            slot: turn / self.namespaces,
        }
    }

    /// The first update of a service.
    fn first(self, place: Place) -> u32 {
        place.slot * self.namespaces + place.namespace
    }

    /// The newest update of a service among the first `updates`.
    pub(super) fn newest(self, place: Place, updates: u32) -> Option<u32> {
        let since_first = updates.checked_sub(self.first(place) + 1)?;
        Some(updates - 1 - since_first % self.services())
    }

    /// The updates of a service that are new to a proxy that held one of them, or none, and
    /// receives another: all but the last are superseded by it.
    pub(super) fn news(
        self,
        place: Place,
        held: Option<u32>,
        received: u32,
    ) -> impl Iterator<Item = u32> {
        let services = self.services();
        let from = held.map_or(self.first(place), |held| held + services);
        let step = usize::try_from(services).unwrap_or(usize::MAX);
        (from..=received).step_by(step)
    }
}

/// The address of an update, which the changed service has as an endpoint.
pub(super) fn address(update: u32) -> Ipv4Addr {
    let [_, a, b, c] = update.to_be_bytes();
    Ipv4Addr::new(OCTET, a, b, c)
}

/// The update whose address an encoded ClusterLoadAssignment contains.
pub(super) fn update_of(endpoints: &[u8]) -> Option<u32> {
    memmem::find_iter(endpoints, b"11.").find_map(|at| {
        let [tag, length] = endpoints.get(at.checked_sub(2)?..at)? else {
            return None;
        };
        let text = endpoints.get(at..at + usize::from(*length))?;
        let address: Ipv4Addr = str::from_utf8(text).ok()?.parse().ok()?;
        let [octet, a, b, c] = address.octets();
        let is_update = *tag == ADDRESS_TAG && octet == OCTET;
        is_update.then(|| u32::from_be_bytes([0, a, b, c]))
    })
}

/// The service of an EDS resource, such as `outbound|80||svc3.ns17.svc.cluster.local`.
pub(super) fn place_of(name: &[u8]) -> Option<Place> {
    let host = name.get(memmem::rfind(name, b"||svc")? + 5..)?;
    let mut labels = str::from_utf8(host).ok()?.split('.');
    let slot = labels.next()?.parse().ok()?;
    let namespace = labels.next()?.strip_prefix("ns")?.parse().ok()?;
    Some(Place { namespace, slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        namespaces: 3,
        slots: 2,
    };

    #[test]
    fn each_round_visits_each_service_once_and_neighbours_are_of_different_namespaces() {
        let round = |number: u32| -> Vec<Place> {
            let updates = number * 6..(number + 1) * 6;
            updates.map(|update| ORDER.place(update)).collect()
        };

        let mut places = round(0);
        assert_eq!(places, round(7));
        assert!(
            places
                .windows(2)
                .all(|pair| pair[0].namespace != pair[1].namespace)
        );
        places.sort_by_key(|place| (place.namespace, place.slot));
        places.dedup();
        assert_eq!(places.len(), 6);
    }

    #[test]
    fn the_newest_update_of_a_service_is_the_last_that_changed_it() {
        for updates in 0..20 {
            for service in 0..6 {
                let place = ORDER.place(service);
                let expected = (0..updates)
                    .rev()
                    .find(|update| ORDER.place(*update) == place);
                assert_eq!(
                    ORDER.newest(place, updates),
                    expected,
                    "{place:?} {updates}"
                );
            }
        }
    }

    #[test]
    fn superseded_updates_are_those_between_the_held_and_the_received_one() {
        let place = ORDER.place(4);
        let news = |held, received| ORDER.news(place, held, received).collect::<Vec<_>>();
        assert_eq!(news(None, 4), [4]);
        assert_eq!(news(None, 16), [4, 10, 16]);
        assert_eq!(news(Some(4), 10), [10]);
        assert_eq!(news(Some(4), 22), [10, 16, 22]);
        assert!(news(Some(10), 10).is_empty());
        assert!(news(Some(16), 4).is_empty(), "an older one is no news");
    }

    #[test]
    fn an_update_is_found_by_its_address_only() {
        use navarch_proto::envoy::config::core::v3::{Address, SocketAddress, address as kind};
        use navarch_proto::envoy::config::endpoint::v3::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
        };
        use prost::Message as _;

        let endpoint = |text: &str| {
            let socket = SocketAddress {
                address: text.to_owned(),
                ..SocketAddress::default()
            };
            let endpoint = Endpoint {
                address: Some(Address {
                    address: Some(kind::Address::SocketAddress(socket)),
                }),
                ..Endpoint::default()
            };
            LbEndpoint {
                host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                ..LbEndpoint::default()
            }
        };
        let found = |texts: &[&str]| {
            let locality = LocalityLbEndpoints {
                lb_endpoints: texts.iter().map(|text| endpoint(text)).collect(),
                ..LocalityLbEndpoints::default()
            };
            let assignment = ClusterLoadAssignment {
                cluster_name: "outbound|80||svc11.ns1.svc".to_owned(),
                endpoints: vec![locality],
                ..ClusterLoadAssignment::default()
            };
            update_of(&assignment.encode_to_vec())
        };

        let last = MAX_UPDATES - 1;
        assert_eq!(found(&["10.11.2.3", "10.1.11.3"]), None);
        assert_eq!(found(&["10.11.2.3", "11.0.1.2", "10.1.2.11"]), Some(258));
        assert_eq!(found(&[&address(last).to_string()]), Some(last));
        assert_eq!(address(last).to_string(), "11.255.255.255");
    }

    #[test]
    fn a_resource_is_of_the_service_in_its_name() {
        let place = place_of(b"outbound|80||svc3.ns17.svc.cluster.local").unwrap();
        assert_eq!(place.slot, 3);
        assert_eq!(place.namespace, 17);
        assert_eq!(place_of(b"outbound|80||svcx.ns17.svc.cluster.local"), None);
        assert_eq!(place_of(b"BlackHoleCluster"), None);
    }
}
