//! Chooses the connection to close when there are too many: the idlest of the peer that has the
//! most.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::activity::Activity;

/// Connections by peer. All operations cost `O(log n)`; [`Shares::victim`] is amortized over
/// connections that were active since.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Every connection by its number.
    members: HashMap<u64, Member>,
    /// The connections of each peer, the idlest first by recorded activity.
    peers: HashMap<IpAddr, BTreeSet<Noted>>,
    /// The peers by number of connections, the most first; of equal peers, the one with the idlest
    /// connection first.
    ranks: BTreeSet<Rank>,
}

/// A connection as recorded, ordered by activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Noted {
    /// The last activity. The real one may be later, never earlier.
    last: u64,
    number: u64,
}

/// Number of connections of a peer, its idlest connection as recorded, and its address.
type Rank = (Reverse<usize>, Noted, IpAddr);

/// A connection, with its activity as recorded and as it is.
#[derive(Debug)]
struct Member {
    peer: IpAddr,
    /// Its recorded activity in [`Shares::peers`].
    noted: u64,
    /// Its real activity.
    activity: Arc<Activity>,
}

impl Shares {
    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Number of connections of a peer.
    pub(super) fn held(&self, peer: IpAddr) -> usize {
        self.peers.get(&peer).map_or(0, BTreeSet::len)
    }

    /// Adds a connection with a unique number.
    pub(super) fn insert(&mut self, number: u64, peer: IpAddr, activity: Arc<Activity>) {
        let last = activity.last();
        self.change(peer, |connections| {
            connections.insert(Noted { last, number })
        });
        self.members.insert(
            number,
            Member {
                peer,
                noted: last,
                activity,
            },
        );
    }

    /// Removes a connection, if it exists.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(member) = self.members.remove(&number) {
            self.change(member.peer, |connections| {
                connections.remove(&Noted {
                    last: member.noted,
                    number,
                })
            });
        }
    }

    /// The connection to close for a newcomer: the idlest of the peer with the most connections,
    /// which is the newcomer's peer if no other has more.
    pub(super) fn victim(&mut self, newcomer: IpAddr) -> Option<u64> {
        let (Reverse(most), ..) = *self.ranks.first()?;
        if self.held(newcomer) >= most {
            while let Some(&idlest) = self.peers.get(&newcomer)?.first() {
                if !self.note(newcomer, idlest) {
                    return Some(idlest.number);
                }
            }
        }
        // The recorded activity is a lower bound, so the first connection whose record is exact is
        // the idlest.
        while let Some(&(_, idlest, peer)) = self.ranks.first() {
            if !self.note(peer, idlest) {
                return Some(idlest.number);
            }
        }
        None
    }

    /// Updates the last activity of a connection; returns whether it was later than recorded.
    fn note(&mut self, peer: IpAddr, before: Noted) -> bool {
        let Some(member) = self.members.get_mut(&before.number) else {
            return false;
        };
        let last = member.activity.last();
        if last <= before.last {
            return false;
        }

        member.noted = last;
        self.change(peer, |connections| {
            connections.remove(&before);
            connections.insert(Noted { last, ..before })
        });

        true
    }

    /// Changes the connections of a peer, and its rank.
    fn change(&mut self, peer: IpAddr, change: impl FnOnce(&mut BTreeSet<Noted>) -> bool) {
        let connections = self.peers.entry(peer).or_default();
        if let Some(idlest) = connections.first() {
            self.ranks
                .remove(&(Reverse(connections.len()), *idlest, peer));
        }
        change(connections);
        match connections.first() {
            Some(idlest) => {
                _ = self
                    .ranks
                    .insert((Reverse(connections.len()), *idlest, peer))
            }
            None => _ = self.peers.remove(&peer),
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the numbers of the test are small"
)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Shares and a clock.
    #[derive(Default)]
    struct Setting {
        shares: Shares,
        clock: u64,
        all: Vec<Arc<Activity>>,
    }

    impl Setting {
        /// A connection of peer 10.0.0.`peer` a moment later.
        fn open(&mut self, peer: u8) -> u64 {
            self.clock += 1;
            let number = self.all.len() as u64;
            let activity = Arc::new(Activity::new(Instant::now()));
            activity.set(self.clock);
            self.shares.insert(number, address(peer), activity.clone());
            self.all.push(activity);
            number
        }

        /// Connections are active, one a moment after the other.
        fn touch(&mut self, numbers: &[u64]) {
            for number in numbers {
                self.clock += 1;
                self.all[*number as usize].set(self.clock);
            }
        }

        /// Who goes for a newcomer of this peer; it goes.
        fn evict(&mut self, newcomer: u8) -> u64 {
            let victim = self.shares.victim(address(newcomer)).unwrap();
            self.shares.remove(victim);
            victim
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn the_idlest_entry_of_the_largest_holder_is_evicted() {
        let mut setting = Setting::default();
        let other = setting.open(2);
        let held = [setting.open(1), setting.open(1), setting.open(1)];
        setting.touch(&[held[0], held[2]]);
        assert_eq!(
            setting.evict(3),
            held[1],
            "although peer 2 has been idle for longest"
        );

        setting.touch(&[held[0]]);
        assert_eq!(setting.evict(2), held[2]);
        assert_eq!(setting.evict(3), other, "of equal holders the idlest goes");
        assert_eq!(setting.evict(3), held[0]);
        assert_eq!(setting.shares.victim(address(3)), None);
        assert!(
            setting.shares.peers.is_empty() && setting.shares.ranks.is_empty(),
            "{:?}",
            setting.shares
        );
    }

    #[test]
    fn the_largest_holder_evicts_its_own_entries() {
        let mut setting = Setting::default();
        let idlest = setting.open(2);
        let own = setting.open(1);
        assert_eq!(setting.evict(1), own, "no other holds more");
        setting.open(1);
        setting.open(2);
        assert_eq!(setting.evict(1), idlest, "another holds more");
    }

    #[test]
    fn victims_are_those_that_a_full_search_finds() {
        let mut setting = Setting::default();
        let mut open: Vec<(u64, u8)> = Vec::new();
        let mut random = 12345_u64;
        let mut next = |limit: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % limit
        };

        for round in 0..3000 {
            match next(4) {
                0 | 1 => {
                    let peer = next(5) as u8;
                    open.push((setting.open(peer), peer));
                }
                2 if !open.is_empty() => setting.touch(&[open[next(open.len())].0]),
                _ if open.len() > 10 => {
                    let newcomer = next(6) as u8;
                    let held = |peer: u8| open.iter().filter(|(_, of)| *of == peer).count();
                    let most = (0..6).map(held).max().unwrap();
                    let own = held(newcomer) >= most;
                    let candidates = open.iter().filter(|(_, peer)| {
                        if own {
                            *peer == newcomer
                        } else {
                            held(*peer) == most
                        }
                    });

                    let expected = candidates
                        .min_by_key(|(number, _)| (setting.all[*number as usize].last(), *number));
                    let expected = expected.unwrap().0;
                    assert_eq!(setting.evict(newcomer), expected, "round {round}");
                    open.retain(|(number, _)| *number != expected);
                }
                _ => {}
            }
        }
    }
}
