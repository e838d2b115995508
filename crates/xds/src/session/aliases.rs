//! The aliases of a resource: the addresses by which clients subscribe to workloads and services
//! (Istio's `AddressInfo.Aliases`).
//!
//! They are read from the resource itself, and only for clients that subscribe by name: most have a
//! wildcard subscription and need none.

use std::net::IpAddr;

use bytes::Bytes;
use navarch_proto::istio::workload::address::Type;
use navarch_proto::istio::workload::{Address, Service, Workload};
use prost::Message;

use navarch_push::resource::{Resource, ResourceType};

/// The aliases of a resource: `network/address`, or `network/address/bits` for a range of
/// addresses.
pub(crate) fn aliases_of(resource: &Resource) -> Vec<String> {
    if resource.resource_type == ResourceType::Address {
        return match Address::decode(resource.body.clone())
            .ok()
            .and_then(|address| address.r#type)
        {
            Some(Type::Workload(workload)) => of_workload(&workload),
            Some(Type::Service(service)) => of_service(&service),
            None => Vec::new(),
        };
    }
    if resource.resource_type == ResourceType::Workload {
        return Workload::decode(resource.body.clone())
            .map(|workload| of_workload(&workload))
            .unwrap_or_default();
    }
    Vec::new()
}

/// The aliases of a workload.
fn of_workload(workload: &Workload) -> Vec<String> {
    let addresses = workload.addresses.iter().filter_map(ip);
    addresses
        .map(|address| format!("{}/{address}", workload.network))
        .collect()
}

/// The aliases of a service.
fn of_service(service: &Service) -> Vec<String> {
    let alias = |address: &navarch_proto::istio::workload::NetworkAddress| {
        let network = &address.network;
        let ip = ip(&address.address)?;
        Some(match address.length {
            Some(bits) => format!("{network}/{ip}/{bits}"),
            None => format!("{network}/{ip}"),
        })
    };
    service.addresses.iter().filter_map(alias).collect()
}

/// Decodes an address from its bytes.
fn ip(bytes: &Bytes) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(&**bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(&**bytes).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use navarch_proto::istio::workload::NetworkAddress;

    use super::*;
    use navarch_api::names::ResourceName;

    fn resource(resource_type: ResourceType, body: &impl Message) -> Resource {
        Resource::new(
            resource_type,
            ResourceName::new("x"),
            body.encode_to_vec().into(),
        )
    }

    #[test]
    fn addresses_in_their_network_are_other_names() {
        let workload = Workload {
            network: "n".to_owned(),
            addresses: vec![
                Bytes::from_static(&[10, 0, 0, 1]),
                Bytes::from_static(&[1; 16]),
                Bytes::from_static(b"x"),
            ],
            ..Workload::default()
        };

        let expected = ["n/10.0.0.1", "n/101:101:101:101:101:101:101:101"];
        assert_eq!(
            aliases_of(&resource(ResourceType::Workload, &workload)),
            expected
        );
        let address = Address {
            r#type: Some(Type::Workload(workload)),
        };

        assert_eq!(
            aliases_of(&resource(ResourceType::Address, &address)),
            expected
        );
        let network_address = |bits| NetworkAddress {
            network: String::new(),
            address: Bytes::from_static(&[10, 96, 0, 0]),
            length: bits,
        };

        let service = Service {
            addresses: vec![network_address(None), network_address(Some(16))],
            ..Service::default()
        };
        let address = Address {
            r#type: Some(Type::Service(service)),
        };
        assert_eq!(
            aliases_of(&resource(ResourceType::Address, &address)),
            ["/10.96.0.0", "/10.96.0.0/16"]
        );

        assert!(aliases_of(&resource(ResourceType::Cluster, &address)).is_empty());
    }
}
