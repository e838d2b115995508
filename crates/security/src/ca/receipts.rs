//! Records which callers received which roots together with a certificate.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use navarch_api::identity::Identity;

/// Maximum number of recorded callers. Above it, a new caller replaces the oldest caller of the
/// identity with the most callers. A caller without a record counts as lacking roots.
const MAX_CALLERS: usize = 200_000;

/// The roots that each caller received last. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Receipts(Arc<Mutex<ReceivedRoots>>);

/// The received roots in PEM, by caller.
#[derive(Debug, Default)]
struct ReceivedRoots {
    callers: BTreeMap<Identity, Callers>,
    /// The identities in order of eviction: those with the most callers last, and of equal ones the
    /// one with the oldest caller.
    ranks: BTreeSet<(usize, Reverse<u64>, Identity)>,
    /// The number of callers.
    len: usize,
    /// The number of the next certificate.
    next: u64,
    /// The roots that were handed out last: most callers share them.
    last: Arc<str>,
}

/// The callers of one identity.
#[derive(Debug, Default)]
struct Callers {
    /// By address, the received roots and the number of the certificate.
    by_address: BTreeMap<IpAddr, (Arc<str>, u64)>,
    /// The addresses by the number of their last certificate, oldest first.
    by_age: BTreeMap<u64, IpAddr>,
}

impl Receipts {
    /// Records that a caller received roots.
    pub(super) fn note(&self, caller: &Identity, address: IpAddr, roots: &Arc<str>) {
        self.0
            .lock()
            .note(caller, address.to_canonical(), roots, MAX_CALLERS);
    }

    /// Whether a caller received these roots last, perhaps among others. `roots` is the text that
    /// was distributed, `each` has its certificates, as [`split`](crate::trust_bundle::split)
    /// returns them.
    #[must_use]
    pub fn has(
        &self,
        caller: &Identity,
        address: IpAddr,
        roots: &str,
        each: &BTreeSet<Arc<str>>,
    ) -> bool {
        let known = self.0.lock();
        let handed = known
            .callers
            .get(caller)
            .and_then(|callers| callers.by_address.get(&address.to_canonical()));
        handed.is_some_and(|(handed, _)| {
            **handed == *roots || each.iter().all(|root| handed.contains(&**root))
        })
    }
}

impl ReceivedRoots {
    /// Records the roots that a caller received, and removes the record of another caller above
    /// `most`.
    fn note(&mut self, caller: &Identity, address: IpAddr, roots: &Arc<str>, most: usize) {
        let number = self.next;
        self.next += 1;
        if *self.last != **roots {
            self.last = roots.clone();
        }
        let roots = self.last.clone();

        let before = self.change(caller, |callers| {
            let before = callers.by_address.insert(address, (roots, number));
            if let Some((_, at)) = &before {
                callers.by_age.remove(at);
            }
            callers.by_age.insert(number, address);
            before
        });

        self.len += usize::from(before.is_none());
        if self.len > most
            && let Some((.., holder)) = self.ranks.last().cloned()
        {
            self.change(&holder, |callers| {
                let (_, oldest) = callers.by_age.pop_first()?;
                callers.by_address.remove(&oldest)
            });
            self.len -= 1;
        }
    }

    /// Changes the callers of an identity, and updates its rank.
    fn change<T>(&mut self, caller: &Identity, change: impl FnOnce(&mut Callers) -> T) -> T {
        let callers = self.callers.entry(caller.clone()).or_default();
        if let Some(rank) = callers.rank() {
            self.ranks.remove(&(rank.0, rank.1, caller.clone()));
        }
        let changed = change(callers);
        match callers.rank() {
            Some((count, oldest)) => _ = self.ranks.insert((count, oldest, caller.clone())),
            None => _ = self.callers.remove(caller),
        }
        changed
    }
}

impl Callers {
    /// The number of callers, and the number of the oldest certificate; `None` without callers.
    fn rank(&self) -> Option<(usize, Reverse<u64>)> {
        Some((
            self.by_age.len(),
            Reverse(*self.by_age.first_key_value()?.0),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_receipt_table_evicts_the_oldest_of_the_largest_caller() {
        let identity =
            |account: &str| Identity::parse(&format!("spiffe://td/ns/shop/sa/{account}")).unwrap();
        let web = identity("web");
        let api = identity("api");
        let roots = Arc::from("roots");
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let receipts = Receipts::default();
        let note =
            |caller: &Identity, last: u8| receipts.0.lock().note(caller, address(last), &roots, 3);
        note(&api, 9);

        note(&web, 1);
        note(&web, 2);
        note(&web, 1);
        assert_eq!(receipts.0.lock().len, 3, "one caller twice is one");
        note(&identity("new"), 3);
        let has_roots = |caller: &Identity, last: u8, roots: &'static str| {
            receipts.has(
                caller,
                address(last),
                roots,
                &BTreeSet::from([Arc::from(roots)]),
            )
        };
        let has = |caller: &Identity, last: u8| has_roots(caller, last, "roots");
        assert!(has(&api, 9) && has(&web, 1) && has(&identity("new"), 3));
        assert!(!has(&web, 2) && !has_roots(&web, 1, "others"));
        assert!(has_roots(&web, 1, "oot"), "among others");

        // Of equal ones the oldest goes.
        note(&identity("newer"), 4);
        assert!(!has(&api, 9) && has(&web, 1));
        let handed = receipts.0.lock();
        assert_eq!(
            (handed.len, handed.callers.len(), handed.ranks.len()),
            (3, 3, 3)
        );
    }
}
