//! Limits the bytes of large reviews that one caller may send at once, so that other callers do not
//! wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use navarch_net::peer::client_key;

/// The sending callers, and the remaining share of each.
#[derive(Debug)]
pub(super) struct CallerShares {
    callers: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    kilobytes: u32,
}

/// Bytes taken from a caller's share; released on drop.
#[derive(Debug)]
pub(super) struct CallerShare {
    /// The taken part of the share. It is dropped before the entry.
    _permit: Option<OwnedSemaphorePermit>,
    _entry: CallerEntry,
}

/// A caller's entry, which exists while the caller sends a review or waits to send one.
#[derive(Debug)]
struct CallerEntry {
    shares: Arc<CallerShares>,
    caller: IpAddr,
    semaphore: Arc<Semaphore>,
}

impl CallerShares {
    /// Shares of `bytes` for each caller.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            callers: Mutex::default(),
            kilobytes: kilobytes(bytes),
        })
    }

    /// Waits until a caller may send `bytes` more bytes; requests of one caller are served in order
    /// of arrival.
    pub(super) async fn take(self: &Arc<Self>, caller: IpAddr, bytes: usize) -> CallerShare {
        let caller = client_key(caller);
        let semaphore = self
            .callers
            .lock()
            .entry(caller)
            .or_insert_with(|| self.semaphore())
            .clone();

        let entry = CallerEntry {
            shares: self.clone(),
            caller,
            semaphore: semaphore.clone(),
        };

        // The semaphore is never closed.
        let permit = semaphore
            .acquire_many_owned(kilobytes(bytes).min(self.kilobytes))
            .await
            .ok();
        CallerShare {
            _permit: permit,
            _entry: entry,
        }
    }

    /// A full share.
    fn semaphore(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.kilobytes as usize))
    }

    /// The number of sending callers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.callers.lock().len()
    }
}

impl Drop for CallerEntry {
    fn drop(&mut self) {
        let mut callers = self.shares.callers.lock();
        // One reference is in the map, one here: the caller has no other review, and none can start
        // without the lock.
        if Arc::strong_count(&self.semaphore) == 2 {
            callers.remove(&self.caller);
        }
    }
}

/// A number of bytes in kilobytes, at least one, rounded up.
fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}
