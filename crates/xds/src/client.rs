//! The client of a stream and its memory, which is charged to its address, so that no client can
//! exhaust the memory.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tonic::Status;

use crate::large::{LargePermit, LargeRequests};
use crate::session::diff::Names;
use crate::session::initial_resource_versions::InitialVersions;
use navarch_net::budget::{Budget, Charge};
use navarch_net::peer::client_key;
use navarch_net::rejections::Rejections;
use navarch_tables::hash::KeyedMap;

/// Fixed memory of a stream.
const STREAM: usize = 4 << 10;
/// Bytes of a name in its set and, for a name without resource, in the engine.
const NAME: usize = 256;
/// Bytes of a name of a service's cluster: in its set and in the lists of the engine, which has the
/// resource once for all proxies.
const SHARED_NAME: usize = 96;
/// The same as [`NAME`] for an unauthenticated client, which may subscribe to names that do not exist.
const UNPROVED_NAME: usize = 1 << 10;

/// The memory of all clients, and their large requests.
#[derive(Debug)]
pub(super) struct Memory {
    budget: Arc<Budget>,
    large: LargeRequests,
    /// Counter of rejected clients.
    rejections: Rejections,
    /// By address of the set: charges of sets that many streams share.
    sets: Mutex<KeyedMap<usize, Weak<ChargedNames>>>,
}

/// A charged set of names, shared by all streams that have the same.
pub(super) struct ChargedNames {
    _charge: Charge,
    /// Those of the names that cost less, since services of the mesh have them.
    shared: Names,
    /// The set. While it lives, its address is unique.
    _set: Arc<dyn Any + Send + Sync>,
}

/// The client of a stream.
#[derive(Clone, Debug)]
pub(super) struct Client {
    memory: Arc<Memory>,
    /// The metric label of its port.
    port: &'static str,
    address: IpAddr,
}

impl ChargedNames {
    /// Those of the names that are charged less, as services of the mesh have them.
    pub(super) fn shared(&self) -> &Names {
        &self.shared
    }
}

impl fmt::Debug for ChargedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedNames").finish_non_exhaustive()
    }
}

impl Memory {
    /// The memory of clients that hold nothing yet.
    pub(super) fn new(budget: Arc<Budget>, rejections: Rejections) -> Arc<Self> {
        Arc::new(Self {
            budget,
            large: LargeRequests::new(),
            rejections,
            sets: Mutex::default(),
        })
    }

    /// A client of a port. Clients without address share one account.
    pub(super) fn client(self: &Arc<Self>, port: &'static str, address: Option<IpAddr>) -> Client {
        let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| {
            address.to_canonical()
        });
        Client {
            memory: self.clone(),
            port,
            address,
        }
    }
}

impl Client {
    pub(super) fn count_rejection(&self, reason: &'static str) {
        self.memory
            .rejections
            .count(self.port, reason, self.address);
    }

    /// Waits for a permit to process a request of this size. Cancel safe.
    pub(super) async fn acquire_large(&self, bytes: usize) -> LargePermit {
        self.memory
            .large
            .acquire(client_key(self.address), bytes)
            .await
    }

    /// Charges for a stream.
    ///
    /// # Errors
    /// As [`Client::charge`].
    pub(super) fn begin_stream(&self) -> Result<Charge, Status> {
        let mut charge = self.nothing()?;
        self.charge(&mut charge, STREAM)?;
        Ok(charge)
    }

    /// An empty charge, to be increased.
    ///
    /// # Errors
    /// Never, as an empty charge always fits.
    pub(super) fn nothing(&self) -> Result<Charge, Status> {
        self.memory
            .budget
            .charge(self.address, 0)
            .map_err(|full| Status::resource_exhausted(full.to_string()))
    }

    /// Charges more bytes.
    ///
    /// # Errors
    /// If the client's share or the budget of all clients is exhausted.
    pub(super) fn charge(&self, charge: &mut Charge, bytes: usize) -> Result<(), Status> {
        charge.grow(bytes).map_err(|full| {
            self.count_rejection("memory");
            Status::resource_exhausted(full.to_string())
        })
    }

    /// Replaces a part of a charge, of `part` bytes, by one of `bytes`.
    ///
    /// # Errors
    /// As [`Client::charge`]; both are unchanged then.
    pub(super) fn replace_part(
        &self,
        charge: &mut Charge,
        part: &mut usize,
        bytes: usize,
    ) -> Result<(), Status> {
        match bytes.checked_sub(*part) {
            Some(more) => self.charge(charge, more)?,
            None => charge.shrink(part.saturating_sub(bytes)),
        }
        *part = bytes;
        Ok(())
    }

    /// Whether a set is charged for another open stream.
    pub(super) fn is_charged(&self, names: &Names) -> bool {
        self.charged(Arc::as_ptr(names).addr()).is_some()
    }

    /// Charges for subscribed names, unless they are charged for another open stream. Those that are
    /// `shared`, being of services of the mesh, cost less.
    ///
    /// # Errors
    /// As [`Client::charge`].
    pub(super) fn charge_for_names(
        &self,
        names: &Names,
        is_proved: bool,
        shared: &Names,
    ) -> Result<Arc<ChargedNames>, Status> {
        if let Some(held) = self.charged(Arc::as_ptr(names).addr()) {
            return Ok(held);
        }

        // Others would be held without a charge.
        let shared = if shared.is_subset(names) {
            shared.clone()
        } else {
            Arc::new(shared.intersection(names).cloned().collect())
        };
        let each = if is_proved { NAME } else { UNPROVED_NAME };
        self.charge_once(names, &shared, || {
            let whole: usize = names.iter().map(|name| each + name.as_str().len()).sum();
            whole - shared.len() * (each - SHARED_NAME)
        })
    }

