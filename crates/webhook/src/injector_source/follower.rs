//! Builds the injector of the current inputs, and reports its state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::texts::{Texts, TextsSource, TextsState};
use super::{InjectionSettings, MeshSnapshot};
use crate::inject::{ConfigError, Injector, InjectorInputs};
use crate::{CurrentInjector, InjectorState, Metrics};
use navarch_api::mesh::MeshConfig;
use navarch_store::Objects;

/// Poll interval of files, mesh config and objects.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What a [`Follower`] reads, and who receives its state.
pub struct Parts<S> {
    /// Settings from flags and environment.
    pub settings: InjectionSettings,
    /// The revision of this control plane.
    pub revision: String,
    /// The templates and values.
    pub texts: TextsSource,
    /// Returns the current [`MeshSnapshot`].
    pub snapshot: S,
    /// Publishes the state.
    pub metrics: Metrics,
    /// Called with each state before requests get it.
    pub report: Box<dyn Fn(&InjectorState) + Send>,
}

impl<S> fmt::Debug for Parts<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("revision", &self.revision)
            .field("texts", &self.texts)
            .finish_non_exhaustive()
    }
}

/// Rebuilds the injector when an input has changed.
pub struct Follower<S> {
    parts: Parts<S>,
    /// The state that answers requests.
    current: CurrentInjector,
    /// The injector, once there was a valid configuration.
    injector: Option<Arc<Injector>>,
    /// The inputs that were last tried.
    last: Option<InjectorInputs>,
    /// Why they were rejected, if they were.
    rejected: Option<Arc<str>>,
}

impl<S> fmt::Debug for Follower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("parts", &self.parts)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl<S, M> Follower<S>
where
    S: Fn() -> M,
    M: MeshSnapshot,
{
    /// Without an injector: until [`Self::run`] has read the inputs, the state is pending.
    #[must_use]
    pub fn new(parts: Parts<S>) -> Self {
        let reason = Arc::from("the configuration of the mesh has not been read yet");
        let state = InjectorState::Pending(reason);
        parts.metrics.injector(&state);
        (parts.report)(&state);

        Self {
            parts,
            current: CurrentInjector::new(state),
            injector: None,
            last: None,
            rejected: None,
        }
    }

    /// The state that answers requests.
    #[must_use]
    pub fn current(&self) -> CurrentInjector {
        self.current.clone()
    }

    /// Follows the inputs; does not end. Must not be called before the first snapshot is complete.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look();
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.parts.texts.changed() => {}
            }
        }
    }

    /// Updates the injector. An invalid configuration changes nothing if there was a valid one
    /// before.
    fn look(&mut self) {
        let problem = match self.parts.texts.current() {
            TextsState::Unknown(reason) => return self.publish(InjectorState::Pending(reason)),
            TextsState::Missing(reason) => Some(reason),
            TextsState::Texts(texts) => {
                self.take(texts);
                self.rejected.clone()
            }
        };

        match (&self.injector, problem) {
            (Some(injector), rejected) => self.publish(InjectorState::Ready {
                injector: injector.clone(),
                rejected,
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
        self.rejected = outcome
            .err()
            .map(|error: ConfigError| Arc::from(error.to_string()));

        self.last = Some(inputs);

        if self.rejected.is_none() {
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
            InjectorState::Off(_) | InjectorState::Ready { rejected: None, .. } => {}
            InjectorState::Pending(_) => {
                tracing::warn!(reason, "injection is not configured yet; rejecting pods");
            }
            InjectorState::Failed(_) => {
                tracing::error!(
                    reason,
                    "injection is not configured; rejecting pods until it is"
                );
            }
            InjectorState::Ready {
                rejected: Some(_), ..
            } => {
                tracing::error!(
                    reason,
                    "invalid injector configuration; keeping the last valid one"
                );
            }
        }

        (self.parts.report)(&state);
        self.parts.metrics.injector(&state);
        self.current.store(state);
    }

    fn inputs(&self, texts: Texts) -> InjectorInputs {
        let snapshot = (self.parts.snapshot)();
        let settings = &self.parts.settings;

        // A pod runs in the requesting cluster, whose nodes may be older than the local ones.
        let kubelets = snapshot
            .clusters()
            .map(|(cluster, objects)| (cluster.to_string(), kubelets(objects)));
        InjectorInputs {
            values: texts.values,
            config: texts.config,
            mesh: self.mesh(snapshot.mesh()),
            proxy_configs: snapshot.objects().proxy_configs.iter().cloned().collect(),
            revision: self.parts.revision.clone(),
            native_sidecars: settings.native_sidecars,
            kubelets: kubelets.collect(),
            compliance_policy: settings.compliance_policy.clone(),
            environment: settings.environment.clone(),
            openshift: settings.openshift,
        }
    }

    /// The mesh config; shared with the last inputs if it is equal.
    fn mesh(&self, now: &MeshConfig) -> Arc<MeshConfig> {
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

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::super::texts::Source;
    use super::*;
    use navarch_api::names::ClusterId;

    /// A mesh of one cluster without objects.
    struct Empty {
        cluster: ClusterId,
        mesh: MeshConfig,
        objects: Objects,
    }

    impl MeshSnapshot for Empty {
        fn mesh(&self) -> &MeshConfig {
            &self.mesh
        }

        fn objects(&self) -> &Objects {
            &self.objects
        }

        fn clusters(&self) -> impl Iterator<Item = (&ClusterId, &Objects)> {
            std::iter::once((&self.cluster, &self.objects))
        }
    }

    fn snapshot() -> Empty {
        Empty {
            cluster: ClusterId::new("Kubernetes"),
            mesh: MeshConfig::istio_defaults(),
            objects: Objects::default(),
        }
    }

    #[test]
    fn a_config_map_that_was_not_read_is_pending_and_a_missing_one_has_failed() {
        let unread = TextsState::Unknown(Arc::from("ConfigMap n/m has not been read yet"));
        let (sender, found) = watch::channel(unread);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let report = {
            let reported = reported.clone();
            move |state: &InjectorState| reported.lock().push(format!("{state:?}"))
        };

        let mut follower = Follower::new(Parts {
            settings: InjectionSettings::default(),
            revision: String::new(),
            texts: TextsSource(Source::Map(found)),
            snapshot,
            metrics: Metrics::default(),
            report: Box::new(report),
        });
        let current = follower.current();

        follower.look();
        assert!(current.load().injector().is_err());
        let missing = TextsState::Missing(Arc::from("ConfigMap n/m does not exist"));
        sender.send_replace(missing);
        follower.look();
        assert!(current.load().injector().is_err());

        sender.send_replace(TextsState::Texts(Texts::default()));
        follower.look();
        assert!(current.load().injector().is_ok());
        follower.look();
        assert_eq!(
            *reported.lock(),
            [
                "pending Some(\"the configuration of the mesh has not been read yet\")",
                "pending Some(\"ConfigMap n/m has not been read yet\")",
                "failed Some(\"ConfigMap n/m does not exist\")",
                "ready None",
            ]
        );
    }
}
