//! Virtual hosts in groups, so that an edit touches a group and not the thousands of hosts beside it.
//!
//! A group holds hosts of one namespace: all proxies of other namespaces share its bytes, since bare service names differ in
//! their own namespace alone. Big namespaces are parted by a hash of the name, which stays put when others come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::claims::{Claim, Claims};
use super::collisions::LostDomains;
use super::port_services::OutboundPort;
use super::virtual_host::{DomainChoice, VirtualHostBytes};
use navarch_api::names::Namespace;
use navarch_push::query::Query;
use navarch_push::view::View;

/// About how many hosts a group holds: an edit looks at as many hosts as there are in a group, and at as many groups as there
/// are in the configuration.
const SIZE: usize = 32;

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupId {
    /// The namespace of its services, or of the VirtualServices whose hosts no service has.
    namespace: Namespace,
    /// Its part of the namespace.
    part: u32,
}

/// All groups of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Groups {
    /// Where they stand.
    pub(super) at: OutboundPort,
}

/// The virtual hosts of one group, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// Where it stands.
    at: OutboundPort,
    /// Which it is.
    id: GroupId,
}

/// The bytes of the virtual hosts of one group, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupBytes {
    /// Where it stands.
    pub(super) at: OutboundPort,
    /// Which it is.
    pub(super) id: GroupId,
}

impl Query for Groups {
    type Value = BTreeMap<GroupId, Arc<[Claim]>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let table = view.get(&Claims { at: self.at });
        let mut by_namespace: BTreeMap<Namespace, Vec<&Claim>> = BTreeMap::new();
        for claim in &table.claims {
            by_namespace.entry(namespace_of(claim)).or_default().push(claim);
        }
        let mut groups: BTreeMap<GroupId, Vec<Claim>> = BTreeMap::new();
        for (namespace, claims) in by_namespace {
            // A power of two, so that growing parts groups in halves and leaves their names alone for long.
            let parts = u32::try_from(claims.len().div_ceil(SIZE).next_power_of_two()).unwrap_or(u32::MAX);
            for claim in claims {
                let id = GroupId { namespace: namespace.clone(), part: hash(&claim.name) % parts };
                groups.entry(id).or_default().push(claim.clone());
            }
        }
        groups.values_mut().for_each(|claims| claims.sort_by(|a, b| a.name.cmp(&b.name)));
        groups.into_iter().map(|(id, claims)| (id, claims.into())).collect()
    }
}

impl Query for Group {
    type Value = Arc<[Claim]>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&Groups { at: self.at }).get(&self.id).cloned().unwrap_or_default()
    }
}

impl Query for GroupBytes {
    type Value = Bytes;

    fn compute(&self, view: &View<'_>) -> Bytes {
        let claims = view.get(&Group { at: self.at, id: self.id.clone() });
        let names = claims.iter().map(|claim| claim.name.clone()).collect();
        let lost = view.get(&LostDomains { at: self.at, names });
        let mut bytes = BytesMut::new();
        for claim in claims.iter() {
            let domains = DomainChoice::Without(lost.get(&claim.name).cloned().unwrap_or_default());
            bytes.extend_from_slice(&view.get(&VirtualHostBytes { at: self.at, claim: claim.clone(), domains }));
        }
        bytes.freeze()
    }
}

/// The namespace that a virtual host belongs to.
fn namespace_of(claim: &Claim) -> Namespace {
    let of_service = claim.service.as_ref().map(|service| &service.key.namespace);
    of_service.or(claim.owner.as_ref().map(|owner| &owner.namespace)).cloned().unwrap_or_default()
}

/// FNV-1a: the same on every machine and in every run.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
