//! Addresses for hosts of ServiceEntries that have none, where no controller allocates them
//! (Istio's `serviceregistry/serviceentry/auto_allocation.go`).
//!
//! They are computed by hashing, so that every control plane computes the same, and are in ranges
//! that are not routed: 240.240.0.0/16 and 2001:2::/48.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::kubernetes_service::UNSPECIFIED;
use super::model::{Registry, Resolution, Service, ServiceKey};

/// Number of addresses: 256 times 254.
const ADDRESSES: u32 = 256 * 254;
/// The prime of the second hash.
const PRIME: u32 = 65_011;

/// The addresses of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllocatedIps {
    /// Of 240.240.0.0/16.
    pub ipv4: IpAddr,
    /// Of 2001:2::/48.
    pub ipv6: IpAddr,
}

impl Service {
    /// Whether the service has no address and needs one to be distinguishable.
    #[must_use]
    pub(super) fn needs_address(&self) -> bool {
        self.registry == Registry::External
            && *self.default_address == *UNSPECIFIED
            && !self.key.hostname.is_wildcard()
            && self.resolution != Resolution::Passthrough
    }
}

/// Allocates an address for each key. The keys must be sorted.
#[must_use]
pub(super) fn allocate<'a>(
    keys: impl IntoIterator<Item = &'a ServiceKey>,
) -> BTreeMap<ServiceKey, AllocatedIps> {
    let mut taken: BTreeMap<u32, &ServiceKey> = BTreeMap::new();

    for key in keys.into_iter().take(ADDRESSES as usize - 1) {
        let hash = fnv1a(&format!("{}/{}", key.namespace, key.hostname));
        let step = PRIME - hash % PRIME;
        let next = |round: u32| hash.wrapping_add(round.wrapping_mul(step)) % (ADDRESSES - 1);
        let mut slot = hash % ADDRESSES;
        let mut round = 0;

        // The step may skip free slots: after a full round the next free slot is taken.
        while taken.contains_key(&slot) {
            round += 1;
            slot = if round < ADDRESSES {
                next(round)
            } else {
                (slot + 1) % ADDRESSES
            };
        }

        taken.insert(slot, key);
    }

    let mut bumps = 0;
    let mut allocated = BTreeMap::new();

    for (slot, key) in taken {
        let mut number = slot + 1 + bumps;
        // No address ends in 0.
        if number % 255 == 0 {
            bumps += 1;
            number += 1;
        }
        allocated.insert(key.clone(), address(number));
    }

    allocated
}

/// The addresses of a number. The bytes of the IPv6 address are hexadecimal digits one after the
/// other, the second without a leading zero, as Istio writes them.
fn address(number: u32) -> AllocatedIps {
    let third = number / 255;
    let fourth = number % 255;
    let byte = |value: u32| u8::try_from(value & 0xff).unwrap_or_default();
    let digits = if third == 0 {
        format!("{fourth:x}")
    } else {
        format!("{third:x}{fourth:x}")
    };
    let last = u16::from_str_radix(&digits, 16).unwrap_or_default();
    AllocatedIps {
        ipv4: Ipv4Addr::new(240, 240, byte(third), byte(fourth)).into(),
        ipv6: Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0xf0f0, last).into(),
    }
}

/// FNV-1a of 32 bits.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