    /// Charges for `initial_resource_versions`, unless they are charged for another open stream.
    ///
    /// # Errors
    /// As [`Client::charge`].
    pub(super) fn charge_for_initial_versions(
        &self,
        initial_versions: &Arc<InitialVersions>,
    ) -> Result<Arc<ChargedNames>, Status> {
        self.charge_once(initial_versions, &Names::default(), || {
            initial_versions.bytes()
        })
    }

    /// The charge of the set at this address, if there is one.
    fn charged(&self, address: usize) -> Option<Arc<ChargedNames>> {
        let sets = self.memory.sets.lock();
        sets.get(&address).and_then(Weak::upgrade)
    }

    /// Pays for a set that others may hold as well.
    fn charge_once<T: Any + Send + Sync>(
        &self,
        set: &Arc<T>,
        shared: &Names,
        bytes: impl FnOnce() -> usize,
    ) -> Result<Arc<ChargedNames>, Status> {
        let address = Arc::as_ptr(set).addr();
        if let Some(held) = self.charged(address) {
            return Ok(held);
        }
        let mut charge = self.nothing()?;
        self.charge(&mut charge, bytes())?;
        let held = Arc::new(ChargedNames {
            _charge: charge,
            shared: shared.clone(),
            _set: set.clone(),
        });

        let mut sets = self.memory.sets.lock();
        if sets.len() == sets.capacity() {
            sets.retain(|_, held| held.strong_count() > 0);
        }

        sets.insert(address, Arc::downgrade(&held));
        Ok(held)
    }
}

#[cfg(test)]
impl Client {
    pub(super) fn with_budget(bytes: usize) -> Self {
        Memory::new(Budget::new(2 * bytes), Rejections::default()).client("grpc", None)
    }

    /// The memory of all clients.
    pub(super) fn held(&self) -> usize {
        self.memory.budget.held()
    }

    /// Number of rejections with this reason.
    pub(super) fn counted(&self, reason: &'static str) -> u64 {
        self.memory.rejections.counted(self.port, reason)
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::names::ResourceName;
    use tonic::Code;

    use super::*;

    fn names(count: usize) -> Names {
        Arc::new(
            (0..count)
                .map(|number| ResourceName::new(format!("name-{number:04}")))
                .collect(),
        )
    }

    fn none() -> Names {
        Names::default()
    }

    #[test]
    fn names_that_all_proxies_share_cost_less() {
        let client = Client::with_budget(1 << 20);
        let shared = names(90);
        let held = client.charge_for_names(&names(100), true, &shared).unwrap();
        let expected = 90 * (SHARED_NAME + 9) + 10 * (NAME + 9);
        assert_eq!(client.held(), expected);
        assert_eq!(held.shared(), &shared);

        // What the client no longer subscribes to gives it no discount.
        drop(held);
        let fewer = client.charge_for_names(&names(10), true, &shared).unwrap();
        assert_eq!(client.held(), 10 * (SHARED_NAME + 9));
        assert_eq!(fewer.shared(), &names(10), "no others are held");
        drop(fewer);
    }

    #[test]
    fn a_shared_set_is_charged_once_and_released_by_the_last_stream() {
        let client = Client::with_budget(1 << 20);
        let set = names(100);
        let held: Vec<_> = (0..5000)
            .map(|_| client.charge_for_names(&set, true, &none()).unwrap())
            .collect();
        assert_eq!(client.held(), 100 * (NAME + 9));
        let other = client
            .charge_for_names(&names(100), false, &none())
            .unwrap();
        assert_eq!(client.held(), 100 * (NAME + UNPROVED_NAME + 18));
        drop((held, other));
        assert_eq!(client.held(), 0);
        for _ in 0..1000 {
            drop(client.charge_for_names(&names(1), true, &none()).unwrap());
        }
        assert!(client.memory.sets.lock().len() < 100);
    }

    #[test]
    fn a_part_of_a_charge_grows_and_shrinks_alone() {
        let client = Client::with_budget(10_000);
        let mut charge = client.begin_stream().unwrap();
        let mut part = 0;
        for bytes in [3_000, 5_000, 1_000, 0, 2_000] {
            client.replace_part(&mut charge, &mut part, bytes).unwrap();
            assert_eq!((part, client.held()), (bytes, STREAM + bytes));
        }

        let full = client.replace_part(&mut charge, &mut part, 1 << 20);
        assert_eq!(full.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!((part, client.held()), (2_000, STREAM + 2_000));
    }

    #[test]
    fn clients_over_their_share_are_rejected_and_counted() {
        let client = Client::with_budget(100 * (NAME + 9));
        assert_eq!(
            client
                .charge_for_names(&names(101), true, &none())
                .unwrap_err()
                .code(),
            Code::ResourceExhausted
        );
        assert_eq!((client.counted("memory"), client.held()), (1, 0));
        client.charge_for_names(&names(100), true, &none()).unwrap();
    }
}
