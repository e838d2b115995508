//! The workloads of peers that entries identify by address and identity only, looked up at the
//! control plane by address.
//!
//! ```text
//! entry ─address─▶ peers ──wanted, unwanted──▶ stream to the control plane
//!                   ▲ └── answer for later entries
//!                   └───── workloads by address, names that mean nothing
//! ```
//!
//! An address stays subscribed while it is in use, so that the control plane sends an update when
//! another workload gets it. Addresses without a workload are stored, too, and not requested again.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use navarch_base::metrics_log::LABELS_EXTENSION;
use navarch_proto::istio::workload::Workload;
use navarch_proto::raw::RawDeltaDiscoveryResponse;
use prost::Message as _;
use tokio::time::Instant;

use super::peers::identity_of_endpoint;

/// Maximum number of subscribed addresses; the least recently used ones are removed.
const MAX_PEERS: usize = 4096;
/// Number of addresses that are removed at once, which amortizes the cost of finding them.
const EVICTION_BATCH: usize = MAX_PEERS / 16;
/// Maximum number of names in one request.
const MAX_NAMES: usize = 256;
/// Maximum number of workloads per address: pods in a node's network share its address.
const MAX_WORKLOADS: usize = 64;
/// How long entries wait for a lookup.
const WAIT: Duration = Duration::from_secs(2);
/// How long lookups pause after the control plane rejected the type.
const REJECTION_PAUSE: Duration = Duration::from_mins(10);

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PeerAnswer {
    /// The workload, in the format of endpoint metadata.
    Known(Arc<str>),
    Unknown,
    /// The lookup is pending; entries wait until this time.
    Pending(Instant),
}

/// Names to subscribe to and unsubscribe from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameChanges {
    pub(crate) subscribe: Vec<String>,
    pub(crate) unsubscribe: Vec<String>,
}

/// Identifies a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamId(u64);

/// The peers by address.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// The network of the proxy, which all addresses belong to.
    network: Box<str>,
    /// The stream that subscribes, if any.
    stream: Option<StreamId>,
    /// Number of streams so far.
    streams: u64,
    /// The end of the pause after a rejection.
    rejected_until: Option<Instant>,
    peers: HashMap<IpAddr, Peer>,
    /// The addresses of each workload, by UID.
    by_uid: HashMap<Arc<str>, Vec<IpAddr>>,
    /// Addresses to subscribe to, and to unsubscribe from.
    wanted: BTreeSet<IpAddr>,
    unwanted: BTreeSet<IpAddr>,
}

#[derive(Debug)]
struct Peer {
    /// The workloads with this address.
    workloads: Vec<KnownWorkload>,
    is_answered: bool,
    /// Whether the workloads are from an earlier stream: the next response replaces them.
    is_old: bool,
    requested_at: Instant,
    seen: Instant,
}

#[derive(Debug)]
struct KnownWorkload {
    uid: Arc<str>,
    /// In the format of endpoint metadata.
    description: Arc<str>,
}

impl Lookups {
    pub(super) fn in_network(network: &str) -> Self {
        Self {
            network: network.into(),
            ..Self::default()
        }
    }

    /// The workload with this address and identity. An unknown address is requested from the
    /// control plane.
    pub(super) fn find(&mut self, address: IpAddr, principal: &str, now: Instant) -> PeerAnswer {
        let can_ask = self.stream.is_some() && self.rejected_until.is_none_or(|until| now >= until);

        if let Some(peer) = self.peers.get_mut(&address) {
            peer.seen = now;
            return match peer.is_answered {
                true => peer
                    .named(principal)
                    .map_or(PeerAnswer::Unknown, PeerAnswer::Known),
                false if can_ask && now < peer.requested_at + WAIT => {
                    PeerAnswer::Pending(peer.requested_at + WAIT)
                }
                false => PeerAnswer::Unknown,
            };
        }

        if !can_ask {
            return PeerAnswer::Unknown;
        }

        if self.peers.len() >= MAX_PEERS {
            self.make_room();
        }

        self.peers.insert(
            address,
            Peer {
                workloads: Vec::new(),
                is_answered: false,
                is_old: false,
                requested_at: now,
                seen: now,
            },
        );

        self.unwanted.remove(&address);
        self.wanted.insert(address);
        PeerAnswer::Pending(now + WAIT)
    }

