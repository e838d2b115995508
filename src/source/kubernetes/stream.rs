//! Requests to an API server whose answers are read as they come.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::api::decode::ServerStatus;

/// How much is taken at once of what has come: so much may be in one batch.
const CHUNK: usize = 1 << 20;

/// The longest line: objects are at most 1.5 MB in etcd, and the text can be larger.
const LONGEST_LINE: usize = 64 << 20;

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The server refuses.
    #[error("{0}")]
    Refused(ServerStatus),
    /// The server cannot be reached, or the connection broke.
    #[error("{0}")]
    Broken(String),
    /// Nothing came for so long that the connection counts as dead.
    #[error("nothing came for {0:?}")]
    Silent(Duration),
}

/// The way to an API server.
#[derive(Clone)]
pub(super) struct Connection {
    /// The client.
    client: kube::Client,
    /// How long may pass without a byte. An idle watch has a bookmark about every minute.
    patience: Duration,
    /// Told when the server answers again after failures: who waits for it need wait no longer.
    pub(super) back: Arc<Notify>,
}

/// The lines of an answer.
pub(super) struct Lines {
    /// What is still to come.
    body: Body,
    /// What came and is not a whole line yet.
    rest: BytesMut,
    /// How long may pass without a byte.
    patience: Duration,
}

impl Connection {
    /// A way to a server.
    pub(super) fn new(client: kube::Client, patience: Duration) -> Self {
        Self { client, patience, back: Arc::default() }
    }

    /// Asks for a path; `accept` is the form of the answer.
    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Lines, StreamError> {
        let broken = |error: &dyn std::error::Error| StreamError::Broken(chain(error));
        let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Body::empty());
        let request = request.map_err(|error| broken(&error))?;
        let answer = timeout(self.patience, self.client.send(request)).await;
        let answer = answer.map_err(|_| StreamError::Silent(self.patience))?.map_err(|error| broken(&error))?;
        let (head, body) = answer.into_parts();
        let mut lines = Lines { body, rest: BytesMut::new(), patience: self.patience };
        if head.status.is_success() {
            return Ok(lines);
        }
        let body = lines.all().await.unwrap_or_default();
        Err(StreamError::Refused(ServerStatus::of_answer(head.status.as_u16(), &body)))
    }
}

impl Lines {
    /// Whole lines, as many as have come, at least one; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            // Whatever is there already is taken, too.
            while self.rest.len() < CHUNK {
                match self.frame().now_or_never() {
                    Some(Ok(true)) => {}
                    Some(Ok(false) | Err(_)) | None => break,
                }
            }
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.split_to(end + 1).freeze()));
            }
            if self.rest.len() > LONGEST_LINE {
                return Err(StreamError::Broken(format!("a line of more than {LONGEST_LINE} bytes")));
            }
            if !self.frame().await? {
                // What is left is a line that broke off.
                return Ok(None);
            }
        }
    }

    /// All that comes.
    pub(super) async fn all(&mut self) -> Result<Bytes, StreamError> {
        while self.frame().await? {}
        Ok(std::mem::take(&mut self.rest).freeze())
    }

    /// Waits for more and keeps it; false at the end.
    async fn frame(&mut self) -> Result<bool, StreamError> {
        let frame = timeout(self.patience, self.body.frame()).await.map_err(|_| StreamError::Silent(self.patience))?;
        match frame {
            None => Ok(false),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.rest.extend_from_slice(&data);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(StreamError::Broken(chain(&error))),
        }
    }
}

/// An error with all that is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}
