//! Rules for WorkloadEntry, alone and as an endpoint of a ServiceEntry.

use std::collections::{BTreeMap, BTreeSet};

use super::name::{UNIX_PREFIX, fqdn, labels, port_name, port_number, unix_path};
use super::path::Path;
use super::{Validate, Verdict};
use crate::hostname::is_ip_address;
use crate::istio::WorkloadEntry;
use crate::object::ObjectMeta;

impl Validate for WorkloadEntry {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        workload_entry(&mut verdict, &Path::root("spec"), self, None);
        verdict
    }
}

/// Validates an entry; `service_ports` are the ports of the `STATIC` ServiceEntry that lists it,
/// `None` for an object of its own.
pub(super) fn workload_entry(
    verdict: &mut Verdict,
    at: &Path<'_>,
    entry: &WorkloadEntry,
    service_ports: Option<&BTreeSet<&str>>,
) {
    let address = &at.field("address");
    if entry.address.is_empty() {
        if entry.network.is_empty() {
            verdict.error(
                address,
                "is missing; write the IP address of the workload, or its network",
            );
            return;
        }

        verdict.warn(
            address,
            format!(
                "is missing, so traffic is routed through the gateway of the network {:?}",
                entry.network
            ),
        );
    } else if let Some(path) = entry.address.strip_prefix(UNIX_PREFIX) {
        verdict.check(address, unix_path(path));
        if !entry.ports.is_empty() {
            verdict.error(
                &at.field("ports"),
                "is set, but the address is a Unix domain socket; leave it out",
            );
        }

        if service_ports.is_some_and(|ports| ports.len() != 1) {
            verdict.error(
                address,
                "is a Unix domain socket; the service must have exactly one port",
            );
        }
    } else if !is_ip_address(&entry.address) {
        if service_ports.is_some() {
            verdict.error(
                address,
                format!(
                    "{:?} is not an IP address; write one, or set resolution to DNS",
                    entry.address
                ),
            );
        } else if let Err(reason) = fqdn(&entry.address) {
            verdict.error(
                address,
                format!(
                    "{:?} is neither an IP address nor a domain name ({reason})",
                    entry.address
                ),
            );
        }
    }

    endpoint_ports(verdict, &at.field("ports"), &entry.ports, service_ports);
    labels(verdict, &at.field("labels"), &entry.labels);
}

/// Validates the ports of an endpoint, each of which its service must have, if it has a service.
pub(super) fn endpoint_ports(
    verdict: &mut Verdict,
    at: &Path<'_>,
    ports: &BTreeMap<String, u32>,
    service_ports: Option<&BTreeSet<&str>>,
) {
    for (name, port) in ports {
        let at = &at.field(name);
        if service_ports.is_some_and(|known| !known.contains(name.as_str())) {
            verdict.error(
                at,
                format!(
                    "port {name:?} is not a port of the service; use the name of one of spec.ports"
                ),
            );
        }
        verdict.check(at, port_name(name));
        verdict.check(at, port_number(*port));
    }
}
