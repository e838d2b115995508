//! The open streams, for debug pages.

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

pub use crate::session::watch::AcknowledgedRest;
pub use crate::session::withheld::WithheldNames;

/// All open streams.
#[derive(Debug, Default)]
pub struct Connections {
    /// Streams by number.
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Connection {
    /// `<pod>.<namespace>-<number>`, as in Istio's debug output.
    pub(super) id: Arc<str>,
    /// Unique within the process.
    pub(super) number: u64,
    /// The client's address.
    pub(super) peer: Option<SocketAddr>,
    /// When it connected.
    pub(super) since: Timestamp,
    /// The same by the monotonic clock: the session's start.
    pub(super) begun: Instant,
    pub(super) protocol: Protocol,
    pub(super) proxy: Arc<Proxy>,
    /// Its name in the engine.
    pub(super) proxy_id: ProxyId,
    /// The state. The stream's task locks it for one step at a time; others only to read.
    pub(super) session: Mutex<Session>,
    /// Updates from the push thread; closing it ends the stream.
    pub(super) mailbox: Arc<Mailbox>,
}

/// Information about one stream.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// `<pod>.<namespace>-<number>`.
    pub id: Arc<str>,
    /// The client's address, if the transport has one.
    pub peer: Option<SocketAddr>,
    /// When it connected.
    pub connected_at: Timestamp,
    /// State of the world or delta, by the gRPC method that the client called.
    pub protocol: Protocol,
    /// The client, by the node message of its first request.
    pub proxy: Arc<Proxy>,
    /// Its name in the engine.
    pub proxy_id: ProxyId,
    /// Its subscriptions, in push order.
    pub types: Vec<TypeInfo>,
}

/// Information about one type of one stream.
#[derive(Clone, Debug)]
pub struct TypeInfo {
    /// The `type_url` that the client subscribed to.
    pub resource_type: ResourceType,
    /// Whether it is a wildcard subscription.
    pub wildcard: bool,
    /// The names that the client subscribed to.
    pub names: Arc<BTreeSet<ResourceName>>,
    /// The last response, answered or not.
    pub sent: Option<Mark>,
    /// The last response that the client acknowledged.
    pub acked: Option<Mark>,
    /// The error of the last NACK, until the client has acknowledged all resources: also while those
    /// that it has rejected are not sent again. If the last NACK is about none of these, a text that
    /// names them.
    pub rejected: Option<Rejection>,
    /// The newest collection with resources that the client has rejected.
    pub rejected_collection: Option<Arc<Collection>>,
    /// The sent collection, with rejected resources as they were when the client had last
    /// acknowledged all.
    pub resources: Option<Arc<Collection>>,
    /// The last collection that the client has acknowledged, with rejected resources as they were when
    /// it had last acknowledged all, and the snapshot of that.
    pub taken: Option<(Arc<Collection>, u64)>,
    /// The last collection of which it has acknowledged all but what it has rejected, if it has not
    /// acknowledged all of one since (delta only).
    pub rest: Option<AcknowledgedRest>,
    /// Resources that it has rejected, or may have, and that are not sent to it for now (delta only).
    pub withheld: WithheldNames,
    /// Those of them that are sent again in turn, as it is unknown which of them it has rejected.
    pub in_doubt: WithheldNames,
    /// Those of them that the last NACK is about.
    pub withheld_last: WithheldNames,
    /// Whether everything is sent and acknowledged.
    pub in_sync: bool,
}

/// One of the last responses of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushInfo {
    /// Type of the response's resources.
    pub resource_type: ResourceType,
    /// When it was sent.
    pub at: Timestamp,
    /// The first and the last snapshot whose changes it contains.
    pub changes: Option<[u64; 2]>,
    /// Whether it is the response to a subscription.
    pub answers: bool,
    /// Number of resources.
    pub count: u32,
    /// Number of removed names.
    pub removed: u32,
    /// Size of its resources in bytes.
    pub bytes: u32,
    /// How long the client took to answer, and whether it was an ACK.
    pub answer: Option<(Duration, bool)>,
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// `<version>-<stream>.<number>`, which the client returns in its ACK or NACK.
    pub nonce: Arc<str>,
    /// `<start of the process>/<revision of the snapshot>`.
    pub version: Arc<str>,
    /// When it was sent.
    pub at: Timestamp,
}

