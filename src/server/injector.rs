//! Keeps the injector up to date with its inputs: the chart's ConfigMap or files, the mesh config,
//! ProxyConfigs, and the versions of nodes.

mod follower;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use self::follower::Follower;
use self::texts::TextsState;
use super::boot::Boot;
use navarch_api::regular_file;
use navarch_push::worker::PushHandle;
use navarch_webhook::inject::NativeSidecars;
use navarch_webhook::{CurrentInjector, InjectorState, Metrics};

/// The name of the state in readiness reasons.
const INJECTION_PART: &str = "injection";

/// From flags and environment. The templates and values are read from the directory or ConfigMap
/// later.
#[derive(Clone, Debug)]
pub struct InjectionSettings {
    /// `INJECT_ENABLED`: whether pods are injected. Default true.
    pub enabled: bool,
    /// The directory with the files `config` and `values`, which take precedence over the
    /// ConfigMap. Default `./var/lib/istio/inject`.
    pub folder: PathBuf,
    /// `ENABLE_NATIVE_SIDECARS`.
    pub native_sidecars: NativeSidecars,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// Variables that templates may read.
    pub environment: BTreeMap<String, String>,
    /// `PLATFORM` is `openshift`.
    pub openshift: bool,
}

impl Default for InjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            folder: PathBuf::from("./var/lib/istio/inject"),
            native_sidecars: NativeSidecars::Auto,
            compliance_policy: String::new(),
            environment: BTreeMap::new(),
            openshift: false,
        }
    }
}

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
        let config = self.settings.folder.join("config");
        let folder = regular_file::may_exist(&config).then(|| self.settings.folder.clone());
        let found = match (self.settings.enabled, &folder, self.client) {
            (false, _, _) => return self.disabled("INJECT_ENABLED is false"),
            (true, None, None) => {
                return self.disabled("there are no configuration files and no cluster");
            }
            (true, Some(_), _) => watch::channel(TextsState::Unknown(Arc::from(""))).1,
            (true, None, Some(client)) => {
                texts::follow_map(client, self.namespace, self.revision, boot)
            }
        };

        let pending: Arc<str> = Arc::from("the configuration of the mesh has not been read yet");
        let state = InjectorState::Pending(pending.clone());
        self.metrics.injector(&state);
        boot.readiness.hold(INJECTION_PART, &*pending);
        let current = CurrentInjector::new(state);
        let mut follower = Follower {
            settings: self.settings.clone(),
            revision: self.revision.to_owned(),
            folder,
            found,
            push: self.push.clone(),
            current: current.clone(),
            readiness: boot.readiness.clone(),
            metrics: self.metrics.clone(),
            injector: None,
            last: None,
            refused: None,
        };

        boot.spawn_until_stop("injector", async move { follower.run().await });

        current
    }

    fn disabled(&self, reason: &'static str) -> CurrentInjector {
        tracing::info!(reason, "injection is disabled");
        let state = InjectorState::Off(reason);
        self.metrics.injector(&state);
        CurrentInjector::new(state)
    }
}

#[cfg(test)]
mod tests;
