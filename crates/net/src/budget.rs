//! Memory budgets of clients, with a common limit that is shared fairly.
//!
//! A peer may hold as much as is left for all others: one peer alone gets half of the total, two
//! get a third each, and some bytes are always left for a new peer (dynamic thresholds, as in the
//! buffers of switches).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use super::peer::client_key;

/// A limit in bytes for all clients together.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    held: Mutex<Holders>,
    /// Notified when bytes are released.
    freed: Notify,
}

/// Bytes by holder.
#[derive(Debug, Default)]
struct Holders {
    all: usize,
    /// By peer, for peers that hold any. Clients choose their addresses, so the hasher is keyed.
    by_peer: HashMap<IpAddr, usize>,
}

/// Bytes charged to a peer, released when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    peer: IpAddr,
    bytes: usize,
}

/// The peer's share or the whole budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the memory limit of this client is reached; try again later")]
pub struct Full;

impl Budget {
    /// A budget of `total` bytes.
    #[must_use]
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            held: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Charges bytes to a peer.
    ///
    /// # Errors
    /// If the peer would exceed its share.
    pub fn charge(self: &Arc<Self>, peer: IpAddr, bytes: usize) -> Result<Charge, Full> {
        let mut charge = Charge {
            budget: self.clone(),
            peer: client_key(peer),
            bytes: 0,
        };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// The maximum number of bytes that all peers hold together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Bytes held for all peers.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.lock().all
    }
}

impl Charge {
    /// Charges more bytes to the same peer.
    ///
    /// # Errors
    /// If the peer would exceed its share; the charge is unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let mut held = self.budget.held.lock();
        let by_peer = held.by_peer.get(&self.peer).copied().unwrap_or_default();
        let all = held.all.saturating_add(bytes);
        let by_peer = by_peer.saturating_add(bytes);
        if bytes > 0 && by_peer > self.budget.total.saturating_sub(all) {
            return Err(Full);
        }
        held.all = all;
        if by_peer > 0 {
            held.by_peer.insert(self.peer, by_peer);
        }
        drop(held);
        self.bytes += bytes;
        Ok(())
    }

    /// As [`Charge::grow`], but waits for others to release bytes. Callers limit the time.
    pub async fn grow_when_free(&mut self, bytes: usize) {
        let budget = self.budget.clone();
        loop {
            let mut freed = std::pin::pin!(budget.freed.notified());
            // Releases after this point are not missed.
            freed.as_mut().enable();
            if self.grow(bytes).is_ok() {
                return;
            }
            freed.await;
        }
    }

    /// Releases bytes, at most those that are charged.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes == 0 {
            return;
        }
        self.bytes -= bytes;
        let mut held = self.budget.held.lock();
        held.all -= bytes;
        if let Some(by_peer) = held.by_peer.get_mut(&self.peer) {
            *by_peer -= bytes;
            if *by_peer == 0 {
                held.by_peer.remove(&self.peer);
            }
        }
        drop(held);
        self.budget.freed.notify_waiters();
    }

    /// The bytes that are charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_peer_gets_half_and_leaves_room_for_others() {
        let budget = Budget::new(900);
        let first = budget.charge(peer(1), 450).unwrap();
        assert_eq!(budget.charge(peer(1), 1).unwrap_err(), Full);
        let second = budget.charge(peer(2), 225).unwrap();
        assert_eq!(budget.charge(peer(2), 1).unwrap_err(), Full);
        drop((first, second));
        assert_eq!(budget.held(), 0);
        assert!(budget.held.lock().by_peer.is_empty());
    }

    #[test]
    fn a_charge_that_cannot_grow_is_kept_and_released_once() {
        let budget = Budget::new(100);
        let mut charge = budget.charge(peer(1), 40).unwrap();
        assert_eq!(charge.grow(11), Err(Full));
        assert_eq!((charge.bytes(), budget.held()), (40, 40));
        charge.shrink(15);
        charge.grow(25).unwrap();
        drop(charge);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn waiters_resume_when_bytes_are_released() {
        let budget = Budget::new(100);
        let first = budget.charge(peer(1), 50).unwrap();
        let mut second = budget.charge(peer(1), 0).unwrap();
        let limit = std::time::Duration::from_millis(50);
        {
            let mut waiting = std::pin::pin!(second.grow_when_free(30));
            assert!(tokio::time::timeout(limit, waiting.as_mut()).await.is_err());
            drop(first);
            waiting.await;
        }
        assert_eq!((second.bytes(), budget.held()), (30, 30));
    }
}
