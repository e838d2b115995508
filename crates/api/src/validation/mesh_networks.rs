//! Rules for mesh networks.

use super::Verdict;
use super::name::{fqdn, ip_address, ip_or_cidr, is_dns_label, port_number};
use super::path::Path;
use crate::mesh::{IstioNetworkGateway, MeshNetworks, Network, NetworkEndpoints};

/// Checks endpoints and gateways of every network. Paths of errors begin with `networks`; there are
/// no warnings.
#[must_use]
pub fn validate_mesh_networks(networks: &MeshNetworks) -> Verdict {
    let mut verdict = Verdict::default();
    let at = &Path::root("networks");

    for (
        name,
        Network {
            endpoints,
            gateways,
        },
    ) in &networks.networks
    {
        let at = &at.field(name);
        let all = &at.field("endpoints");
        for (index, endpoints) in endpoints.iter().enumerate() {
            network_endpoints(&mut verdict, &all.item(index), endpoints);
        }
        let all = &at.field("gateways");
        for (index, gateway) in gateways.iter().enumerate() {
            network_gateway(&mut verdict, &all.item(index), gateway);
        }
    }

    verdict
}

/// Validates the endpoints of a network.
fn network_endpoints(verdict: &mut Verdict, at: &Path<'_>, endpoints: &NetworkEndpoints) {
    let NetworkEndpoints {
        from_cidr,
        from_registry,
    } = endpoints;
    if from_cidr.is_some() && from_registry.is_some() {
        verdict.error(at, "has both fromCidr and fromRegistry; keep one of them");
    }

    if let Some(range) = from_cidr {
        verdict.check(&at.field("fromCidr"), ip_or_cidr(range));
    }

    if let Some(registry) = from_registry
        .as_ref()
        .filter(|registry| !is_dns_label(registry))
    {
        verdict.error(
            &at.field("fromRegistry"),
            format!("{registry:?} is not the name of a registry"),
        );
    }
}

/// Validates a gateway into a network.
fn network_gateway(verdict: &mut Verdict, at: &Path<'_>, gateway: &IstioNetworkGateway) {
    let IstioNetworkGateway {
        registry_service_name,
        address,
        port,
        locality: _,
    } = gateway;

    if registry_service_name.is_some() && address.is_some() {
        verdict.error(
            at,
            "has both registryServiceName and address; keep one of them",
        );
    }

    if let Some(name) = registry_service_name {
        verdict.check(&at.field("registryServiceName"), fqdn(name));
    }

    if let Some(address) = address {
        let good = ip_address(address).or_else(|_| fqdn(address));
        let good =
            good.map_err(|_| format!("{address:?} is neither an IP address nor a domain name"));
        verdict.check(&at.field("address"), good);
    }

    verdict.check(&at.field("port"), port_number(*port));
}
