//! Who subscribes to what.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::names::ResourceName;

/// The id of a connected proxy within one engine; never reused.
pub type ProxyId = navarch_engine::SubscriberId;

/// The subscription of a stream to one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Wildcard: all resources of the proxy.
    pub wildcard: bool,
    /// Requested names, whether or not they exist; for
    /// [`ResourceType::VirtualHost`](crate::resource::ResourceType::VirtualHost) the route
    /// configurations whose virtual hosts are requested.
    pub names: Arc<BTreeSet<ResourceName>>,
}
