//! Creates the GatewayClasses of this control plane.

use std::time::Duration;

use futures_util::StreamExt;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InWords, is_conflict};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::GATEWAY_API;
use super::classes::ClassInfo;
use super::settings::GatewayControllerSettings;
use super::watches::{gateway_api, without_content};
use crate::cluster::Cluster;
use crate::mirror::Mirror;

/// Retry delay.
const RETRY: Duration = Duration::from_secs(2);

/// Creates missing classes (`PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER`). Changes by users
/// are kept.
#[derive(Clone, Debug)]
pub struct GatewayClasses {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Settings from flags and environment.
    pub settings: GatewayControllerSettings,
}

impl GatewayClasses {
    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let kind = gateway_api("GatewayClass", "gatewayclasses");
        let classes =
            Api::<PartialObjectMeta<DynamicObject>>::all_with(self.cluster.0.clone(), &kind);
        let mut events =
            std::pin::pin!(watcher(classes, watcher::Config::default()).default_backoff());
        let mut known = Mirror::default();
        let mut failed = false;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(Ok(event)) => _ = known.take(without_content(event), |_| Some(())),
                    // Without the CustomResourceDefinition there are no objects; the watch keeps
                    // retrying.
                    Some(Err(error)) => tracing::debug!(error = %InWords(&error), "failed to watch GatewayClasses"),
                    None => return,
                },
                () = tokio::time::sleep(RETRY), if failed => {}
            }

            if known.is_complete() {
                failed = tokio::select! {
                    () = stop.cancelled() => return,
                    settled = self.settle(&known) => settled.is_err(),
                };
            }
        }
    }

    /// Creates missing classes.
    async fn settle(&self, known: &Mirror<()>) -> Result<(), kube::Error> {
        let mut settled = Ok(());
        for (name, class) in ClassInfo::builtin(&self.settings.api) {
            if known.get(&NamespacedName::new("", &name)).is_none() {
                let made = self.make(&name, &class).await;
                settled = settled.and(made.inspect_err(
                    |error| tracing::warn!(class = %name, error = %InWords(error), "failed to create a GatewayClass"),
                ));
            }
        }
        settled
    }

    /// Creates a class, unless another replica created it.
    async fn make(&self, name: &str, class: &ClassInfo) -> Result<(), kube::Error> {
        let (group, version) = GATEWAY_API;
        let object = json!({
            "apiVersion": format!("{group}/{version}"), "kind": "GatewayClass", "metadata": { "name": name },
            "spec": { "controllerName": class.controller, "description": class.description },
        });
        let object: DynamicObject =
            serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let classes = Api::<DynamicObject>::all_with(
            self.cluster.0.clone(),
            &gateway_api("GatewayClass", "gatewayclasses"),
        );

        match classes.create(&PostParams::default(), &object).await {
            Ok(_) => {
                tracing::info!(class = %name, controller = %class.controller, "created a GatewayClass")
            }
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error),
        }

        Ok(())
    }
}
