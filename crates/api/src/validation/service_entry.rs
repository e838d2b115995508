//! Rules for ServiceEntry.

use std::collections::BTreeSet;

use super::name::{
    fqdn, ip_or_cidr, labels, no_partial_wildcard, port_name, port_number, wildcard_domain,
};
use super::path::Path;
use super::port_protocol::{PortProtocol, optional_protocol};
use super::scope::{ExportRule, export_to, workload_selector};
use super::service_entry_size::warn_of_cuts;
use super::workload_entry::{endpoint_ports, workload_entry};
use super::{Validate, Verdict};
use crate::hostname::{is_ip_address, is_wildcard};
use crate::istio::{Location, Resolution, ServiceEntry, ServicePort, WorkloadEntry};
use crate::object::ObjectMeta;

/// The label that names the waypoint of a service.
const WAYPOINT_LABEL: &str = "istio.io/use-waypoint";
/// The label with which a user disables the allocation of addresses.
const ALLOCATION_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

impl Validate for ServiceEntry {
    fn validate(&self, meta: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let spec = Path::root("spec");
        workload_selector(
            &mut verdict,
            &spec.field("workloadSelector"),
            self.workload_selector.as_ref(),
        );

        if self.workload_selector.is_some() && !self.endpoints.is_empty() {
            verdict.error(
                &spec.field("endpoints"),
                "is set together with workloadSelector; keep one of them",
            );
        }

        hosts(&mut verdict, &spec.field("hosts"), self);
        addresses(&mut verdict, &spec.field("addresses"), self);
        ports(&mut verdict, &spec.field("ports"), self, meta);

        match self.resolution {
            Resolution::None => unresolved(&mut verdict, &spec, self),
            Resolution::Static => static_endpoints(&mut verdict, &spec.field("endpoints"), self),
            Resolution::Dns | Resolution::DnsRoundRobin => dns(&mut verdict, &spec, self),
            Resolution::DynamicDns => dynamic_dns(&mut verdict, &spec, self, meta),
        }

        warn_of_cuts(&mut verdict, &spec, self);

        // For plain TCP nothing distinguishes the hosts, unless connections keep their original
        // destination.
        if self.resolution != Resolution::None
            && self.hosts.len() > 1
            && self.ports.iter().any(is_opaque)
        {
            verdict.error(
                &spec.field("hosts"),
                "has several hosts, which are indistinguishable on a port without HTTP or TLS; write a ServiceEntry for each",
            );
        }

        export_to(
            &mut verdict,
            &spec.field("exportTo"),
            &self.export_to,
            meta.key.namespace.as_str(),
            ExportRule::Service,
        );

        verdict
    }
}

/// Whether the port's protocol does not identify the host of a connection.
fn is_opaque(port: &ServicePort) -> bool {
    !PortProtocol::parse(&port.protocol)
        .is_some_and(|protocol| protocol.is_http() || protocol.is_tls())
}

fn port_names(entry: &ServiceEntry) -> BTreeSet<&str> {
    entry.ports.iter().map(|port| port.name.as_str()).collect()
}

/// Validates the hosts.
fn hosts(verdict: &mut Verdict, at: &Path<'_>, entry: &ServiceEntry) {
    if entry.hosts.is_empty() {
        verdict.error(at, "is empty; write at least one host");
    }

    for (index, host) in entry.hosts.iter().enumerate() {
        let at = &at.item(index);

        if host == "*" {
            verdict.error(
                at,
                "\"*\" would match every host; write a domain, such as \"*.example.com\"",
            );
            continue;
        }

        verdict.check(at, wildcard_domain(host));
        if entry.resolution != Resolution::DynamicDns
            && let Err(reason) = no_partial_wildcard(host)
        {
            verdict.warn(at, reason);
        }
    }
}

/// Validates the addresses.
fn addresses(verdict: &mut Verdict, at: &Path<'_>, entry: &ServiceEntry) {
    let takes_blocks = matches!(entry.resolution, Resolution::None | Resolution::Static);
    for (index, address) in entry.addresses.iter().enumerate() {
        let at = &at.item(index);
        verdict.check(at, ip_or_cidr(address));
        if address.contains('/') && !takes_blocks {
            verdict
                .error(at, format!("{address:?} is a CIDR block, which needs resolution NONE or STATIC; write an IP"));
        }
    }
}

/// Validates the ports.
fn ports(verdict: &mut Verdict, at: &Path<'_>, entry: &ServiceEntry, meta: &ObjectMeta) {
    let declined = meta
        .labels
        .get(ALLOCATION_LABEL)
        .is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let addressed =
        !entry.addresses.is_empty() || (entry.resolution != Resolution::None && !declined);
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();

    for (index, port) in entry.ports.iter().enumerate() {
        let ServicePort {
            number,
            protocol,
            name,
            target_port,
        } = port;

        let at = &at.item(index);

        if !names.insert(name.as_str()) {
            verdict.error(
                &at.field("name"),
                format!("{name:?} is the name of another port; names must be unique"),
            );
        }

        if !numbers.insert(*number) {
            verdict.error(
                &at.field("number"),
                format!("{number} is the number of another port; numbers must be unique"),
            );
        }

        verdict.check(&at.field("name"), port_name(name));
        verdict.check(&at.field("number"), port_number(*number));
        verdict.check(&at.field("protocol"), optional_protocol(protocol));
        if *target_port != 0 {
            verdict.check(&at.field("targetPort"), port_number(*target_port));
        }

        if !addressed && matches!(protocol.as_str(), "" | "TCP") {
            verdict.warn(
                &at.field("protocol"),
                "is TCP or detected, so only the address of a connection identifies the service; set spec.addresses",
            );
        }
    }
}

