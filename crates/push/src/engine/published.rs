//! Published collections, for an observer that records them.

use std::sync::Arc;

use super::{Engine, ProxyId};
use crate::observer::PublishedCollection;
use crate::resource::{Collection, ResourceType};

impl Engine {
    /// Keeps published collections from now on, until they are taken.
    pub fn keep_published(&mut self) {
        self.published.get_or_insert_default();
    }

    /// Takes the collections published since the last call; empty unless they are kept.
    pub fn take_published(&mut self) -> Vec<PublishedCollection> {
        self.published
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Stores a published collection, if there is an observer.
    pub(super) fn note_published(
        &mut self,
        proxy: u64,
        kind: ResourceType,
        collection: Arc<Collection>,
    ) {
        if let Some(published) = &mut self.published {
            published.push(PublishedCollection {
                proxy: ProxyId(proxy),
                kind,
                collection,
            });
        }
    }
}
