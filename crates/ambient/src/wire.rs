//! Addresses in ztunnel's messages.

use std::net::IpAddr;

use bytes::Bytes;
use navarch_proto::istio::workload::gateway_address::Destination;
use navarch_proto::istio::workload::{GatewayAddress, NamespacedHostname, NetworkAddress};

use navarch_api::names::{Namespace, NetworkId};
use navarch_base::cidr::Cidr;

/// The bytes of an address: four or sixteen.
pub(super) fn ip_bytes(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(address) => Bytes::copy_from_slice(&address.octets()),
        IpAddr::V6(address) => Bytes::copy_from_slice(&address.octets()),
    }
}

/// The address of these bytes.
pub(super) fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

pub(super) fn network_address(address: IpAddr, network: &NetworkId) -> NetworkAddress {
    NetworkAddress {
        network: network.to_string(),
        address: ip_bytes(address),
        length: None,
    }
}

/// A range of addresses in a network; a range of one address has no length.
pub(super) fn network_range(range: Cidr, network: &NetworkId) -> NetworkAddress {
    let length = (!range.is_single()).then(|| u32::from(range.bits));
    NetworkAddress {
        length,
        ..network_address(range.masked().address, network)
    }
}

/// The address of a gateway with a host name.
pub(super) fn gateway_by_host(namespace: &Namespace, host: &str, port: u16) -> GatewayAddress {
    let hostname = NamespacedHostname {
        namespace: namespace.to_string(),
        hostname: host.to_owned(),
    };
    GatewayAddress {
        destination: Some(Destination::Hostname(hostname)),
        hbone_mtls_port: u32::from(port),
    }
}

pub(super) fn gateway_by_ip(address: IpAddr, network: &NetworkId, port: u16) -> GatewayAddress {
    let destination = Some(Destination::Address(network_address(address, network)));
    GatewayAddress {
        destination,
        hbone_mtls_port: u32::from(port),
    }
}
