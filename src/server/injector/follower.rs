//! Builds the injector of the current inputs, and reports its state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::texts::{self, Texts, TextsState};
use super::{INJECTION_PART, InjectionSettings};
use crate::admin::Readiness;
use navarch_push::worker::{Ended, PushHandle};
use navarch_store::Objects;
use navarch_webhook::inject::{ConfigError, Injector, InjectorInputs};
use navarch_webhook::{CurrentInjector, InjectorState, Metrics};

/// Poll interval of files, mesh config and objects.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Rebuilds the injector when an input has changed.
pub(super) struct Follower {
    /// Settings from flags and environment.
    pub(super) settings: InjectionSettings,
    /// The revision of this control plane.
    pub(super) revision: String,
    /// The directory of the texts, if they are files.
    pub(super) folder: Option<PathBuf>,
    /// The texts of the ConfigMap, if they are not files.
    pub(super) found: watch::Receiver<TextsState>,
    /// The current snapshot.
    pub(super) push: PushHandle,
    /// The state that answers requests.
    pub(super) current: CurrentInjector,
    /// Readiness guard, held until the first configuration was tried.
    pub(super) readiness: Readiness,
    /// Publishes the state.
    pub(super) metrics: Metrics,
    /// The injector, once there was a valid configuration.
    pub(super) injector: Option<Arc<Injector>>,
    /// The inputs that were last tried.
    pub(super) last: Option<InjectorInputs>,
    /// Why they were rejected, if they were.
    pub(super) refused: Option<Arc<str>>,
}

impl Follower {
    /// Follows the inputs until the process ends.
    ///
    /// # Errors
    /// If the push thread has stopped.
    pub(super) async fn run(&mut self) -> Result<(), Ended> {
        // Mesh config, nodes and ProxyConfigs are inputs, too.
        self.push.wait_synced().await?;
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look();
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.found.changed() => {}
            }
        }
    }

    /// Updates the injector. An invalid configuration changes nothing if there was a valid one
    /// before.
    pub(super) fn look(&mut self) {
        let found = match &self.folder {
            Some(folder) => texts::read(folder),
            None => self.found.borrow_and_update().clone(),
        };
        let problem = match found {
            TextsState::Unknown(reason) => return self.publish(InjectorState::Pending(reason)),
            TextsState::Missing(reason) => Some(reason),
            TextsState::Texts(texts) => {
                self.take(texts);
                self.refused.clone()
            }
        };

        match (&self.injector, problem) {
            (Some(injector), refused) => self.publish(InjectorState::Ready {
                injector: injector.clone(),
                refused,
            }),
            (None, Some(reason)) => self.publish(InjectorState::Failed(reason)),
            (None, None) => {}
        }
    }

    /// Builds the injector of these texts, if they have changed.
    fn take(&mut self, texts: Texts) {
        let inputs = self.inputs(texts);

        if self
            .last
            .as_ref()
            .is_some_and(|last| are_equal(last, &inputs))
        {
            return;
        }
        let outcome = match &self.injector {
            Some(injector) => injector.update(&inputs),
            None => Injector::new(&inputs).map(|injector| self.injector = Some(Arc::new(injector))),
        };
        self.refused = outcome
            .err()
            .map(|error: ConfigError| Arc::from(error.to_string()));

        self.last = Some(inputs);

        if self.refused.is_none() {
            tracing::info!("injection is configured");
            self.current.notify();
        }
    }

    /// Publishes this state for requests, and reports it.
    fn publish(&self, state: InjectorState) {
        {
            let before = self.current.load();
            if before.label() == state.label() && before.problem() == state.problem() {
                return;
            }
        }

        let reason = state.problem().unwrap_or_default();

        match &state {
            InjectorState::Off(_) | InjectorState::Ready { refused: None, .. } => {
                self.readiness.release(INJECTION_PART)
            }
            InjectorState::Pending(_) => {
                tracing::warn!(reason, "injection is not configured yet; rejecting pods");
                self.readiness.hold(INJECTION_PART, reason);
            }
            InjectorState::Failed(_) => {
                tracing::error!(
                    reason,
                    "injection is not configured; rejecting pods until it is"
                );
                self.readiness.add_optional(
                    INJECTION_PART,
                    format!("not configured, pods are rejected: {reason}"),
                );
            }
            InjectorState::Ready {
                refused: Some(_), ..
            } => {
                tracing::error!(
                    reason,
                    "invalid injector configuration; keeping the last valid one"
                );
                self.readiness.add_optional(
                    INJECTION_PART,
                    format!("the last valid configuration is in use: {reason}"),
                );
            }
        }

        self.metrics.injector(&state);
        self.current.store(state);
    }

    fn inputs(&self, texts: Texts) -> InjectorInputs {
        let context = self.push.context();

        // A pod runs in the requesting cluster, whose nodes may be older than the local ones.
        let own = std::iter::once((&context.mesh.settings.cluster_id, &context.objects));
        let kubelets = own
            .chain(&context.remotes)
            .map(|(cluster, objects)| (cluster.to_string(), kubelets(objects)));
        InjectorInputs {
            values: texts.values,
            config: texts.config,
            mesh: self.mesh(&context.mesh.config),
            proxy_configs: context.objects.proxy_configs.iter().cloned().collect(),
            revision: self.revision.clone(),
            native_sidecars: self.settings.native_sidecars,
            kubelets: kubelets.collect(),
            compliance_policy: self.settings.compliance_policy.clone(),
            environment: self.settings.environment.clone(),
            openshift: self.settings.openshift,
        }
    }

    /// The mesh config; shared with the last inputs if it is equal.
    fn mesh(&self, now: &navarch_api::mesh::MeshConfig) -> Arc<navarch_api::mesh::MeshConfig> {
        match &self.last {
            Some(last) if *last.mesh == *now => last.mesh.clone(),
            _ => Arc::new(now.clone()),
        }
    }
}

/// The versions of the kubelets of a cluster, by node.
fn kubelets(objects: &Objects) -> BTreeMap<String, String> {
    let nodes = objects.nodes.iter();
    nodes
        .map(|node| {
            (
                node.meta.key.name.to_string(),
                node.spec.kubelet_version.to_string(),
            )
        })
        .collect()
}

/// Whether both result in the same injector; settings from flags do not change.
fn are_equal(a: &InjectorInputs, b: &InjectorInputs) -> bool {
    a.values == b.values
        && a.config == b.config
        && Arc::ptr_eq(&a.mesh, &b.mesh)
        && a.kubelets == b.kubelets
        && a.proxy_configs.len() == b.proxy_configs.len()
        && a.proxy_configs
            .iter()
            .zip(&b.proxy_configs)
            .all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
}
