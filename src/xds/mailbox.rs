//! A stream's letter box: the newest collection of each type waits in it, however slow the reader is.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::push::engine::{PushCause, Sink};
use crate::push::resource::{Collection, ResourceType};

/// What a proxy shall have of one type.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    /// The collection, newest of those published.
    pub(super) collection: Arc<Collection>,
    /// The snapshot that it comes from.
    pub(super) revision: u64,
    /// How many subscriptions were answered since mail of this type was last taken.
    pub(super) answers: u32,
    /// When the oldest publication that this one stands for came.
    pub(super) since: Instant,
}

/// The sink of one stream. The push thread puts in, the stream's task takes out; neither waits for the other.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// The mail.
    slots: Mutex<Slots>,
    /// Wakes the stream's task.
    wake: Notify,
}

/// Mail by type.
#[derive(Debug, Default)]
struct Slots {
    /// To be taken.
    ready: BTreeMap<ResourceType, Mail>,
    /// Of a change that is not published in full yet: taken with the rest of it, so that the order across types holds.
    staged: BTreeMap<ResourceType, Mail>,
}

impl Mailbox {
    /// Takes all mail that is ready.
    pub(super) fn take(&self) -> BTreeMap<ResourceType, Mail> {
        std::mem::take(&mut self.slots.lock().ready)
    }

    /// Waits for mail. A wake-up may find the box empty.
    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }
}

impl Slots {
    /// Puts mail in the place of what is ready of its type.
    fn deliver(&mut self, kind: ResourceType, mut mail: Mail) {
        if let Some(older) = self.ready.remove(&kind) {
            mail.answers += older.answers;
            mail.since = mail.since.min(older.since);
        }
        self.ready.insert(kind, mail);
    }
}

impl Sink for Mailbox {
    fn publish(&self, kind: ResourceType, collection: Arc<Collection>, cause: &Arc<PushCause>) {
        let answers = u32::from(cause.changed.is_empty());
        let mail = Mail { collection, revision: cause.revision, answers, since: Instant::now() };
        let mut slots = self.slots.lock();
        if answers == 0 {
            slots.staged.insert(kind, mail);
        } else {
            slots.deliver(kind, mail);
            drop(slots);
            self.wake.notify_one();
        }
    }

    fn settled(&self) {
        let mut slots = self.slots.lock();
        for (kind, mail) in std::mem::take(&mut slots.staged) {
            slots.deliver(kind, mail);
        }
        drop(slots);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(revision: u64, answer: bool) -> Arc<PushCause> {
        let changed = if answer { Vec::new() } else { vec![crate::push::fact::FactKey::Mesh] };
        Arc::new(PushCause { revision, changed })
    }

    fn empty(kind: ResourceType) -> Arc<Collection> {
        Arc::new(Collection { kind, resources: crate::push::resources::Resources::default() })
    }

    #[test]
    fn only_the_newest_waits_and_answers_are_counted() {
        let mailbox = Mailbox::default();
        let kind = ResourceType::Endpoint;
        mailbox.publish(kind, empty(kind), &cause(1, true));
        mailbox.publish(kind, empty(kind), &cause(1, true));
        for revision in 2..2000 {
            mailbox.publish(kind, empty(kind), &cause(revision, false));
            mailbox.settled();
        }
        let mail = mailbox.take();
        assert_eq!(mail.len(), 1);
        assert_eq!((mail[&kind].revision, mail[&kind].answers), (1999, 2));
        assert!(mailbox.take().is_empty());
    }

    #[test]
    fn half_a_change_is_not_taken() {
        let mailbox = Mailbox::default();
        mailbox.publish(ResourceType::Route, empty(ResourceType::Route), &cause(2, false));
        assert!(mailbox.take().is_empty());
        mailbox.publish(ResourceType::Cluster, empty(ResourceType::Cluster), &cause(2, false));
        mailbox.settled();
        let taken: Vec<ResourceType> = mailbox.take().into_keys().collect();
        assert_eq!(taken, [ResourceType::Cluster, ResourceType::Route]);
    }
}
