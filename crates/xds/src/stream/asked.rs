//! A stream's questions of operators' tools, answered beside what it is subscribed to.

use std::collections::VecDeque;
use std::sync::Arc;

use tonic::Status;

use super::Stream;
use crate::debug::DebugQuestion;
use crate::session::discovery_request::not_served;
use crate::transport::grpc_writer::Message;
use navarch_net::budget::Charge;

/// Answers that a stream may have waiting. Tools ask one question and wait.
const MAX_WAITING: usize = 4;

/// The answers of one stream that are not sent.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Oldest first, each with what is paid for it.
    waiting: VecDeque<(Message, Charge)>,
    /// What is paid for the one that is on its way.
    sent: Option<Charge>,
    /// The nonce of the last.
    last: Option<Arc<str>>,
}

impl Answers {
    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next to send. To be asked when there is room: what was sent before has left then.
    pub(super) fn next(&mut self) -> Option<Message> {
        self.sent = None;
        let (message, charge) = self.waiting.pop_front()?;
        self.sent = Some(charge);
        Some(message)
    }
}

impl Stream {
    /// Has a question answered. A request that quotes the last answer says only that this came.
    pub(super) async fn on_question(&mut self, url: String, names: Vec<String>, nonce: &str) -> Result<(), Status> {
        let Some(pages) = self.core.debug.get().cloned() else { return Err(not_served(&url)) };
        if self.answers.last.as_deref() == Some(nonce) {
            return Ok(());
        }
        if self.answers.waiting.len() >= MAX_WAITING {
            return Err(Status::resource_exhausted("too many questions at once"));
        }
        let asker = self.connection.proxy.clone();
        let answer = pages.answer(DebugQuestion { type_url: url.clone(), names, asker }).await?;
        let told = self.connection.session.lock().mark(self.begun.elapsed());
        self.answers.last = Some(told.nonce.clone());
        let bytes = answer.encode(self.connection.protocol, url, &told);
        let mut charge = self.client.nothing()?;
        self.client.pay(&mut charge, bytes.len())?;
        self.answers.waiting.push_back((Message::whole(&bytes)?, charge));
        Ok(())
    }
}
