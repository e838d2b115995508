//! The webhook port (15017): HTTPS for API servers, or the same paths on the HTTP port behind a
//! TLS-terminating proxy.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Config;
use super::boot::{Boot, until};
use super::http::{HttpPort, OpenHttpPort};
use super::injector::InjectorSource;
use super::plan_warnings::PlanWarnings;
use crate::admin::Plans;
use navarch_push::worker::PushHandle;
use navarch_security::serving::ServingTls;
use navarch_webhook::registration::{Announcements, HookKind, Registration, rollover};
use navarch_webhook::{Limits, Metrics, Webhooks};
use navarch_xds::connections::Connections;

/// How long the port keeps serving at shutdown: until the nodes have removed this pod from its
/// Service, requests arrive here, and an API server without an answer rejects the object.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(2);

/// Settings of the webhooks.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// `INJECTION_WEBHOOK_CONFIG_NAME`: if empty, MutatingWebhookConfigurations are not written.
    pub injection: String,
    /// `VALIDATION_WEBHOOK_CONFIG_NAME`: if empty, ValidatingWebhookConfigurations are not written.
    pub validation: String,
    /// The revision of this control plane, which is a label of the configurations.
    pub revision: String,
    /// How long foreign roots are left in webhook configurations.
    pub grace: Duration,
    /// `NAVARCH_PLAN_WARNINGS`: `/plan` warns about the effects of changes. Default false.
    pub plan_warnings: bool,
}

impl Default for WebhookConfig {
    /// istiod's names, and ten minutes for all replicas and API servers to read a new root.
    fn default() -> Self {
        Self {
            injection: "istio-sidecar-injector".to_owned(),
            validation: "istio-istio-system".to_owned(),
            revision: "default".to_owned(),
            grace: Duration::from_mins(10),
            plan_warnings: false,
        }
    }
}

/// The webhooks over the current snapshot.
pub(super) fn start(
    config: &Config,
    client: Option<&kube::Client>,
    push: &PushHandle,
    proxies: Arc<Connections>,
    plans: &Plans,
    metrics: Metrics,
    boot: &mut Boot,
) -> Arc<Webhooks> {
    let injector = InjectorSource {
        settings: &config.injection,
        revision: &config.webhooks.revision,
        namespace: config.settings.system_namespace.as_str(),
        client,
        push,
        metrics: &metrics,
    };

    let injector = injector.start(boot);
    let synced = push.clone();
    let objects = push.clone();
    let readiness = boot.readiness.clone();
    let ready = Arc::new(move || synced.is_synced() && readiness.is_ready());
    let objects_provider = Arc::new(move || {
        objects
            .is_synced()
            .then(|| objects.context().objects.clone())
    });

    let limits = Limits {
        rejections: boot.rejections.clone(),
        ..Limits::default()
    };
    let webhooks = Webhooks::new(ready, objects_provider, injector, limits, metrics);

    Arc::new(if config.webhooks.plan_warnings {
        webhooks.with_adviser(PlanWarnings::new(push, proxies, plans).adviser())
    } else {
        webhooks
    })
}

pub(super) struct WebhookPort<'a> {
    pub(super) open: OpenHttpPort,
    pub(super) tls: ServingTls,
    /// The roots of its certificates.
    pub(super) roots: watch::Receiver<Arc<str>>,
    /// The announcements of roots, including remote clusters.
    pub(super) announcements: Announcements,
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<&'a kube::Client>,
    /// Settings from flags and environment.
    pub(super) config: &'a WebhookConfig,
    /// The namespace of this control plane.
    pub(super) namespace: &'a str,
    pub(super) routes: Router,
    /// Whether everything is read.
    pub(super) push: &'a PushHandle,
    pub(super) metrics: Metrics,
}

impl WebhookPort<'_> {
    /// Serves the webhooks, and registers them at the API server.
    pub(super) fn start(self, boot: &mut Boot) {
        if let Some(client) = self.client {
            let kinds = [
                (HookKind::Mutating, &self.config.injection),
                (HookKind::Validating, &self.config.validation),
            ];
            for (kind, _) in kinds.into_iter().filter(|(_, name)| !name.is_empty()) {
                self.register(kind, client, boot);
            }
        }

        let (tls, follow) = rollover(self.tls, self.announcements);
        boot.spawn_until_stop("certificate of the webhooks", follow);

        let port = HttpPort {
            open: self.open,
            grpc: None,
            tls: Some(tls),
            routes: self.routes,
        };

        // Without a cluster there is no Service in front of the port.
        let stay = if self.client.is_some() {
            SHUTDOWN_DELAY
        } else {
            Duration::ZERO
        };

        let stop = boot.stop.clone();
        let close = CancellationToken::new();
        boot.spawn("webhooks", async move {
            let closing = async {
                stop.cancelled().await;
                sleep(stay).await;
                close.cancel();
            };
            tokio::join!(port.serve(close.clone()), closing);
        });
    }

    /// Maintains the webhook configurations of a kind, once everything is read.
    fn register(&self, kind: HookKind, client: &kube::Client, boot: &mut Boot) {
        let registered = self
            .announcements
            .add("the own cluster", self.roots.borrow().clone());
        let registration = Registration {
            client: client.clone(),
            kind,
            revision: self.config.revision.clone(),
            namespace: self.namespace.to_owned(),
            roots: self.roots.clone(),
            grace: self.config.grace,
            metrics: self.metrics.clone(),
        };

        let push = self.push.clone();
        let stop = boot.stop.clone();
        boot.spawn("webhook configurations", async move {
            if let Some(Ok(())) = until(&stop, push.wait_synced()).await {
                registration.run(registered, stop).await;
            } else {
                stop.cancelled().await;
            }
        });
    }
}
