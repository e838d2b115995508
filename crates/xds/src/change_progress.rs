//! The progress of a snapshot's changes, by stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::{Connection, Connections};
use crate::session::Session;
use crate::session::push_ring::PushRecord;
use navarch_push::proxy::Proxy;
use navarch_push::resource::ResourceType;

/// The progress of the changes since a snapshot on one stream.
#[derive(Clone, Debug)]
pub struct ChangeProgress {
    /// Unique within the process.
    pub number: u64,
    /// `<pod>.<namespace>-<number>`.
    pub id: Arc<str>,
    /// The client, by the node message of its first request.
    pub proxy: Arc<Proxy>,
    /// The responses in the history that contain these changes, oldest first.
    pub responses: Vec<ChangeResponse>,
    /// The first snapshot with unsent changes.
    pub unsent: Option<u64>,
}

/// One response that contains changes.
#[derive(Clone, Debug)]
pub struct ChangeResponse {
    /// Unique within the stream.
    pub number: u64,
    /// The `type_url` of the response.
    pub resource_type: ResourceType,
    /// The first and the last snapshot whose changes it contains.
    pub changes: [u64; 2],
    /// When it was sent.
    pub at: Instant,
    /// Number of resources.
    pub count: u32,
    /// Number of removed names.
    pub removed: u32,
    /// Size of its resources in bytes.
    pub bytes: u32,
    /// The ACK or NACK of the client.
    pub answer: Option<Answer>,
}

/// The ACK or NACK of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Time between the response and the answer.
    pub after: Duration,
    /// Whether it is an ACK.
    pub is_taken: bool,
    /// The error message of a NACK, if it is the newest of the type, and the client has not
    /// acknowledged all since.
    pub message: Option<Arc<str>>,
}

impl Connections {
    /// Calls `look` with the progress of each stream. Locks the session of every stream.
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
    /// The progress of the changes since a snapshot on this stream.
    fn progress_since(&self, revision: u64) -> ChangeProgress {
        // Read before the session is locked: an update that leaves the mailbox meanwhile is found
        // in the session.
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
        let message = || {
            let history = &session.watches.get(&sent.resource_type)?.history;
            let nonce = history.rejected_nonce.as_deref()?;
            let rejection = history.rejected.as_ref()?;
            sent.has_nonce(nonce).then(|| rejection.message.clone())
        };
        let answer = sent.answer.map(|(after, is_taken)| Answer {
            after,
            is_taken,
            message: if is_taken { None } else { message() },
        });

        let PushRecord {
            resource_type,
            number,
            at,
            count,
            removed,
            bytes,
            ..
        } = *sent;

        ChangeResponse {
            number,
            resource_type,
            changes,
            at: self.begun + at,
            count,
            removed,
            bytes,
            answer,
        }
    }
}
