//! The streams that are open, for people to look at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::session::Session;
use crate::session::discovery_request::{Protocol, Rejection};
use crate::session::mailbox::Mailbox;
use crate::session::push_ring::PushRecord;
use crate::session::watch::SentResponse;
use navarch_api::names::ResourceName;
use navarch_push::engine::{ProxyId, PushCause, Sink as _};
use navarch_push::proxy::Proxy;
use navarch_push::resource::{Collection, ResourceType};

/// All open streams.
#[derive(Debug, Default)]
pub struct Connections {
    /// By number.
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Connection {
    /// `<pod>.<namespace>-<number>`, as in Istio's debug output.
    pub(super) id: Arc<str>,
    /// Unique within the process.
    pub(super) number: u64,
    /// Where the client is.
    pub(super) peer: Option<SocketAddr>,
    /// When it came.
    pub(super) since: Timestamp,
    /// The same by the steady clock: the session's time zero.
    pub(super) begun: Instant,
    /// Which protocol it speaks.
    pub(super) protocol: Protocol,
    /// Who it is.
    pub(super) proxy: Arc<Proxy>,
    /// Its name in the engine.
    pub(super) proxy_id: ProxyId,
    /// The state. Its task takes the lock for one step at a time; others only to read.
    pub(super) session: Mutex<Session>,
    /// What the push thread has for it; closed, it ends the stream.
    pub(super) mailbox: Arc<Mailbox>,
}

/// A look at one stream.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// `<pod>.<namespace>-<number>`.
    pub id: Arc<str>,
    /// Where the client is, if the transport says so.
    pub peer: Option<SocketAddr>,
    /// When it came.
    pub connected_at: Timestamp,
    /// Which protocol it speaks.
    pub protocol: Protocol,
    /// Who it is.
    pub proxy: Arc<Proxy>,
    /// Its name in the engine.
    pub proxy_id: ProxyId,
    /// What it watches, in push order.
    pub types: Vec<TypeInfo>,
}

/// A look at one type of one stream.
#[derive(Clone, Debug)]
pub struct TypeInfo {
    /// The type.
    pub kind: ResourceType,
    /// Whether it watches everything.
    pub wildcard: bool,
    /// What it watches by name.
    pub names: Arc<BTreeSet<ResourceName>>,
    /// The last response.
    pub sent: Option<Mark>,
    /// The last response that the client took.
    pub acked: Option<Mark>,
    /// Why the client did not take the response that it answered last, if it did not.
    pub rejected: Option<Rejection>,
    /// What it would have had then.
    pub refused: Option<Arc<Collection>>,
    /// What it was sent, all in all, as of the last response that it did not reject.
    pub resources: Option<Arc<Collection>>,
    /// What the client has taken, as far as it said, and the snapshot that this comes from.
    pub taken: Option<(Arc<Collection>, u64)>,
    /// Whether all there is was sent and taken.
    pub in_sync: bool,
}

/// One of the last responses of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushInfo {
    /// Type of the response's resources.
    pub kind: ResourceType,
    /// When it was sent.
    pub at: Timestamp,
    /// The snapshots, the first and the last, whose changes it tells of.
    pub changes: Option<[u64; 2]>,
    /// Whether it answers a subscription.
    pub answers: bool,
    /// How many resources it held.
    pub count: u32,
    /// How many names it took away.
    pub removed: u32,
    /// The bytes of its resources.
    pub bytes: u32,
    /// How long the client took to answer, and whether it took it.
    pub answer: Option<(Duration, bool)>,
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its nonce.
    pub nonce: Arc<str>,
    /// Its version.
    pub version: Arc<str>,
    /// When it was sent.
    pub at: Timestamp,
}