    /// Whether no lookup of this address is pending.
    pub(super) fn is_settled(&self, address: IpAddr) -> bool {
        self.peers.get(&address).is_none_or(|peer| peer.is_answered)
    }

    /// Starts a new stream, and subscribes to all known addresses again: the control plane has
    /// dropped the earlier subscription.
    pub(super) fn begin(&mut self, now: Instant) -> StreamId {
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.stream = Some(stream);
        self.unwanted.clear();
        self.wanted = self.peers.keys().copied().collect();
        for peer in self.peers.values_mut() {
            peer.is_old = true;
            peer.requested_at = now;
        }
        stream
    }

    /// The same if the stream that subscribed has ended; `None` if one does.
    pub(super) fn begin_if_free(&mut self, now: Instant) -> Option<StreamId> {
        self.stream.is_none().then(|| self.begin(now))
    }

    pub(super) fn end(&mut self, stream: StreamId) {
        self.stream.take_if(|asks| *asks == stream);
    }

    /// Pauses lookups, as the control plane does not serve the type.
    pub(super) fn rejected(&mut self, now: Instant) {
        *self = Self {
            streams: self.streams,
            rejected_until: Some(now + REJECTION_PAUSE),
            ..Self::in_network(&std::mem::take(&mut self.network))
        };
    }

    /// Whether there are changes of the subscription.
    pub(super) fn has_changes(&self) -> bool {
        !(self.wanted.is_empty() && self.unwanted.is_empty())
    }

    /// The next changes of a stream's subscription; `None` if there are none, or another stream
    /// subscribes.
    pub(super) fn next(&mut self, stream: StreamId) -> Option<NameChanges> {
        if self.stream != Some(stream) {
            return None;
        }
        let changes = NameChanges {
            subscribe: take_names(&self.network, &mut self.wanted),
            unsubscribe: take_names(&self.network, &mut self.unwanted),
        };
        (changes != NameChanges::default()).then_some(changes)
    }

    /// Applies a response.
    ///
    /// # Errors
    /// If a workload cannot be decoded.
    pub(super) fn take(
        &mut self,
        answer: RawDeltaDiscoveryResponse,
    ) -> Result<(), prost::DecodeError> {
        for name in &answer.removed_resources {
            match self.address_of(name) {
                Some(address) => self.record_response(address, true),
                None => self.forget(name),
            }
        }
        for resource in answer.resources {
            if let Some(body) = resource.resource {
                let workload = Workload::decode(body.value)?;
                self.set_workload(&resource.name, &workload);
            }
        }
        Ok(())
    }

    /// The address in a resource name.
    fn address_of(&self, name: &str) -> Option<IpAddr> {
        name.strip_prefix(&*self.network)?
            .strip_prefix('/')?
            .parse()
            .ok()
    }

    /// Adds or replaces a workload.
    fn set_workload(&mut self, uid: &str, workload: &Workload) {
        self.forget(uid);
        let uid: Arc<str> = uid.into();
        let description = description_of(workload);
        let addresses = workload.addresses.iter().filter_map(ip);
        let addresses: Vec<IpAddr> = addresses
            .filter(|address| self.peers.contains_key(address))
            .collect();

        for address in &addresses {
            self.record_response(*address, false);
            if let Some(peer) = self.peers.get_mut(address)
                && peer.workloads.len() < MAX_WORKLOADS
            {
                peer.workloads.push(KnownWorkload {
                    uid: uid.clone(),
                    description: description.clone(),
                });
            }
        }

        if !addresses.is_empty() {
            self.by_uid.insert(uid, addresses);
        }
    }

