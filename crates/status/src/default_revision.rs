//! Tracks the default revision.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_kubernetes::InWords;

/// The name of the webhook configuration for pods without a revision: its revision is the default
/// one.
pub(crate) const DEFAULT_TAG: &str = "istio-revision-tag-default";
/// In this namespace, webhook configurations have plain names; in others, the namespace is a
/// suffix.
const UNSUFFIXED_NAMESPACE: &str = "istio-system";
/// The label of a revision or tag.
pub(crate) const REVISION: &str = "istio.io/rev";
/// The label that names the tag of a webhook or a Service.
pub(crate) const TAG: &str = "istio.io/tag";

/// Watches the default revision.
#[derive(Clone, Debug)]
pub struct DefaultRevision {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The namespace of the control plane.
    pub namespace: String,
}

impl DefaultRevision {
    /// Sends the default revision to `sender`, empty if there is none, until `stop` is cancelled.
    pub async fn run(self, sender: watch::Sender<String>, stop: CancellationToken) {
        let webhooks = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(self.cluster.0);
        let name = match self.namespace.as_str() {
            "" | UNSUFFIXED_NAMESPACE => DEFAULT_TAG.to_owned(),
            namespace => format!("{DEFAULT_TAG}-{namespace}"),
        };
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = std::pin::pin!(watcher(webhooks, config).default_backoff());
        let mut found = String::new();

        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            let now = match event {
                Some(Ok(Event::Apply(webhook) | Event::InitApply(webhook))) => {
                    revision(webhook.metadata.labels)
                }
                Some(Ok(Event::Init)) => {
                    found.clear();
                    continue;
                }
                Some(Ok(Event::InitDone)) => found.clone(),
                Some(Ok(Event::Delete(_))) => String::new(),
                Some(Err(error)) => {
                    tracing::warn!(error = %InWords(&error), "failed to watch the default revision");
                    continue;
                }
                None => return,
            };

            found.clone_from(&now);
            sender.send_if_modified(|sender| std::mem::replace(sender, now.clone()) != now);
        }
    }
}

fn revision(labels: Option<BTreeMap<String, String>>) -> String {
    labels
        .and_then(|mut labels| labels.remove(REVISION))
        .unwrap_or_default()
}
