//! What the pages are made from.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::access::DebugAccess;
use super::clusterz::ManagedClusters;
use super::doctor::{ApiServerLook, Certificates};
use super::exposition::Exposition;
use super::plan::Plans;
use super::rollout::RolloutControl;
use super::scratch::PlanLimit;
use navarch_net::rejections::Rejections;
use navarch_push::worker::PushHandle;
use navarch_security::ca::keeper::RotationCommands;
use navarch_source::Problem;
use navarch_webhook::CurrentInjector;
use navarch_xds::connections::Connections;

/// The version stamp of the build.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The release, such as `0.1.0`.
    pub version: &'static str,
    /// The commit that it was built from, `unknown` outside of git.
    pub revision: &'static str,
}

impl Build {
    /// Whether the commit is all that was built: `Clean`, or `Modified`.
    #[must_use]
    pub fn status(self) -> &'static str {
        if self.version.ends_with("-dirty") { "Modified" } else { "Clean" }
    }

    /// In the shape of Istio's `BuildInfo`.
    #[must_use]
    pub fn info(self) -> serde_json::Value {
        serde_json::json!({
            "version": self.version,
            "revision": self.revision,
            "golang_version": "",
            "status": self.status(),
            "tag": self.version,
        })
    }
}

/// What the pages read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    /// The push thread.
    pub push: PushHandle,
    /// Connected proxies.
    pub connections: Arc<Connections>,
    /// What sources could not read, by place.
    pub problems: Problems,
    /// Remote clusters that are read.
    pub clusters: ManagedClusters,
    /// What else must be there before Navarch is ready.
    pub readiness: Readiness,
    /// All metrics.
    pub metrics: Arc<Exposition>,
    /// The keeper of the roots, once there is a CA.
    pub roots: Arc<OnceLock<RotationCommands>>,
    /// The CA's chain and what ports show, once they are served.
    pub certificates: Arc<OnceLock<Certificates>>,
    /// Whom limits turned away.
    pub rejections: Rejections,
    /// The API server as `navarch doctor` looks at it, where one is used.
    pub api_server: Option<ApiServerLook>,
    /// The rollout controller.
    pub rollouts: RolloutControl,
    /// Who may make a plan.
    pub plans: Plans,
    /// Who may see the debug pages.
    pub access: DebugAccess,
    /// The build.
    pub build: Build,
    /// `POD_NAME`: which instance this is.
    pub pod: Arc<str>,
    /// Whether pods can be injected, and by what.
    pub injector: CurrentInjector,
    /// `UNSAFE_ENABLE_ADMIN_ENDPOINTS`: there are pages that do harm.
    pub unsafe_pages: bool,
    /// `--profile`: there are the pages of profiles.
    pub profiles: bool,
    /// Questions that are worked on beside the push thread.
    pub turns: PlanLimit,
}

/// Problems of the input by place (file), as they stand now.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<BTreeMap<Arc<str>, Vec<Problem>>>>);

impl Problems {
    /// Replaces the problems of a place.
    pub fn set(&self, place: Arc<str>, problems: Vec<Problem>) {
        let mut all = self.0.lock();
        if problems.is_empty() {
            all.remove(&place);
        } else {
            all.insert(place, problems);
        }
    }

    /// Forgets the problems of all places whose names begin so.
    pub fn forget(&self, beginning: &str) {
        self.0.lock().retain(|place, _| !place.starts_with(beginning));
    }

    /// All problems by place.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Arc<str>, Vec<Problem>> {
        self.0.lock().clone()
    }
}

/// What must be there before Navarch is ready, and what it goes on without, each by name. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, Lack>>>);

/// Something that is not there.
#[derive(Clone, Debug)]
struct Lack {
    /// Navarch is not ready without.
    holds: bool,
    /// Why it is not there.
    reason: String,
}

impl Readiness {
    /// Navarch is not ready as long as this is not there.
    pub fn hold(&self, name: &'static str, reason: impl Into<String>) {
        self.0.lock().insert(name, Lack { holds: true, reason: reason.into() });
    }

    /// Navarch goes on without this.
    pub fn go_on_without(&self, name: &'static str, reason: impl Into<String>) {
        self.0.lock().insert(name, Lack { holds: false, reason: reason.into() });
    }

    /// This is there now.
    pub fn release(&self, name: &'static str) {
        self.0.lock().remove(name);
    }

    /// Whether nothing holds Navarch up.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.0.lock().values().any(|lack| lack.holds)
    }

    /// One line for everything that is not there.
    #[must_use]
    pub fn lacks(&self) -> String {
        self.0.lock().iter().map(|(name, lack)| format!("{name}: {}\n", lack.reason)).collect()
    }
}