    /// Records a response for an address. Removes its workloads if they are from an earlier stream,
    /// or if `is_all` is set.
    fn record_response(&mut self, address: IpAddr, is_all: bool) {
        let Some(peer) = self.peers.get_mut(&address) else {
            return;
        };
        peer.is_answered = true;
        if std::mem::take(&mut peer.is_old) || is_all {
            for KnownWorkload { uid, .. } in std::mem::take(&mut peer.workloads) {
                remove_address(&mut self.by_uid, &uid, address);
            }
        }
    }

    /// Removes a workload.
    fn forget(&mut self, uid: &str) {
        for address in self.by_uid.remove(uid).unwrap_or_default() {
            if let Some(peer) = self.peers.get_mut(&address) {
                peer.workloads.retain(|workload| &*workload.uid != uid);
            }
        }
    }

    /// Removes the least recently used addresses.
    fn make_room(&mut self) {
        let mut all: Vec<(Instant, IpAddr)> = self
            .peers
            .iter()
            .map(|(address, peer)| (peer.seen, *address))
            .collect();
        all.sort_unstable();

        for (_, address) in all.into_iter().take(EVICTION_BATCH) {
            for KnownWorkload { uid, .. } in self
                .peers
                .remove(&address)
                .map(|peer| peer.workloads)
                .unwrap_or_default()
            {
                remove_address(&mut self.by_uid, &uid, address);
            }
            if !self.wanted.remove(&address) {
                self.unwanted.insert(address);
            }
        }
    }
}

impl Peer {
    /// The description of the workload with this identity; of several workloads only if all have
    /// the same.
    fn named(&self, principal: &str) -> Option<Arc<str>> {
        let account = account_of(principal)?;
        let mut fitting = self.workloads.iter().filter(|workload| {
            account_of(identity_of_endpoint(&workload.description)) == Some(account)
        });
        let first = fitting.next()?;
        fitting
            .all(|workload| workload.description == first.description)
            .then(|| first.description.clone())
    }
}

/// Namespace and service account of an identity, without the trust domain, which may have aliases.
pub(super) fn account_of(principal: &str) -> Option<&str> {
    Some(principal.split_once("/ns/")?.1).filter(|account| account.contains("/sa/"))
}

/// Removes an address from those of a workload.
fn remove_address(by_uid: &mut HashMap<Arc<str>, Vec<IpAddr>>, uid: &str, address: IpAddr) {
    if let Some(addresses) = by_uid.get_mut(uid) {
        addresses.retain(|other| *other != address);
        if addresses.is_empty() {
            by_uid.remove(uid);
        }
    }
}

/// Removes some addresses, and returns them as resource names.
fn take_names(network: &str, addresses: &mut BTreeSet<IpAddr>) -> Vec<String> {
    std::iter::from_fn(|| addresses.pop_first())
        .take(MAX_NAMES)
        .map(|address| format!("{network}/{address}"))
        .collect()
}

/// A workload in the format of endpoint metadata, with its exchanged labels. Application and version are the canonical service
/// and revision, as in Istio's proxies for workloads that they look up. The revision `latest` means
/// that no version is set.
fn description_of(workload: &Workload) -> Arc<str> {
    let Workload {
        workload_name,
        namespace,
        canonical_name,
        canonical_revision,
        cluster_id,
        service_account,
        ..
    } = workload;

    let version = if canonical_revision == "latest" {
        ""
    } else {
        canonical_revision
    };

    let mut joined = format!(
        "{workload_name};{namespace};{canonical_name};{canonical_revision};{cluster_id};\
         spiffe:///ns/{namespace}/sa/{service_account};{canonical_name};{version}"
    );
    if let Some(labels) = exchanged_labels_of(workload) {
        joined.push(';');
        joined.push_str(&labels);
    }

    joined.into()
}

/// The exchanged labels of a workload, as `name=value,...`.
fn exchanged_labels_of(workload: &Workload) -> Option<String> {
    let extension = workload
        .extensions
        .iter()
        .find(|extension| extension.name == LABELS_EXTENSION)?;
    let config = extension.config.as_ref()?;
    String::decode(config.value.as_slice()).ok()
}

/// Decodes an address from its bytes.
fn ip(bytes: &Bytes) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(&**bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(&**bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests;
