//! A stream's letter box: the newest collection of each type waits in it, however slow the reader is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use navarch_push::engine::{PushCause, Sink};
use navarch_push::resource::{Collection, ResourceType};

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
    slots: Mutex<Slots>,
    /// Wakes the stream's task, the only one that waits.
    wake: AtomicWaker,
}

/// Mail by type, of each at most one.
pub(super) type Letters = Vec<(ResourceType, Mail)>;

/// What is in the box.
#[derive(Debug, Default)]
struct Slots {
    /// To be taken.
    ready: Letters,
    /// Of a change that is not published in full yet: taken with the rest of it, so that the order across types holds.
    staged: Letters,
    /// The stream shall end.
    is_closed: bool,
    /// The stream shall look for something to send, though no mail came.
    is_nudged: bool,
}

impl Mailbox {
    /// Takes all mail that is ready into an empty list, whose room the next mail gets: the push thread, which serves all
    /// streams, seldom needs new memory then.
    pub(super) fn take(&self, into: &mut Letters) {
        let mut slots = self.slots.lock();
        slots.is_nudged = false;
        std::mem::swap(&mut slots.ready, into);
    }

    /// Waits for mail, or a nudge. False when the stream shall end.
    pub(super) async fn wait(&self) -> bool {
        poll_fn(|context| {
            self.wake.register(context.waker());
            let slots = self.slots.lock();
            let is_due = slots.is_closed || slots.is_nudged || !slots.ready.is_empty();
            if is_due { Poll::Ready(!slots.is_closed) } else { Poll::Pending }
        })
        .await
    }

    /// Has the stream look for something to send.
    pub(super) fn nudge(&self) {
        self.slots.lock().is_nudged = true;
        self.wake.wake();
    }

    /// Has the stream end.
    pub(super) fn close(&self) {
        self.slots.lock().is_closed = true;
        self.wake.wake();
    }

    /// Waits until the stream shall end. For whoever is not waiting for mail.
    pub(super) async fn closed(&self) {
        poll_fn(|context| {
            self.wake.register(context.waker());
            if self.slots.lock().is_closed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Slots {
    /// Puts mail in the place of what is ready of its type.
    fn deliver(ready: &mut Letters, kind: ResourceType, mail: Mail) {
        match ready.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, older)) => {
                let (answers, since) = (older.answers + mail.answers, older.since.min(mail.since));
                *older = Mail { answers, since, ..mail };
            }
            None => {
                ready.reserve_exact(1);
                ready.push((kind, mail));
            }
        }
    }
}

impl Sink for Mailbox {
    fn publish(&self, kind: ResourceType, collection: Arc<Collection>, cause: &Arc<PushCause>) {
        let answers = cause.answers;
        let mail = Mail { collection, revision: cause.revision, answers, since: Instant::now() };
        let mut slots = self.slots.lock();
        if answers == 0 {
            slots.staged.retain(|(staged, _)| *staged != kind);
            slots.staged.reserve_exact(1);
            slots.staged.push((kind, mail));
        } else {
            Slots::deliver(&mut slots.ready, kind, mail);
            drop(slots);
            self.wake.wake();
        }
    }

    fn settled(&self) {
        let mut slots = self.slots.lock();
        let Slots { ready, staged, is_closed: _, is_nudged: _ } = &mut *slots;
        for (kind, mail) in staged.drain(..) {
            Slots::deliver(ready, kind, mail);
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
        let changed = if answer { Vec::new() } else { vec![navarch_push::fact::FactKey::Mesh] };
        Arc::new(PushCause { revision, changed, answers: u32::from(answer) })
    }

    fn empty(kind: ResourceType) -> Arc<Collection> {
        Arc::new(Collection::new(kind, Resources::default()))
    }

    fn taken(mailbox: &Mailbox) -> Letters {
        let mut letters = Letters::new();
        mailbox.take(&mut letters);
        letters
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
        let mail = taken(&mailbox);
        assert_eq!(mail.len(), 1);
        assert_eq!((mail[0].0, mail[0].1.revision, mail[0].1.answers), (kind, 1999, 2));
        assert!(taken(&mailbox).is_empty());
    }

    #[test]
    fn half_a_change_is_not_taken() {
        let mailbox = Mailbox::default();
        mailbox.publish(ResourceType::Route, empty(ResourceType::Route), &cause(2, false));
        assert!(taken(&mailbox).is_empty());
        mailbox.publish(ResourceType::Cluster, empty(ResourceType::Cluster), &cause(2, false));
        mailbox.settled();
        let taken: Vec<ResourceType> = taken(&mailbox).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(taken, [ResourceType::Route, ResourceType::Cluster]);
    }
}