impl Connections {
    /// Information about all streams, ordered by connection time.
    #[must_use]
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let open = self.open();
        open.iter().map(|connection| connection.look()).collect()
    }

    /// The streams of the proxy with the name `<pod>.<namespace>`, newest last.
    #[must_use]
    pub fn of_proxy(&self, name: &str) -> Vec<ConnectionInfo> {
        let open = self.open.lock();
        let found: Vec<Arc<Connection>> = open
            .values()
            .filter(|connection| *connection.proxy.name == *name)
            .cloned()
            .collect();
        drop(open);
        found.iter().map(|connection| connection.look()).collect()
    }

    /// The last responses of the stream with this id, oldest first.
    #[must_use]
    pub fn pushes(&self, id: &str) -> Vec<PushInfo> {
        self.find(|connection| *connection.id == *id)
            .map(|connection| connection.pushes())
            .unwrap_or_default()
    }

    /// The last responses of every stream, oldest first.
    #[must_use]
    pub fn all_pushes(&self) -> Vec<Vec<PushInfo>> {
        let open = self.open();
        open.iter().map(|connection| connection.pushes()).collect()
    }

    /// The first stream for which `is_it` returns true. The list is not locked any more.
    fn find(&self, is_it: impl Fn(&Connection) -> bool) -> Option<Arc<Connection>> {
        let open = self.open.lock();
        open.values().find(|connection| is_it(connection)).cloned()
    }

    pub(crate) fn open(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }

    /// Memory of the response history of all streams.
    pub(crate) fn history_bytes(&self) -> usize {
        let open = self.open();
        open.iter()
            .map(|connection| connection.session.lock().pushes.bytes())
            .sum()
    }

    /// The stream with this id in the engine.
    #[must_use]
    pub fn of_id(&self, id: ProxyId) -> Option<ConnectionInfo> {
        self.find(|connection| connection.proxy_id == id)
            .map(|connection| connection.look())
    }

    /// Sends a trial collection to a stream in place of the push thread's, until the push thread
    /// has a new one, to see whether the client accepts it. False if the stream has ended.
    pub fn offer(&self, id: ProxyId, collection: Arc<Collection>, revision: u64) -> bool {
        let Some(connection) = self.find(|connection| connection.proxy_id == id) else {
            return false;
        };

        let cause = Arc::new(PushCause {
            revision,
            changed: Vec::new(),
            answers: 0,
        });
        connection
            .mailbox
            .publish(collection.resource_type, collection, &cause);

        connection.mailbox.change_ended();
        true
    }

    /// Number of open streams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Ends the stream with this id. Returns false if it does not exist.
    pub fn disconnect(&self, id: &str) -> bool {
        self.find(|connection| *connection.id == *id)
            .inspect(|connection| connection.mailbox.close())
            .is_some()
    }

    /// Sends everything to all streams again. Returns the number of streams.
    pub fn resend(&self) -> usize {
        let open = self.open();
        for connection in &open {
            connection.session.lock().resend();
            connection.mailbox.wake();
        }
        open.len()
    }

    /// Ends all open streams.
    pub(super) fn end(&self) {
        for connection in self.open.lock().values() {
            connection.mailbox.close();
        }
    }

    /// Adds a stream that has begun.
    pub(super) fn add(&self, connection: Arc<Connection>) {
        self.open.lock().insert(connection.number, connection);
    }

    /// Removes a stream that has ended.
    pub(super) fn remove(&self, number: u64) {
        self.open.lock().remove(&number);
    }
}

impl Connection {
    /// Information about the stream.
    fn look(&self) -> ConnectionInfo {
        let session = self.session.lock();
        let types = session
            .watches
            .iter()
            .map(|(resource_type, watch)| TypeInfo {
                resource_type: *resource_type,
                wildcard: watch.interest.wildcard,
                names: watch.interest.names.clone(),
                sent: watch
                    .history
                    .sent
                    .as_ref()
                    .map(|response| self.mark(response)),
                acked: watch
                    .history
                    .acked
                    .as_ref()
                    .map(|response| self.mark(response)),
                rejected: watch.history.rejected.clone(),
                rejected_collection: watch.history.rejected_collection.clone(),
                resources: watch.sent(),
                taken: watch
                    .taken()
                    .map(|(collection, revision)| (collection.clone(), revision)),
                rest: watch.rest().cloned(),
                withheld: watch.withheld.names(),
                in_doubt: watch.withheld.in_doubt(),
                withheld_last: watch.withheld.newest(),
                in_sync: session.is_acknowledged(*resource_type)
                    && watch.history.rejected.is_none(),
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
            resource_type: sent.resource_type,
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

    /// Information about a response.
    fn mark(&self, response: &SentResponse) -> Mark {
        Mark {
            nonce: response.nonce.clone(),
            version: response.version.clone(),
            at: after(self.since, response.at),
        }
    }
}

/// The time that is `elapsed` after another.
pub(super) fn after(moment: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
}
