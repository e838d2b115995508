//! What is found at the start, and which roots follow from it.
//!
//! Two things can tell: what is kept here, and what pods have been given (the ConfigMap with the roots). Where they disagree,
//! pods are right: a root that nobody has must not sign, however well it is kept.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::super::bundle::{Bundle, BundleError, certificates};
use super::super::root_store::{RootStore, RootStoreError, StoredRoots};
use super::super::rotation::{Origin, Phase, RootSet, RotationRules};
use super::{KeeperConfig, KeeperError};
use navarch_api::error_chain::chain;

/// How often a start is tried when other replicas are faster.
const MAX_ATTEMPTS: usize = 5;

/// What a keeper starts with.
pub(super) struct Begun {
    /// Where the set is kept.
    pub(super) store: RootStore,
    pub(super) set: RootSet,
    /// Their version in the store, where there are any.
    pub(super) version: Option<String>,
    /// The plugged-in CA.
    pub(super) found: Option<Bundle>,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
}

/// What was kept, and where.
struct Found {
    store: RootStore,
    /// The roots, if they were in force.
    set: Option<RootSet>,
    /// The version of the stored roots, trusted or not.
    version: Option<String>,
}

/// Finds the roots, or makes them.
pub(super) async fn begin(config: &KeeperConfig) -> Result<Begun, KeeperError> {
    let found = config.plugged_in.read().await?;
    let mut tries = MAX_ATTEMPTS;
    loop {
        let outcome = match &found {
            Some(files) => from_files(config, files).await,
            None => without_files(config).await,
        };
        match outcome {
            Err(KeeperError::Store(RootStoreError::Conflict)) if tries > 0 => tries -= 1,
            outcome => return Ok(Begun { found, ..outcome? }),
        }
    }
}

/// The self-signed roots; of several who make one at once, one wins and all get that. A CA that was plugged in and whose files
/// are gone goes on signing, as it does when they go while Navarch runs.
async fn without_files(config: &KeeperConfig) -> Result<Begun, KeeperError> {
    if let Some(StoredRoots { set, version, .. }) = config.rotation.load().await?
        && was_in_force(config, &config.rotation, &set)?
    {
        let place = config.plugged_in.place();
        let problem = format!("the CA's files in {place} are gone; the last one is kept in {:?}", config.rotation);
        tracing::error!(problem, "keeping the last plugged-in CA");
        let store = config.rotation.clone();
        return Ok(Begun { store, set, version, found: None, problem: Some(problem) });
    }
    let store = config.self_signed.clone();
    let (set, version) = match store.load().await? {
        Some(StoredRoots { set, version, .. }) => {
            if let Err(error) = store.mend(&set) {
                tracing::warn!(problem = chain(&error), "failed to restore missing CA files");
            }
            (set, version)
        }
        None => {
            let set = RootSet::settled((config.make)((config.clock)())?, Origin::SelfSigned);
            let version = store.save(&set, None).await?;
            (set, version)
        }
    };
    Ok(Begun { store, set, version, found: None, problem: None })
}

/// The roots of a plugged-in CA. What was begun before is gone on with; a CA that was replaced while nobody looked is
/// distributed first, and the one before signs until then. For that the one in force is always kept, its key with it.
async fn from_files(config: &KeeperConfig, files: &Bundle) -> Result<Begun, KeeperError> {
    let Found { store, set, version } = last_in_force(config, files).await?;
    let begun = |set, version| Begun { store: store.clone(), set, version, found: None, problem: None };
    let next = match set {
        None => RootSet::settled(files.clone(), Origin::PluggedIn),
        Some(set) => match set.with_files(files, None, &config.rules, (config.clock)())? {
            None => return Ok(begun(set, version)),
            Some(next) => next,
        },
    };
    match store.save(&next, version.as_deref()).await {
        Ok(version) => Ok(begun(next, version)),
        // Without a record the next root cannot wait, but this one is as good as ever.
        Err(error) if next.phase() == Phase::Settled && !matches!(error, RootStoreError::Conflict) => {
            tracing::warn!(problem = chain(&error), "failed to persist the CA in use");
            Ok(begun(next, version))
        }
        Err(error) => Err(error.into()),
    }
}

/// What was in force last, before these files.
async fn last_in_force(config: &KeeperConfig, files: &Bundle) -> Result<Found, KeeperError> {
    let mut version = None;
    if let Some(kept) = config.rotation.load().await? {
        if was_in_force(config, &config.rotation, &kept.set)? {
            return Ok(Found { store: config.rotation.clone(), set: Some(kept.set), version: kept.version });
        }
        version = kept.version;
    }
    // What cannot be read there was not in force: these files are.
    if let Some(kept) = config.self_signed.load().await.ok().flatten() {
        let is_known = was_in_force(config, &config.self_signed, &kept.set)?;
        let is_certain = match &config.distributed {
            // Both were: the files were in force, and the self-signed one before them.
            Some(distributed) => !has_all(distributed, &files.roots)?,
            None => matches!(config.self_signed, RootStore::Folder(_)),
        };
        if is_known && (is_certain || kept.set.knows_plugged_in()) {
            return Ok(Found { store: config.self_signed.clone(), set: Some(kept.set), version: kept.version });
        }
    }
    Ok(Found { store: config.rotation.clone(), set: None, version })
}

/// Whether the stored roots are those that were last published to pods.
fn was_in_force(config: &KeeperConfig, store: &RootStore, set: &RootSet) -> Result<bool, BundleError> {
    let Some(distributed) = &config.distributed else { return Ok(true) };
    let is_known = has_all(distributed, &set.signer.roots)?;
    if !is_known {
        tracing::warn!(
            ?store,
            "the stored root certificates differ from those distributed to pods and are left unchanged"
        );
    }
    Ok(is_known)
}

/// Whether all of some roots are among others; those that cannot be read hold none.
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
    /// Whether it has to do with a plugged-in CA.
    fn knows_plugged_in(&self) -> bool {
        self.origin == Origin::PluggedIn || self.next.as_ref().is_some_and(|next| next.origin == Origin::PluggedIn)
    }

    /// The set that follows from what a folder holds; `None` if this one stays. What is there now goes before what was being
    /// distributed; `before` is what was there last, as far as known, and is given up when the folder holds what signs again.
    pub(super) fn with_files(
        &self,
        files: &Bundle,
        before: Option<&Bundle>,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Option<Self>, BundleError> {
        if self.next.as_ref().is_some_and(|next| next.bundle == *files) {
            return Ok(None);
        }
        let free = Self { next: None, ..self.clone() };
        if self.signer == *files {
            let is_withdrawn = self.next.as_ref().is_some_and(|next| before == Some(&next.bundle));
            return Ok(is_withdrawn.then_some(free));
        }
        match free.authority(now) {
            Ok(_) => Ok(free.begin(files.clone(), Origin::PluggedIn, rules, now)?.ok()),
            // What signed before signs no more: there is nothing to wait for.
            Err(_) => Ok(Some(Self { signer: files.clone(), origin: Origin::PluggedIn, ..free })),
        }
    }
}
