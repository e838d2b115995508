//! LDS: sidecar and gateway listeners.

use bytes::Bytes;

use crate::api::names::ResourceName;
use crate::push::view::View;

/// The names of all that the proxy gets.
pub(super) fn names(_view: &View<'_>) -> Vec<ResourceName> {
    Vec::new()
}

/// The one of this name.
pub(super) fn resource(_name: &ResourceName, _view: &View<'_>) -> Option<Bytes> {
    None
}
