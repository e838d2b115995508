//! Updates of the engine, and the responses that are sent.

use tokio::time::Instant;
use tonic::Status;
use tracing::debug;

use super::Stream;
use crate::compression::Encoding;
use crate::large::LargePermit;
use crate::session::{Effect, Event};
use crate::transport::grpc_writer::Message;

impl Stream {
    /// Applies all updates that are ready, and their effects.
    pub(super) async fn on_update(&mut self) -> Result<(), Status> {
        let effects = self.take_updates();
        self.apply_effects(effects).await
    }

    /// Applies all updates that are ready to the session.
    fn take_updates(&mut self) -> Vec<Effect> {
        self.connection.mailbox.take(&mut self.updates);
        let mut session = self.connection.session.lock();
        let mut effects = Vec::new();
        for (resource_type, update) in self.updates.drain(..) {
            if update.answers == 0 {
                self.core.metrics.observe_queue_time(update.since.elapsed());
                self.changed = Some(
                    self.changed
                        .map_or(update.since, |earlier| earlier.min(update.since)),
                );
            }
            effects.extend(session.step(Event::Update(resource_type, update), &self.core.cache));
        }
        effects
    }

    /// The next message to send, of the newest state. It may be compressed with `encoding`.
    pub(super) async fn next(
        &mut self,
        turn: LargePermit,
        encoding: Option<Encoding>,
    ) -> Result<Option<Message>, Status> {
        if let Some(answer) = self.answers.next() {
            return Ok(Some(answer));
        }

        self.on_update().await?;
        let begin = Instant::now();
        let now = begin.saturating_duration_since(self.begun);
        let connection = self.connection.clone();
        let core = self.core.clone();
        let (turn, response) = turn
            .work(move || connection.session.lock().next(now, &core.cache))
            .await?;
        self.queue_rejected_again();
        let Some(response) = response else {
            if self.connection.session.lock().is_all_sent() {
                self.largest_request = 0;
                self.converged();
            }
            return Ok(None);
        };

        let resource_type = response.resource_type;
        let count = response.count;
        let removed = response.removed.len();
        let nonce = response.nonce.clone();

        // What follows is work for all streams with this response.
        drop(turn);
        let compressors = &self.core.compressors;
        let compressed = response.payload.compressed(encoding, compressors).await;

        let message = Message::new(self.connection.protocol, response, compressed.as_ref())?;
        self.core.metrics.sent(message.encoding(), message.len());

        if let Some(resource_type) = resource_type {
            if let Some(names) = self.names.get_mut(&resource_type) {
                names.forget_initial_versions();
            }
            self.core
                .metrics
                .pushed(resource_type, message.plain_length(), begin.elapsed());
            let bytes = message.len();
            debug!(resource_type = resource_type.short_name(), count, removed, bytes, %nonce, "push");
        }

        Ok(Some(message))
    }

    /// Whether there is nothing to send until the next event.
    pub(super) fn is_at_rest(&mut self) -> bool {
        let is_at_rest = self.answers.is_empty() && self.connection.session.lock().is_at_rest();
        if is_at_rest {
            self.largest_request = 0;
            self.converged();
        }
        is_at_rest
    }

    /// Records that everything is sent.
    fn converged(&mut self) {
        if let Some(changed) = self.changed.take() {
            self.core.metrics.converged(changed.elapsed());
        }
    }

    /// When to try to send without a further event.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let due = self.connection.session.lock().wake_at();
        due.map(|at| self.begun + at)
    }
}
