//! Responses that the client rejected.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::Stream;
use crate::nacks::Nack;
use crate::session::discovery_request::Rejection;
use navarch_push::observer;
use navarch_push::resource::ResourceType;

/// Minimum interval between logged rejections of a stream: a client can send arbitrarily many.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl Stream {
    /// Counts a response that the client rejected, and logs it unless one was logged just before.
    pub(super) fn on_rejection(&mut self, resource_type: ResourceType, rejection: &Rejection) {
        let proxy = &self.connection.id;
        let code = rejection.code;
        let error = &*rejection.message;
        if self
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL)
        {
            self.logged = Some(Instant::now());
            warn!(%proxy, resource_type = resource_type.short_name(), code, error, "proxy rejected a response");
        } else {
            debug!(%proxy, resource_type = resource_type.short_name(), code, error, "proxy rejected a response");
        }

        let label = self
            .core
            .metrics
            .rejected(resource_type, &self.connection.proxy.name, code);

        if let Some(earlier) = self
            .rejections
            .insert(resource_type, label.clone())
            .filter(|earlier| *earlier != label)
        {
            self.core.metrics.forget(resource_type, &earlier);
        }
    }

    /// Has the rejection of a response recorded and looked into, once the session knows it. A client
    /// can reject what it was never sent, arbitrarily often: that is only counted and logged.
    pub(super) fn report_rejection(&self, resource_type: ResourceType) {
        let rejection = self.connection.session.lock().rejection(resource_type);
        if let (Some(observer), Some(rejection)) = (&self.core.observer, rejection) {
            observer.observe(observer::Event::Rejected(
                self.connection.proxy_id,
                resource_type,
                rejection.message,
            ));
        }

        self.queue_rejection(resource_type);
    }

    /// Has the rejections looked into that follow from earlier ones: a new collection has resources
    /// that the client has rejected before, and that were not sent to it again.
    pub(super) fn queue_rejected_again(&self) {
        let types = self.connection.session.lock().take_rejected_again();
        for resource_type in types {
            self.queue_rejection(resource_type);
        }
    }

    /// Has the newest rejection of a type looked into.
    fn queue_rejection(&self, resource_type: ResourceType) {
        let identity = self.connection.proxy.identity.as_ref();
        if let (Some(nacks), Some(identity)) = (&self.core.nacks, identity) {
            let nack = Nack {
                proxy: self.connection.proxy_id,
                resource_type,
            };
            nacks.add(&identity.namespace, nack);
        }
    }
}
