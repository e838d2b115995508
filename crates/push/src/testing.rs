//! Meshes of YAML, and the smallest translator and sink, for tests of this crate and its users.

use std::sync::Arc;

use bytes::Bytes;

use super::engine::{PushCause, Sink};
use super::mesh_state::{Change, MeshState};
use super::resource::{Collection, ResourceType};
use super::view::{Translator, View};
use navarch_api::names::ResourceName;
use navarch_api::settings::Settings;
use navarch_api::testing::objects;

/// Makes no resources.
#[derive(Clone, Copy, Debug)]
pub struct NoResources;

/// Discards pushes.
#[derive(Clone, Copy, Debug)]
pub struct NoSink;

impl Translator for NoResources {
    fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
        Vec::new()
    }

    fn resource(&self, _: ResourceType, _: &ResourceName, _: &View<'_>) -> Option<Bytes> {
        None
    }
}

impl Sink for NoSink {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// The objects of a text, as changes.
///
/// # Panics
/// If one is invalid, or of an unknown kind.
#[must_use]
pub fn changes(yaml: &str) -> Vec<Change> {
    objects(yaml).into_iter().map(Change::Put).collect()
}

/// A mesh of the objects of a text.
///
/// # Panics
/// As [`changes`].
#[must_use]
pub fn mesh_of(yaml: &str) -> MeshState {
    let mut state = MeshState::new(Settings::default());
    state.apply(changes(yaml));
    state
}