impl Connections {
    /// Looks at all streams, ordered by the time at which they came.
    #[must_use]
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let open = self.open();
        open.iter().map(|connection| connection.look()).collect()
    }

    /// The streams of a proxy, by its name `<pod>.<namespace>`: the newest last.
    #[must_use]
    pub fn of_proxy(&self, name: &str) -> Vec<ConnectionInfo> {
        let open = self.open.lock();
        let found: Vec<Arc<Connection>> = open.values().filter(|one| *one.proxy.name == *name).cloned().collect();
        drop(open);
        found.iter().map(|connection| connection.look()).collect()
    }

    /// The last responses of the stream of this id, oldest first.
    #[must_use]
    pub fn pushes(&self, id: &str) -> Vec<PushInfo> {
        let found = self.open.lock().values().find(|connection| &*connection.id == id).cloned();
        found.map(|connection| connection.pushes()).unwrap_or_default()
    }

    /// The last responses of every stream, oldest first.
    #[must_use]
    pub fn all_pushes(&self) -> Vec<Vec<PushInfo>> {
        let open = self.open();
        open.iter().map(|connection| connection.pushes()).collect()
    }

    /// All streams.
    pub(crate) fn open(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }

    /// Bytes that the remembered responses of all streams take.
    pub(crate) fn history_bytes(&self) -> usize {
        let open = self.open();
        open.iter().map(|connection| connection.session.lock().pushes.bytes()).sum()
    }

    /// The stream of this name in the engine.
    #[must_use]
    pub fn of_id(&self, id: ProxyId) -> Option<ConnectionInfo> {
        let found = self.open.lock().values().find(|one| one.proxy_id == id).cloned();
        found.map(|connection| connection.look())
    }

    /// Has a stream sent a collection in the place of what the push thread has for it, until that has something new: to try what the
    /// client says to it. False where the stream has ended.
    pub fn offer(&self, id: ProxyId, collection: Arc<Collection>, revision: u64) -> bool {
        let found = self.open.lock().values().find(|one| one.proxy_id == id).cloned();
        let Some(connection) = found else { return false };
        let cause = Arc::new(PushCause { revision, changed: Vec::new(), answers: 0 });
        connection.mailbox.publish(collection.kind, collection, &cause);
        connection.mailbox.settled();
        true
    }

    /// How many streams are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Ends the stream of this id. False if there is none.
    pub fn disconnect(&self, id: &str) -> bool {
        let found = self.open.lock().values().find(|connection| &*connection.id == id).cloned();
        found.inspect(|connection| connection.mailbox.close()).is_some()
    }

    /// Has all streams sent all that they watch once more, as if it were new to them. Gives how many there are.
    pub fn resend(&self) -> usize {
        let open = self.open();
        for connection in &open {
            connection.session.lock().resend();
            connection.mailbox.nudge();
        }
        open.len()
    }

    /// Ends all streams that there are.
    pub(super) fn end(&self) {
        for connection in self.open.lock().values() {
            connection.mailbox.close();
        }
    }

    /// A stream has begun.
    pub(super) fn add(&self, connection: Arc<Connection>) {
        self.open.lock().insert(connection.number, connection);
    }

    /// A stream has ended.
    pub(super) fn remove(&self, number: u64) {
        self.open.lock().remove(&number);
    }
}

impl Connection {
    /// Looks at the stream.
    fn look(&self) -> ConnectionInfo {
        let session = self.session.lock();
        let types = session.watches.iter().map(|(kind, watch)| TypeInfo {
            kind: *kind,
            wildcard: watch.interest.wildcard,
            names: watch.interest.names.clone(),
            sent: watch.history.sent.as_ref().map(|response| self.mark(response)),
            acked: watch.history.acked.as_ref().map(|response| self.mark(response)),
            rejected: watch.history.rejected.clone(),
            refused: watch.history.refused.clone(),
            resources: watch.sent().cloned(),
            taken: watch.taken().map(|(collection, revision)| (collection.clone(), revision)),
            in_sync: session.is_quiet(*kind) && watch.history.rejected.is_none(),
        });
        ConnectionInfo {
            id: self.id.clone(),
            peer: self.peer,
            connected_at: self.since,
            protocol: self.protocol,
            proxy: self.proxy.clone(),
            proxy_id: self.proxy_id,
            types: types.collect(),
        }
    }

    /// The last responses, oldest first.
    fn pushes(&self) -> Vec<PushInfo> {
        let session = self.session.lock();
        let look = |sent: &PushRecord| PushInfo {
            kind: sent.kind,
            at: after(self.since, sent.at),
            changes: sent.reason.changes,
            answers: sent.reason.answers,
            count: sent.count,
            removed: sent.removed,
            bytes: sent.bytes,
            answer: sent.answer,
        };
        session.pushes.iter().map(look).collect()
    }

    /// A response as others see it.
    fn mark(&self, response: &SentResponse) -> Mark {
        Mark { nonce: response.nonce.clone(), version: response.version.clone(), at: after(self.since, response.at) }
    }
}

/// The moment that is `elapsed` after another.
pub(super) fn after(moment: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
}
