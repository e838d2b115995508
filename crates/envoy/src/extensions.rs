//! ECDS: extension configurations that filters reference by name.

use bytes::Bytes;

use super::build::encode;
use super::{patches, traffic_extension};
use navarch_api::names::ResourceName;
use navarch_push::view::View;

pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    patches::extension_config(view, name.as_str())
        .as_ref()
        .map(encode)
        .or_else(|| traffic_extension::resource(name, view))
}
