//! A stream's mailbox: it contains the newest collection of each type, however slow the stream is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::push_ring::Reason;
use navarch_push::engine::{PushCause, Sink};
use navarch_push::resource::{Collection, ResourceType};

/// A new collection of one type for a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// The newest published collection.
    pub(crate) collection: Arc<Collection>,
    /// The snapshot of the collection.
    pub(crate) revision: u64,
    /// Number of subscriptions answered since updates of this type were last taken.
    pub(crate) answers: u32,
    /// The snapshots whose changes it contains.
    pub(crate) reason: Reason,
    /// When the oldest publication that is merged into this one arrived.
    pub(crate) since: Instant,
}

/// The sink of one stream. The push thread inserts updates, the stream's task removes them; neither
/// waits for the other.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    slots: Mutex<Slots>,
    /// Wakes the stream's task, the only one that waits.
    wake: AtomicWaker,
}

/// Updates by type, at most one of each.
pub(crate) type Updates = Vec<(ResourceType, Update)>;

/// The content of the mailbox.
#[derive(Debug, Default)]
struct Slots {
    /// Updates that can be taken.
    ready: Updates,
    /// Updates of a change that is not published completely: they are taken with the rest of it,
    /// which keeps the order across types.
    staged: Updates,
    /// The stream is closed.
    is_closed: bool,
    /// The stream must check whether it has something to send, even without updates.
    is_nudged: bool,
}

impl Mailbox {
    /// Moves all ready updates into an empty list. The mailbox reuses the list's capacity for the
    /// next updates, so that the push thread, which serves all streams, rarely allocates.
    pub(crate) fn take(&self, into: &mut Updates) {
        let mut slots = self.slots.lock();
        slots.is_nudged = false;
        std::mem::swap(&mut slots.ready, into);
    }

    /// The first snapshot whose changes are in the mailbox.
    pub(crate) fn first_change(&self) -> Option<u64> {
        let slots = self.slots.lock();
        let updates = slots.ready.iter().chain(&slots.staged);
        updates
            .filter_map(|(_, update)| update.reason.changes)
            .map(|[first, _]| first)
            .min()
    }

    /// Waits for updates, or a nudge. Returns false if the stream must end.
    pub(crate) async fn wait(&self) -> bool {
        poll_fn(|context| {
            self.wake.register(context.waker());
            let slots = self.slots.lock();
            let is_due = slots.is_closed || slots.is_nudged || !slots.ready.is_empty();
            if is_due {
                Poll::Ready(!slots.is_closed)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Makes the stream check whether it has something to send.
    pub(crate) fn wake(&self) {
        self.slots.lock().is_nudged = true;
        self.wake.wake();
    }

    /// Ends the stream.
    pub(crate) fn close(&self) {
        self.slots.lock().is_closed = true;
        self.wake.wake();
    }

    /// Waits until the stream is closed.
    pub(crate) async fn closed(&self) {
        poll_fn(|context| {
            self.wake.register(context.waker());
            if self.slots.lock().is_closed {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Slots {
    /// Inserts the update, or merges it into the ready update of the type.
    fn deliver(ready: &mut Updates, resource_type: ResourceType, update: Update) {
        match ready.iter_mut().find(|(other, _)| *other == resource_type) {
            Some((_, older)) => {
                let answers = older.answers + update.answers;
                let since = older.since.min(update.since);
                let mut reason = older.reason;
                reason.add(update.reason);
                *older = Update {
                    answers,
                    reason,
                    since,
                    ..update
                };
            }
            None => {
                ready.reserve_exact(1);
                ready.push((resource_type, update));
            }
        }
    }
}

impl Sink for Mailbox {
    fn publish(
        &self,
        resource_type: ResourceType,
        collection: Arc<Collection>,
        cause: &Arc<PushCause>,
    ) {
        let answers = cause.answers;
        let revision = cause.revision;
        let reason = Reason {
            changes: (answers == 0).then_some([revision; 2]),
            answers: answers > 0,
        };
        let update = Update {
            collection,
            revision,
            answers,
            reason,
            since: Instant::now(),
        };

        let mut slots = self.slots.lock();

        if answers == 0 {
            slots.staged.retain(|(staged, _)| *staged != resource_type);
            slots.staged.reserve_exact(1);
            slots.staged.push((resource_type, update));
        } else {
            Slots::deliver(&mut slots.ready, resource_type, update);
            drop(slots);
            self.wake.wake();
        }
    }

    fn change_ended(&self) {
        let mut slots = self.slots.lock();
        let Slots {
            ready,
            staged,
            is_closed: _,
            is_nudged: _,
        } = &mut *slots;
        for (resource_type, update) in staged.drain(..) {
            Slots::deliver(ready, resource_type, update);
        }
        drop(slots);
        self.wake.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_push::resources::Resources;

    fn cause(revision: u64, answer: bool) -> Arc<PushCause> {
        let changed = if answer {
            Vec::new()
        } else {
            vec![navarch_push::fact::FactKey::Mesh]
        };
        Arc::new(PushCause {
            revision,
            changed,
            answers: u32::from(answer),
        })
    }

    fn empty(resource_type: ResourceType) -> Arc<Collection> {
        Arc::new(Collection::new(resource_type, Resources::default()))
    }

    fn taken(mailbox: &Mailbox) -> Updates {
        let mut updates = Updates::new();
        mailbox.take(&mut updates);
        updates
    }

    #[test]
    fn only_the_newest_waits_and_answers_are_counted() {
        let mailbox = Mailbox::default();
        let resource_type = ResourceType::Endpoint;
        mailbox.publish(resource_type, empty(resource_type), &cause(1, true));
        mailbox.publish(resource_type, empty(resource_type), &cause(1, true));
        for revision in 2..2000 {
            mailbox.publish(resource_type, empty(resource_type), &cause(revision, false));
            mailbox.change_ended();
        }
        let update = taken(&mailbox);
        assert_eq!(update.len(), 1);
        assert_eq!(
            (update[0].0, update[0].1.revision, update[0].1.answers),
            (resource_type, 1999, 2)
        );
        assert!(taken(&mailbox).is_empty());
    }

    #[test]
    fn a_partially_published_change_is_not_taken() {
        let mailbox = Mailbox::default();
        mailbox.publish(
            ResourceType::Route,
            empty(ResourceType::Route),
            &cause(2, false),
        );
        assert!(taken(&mailbox).is_empty());
        mailbox.publish(
            ResourceType::Cluster,
            empty(ResourceType::Cluster),
            &cause(3, false),
        );

        assert_eq!(mailbox.first_change(), Some(2));
        mailbox.change_ended();
        assert_eq!(mailbox.first_change(), Some(2));
        let taken: Vec<ResourceType> = taken(&mailbox)
            .iter()
            .map(|(resource_type, _)| *resource_type)
            .collect();
        assert_eq!(taken, [ResourceType::Route, ResourceType::Cluster]);
        assert_eq!(mailbox.first_change(), None);
    }
}
