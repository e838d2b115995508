//! Meshes of YAML, and the smallest translator and sink, for tests of this crate and its users.

use std::sync::Arc;

use bytes::Bytes;

use super::engine::{PushCause, Sink};
use super::mesh_state::{Change, MeshState};
use super::resource::{Collection, ResourceType};
use super::view::{Translator, View};
use navarch_api::istio::DestinationRule;
use navarch_api::names::ResourceName;
use navarch_api::object::NamespacedName;
use navarch_api::settings::Settings;
use navarch_api::testing::objects;

/// Makes no resources.
#[derive(Clone, Copy, Debug)]
pub struct NoResources;

/// Makes a cluster of each DestinationRule of the namespace `shop`, with its name and, as content, its
/// host.
#[derive(Clone, Copy, Debug)]
pub struct RulesAsClusters;

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

impl Translator for RulesAsClusters {
    fn names(&self, _: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let rules = view.names::<DestinationRule>();
        rules.map(|rule| ResourceName::new(&*rule.name)).collect()
    }

    fn resource(&self, _: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        let rule = NamespacedName::new("shop", name.as_str());
        let rule = view.object::<DestinationRule>(&rule)?;
        Some(Bytes::from(rule.spec.host.clone()))
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

/// A DestinationRule of the namespace `shop` in YAML.
#[must_use]
pub fn rule(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
         metadata: {{name: {name}, namespace: shop}}\nspec: {{host: {host}}}\n---\n"
    )
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
