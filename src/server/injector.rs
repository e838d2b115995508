//! Starts the injector: chooses where its templates and values are read from, and lets readiness
//! wait for them.

use std::sync::Arc;

use super::boot::Boot;
use crate::admin::Readiness;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::ClusterId;
use navarch_base::regular_file;
use navarch_push::context::PushContext;
use navarch_push::worker::{Ended, PushHandle};
use navarch_store::Objects;
use navarch_webhook::injector_source::{
    Follower, InjectionSettings, MeshSnapshot, Parts, TextsSource,
};
use navarch_webhook::{CurrentInjector, InjectorState, Metrics};

/// The name of the state in readiness reasons.
const INJECTION_PART: &str = "injection";

/// The task that follows the inputs.
pub(super) struct InjectorSource<'a> {
    /// Settings from flags and environment.
    pub(super) settings: &'a InjectionSettings,
    /// The revision of this control plane.
    pub(super) revision: &'a str,
    /// The namespace of this control plane.
    pub(super) namespace: &'a str,
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<&'a kube::Client>,
    /// The current snapshot.
    pub(super) push: &'a PushHandle,
    /// Publishes the state.
    pub(super) metrics: &'a Metrics,
}

impl InjectorSource<'_> {
    /// Starts to follow. Readiness waits until the first configuration was tried.
    pub(super) fn start(&self, boot: &mut Boot) -> CurrentInjector {
        let folder = &self.settings.folder;
        let has_files = regular_file::may_exist(&folder.join("config"));
        let texts = match (self.settings.enabled, has_files, self.client) {
            (false, _, _) => return self.disabled("INJECT_ENABLED is false"),
            (true, false, None) => {
                return self.disabled("there are no configuration files and no cluster");
            }
            (true, true, _) => TextsSource::folder(folder.clone()),
            (true, false, Some(client)) => {
                let stop = boot.stop.clone();
                let (texts, watch) =
                    TextsSource::config_map(client, self.namespace, self.revision, stop);
                boot.spawn("injector config", watch);
                texts
            }
        };

        let readiness = boot.readiness.clone();
        let follower = Follower::new(Parts {
            settings: self.settings.clone(),
            revision: self.revision.to_owned(),
            texts,
            snapshot: snapshots(self.push),
            metrics: self.metrics.clone(),
            report: Box::new(move |state: &InjectorState| report(&readiness, state)),
        });
        let current = follower.current();

        let push = self.push.clone();
        boot.spawn_until_stop("injector", async move {
            // Mesh config, nodes and ProxyConfigs are inputs, too.
            push.wait_synced().await?;
            follower.run().await;
            Ok::<(), Ended>(())
        });

        current
    }

    fn disabled(&self, reason: &'static str) -> CurrentInjector {
        tracing::info!(reason, "injection is disabled");
        let state = InjectorState::Off(reason);
        self.metrics.injector(&state);
        CurrentInjector::new(state)
    }
}

/// Reports the state to readiness, which waits until a configuration was tried.
fn report(readiness: &Readiness, state: &InjectorState) {
    let reason = state.problem().unwrap_or_default();
    match state {
        InjectorState::Off(_) | InjectorState::Ready { rejected: None, .. } => {
            readiness.release(INJECTION_PART);
        }
        InjectorState::Pending(_) => readiness.hold(INJECTION_PART, reason),
        InjectorState::Failed(_) => readiness.add_optional(
            INJECTION_PART,
            format!("not configured, pods are rejected: {reason}"),
        ),
        InjectorState::Ready {
            rejected: Some(_), ..
        } => readiness.add_optional(
            INJECTION_PART,
            format!("the last valid configuration is in use: {reason}"),
        ),
    }
}

/// A snapshot of the push thread.
struct Snapshot(Arc<PushContext>);

/// Returns the snapshot in force at each call.
fn snapshots(push: &PushHandle) -> impl Fn() -> Snapshot + Send + use<> {
    let push = push.clone();
    move || Snapshot(push.context())
}

impl MeshSnapshot for Snapshot {
    fn mesh(&self) -> &MeshConfig {
        &self.0.mesh.config
    }

    fn objects(&self) -> &Objects {
        &self.0.objects
    }

    fn clusters(&self) -> impl Iterator<Item = (&ClusterId, &Objects)> {
        let own = std::iter::once((&self.0.mesh.settings.cluster_id, &self.0.objects));
        own.chain(&self.0.remotes)
    }
}

#[cfg(test)]
mod tests;
