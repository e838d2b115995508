//! Who was handed which roots together with a certificate.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::identity::Identity;

/// Callers that are remembered; beyond it nobody is added, and who is not known is held to lack roots.
const MAX_CALLERS: usize = 200_000;

/// What callers were handed last. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Receipts(Arc<Mutex<Handed>>);

/// Roots in PEM, by who was handed them.
type Handed = BTreeMap<(Identity, IpAddr), Arc<str>>;

impl Receipts {
    /// A caller was handed these roots.
    pub(super) fn note(&self, caller: &Identity, address: IpAddr, roots: &Arc<str>) {
        let mut known = self.0.lock();
        let key = (caller.clone(), address.to_canonical());
        if known.len() < MAX_CALLERS || known.contains_key(&key) {
            known.insert(key, roots.clone());
        }
    }

    /// Whether the last roots that a caller was handed are these.
    #[must_use]
    pub fn has(&self, caller: &Identity, address: IpAddr, roots: &str) -> bool {
        let known = self.0.lock();
        known.get(&(caller.clone(), address.to_canonical())).is_some_and(|handed| **handed == *roots)
    }
}
