//! Staged rollouts: during one, some proxies see the new version of an object, the others the
//! previous one.
//!
//! ```text
//! Change::Put ─▶ the new version is stored ─▶ stage by stage more proxies see it ─▶ it replaces the previous version
//!                                               └─ stopped: no proxy sees it until the object is edited
//! ```
//!
//! Whether a proxy sees the new version is an attribute of the proxy (`versions::SeesNew`): proxies
//! with the same answer share all results built from the object, and without a rollout the
//! attribute is not read.

pub mod slots;

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::rollout::{RolloutPlan, Share};

/// The client name with which the control plane requests the statuses of objects. It sees new
/// versions from the first stage on.
pub const STATUS_CLIENT: &str = "status.navarch";

/// A change of an object that applies to some proxies only.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Its stages, their pauses and their query.
    pub plan: RolloutPlan,
    /// Identifies it among the rollouts of the object.
    pub serial: u64,
    /// `metadata.generation` of the new version.
    pub generation: i64,
    /// The generation that the other proxies see; `None` if the object is new.
    pub before: Option<i64>,
    /// Changed by each [`RolloutCommand`]. A rollout that is complete has none: it is removed.
    pub progress: RolloutProgress,
    /// Differs by object, so that rollouts of different objects start with different proxies.
    pub(super) seed: u64,
}

/// Decides which proxies see the new version: none yet, those of a stage, or none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutProgress {
    /// No proxy sees the new version yet.
    Waiting,
    /// A stage of the plan.
    Stage {
        /// Index of the stage.
        at: usize,
        /// Proxies that see the new version in addition to the stage's share: at least one of each
        /// workload.
        chosen: Arc<BTreeSet<Arc<str>>>,
    },
    /// No proxy sees the new version any more, for this reason.
    Stopped(Arc<str>),
}

/// A command for a rollout. It has no effect if a later rollout of the object has started.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutCommand {
    /// Moves the rollout to a stage.
    Stage {
        /// The rollout; `None` means the current one.
        serial: Option<u64>,
        /// Index of the stage.
        at: usize,
        /// As in [`RolloutProgress::Stage`].
        chosen: Arc<BTreeSet<Arc<str>>>,
    },
    /// No proxy sees the new version until the object is edited.
    Stop {
        /// The rollout; `None` means the current one.
        serial: Option<u64>,
        /// Text for operators, such as `aborted by an operator`.
        reason: Arc<str>,
    },
    /// All proxies see the new version.
    Complete {
        /// The rollout; `None` means the current one.
        serial: Option<u64>,
    },
    /// Resumes a rollout that began before the process started, or on another replica.
    Restore {
        /// The new version. The command applies only if the object equals it.
        new: AnyObject,
        /// The previous version.
        before: Option<AnyObject>,
        /// Its progress at that time.
        progress: RolloutProgress,
    },
}

impl Rollout {
    /// The share of proxies that see the new version; `None` if no proxy does.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        match &self.progress {
            RolloutProgress::Stage { at, .. } => self.plan.stages.shares().get(*at).copied(),
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => None,
        }
    }

    /// Whether the proxy of this name sees the new version. A proxy that sees it at one stage also
    /// sees it at all later ones.
    #[must_use]
    pub fn is_seen_by(&self, proxy: &str) -> bool {
        let RolloutProgress::Stage { chosen, .. } = &self.progress else {
            return false;
        };
        let share = self.share();
        share.is_some_and(|share| share.contains(self.rank(proxy)))
            || chosen.contains(proxy)
            || proxy == STATUS_CLIENT
    }

    /// The position of a proxy in the order of the rollout; the same in every process.
    #[must_use]
    pub fn rank(&self, proxy: &str) -> u64 {
        mixed(proxy.as_bytes(), self.seed)
    }

    /// Whether a command with this serial is for this rollout.
    pub(super) fn is_for_serial(&self, serial: Option<u64>) -> bool {
        serial.is_none_or(|serial| serial == self.serial) && !self.is_stopped()
    }

    /// Whether it has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.progress, RolloutProgress::Stopped(_))
    }
}

/// A hash without a key (FNV-1a, finalized as in SplitMix64 so that all bits are mixed): the same
/// on every replica.
pub(super) fn mixed(bytes: &[u8], seed: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
