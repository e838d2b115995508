//! RDS: route configurations of sidecars and gateways.

use bytes::Bytes;

use crate::api::names::ResourceName;
use crate::push::view::View;

/// The one of this name.
pub(super) fn resource(_name: &ResourceName, _view: &View<'_>) -> Option<Bytes> {
    None
}
