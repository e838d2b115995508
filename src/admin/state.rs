//! The state that the pages read.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::access::DebugAccess;
use super::doctor::{ApiServerHealth, Certificates};
use super::exposition::Exposition;
use super::plan::Plans;
use super::scratch::PlanLimit;
use navarch_net::rejections::Rejections;
use navarch_push::worker::PushHandle;
use navarch_quarantine::QuarantineControl;
use navarch_remotes::ManagedClusters;
use navarch_rollout::RolloutControl;
use navarch_security::ca::keeper::RotationCommands;
use navarch_source::Problems;
use navarch_webhook::CurrentInjector;
use navarch_xds::connections::Connections;

/// The version information of the build.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The release, such as `0.1.0`.
    pub version: &'static str,
    /// The commit that it was built from, `unknown` outside of git.
    pub revision: &'static str,
}

impl Build {
    /// Whether the build contains uncommitted changes: `Clean`, or `Modified`.
    #[must_use]
    pub fn status(self) -> &'static str {
        // The build script puts it last, but for the mark of the FIPS module.
        let version = self.version.strip_suffix("-fips").unwrap_or(self.version);
        if version.ends_with("-dirty") {
            "Modified"
        } else {
            "Clean"
        }
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

/// The state of the pages. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    /// The push thread.
    pub push: PushHandle,
    /// Connected proxies.
    pub connections: Arc<Connections>,
    /// Errors of sources, by place.
    pub problems: Problems,
    /// Remote clusters that are read.
    pub clusters: ManagedClusters,
    /// What is missing before Navarch is ready.
    pub readiness: Readiness,
    /// What `/metrics` returns.
    pub metrics: Arc<Exposition>,
    /// The commands of root rotation, once there is a CA.
    pub roots: Arc<OnceLock<RotationCommands>>,
    /// The certificates of the CA and of ports, once they are served.
    pub certificates: Arc<OnceLock<Certificates>>,
    /// Clients that were rejected because of limits.
    pub rejections: Rejections,
    /// The checks of the API server, if one is used.
    pub api_server: Option<ApiServerHealth>,
    /// The rollout controller.
    pub rollouts: RolloutControl,
    /// The part that quarantines objects.
    pub quarantine: QuarantineControl,
    /// Limits concurrent plans.
    pub plans: Plans,
    /// Access to the debug pages.
    pub access: DebugAccess,
    /// Release and commit, which `/version` returns.
    pub build: Build,
    /// `POD_NAME`: the name of this replica.
    pub pod: Arc<str>,
    /// The current injector, if injection is enabled.
    pub injector: CurrentInjector,
    /// `UNSAFE_ENABLE_ADMIN_ENDPOINTS`: whether pages that can do harm are served.
    pub unsafe_pages: bool,
    /// `--profile`: whether profiling pages are served.
    pub profiles: bool,
    /// Limits queries that run outside the push thread.
    pub turns: PlanLimit,
}

/// The missing parts by name: those that readiness waits for, and those that Navarch works without.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, MissingPart>>>);

#[derive(Clone, Debug)]
struct MissingPart {
    /// Whether readiness waits for it.
    is_required: bool,
    /// Why it is missing.
    reason: String,
}

impl Readiness {
    /// Readiness waits for this part.
    pub fn hold(&self, name: &'static str, reason: impl Into<String>) {
        self.0.lock().insert(
            name,
            MissingPart {
                is_required: true,
                reason: reason.into(),
            },
        );
    }

    /// This part is missing, but readiness does not wait for it.
    pub fn add_optional(&self, name: &'static str, reason: impl Into<String>) {
        self.0.lock().insert(
            name,
            MissingPart {
                is_required: false,
                reason: reason.into(),
            },
        );
    }

    /// This part is no longer missing.
    pub fn release(&self, name: &'static str) {
        self.0.lock().remove(name);
    }

    /// Whether readiness waits for no part.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.0.lock().values().any(|lack| lack.is_required)
    }

    /// One line per missing part.
    #[must_use]
    pub fn missing_parts(&self) -> String {
        self.0
            .lock()
            .iter()
            .map(|(name, lack)| format!("{name}: {}\n", lack.reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_with_uncommitted_changes_is_modified_with_the_fips_module_too() {
        let status = |version| {
            let revision = "0f092f8";
            Build { version, revision }.status()
        };
        assert_eq!(status("v0.3.1-2-g0f092f8"), "Clean");
        assert_eq!(status("v0.3.1-fips"), "Clean");
        assert_eq!(status("1.32.0-navarch.0f092f8-dirty"), "Modified");
        assert_eq!(status("1.32.0-navarch.0f092f8-dirty-fips"), "Modified");
    }
}
