//! Requests of the client: applied to the session, with their effects.

use tonic::Status;
use tracing::debug;

use super::{Stream, push_ended};
use crate::large::LargePermit;
use crate::secret_access;
use crate::session::discovery_request::{Request, Wire};
use crate::session::{Effect, Event};
use navarch_push::engine::Interest;
use navarch_push::observer;

impl Stream {
    /// Applies a request of `bytes` bytes.
    pub(super) async fn on_request<M: Wire>(
        &mut self,
        request: Box<M>,
        bytes: usize,
    ) -> Result<(), Status> {
        self.largest_request = self.largest_request.max(bytes);
        let turn = self.client.acquire_large(bytes).await;
        let (turn, request) = turn.work(move || request.parse()).await?;

        let request = request?;
        debug!(?request, "request");
        self.check_request(&request)?;

        if let Request::Health(wrong) = &request
            && let Some(presence) = &self.presence
        {
            presence.report(wrong.as_ref().map(|wrong| &*wrong.message));
        }

        let mut rejected = None;
        if let Some((nonce, is_taken)) = request.answers() {
            let answered =
                self.connection
                    .session
                    .lock()
                    .answered(nonce, is_taken, self.begun.elapsed());
            if let (Some(resource_type), true, Some(observer)) =
                (answered, is_taken, &self.core.observer)
            {
                observer.observe(observer::Event::Taken(
                    self.connection.proxy_id,
                    resource_type,
                ));
            }
            rejected = answered.filter(|_| !is_taken);
        }

        self.note_clusters(&request);
        match request {
            Request::Question { url, names, nonce } => {
                self.on_debug_request(url, names, &nonce).await
            }
            request @ (Request::State(_)
            | Request::Delta(_)
            | Request::Unserved { .. }
            | Request::Health(_)) => {
                self.apply(Event::Request(request), turn).await?;
                if let Some(resource_type) = rejected {
                    self.report_rejection(resource_type);
                }
                self.queue_rejected_again();
                // Last: if it ends the stream, the rejection must be known.
                self.charge_for_uncertain_names()
            }
        }
    }

    /// Applies an event to the session, and the effects of the event.
    async fn apply(&mut self, event: Event, turn: LargePermit) -> Result<(), Status> {
        let connection = self.connection.clone();
        let core = self.core.clone();
        let (turn, effects) = turn
            .work(move || connection.session.lock().step(event, &core.cache))
            .await?;
        drop(turn);
        self.apply_effects(effects).await
    }

    /// Applies the effects of an event.
    pub(super) async fn apply_effects(&mut self, effects: Vec<Effect>) -> Result<(), Status> {
        let id = self.connection.proxy_id;
        for effect in effects {
            match effect {
                Effect::Subscribe(resource_type, interest) => {
                    self.prepare(resource_type).await?;
                    let allowed = self.may_subscribe(resource_type);
                    self.charge_for_names(resource_type, &interest).await?;
                    let interest = if allowed {
                        interest
                    } else {
                        Interest::default()
                    };

                    self.core
                        .push
                        .subscribe(id, resource_type, interest)
                        .await
                        .map_err(push_ended)?;
                }
                Effect::Unsubscribe(resource_type) => {
                    self.names.remove(&resource_type);
                    self.core
                        .push
                        .unsubscribe(id, resource_type)
                        .await
                        .map_err(push_ended)?;
                }
                Effect::Rejected(resource_type, rejection) => {
                    self.on_rejection(resource_type, &rejection)
                }
                Effect::Stale(resource_type) => self.core.metrics.expired(resource_type),
                Effect::LimitExceeded(why) => {
                    self.client.count_rejection("resource_names");
                    return Err(Status::resource_exhausted(why));
                }
            }
        }

        Ok(())
    }

    /// Requests once whether the proxy's service account may read secrets.
    pub(super) async fn request_secret_access(&mut self) {
        if self.access.is_none()
            && let (Some(questions), Some(identity)) =
                (&self.core.access, &self.connection.proxy.identity)
        {
            let cluster = self.connection.proxy.meta("CLUSTER_ID").unwrap_or_default();
            self.access = Some(secret_access::request(questions, cluster.into(), identity).await);
        }
    }
}
