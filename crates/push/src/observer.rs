//! An observer of the push thread: it sees each input and each published collection, in the order of the work. The record is one.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::context::PushContext;
use super::engine::{Interest, ProxyId};
use super::mesh_state::Change;
use super::proxy::Proxy;
use super::resource::{Collection, ResourceType};
use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;

/// A collection that was published to a proxy.
#[derive(Clone, Debug)]
pub struct PublishedCollection {
    /// The proxy that it was published to.
    pub proxy: ProxyId,
    /// The type of its resources.
    pub kind: ResourceType,
    /// Shared with the engine and other proxies.
    pub collection: Arc<Collection>,
}

/// What objects were before their last change, the latest last; `None` where there was none. Few enough to be copied with a change
/// while there is another copy.
pub type Before = Arc<VecDeque<(ObjectRef, Option<AnyObject>)>>;

/// One thing that was done.
#[derive(Clone, Debug)]
pub enum Event {
    /// A stream began, from this address.
    Connected(ProxyId, Arc<Proxy>, Option<IpAddr>),
    /// A stream ended.
    Gone(ProxyId),
    /// A subscription was answered.
    Subscribed {
        /// Who asked.
        proxy: ProxyId,
        /// The type that was asked for.
        kind: ResourceType,
        /// What was asked for; `None` where the type was given up since, and is taken away after the answer.
        interest: Option<Interest>,
        /// What it is shown.
        shown: Vec<PublishedCollection>,
    },
    /// A stream wants nothing more of a type.
    Unsubscribed(ProxyId, ResourceType),
    /// Changes were taken in, and what they reach was published.
    Applied {
        /// All that came in since the last time, in order.
        changes: Vec<Change>,
        /// The snapshot in force since.
        context: Arc<PushContext>,
        /// What would be served if objects were refused.
        before: Before,
        /// The revision of the snapshot.
        revision: u64,
        /// What is shown.
        shown: Vec<PublishedCollection>,
    },
    /// All was recomputed.
    Recomputed(Vec<PublishedCollection>),
    /// The first reading is in.
    Synced,
    /// A client acknowledged a response of a type (ACK). Its stream calls, so the order with the above is open.
    Taken(ProxyId, ResourceType),
    /// A client rejected a response of a type with this message (NACK). Its stream calls.
    Refused(ProxyId, ResourceType, Arc<str>),
}

/// Must not block: the push thread and streams call it.
pub trait PushObserver: fmt::Debug + Send + Sync {
    /// Called once for each event.
    fn observe(&self, event: Event);
}
