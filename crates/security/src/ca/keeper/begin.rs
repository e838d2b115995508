//! Finds the initial roots.
//!
//! There are two sources: the stored roots, and the roots that were distributed to pods (the
//! ConfigMap with the roots). If they differ, the distributed ones decide: a root that no pod has
//! must not sign, even if it is stored.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::super::bundle::{Bundle, BundleError, certificates};
use super::super::root_store::{RootStore, RootStoreError, StoredRoots};
use super::super::rotation::{Origin, Phase, RootSet, RotationRules};
use super::{KeeperConfig, KeeperError};
use navarch_base::error_chain::chain;

/// Maximum number of conflicts with other replicas at the start.
const MAX_ATTEMPTS: usize = 5;

/// The initial state of a keeper.
pub(super) struct InitialState {
    /// The store of the set.
    pub(super) store: RootStore,
    pub(super) set: RootSet,
    /// The version of the set in the store, if it is stored.
    pub(super) version: Option<String>,
    /// The plugged-in CA.
    pub(super) found: Option<Bundle>,
    /// The problem of the plugged-in CA.
    pub(super) problem: Option<String>,
}

/// The stored roots and their store.
struct Found {
    store: RootStore,
    /// The roots, if they were in use.
    set: Option<RootSet>,
    /// The version of the stored roots, trusted or not.
    version: Option<String>,
}

/// Finds the roots, or generates them.
pub(super) async fn begin(config: &KeeperConfig) -> Result<InitialState, KeeperError> {
    let found = config.plugged_in.read().await?;
    let mut tries = MAX_ATTEMPTS;
    loop {
        let outcome = match &found {
            Some(files) => from_files(config, files).await,
            None => without_files(config).await,
        };
        match outcome {
            Err(KeeperError::Store(RootStoreError::Conflict)) if tries > 0 => tries -= 1,
            outcome => return Ok(InitialState { found, ..outcome? }),
        }
    }
}

/// The self-signed roots. If several replicas generate them at once, one write succeeds and all use
/// its roots. A plugged-in CA whose files were removed keeps signing, as it does when they are
/// removed at runtime.
async fn without_files(config: &KeeperConfig) -> Result<InitialState, KeeperError> {
    if let Some(StoredRoots { set, version, .. }) = config.rotation.load().await?
        && was_published(config, &config.rotation, &set)?
    {
        let place = config.plugged_in.place();
        let problem = format!(
            "the CA's files in {place} no longer exist; the last CA is stored in {:?}",
            config.rotation
        );
        tracing::error!(problem, "keeping the last plugged-in CA");
        let store = config.rotation.clone();
        return Ok(InitialState {
            store,
            set,
            version,
            found: None,
            problem: Some(problem),
        });
    }

    let store = config.self_signed.clone();
    let (set, version) = match store.load().await? {
        Some(StoredRoots { set, version, .. }) => {
            if let Err(error) = store.repair(&set) {
                tracing::warn!(
                    problem = chain(&error),
                    "failed to restore missing CA files"
                );
            }
            (set, version)
        }
        None => {
            let set = RootSet::single((config.make)((config.clock)())?, Origin::SelfSigned);
            let version = store.save(&set, None).await?;
            (set, version)
        }
    };

    Ok(InitialState {
        store,
        set,
        version,
        found: None,
        problem: None,
    })
}

/// The roots of a plugged-in CA. A rotation in progress continues. A CA that was replaced while no
/// replica was running is distributed first, and the previous one signs until then. Therefore the
/// CA in use is always stored, including its key.
async fn from_files(config: &KeeperConfig, files: &Bundle) -> Result<InitialState, KeeperError> {
    let Found {
        store,
        set,
        version,
    } = last_in_force(config, files).await?;

    let begun = |set, version| InitialState {
        store: store.clone(),
        set,
        version,
        found: None,
        problem: None,
    };

    let next = match set {
        None => RootSet::single(files.clone(), Origin::PluggedIn),
        Some(set) => match set.with_files(files, None, &config.rules, (config.clock)())? {
            None => return Ok(begun(set, version)),
            Some(next) => next,
        },
    };

    match store.save(&next, version.as_deref()).await {
        Ok(version) => Ok(begun(next, version)),
        // Without a record, the next root cannot be distributed first, but the CA in use stays
        // valid.
        Err(error)
            if next.phase() == Phase::Settled && !matches!(error, RootStoreError::Conflict) =>
        {
            tracing::warn!(problem = chain(&error), "failed to persist the CA in use");
            Ok(begun(next, version))
        }
        Err(error) => Err(error.into()),
    }
}

