//! What was published, for those who record it.

use std::sync::Arc;

use super::{Engine, ProxyId};
use crate::observer::PublishedCollection;
use crate::resource::{Collection, ResourceType};

impl Engine {
    /// Has what is published kept from now on, until it is taken.
    pub fn keep_published(&mut self) {
        self.published.get_or_insert_default();
    }

    /// Takes what was published since it was last taken; nothing unless it is kept.
    pub fn take_published(&mut self) -> Vec<PublishedCollection> {
        self.published.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes what is published, if there is an observer.
    pub(super) fn note_published(&mut self, proxy: u64, kind: ResourceType, collection: Arc<Collection>) {
        if let Some(published) = &mut self.published {
            published.push(PublishedCollection { proxy: ProxyId(proxy), kind, collection });
        }
    }
}
