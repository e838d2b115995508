//! A stream's requests to the debug API, which are independent of its subscriptions.

use std::collections::VecDeque;
use std::sync::Arc;

use tonic::Status;

use super::Stream;
use crate::debug::DebugRequest;
use crate::session::discovery_request::not_served;
use crate::transport::grpc_writer::Message;
use navarch_net::budget::Charge;

/// Maximum number of unsent responses of a stream. Tools send one request and wait.
const MAX_WAITING: usize = 4;

/// The unsent responses of one stream.
#[derive(Debug, Default)]
pub(super) struct DebugResponses {
    /// Oldest first, each with its memory charge.
    waiting: VecDeque<(Message, Charge)>,
    /// The memory charge of the response that is being sent.
    sent: Option<Charge>,
    /// The nonce of the last response.
    last: Option<Arc<str>>,
}

impl DebugResponses {
    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next response. Call it only when the stream can send: the previous response has left the
    /// buffer then.
    pub(super) fn next(&mut self) -> Option<Message> {
        self.sent = None;
        let (message, charge) = self.waiting.pop_front()?;
        self.sent = Some(charge);
        Some(message)
    }
}

impl Stream {
    /// Answers a request. A request with the nonce of the last response is only an acknowledgement.
    pub(super) async fn on_debug_request(
        &mut self,
        url: String,
        names: Vec<String>,
        nonce: &str,
    ) -> Result<(), Status> {
        let Some(pages) = self.core.debug.get().cloned() else {
            return Err(not_served(&url));
        };

        if self.answers.last.as_deref() == Some(nonce) {
            return Ok(());
        }

        if self.answers.waiting.len() >= MAX_WAITING {
            return Err(Status::resource_exhausted(
                "too many debug requests at once",
            ));
        }

        let proxy = self.connection.proxy.clone();
        let answer = pages
            .answer(DebugRequest {
                type_url: url.clone(),
                names,
                proxy,
            })
            .await?;

        let sent = self.connection.session.lock().mark(self.begun.elapsed());
        self.answers.last = Some(sent.nonce.clone());
        let bytes = answer.encode(self.connection.protocol, url, &sent);
        let mut charge = self.client.nothing()?;
        self.client.charge(&mut charge, bytes.len())?;
        self.answers
            .waiting
            .push_back((Message::whole(&bytes)?, charge));

        Ok(())
    }
}
