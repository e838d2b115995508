//! How far the changes of a snapshot have come, stream by stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::{Connection, Connections};
use crate::session::Session;
use crate::session::push_ring::PushRecord;
use navarch_push::proxy::Proxy;
use navarch_push::resource::ResourceType;

/// One stream, as far as it is about the changes since a snapshot.
#[derive(Clone, Debug)]
pub struct ChangeProgress {
    /// Unique within the process.
    pub number: u64,
    /// `<pod>.<namespace>-<number>`.
    pub id: Arc<str>,
    /// Who it is.
    pub proxy: Arc<Proxy>,
    /// The responses that tell of these changes, of those that are remembered, oldest first.
    pub responses: Vec<ChangeResponse>,
    /// The first snapshot of whose changes something is not sent.
    pub unsent: Option<u64>,
}

/// One response that tells of changes.
#[derive(Clone, Debug)]
pub struct ChangeResponse {
    /// Unique within the stream.
    pub number: u64,
    /// Type of its resources.
    pub kind: ResourceType,
    /// The snapshots, the first and the last, whose changes it tells of.
    pub changes: [u64; 2],
    /// When it was sent.
    pub at: Instant,
    /// How many resources it held.
    pub count: u32,
    /// How many names it took away.
    pub removed: u32,
    /// The bytes of its resources.
    pub bytes: u32,
    /// What the client answered.
    pub answer: Option<Answer>,
}

/// What a client answered to a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How long it took to.
    pub after: Duration,
    /// Whether it took the response.
    pub is_taken: bool,
    /// Why it did not, in its words, where that is its last word on the type.
    pub said: Option<Arc<str>>,
}

impl Connections {
    /// Looks at each stream of which some changes since a snapshot are sent or to be sent. Costs a look at all streams.
    pub fn each_with_changes_since(&self, revision: u64, mut look: impl FnMut(ChangeProgress)) {
        for connection in self.open() {
            let progress = connection.progress_since(revision);
            if !progress.responses.is_empty() || progress.unsent.is_some() {
                look(progress);
            }
        }
    }
}

impl Connection {
    /// How far the changes since a snapshot have come here.
    fn progress_since(&self, revision: u64) -> ChangeProgress {
        // What leaves the mailbox meanwhile is found in the session.
        let waiting = self.mailbox.first_change();
        let session = self.session.lock();
        let responses = session.pushes.iter().filter_map(|sent| {
            let changes = sent.reason.changes.filter(|[_, last]| *last >= revision)?;
            Some(self.response(&session, sent, changes))
        });
        let unsent = waiting.into_iter().chain(session.unsent_since()).min();
        ChangeProgress {
            number: self.number,
            id: self.id.clone(),
            proxy: self.proxy.clone(),
            responses: responses.collect(),
            unsent,
        }
    }

    fn response(&self, session: &Session, sent: &PushRecord, changes: [u64; 2]) -> ChangeResponse {
        let is_last_word = || {
            let mut newer = session.pushes.iter().filter(|other| other.kind == sent.kind && other.number > sent.number);
            newer.all(|other| other.answer.is_none())
        };
        let said = || {
            let rejection = session.watches.get(&sent.kind)?.history.rejected.as_ref()?;
            is_last_word().then(|| rejection.message.clone())
        };
        let answer =
            sent.answer.map(|(after, is_taken)| Answer { after, is_taken, said: if is_taken { None } else { said() } });
        let PushRecord { kind, number, at, count, removed, bytes, .. } = *sent;
        ChangeResponse { number, kind, changes, at: self.begun + at, count, removed, bytes, answer }
    }
}
