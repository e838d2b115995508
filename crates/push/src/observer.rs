//! An observer of the push thread: it gets each input and each published collection, in processing
//! order. The record is one.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::change::Change;
use super::context::PushContext;
use super::proxy::Proxy;
use super::resource::ResourceType;
use super::subscription::{Interest, ProxyId};

pub use super::delivery::PublishedCollection;
pub use super::quarantined::Before;

/// An event of the push thread.
#[derive(Clone, Debug)]
pub enum Event {
    /// A stream began; with the client's address.
    Connected(ProxyId, Arc<Proxy>, Option<IpAddr>),
    /// A stream ended.
    Gone(ProxyId),
    /// A subscription was answered.
    Subscribed {
        /// The stream whose client subscribed.
        proxy: ProxyId,
        /// The requested type.
        resource_type: ResourceType,
        /// The requested resources; `None` if the client has unsubscribed since, in which case the
        /// subscription is removed after the answer.
        interest: Option<Interest>,
        /// What was published since the last event that has collections.
        published: Vec<PublishedCollection>,
    },
    /// A stream unsubscribed from a type.
    Unsubscribed(ProxyId, ResourceType),
    /// Changes were applied and the affected collections published.
    Applied {
        /// All changes since the last push, in order.
        changes: Vec<Change>,
        /// The new snapshot.
        context: Arc<PushContext>,
        /// The previous versions of changed objects, which are served if proxies reject the new
        /// ones.
        before: Before,
        /// The revision of the snapshot.
        revision: u64,
        /// The collections that differ from those that their proxies had; empty if none does.
        published: Vec<PublishedCollection>,
    },
    /// All results were recomputed.
    Recomputed(Vec<PublishedCollection>),
    /// The initial state is complete.
    Synced,
    /// A client acknowledged a response of a type (ACK). Its stream calls, so the order relative to
    /// the other events is not defined.
    Taken(ProxyId, ResourceType),
    /// A client rejected a response of a type with this message (NACK). Its stream calls.
    Rejected(ProxyId, ResourceType, Arc<str>),
}

/// Must not block: the push thread and streams call it.
pub trait PushObserver: fmt::Debug + Send + Sync {
    /// Called once for each event.
    fn observe(&self, event: Event);
}
