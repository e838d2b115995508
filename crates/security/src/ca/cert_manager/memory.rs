//! Which CertificateRequests exist, and who waits for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::PREFIX;
use super::status::Verdict;

/// The age at which an object that no one here waits for is deleted: its replica may have ended.
pub(super) const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of remembered objects; at that number no more are created.
pub(super) const MAX_OBJECTS: usize = 10_000;

/// The objects of all replicas, and those who wait for some. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiters: HashMap<String, oneshot::Sender<Verdict>>,
    objects: BTreeMap<String, Known>,
    /// Whether there were more objects than may be remembered.
    has_more: bool,
}

/// An object of this name prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    created: Timestamp,
    /// This replica has failed to delete it.
    is_left: bool,
}

impl Memory {
    /// The verdict of an object that is about to be created.
    pub(super) fn wait_for(&self, name: &str) -> oneshot::Receiver<Verdict> {
        let (sender, verdict) = oneshot::channel();
        self.0.lock().waiters.insert(name.to_owned(), sender);
        verdict
    }

    /// No one waits for an object anymore.
    pub(super) fn give_up(&self, name: &str) {
        self.0.lock().waiters.remove(name);
    }

    /// An object exists, or has changed: remembers it, and hands its verdict to the one who waits.
    pub(super) fn see(&self, object: &DynamicObject) {
        // Names of others must not fill the memory.
        let name = object.metadata.name.as_deref().unwrap_or_default();
        if !name.starts_with(PREFIX) {
            return;
        }

        let mut state = self.0.lock();
        if let Some(created) = &object.metadata.creation_timestamp {
            state.remember(name, created.0, false);
        }

        let verdict = Verdict::of(object);
        if verdict != Verdict::Pending {
            state.hand(name, verdict);
        }
    }

    /// An object has been deleted.
    pub(super) fn forget(&self, name: &str) {
        let mut state = self.0.lock();
        state.objects.remove(name);
        let deleted = "the CertificateRequest was deleted".to_owned();
        state.hand(name, Verdict::Failed(deleted));
    }

    /// All objects are listed again. Those that were left stay: their creation may not be over.
    pub(super) fn begin_list(&self) {
        let mut state = self.0.lock();
        state.objects.retain(|_, known| known.is_left);
        state.has_more = false;
    }

    /// Leaves an object to the next sweep, even if it is young, or not seen yet.
    pub(super) fn leave(&self, name: &str, now: Timestamp) {
        self.0.lock().remember(name, now, true);
    }

    /// The objects to delete: those that were left, and old ones, unless someone waits.
    pub(super) fn due(&self, now: Timestamp) -> Vec<String> {
        let state = self.0.lock();
        let is_due = |known: &Known| known.is_left || now.duration_since(known.created) > MAX_AGE;
        let due = state
            .objects
            .iter()
            .filter(|(name, known)| is_due(known) && !state.waiters.contains_key(*name));
        due.map(|(name, _)| name.clone()).collect()
    }

    /// Whether no more objects may be created.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().objects.len() >= MAX_OBJECTS
    }

    /// Whether there are objects that are not remembered, and there is room for them now.
    pub(super) fn needs_list(&self) -> bool {
        let state = self.0.lock();
        state.has_more && state.objects.len() < MAX_OBJECTS / 2
    }
}

impl State {
    /// Remembers an object, if there is room.
    fn remember(&mut self, name: &str, created: Timestamp, is_left: bool) {
        if let Some(known) = self.objects.get_mut(name) {
            known.is_left |= is_left;
        } else if self.objects.len() < MAX_OBJECTS {
            let known = Known { created, is_left };
            self.objects.insert(name.to_owned(), known);
        } else {
            self.has_more = true;
        }
    }

    /// Hands a verdict to the one who waits for it.
    fn hand(&mut self, name: &str, verdict: Verdict) {
        if let Some(waiter) = self.waiters.remove(name) {
            // The caller may have given up in between.
            let _ = waiter.send(verdict);
        }
    }
}
