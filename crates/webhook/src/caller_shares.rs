//! How many bytes of large reviews one caller may send at once. Others do not wait for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use navarch_net::peer::counted_as;

/// The callers that send, and what each may still send.
#[derive(Debug)]
pub(super) struct CallerShares {
    callers: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    /// What each may send, in kilobytes.
    kilobytes: u32,
}

/// Bytes taken of a caller's share; given back when dropped.
#[derive(Debug)]
pub(super) struct CallerShare {
    /// What is taken of its share. Dropped before the entry is looked at.
    _permit: Option<OwnedSemaphorePermit>,
    /// The caller's entry.
    _entry: Entry,
}

/// A caller's entry while anything of it is sent or waits to be.
#[derive(Debug)]
struct Entry {
    shares: Arc<CallerShares>,
    caller: IpAddr,
    semaphore: Arc<Semaphore>,
}

impl CallerShares {
    /// Shares of `bytes` for each caller.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { callers: Mutex::default(), kilobytes: kilobytes(bytes) })
    }

    /// Waits until a caller may send `bytes` more bytes; requests of one caller are served in order of arrival.
    pub(super) async fn take(self: &Arc<Self>, caller: IpAddr, bytes: usize) -> CallerShare {
        let caller = counted_as(caller);
        let semaphore = self.callers.lock().entry(caller).or_insert_with(|| self.semaphore()).clone();
        let entry = Entry { shares: self.clone(), caller, semaphore: semaphore.clone() };
        // Never closed.
        let permit = semaphore.acquire_many_owned(kilobytes(bytes).min(self.kilobytes)).await.ok();
        CallerShare { _permit: permit, _entry: entry }
    }

    /// The share of a caller.
    fn semaphore(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.kilobytes as usize))
    }

    /// How many callers send.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.callers.lock().len()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut callers = self.shares.callers.lock();
        // The map's and this one: nothing else of the caller is under way, and nothing begins without the lock.
        if Arc::strong_count(&self.semaphore) == 2 {
            callers.remove(&self.caller);
        }
    }
}

/// A number of bytes in kilobytes, at least one, rounded up.
fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}