/// The roots that were in use before these files.
async fn last_in_force(config: &KeeperConfig, files: &Bundle) -> Result<Found, KeeperError> {
    let mut version = None;

    if let Some(kept) = config.rotation.load().await? {
        if was_published(config, &config.rotation, &kept.set)? {
            return Ok(Found {
                store: config.rotation.clone(),
                set: Some(kept.set),
                version: kept.version,
            });
        }
        version = kept.version;
    }

    // A self-signed root that cannot be read was not in use, unless a later release stored it:
    // these files are.
    let kept = match config.self_signed.load().await {
        Err(error) if error.is_newer() => return Err(error.into()),
        kept => kept.ok().flatten(),
    };
    if let Some(kept) = kept {
        let is_known = was_published(config, &config.self_signed, &kept.set)?;
        let is_certain = match &config.distributed {
            // If both were distributed, the files were in use, and the self-signed root before
            // them.
            Some(distributed) => !has_all(distributed, &files.roots)?,
            None => matches!(config.self_signed, RootStore::Folder(_)),
        };

        if is_known && (is_certain || kept.set.has_plugged_in()) {
            return Ok(Found {
                store: config.self_signed.clone(),
                set: Some(kept.set),
                version: kept.version,
            });
        }
    }

    Ok(Found {
        store: config.rotation.clone(),
        set: None,
        version,
    })
}

/// Whether the stored roots are those that were last published to pods.
fn was_published(
    config: &KeeperConfig,
    store: &RootStore,
    set: &RootSet,
) -> Result<bool, BundleError> {
    let Some(distributed) = &config.distributed else {
        return Ok(true);
    };
    let is_known = has_all(distributed, &set.signer.roots)?;
    if !is_known {
        tracing::warn!(
            ?store,
            "the stored root certificates differ from those distributed to pods and are left unchanged"
        );
    }
    Ok(is_known)
}

/// Whether `among` contains all of some roots; an unreadable `among` contains none.
fn has_all(among: &str, roots: &str) -> Result<bool, BundleError> {
    let among: BTreeSet<Vec<u8>> = certificates(among, "the distributed roots")
        .unwrap_or_default()
        .iter()
        .map(|certificate| certificate.to_vec())
        .collect();
    let roots = certificates(roots, "the roots")?;
    Ok(roots.iter().all(|root| among.contains(root.as_ref())))
}

impl RootSet {
    /// Whether the CA that signs, or the next one, is plugged in.
    fn has_plugged_in(&self) -> bool {
        self.origin == Origin::PluggedIn
            || self
                .next
                .as_ref()
                .is_some_and(|next| next.origin == Origin::PluggedIn)
    }

    /// The set that follows from the current files; `None` if this one stays. The current files
    /// replace a CA that is being distributed. `before` is the previous content, if known: its
    /// distribution ends when the files contain the signing CA again. Roots that were removed from
    /// the files of the signing CA are no longer trusted.
    pub(in crate::ca) fn with_files(
        &self,
        files: &Bundle,
        before: Option<&Bundle>,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Option<Self>, BundleError> {
        if self.next.as_ref().is_some_and(|next| next.bundle == *files) {
            return Ok(None);
        }

        let free = Self {
            next: None,
            ..self.clone()
        };

        if self.signer == *files {
            let is_withdrawn = self
                .next
                .as_ref()
                .is_some_and(|next| before == Some(&next.bundle));
            return Ok(is_withdrawn.then_some(free));
        }

        if let Some(without) = self.without_removed_roots(files)? {
            // It must be able to sign without them.
            without.authority(now)?;
            return Ok(Some(without));
        }

        match free.authority(now) {
            Ok(_) => self.replace_next(files.clone(), Origin::PluggedIn, rules, now),
            // The former CA can no longer sign, so there is no reason to wait.
            Err(_) => Ok(Some(Self {
                signer: files.clone(),
                origin: Origin::PluggedIn,
                ..free
            })),
        }
    }
}
