//! EDS: the endpoints of a cluster.

pub(super) mod service_port;

use bytes::Bytes;

use crate::api::names::ResourceName;
use crate::push::view::View;

/// The one of this name.
pub(super) fn resource(_name: &ResourceName, _view: &View<'_>) -> Option<Bytes> {
    None
}
