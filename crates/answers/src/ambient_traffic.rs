//! The effect of a change on inbound connections at ztunnel, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use navarch_api::names::ResourceName;
use navarch_push::resource::ResourceType;
use navarch_walk::policy::{Peer, Verdict};

use super::client::Client;
use super::difference::CollectionDiff;
use super::evaluation::Visit;
use super::received::ProxyResources;
use super::traffic::TrafficChange;
use super::ztunnel::{named, policies_in, policy_verdict, workload_in};

/// Maximum number of workloads checked for one ztunnel.
const MAX_WORKLOADS: usize = 256;

/// The connections to workloads on the node of a ztunnel whose verdict changes.
pub(super) fn changes(
    client: &Client,
    steps: &BTreeMap<ResourceType, CollectionDiff>,
    [before, after]: [&ProxyResources; 2],
) -> Vec<TrafficChange> {
    let node = client.proxy.meta("NODE_NAME").unwrap_or_default();
    let [was, is] = [before, after].map(policies_in);
    let mut reported = BTreeSet::new();
    for name in affected_workloads(steps, after)
        .into_iter()
        .take(MAX_WORKLOADS)
    {
        let Some((old, new)) = workload_in(before, &name).zip(workload_in(after, &name)) else {
            continue;
        };
        // Workloads on other nodes belong to other ztunnels.
        if new.node != node || node.is_empty() {
            continue;
        }
        let Some(ip) = ip_of(&new.addresses) else {
            continue;
        };
        let ports = new
            .services
            .values()
            .flat_map(|ports| &ports.ports)
            .filter_map(|port| u16::try_from(port.target_port).ok());
        let ports: BTreeSet<u16> = ports.collect();
        for port in ports {
            for (peer, how) in [(Peer::Somebody, ""), (Peer::Nobody, " in plain text")] {
                let visit = Visit {
                    peer,
                    source: None,
                    remote: None,
                    destination: SocketAddr::new(ip, port),
                    http: None,
                };

                let [before, after] = [(&old, &was), (&new, &is)]
                    .map(|(workload, policies)| words(&policy_verdict(workload, policies, &visit)));
                if before != after {
                    let name = &new.workload_name;
                    let request = format!("TCP {}/{name}:{port}{how} at ztunnel", new.namespace);
                    reported.insert(TrafficChange {
                        request,
                        from: BTreeSet::new(),
                        before,
                        after,
                    });
                }
            }
        }
    }

    reported.into_iter().collect()
}

/// The workloads that a change may affect: the changed ones; all if policies change, since these
/// may apply to all.
fn affected_workloads(
    steps: &BTreeMap<ResourceType, CollectionDiff>,
    after: &ProxyResources,
) -> Vec<ResourceName> {
    let types = [ResourceType::Address, ResourceType::Workload];
    if steps.contains_key(&ResourceType::Authorization) {
        let all = types
            .iter()
            .filter_map(|resource_type| after.get(resource_type))
            .flat_map(|collection| &collection.resources);
        return all.map(|one| one.name.clone()).collect();
    }
    let changed = types
        .iter()
        .filter_map(|resource_type| steps.get(resource_type))
        .flat_map(|step| step.resources.keys());
    changed.cloned().collect()
}

/// The first address of a workload.
fn ip_of(addresses: &[Bytes]) -> Option<IpAddr> {
    let first = addresses.first()?;
    let four = <[u8; 4]>::try_from(&**first).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(&**first).map(IpAddr::from))
        .ok()
}

/// The outcome of a connection as text.
fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passes => "allowed".to_owned(),
        Verdict::Denied(policy) => format!("closed by {}", named(policy)),
        Verdict::NotAllowed(policies) => {
            let policies: Vec<String> = policies.iter().map(|policy| named(policy)).collect();
            format!("closed: not allowed by {}", policies.join(", "))
        }
        Verdict::Unknown => "allowed where policies allow the client".to_owned(),
    }
}