/// Validates an entry whose connections keep their original destination.
fn unresolved(verdict: &mut Verdict, spec: &Path<'_>, entry: &ServiceEntry) {
    if !entry.endpoints.is_empty() {
        verdict.error(
            &spec.field("endpoints"),
            "is set, but resolution NONE uses no endpoints; use STATIC or DNS, or remove them",
        );
    }
    if entry.workload_selector.is_some() {
        verdict.warn(
            &spec.field("workloadSelector"),
            "has no effect with resolution NONE; use STATIC",
        );
    }
}

/// Validates listed endpoints with IP addresses.
fn static_endpoints(verdict: &mut Verdict, at: &Path<'_>, entry: &ServiceEntry) {
    let names = port_names(entry);
    for (index, endpoint) in entry.endpoints.iter().enumerate() {
        workload_entry(verdict, &at.item(index), endpoint, Some(&names));
    }
}

/// Validates an entry that is resolved by DNS.
fn dns(verdict: &mut Verdict, spec: &Path<'_>, entry: &ServiceEntry) {
    let resolution = entry.resolution;
    let hosts_at = spec.field("hosts");
    if entry.endpoints.is_empty()
        && let Some(index) = entry.hosts.iter().position(|host| fqdn(host).is_err())
        && let Some(host) = entry.hosts.get(index)
    {
        verdict.error(
            &hosts_at.item(index),
            format!(
                "{host:?} cannot be resolved by DNS; write a full domain name, or set endpoints"
            ),
        );
    }

    let endpoints_at = spec.field("endpoints");

    if resolution == Resolution::DnsRoundRobin && entry.endpoints.len() > 1 {
        verdict.error(
            &endpoints_at,
            format!("has several endpoints; resolution {resolution} allows at most one"),
        );
    }

    let names = port_names(entry);
    for (index, endpoint) in entry.endpoints.iter().enumerate() {
        dns_endpoint(verdict, &endpoints_at.item(index), endpoint, &names);
    }

    let has_tcp = entry
        .ports
        .iter()
        .any(|port| PortProtocol::parse(&port.protocol).is_some_and(PortProtocol::is_tcp));
    if !entry.addresses.is_empty() && entry.hosts.len() > 1 && has_tcp {
        verdict.warn(
            &hosts_at,
            "has several hosts, which are indistinguishable on a TCP port with an address",
        );
    }
}

/// Validates an endpoint whose address may be resolved by DNS.
fn dns_endpoint(
    verdict: &mut Verdict,
    at: &Path<'_>,
    endpoint: &WorkloadEntry,
    service_ports: &BTreeSet<&str>,
) {
    if !is_ip_address(&endpoint.address)
        && let Err(reason) = fqdn(&endpoint.address)
    {
        verdict.error(
            &at.field("address"),
            format!(
                "{:?} is neither an IP address nor a domain name ({reason})",
                endpoint.address
            ),
        );
    }

    labels(verdict, &at.field("labels"), &endpoint.labels);
    endpoint_ports(
        verdict,
        &at.field("ports"),
        &endpoint.ports,
        Some(service_ports),
    );
}

/// Validates an entry for which the host of each request is resolved by DNS.
fn dynamic_dns(verdict: &mut Verdict, spec: &Path<'_>, entry: &ServiceEntry, meta: &ObjectMeta) {
    let hosts_at = spec.field("hosts");

    for (index, host) in entry.hosts.iter().enumerate() {
        if !is_wildcard(host) {
            verdict.error(
                &hosts_at.item(index),
                format!("{host:?} is not a wildcard; use resolution DNS for single hosts"),
            );
        }
    }

    for (field, is_empty) in [
        ("addresses", entry.addresses.is_empty()),
        ("endpoints", entry.endpoints.is_empty()),
    ] {
        if !is_empty {
            verdict.error(
                &spec.field(field),
                "is set, but resolution DYNAMIC_DNS resolves the host of each request; remove it",
            );
        }
    }

    let ports_at = spec.field("ports");

    for (index, port) in entry.ports.iter().enumerate() {
        match PortProtocol::parse(&port.protocol) {
            Some(
                PortProtocol::Http | PortProtocol::Http2 | PortProtocol::Grpc | PortProtocol::Tls,
            ) => {}
            Some(
                PortProtocol::OtherHttp
                | PortProtocol::Https
                | PortProtocol::Tcp
                | PortProtocol::Udp,
            )
            | None => {
                let at = ports_at.item(index);
                verdict.error(
                    &at.field("protocol"),
                    format!(
                        "{:?} does not provide the host of each request; use HTTP, HTTP2, GRPC or TLS",
                        port.protocol
                    ),
                );
            }
        }
    }

    let waypoint = meta
        .labels
        .get(WAYPOINT_LABEL)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"));
    if entry.location == Location::MeshInternal && waypoint.is_some() {
        verdict.error(
            &spec.field("location"),
            "is MESH_INTERNAL, which resolution DYNAMIC_DNS with a waypoint does not support; use MESH_EXTERNAL",
        );
    }
}
