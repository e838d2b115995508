//! Rotation from one root to the next without a time in which a certificate is not trusted.
//!
//! ```text
//! settled ──begin──▶ distributing: both are trusted, the old one signs
//!    ▲                    │ every proxy has taken both, and the shortest overlap is over
//!    └──── last of the ───┴─▶ retiring: both are trusted, the new one signs
//!          old one's certificates has ended
//! ```
//!
//! This module neither waits nor writes: [`RootSet`] has the trusted and the signing roots, and
//! derives the next set. The [`keeper`](super::keeper) stores it and advances it step by step.

mod stored_files;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::bundle::{self, BACKDATE, Bundle, BundleError};
use super::sign::{self, Authority};
use navarch_pki::pem;

pub use stored_files::{StoredFiles, StoredFilesError};

/// In the last of this many parts of a root's lifetime, the next root signs even if proxies lack
/// it: those proxies would soon lose their connections in any case, together with all others.
const FORCED_SIGNING_DIVISOR: u32 = 100;

/// Where an authority's certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Self-signed by Navarch.
    SelfSigned,
    /// Supplied by an operator: in `ROOT_CA_DIR`, or in the Secret `cacerts`.
    PluggedIn,
}

/// The roots of the mesh, and which of them signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSet {
    /// The CA that signs.
    pub(super) signer: Bundle,
    /// The origin of the signing CA.
    pub(super) origin: Origin,
    /// The CA that signs once all proxies trust it.
    pub(super) next: Option<Next>,
    /// Roots of earlier certificates.
    pub(super) former: Vec<FormerRoots>,
}

/// The next CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The certificate, key and roots of the next CA.
    pub(super) bundle: Bundle,
    /// The origin of the next CA.
    pub(super) origin: Origin,
    /// The time since which the next CA is trusted.
    pub(super) since: SystemTime,
}

/// Roots that no longer sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormerRoots {
    pub(super) roots: String,
    /// When the last certificate that they signed has expired.
    pub(super) until: SystemTime,
}

/// The phase of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// One root signs, and only it is trusted.
    Settled,
    /// The next is trusted and does not sign yet.
    Distributing,
    /// The former is still trusted.
    Retiring,
}

/// A proxy or replica that does not trust all roots of a set yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Missing {
    /// A proxy or a replica of the control plane.
    pub who: String,
    /// Why it does not trust them yet.
    pub why: String,
}

/// The durations that decide when a root signs, is replaced, and is no longer trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationRules {
    /// Minimum time that a root is trusted before it signs: ConfigMap updates reach pods late.
    pub overlap: Duration,
    /// Maximum lifetime of a certificate.
    pub longest: Duration,
    /// The remaining lifetime, in percent, at which a self-signed root is replaced; `None` disables
    /// it.
    pub renewed_at: Option<u32>,
}

/// Why the roots do not allow a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRejection {
    /// A rotation is in progress.
    #[error("a root is already being distributed; complete that rotation first")]
    UnderWay,
    /// No rotation is in progress.
    #[error("no root is being distributed, so there is none to switch to")]
    NothingToDo,
    /// Not all proxies trust the next root.
    #[error("not all proxies trust the next root yet: {}", listed(.0))]
    Missing(Vec<Missing>),
    /// The CA is plugged in.
    #[error(
        "the CA is plugged in: write the next CA into its directory or Secret (cacerts); its root is distributed before it signs"
    )]
    PluggedIn,
}

/// Maximum number of named proxies in a message.
const NAMED: usize = 10;

/// The missing proxies as text.
fn listed(missing: &[Missing]) -> String {
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|one| format!("{} ({})", one.who, one.why))
        .collect();
    let rest = missing.len().saturating_sub(NAMED);
    let rest = if rest == 0 {
        String::new()
    } else {
        format!(" and {rest} more")
    };
    format!("{}{rest}", named.join(", "))
}

impl RootSet {
    /// A set with one CA, which signs and is the only trusted one.
    #[must_use]
    pub fn single(signer: Bundle, origin: Origin) -> Self {
        Self {
            signer,
            origin,
            next: None,
            former: Vec::new(),
        }
    }

    /// `Distributing` precedes `Retiring` if there are both a next root and former ones.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.next, self.former.is_empty()) {
            (Some(_), _) => Phase::Distributing,
            (None, false) => Phase::Retiring,
            (None, true) => Phase::Settled,
        }
    }

    /// All trusted roots, in PEM: the signing one first, each certificate once. So another order
    /// tells agents that another root signs.
    ///
    /// # Errors
    /// If a certificate is invalid.
    pub fn roots(&self) -> Result<String, BundleError> {
        let of_signer = bundle::certificates(&self.signer.roots, "the roots")?;
        // A CA without one does not sign.
        let signing = sign::root_of(&self.signer).ok();
        if self.phase() == Phase::Settled && of_signer.first() == signing.as_ref() {
            return Ok(self.signer.roots.clone());
        }

        let next = self.next.iter().map(|next| next.bundle.roots.as_str());
        let former = self.former.iter().map(|former| former.roots.as_str());
        let mut all: Vec<_> = signing.into_iter().chain(of_signer).collect();
        for roots in next.chain(former) {
            all.extend(bundle::certificates(roots, "the roots")?);
        }

        let mut seen = BTreeSet::new();
        all.retain(|root| seen.insert(root.to_vec()));
        Ok(all.iter().map(|root| pem::encode(root)).collect())
    }

    /// The authority that signs, with all trusted roots.
    ///
    /// # Errors
    /// If the signing CA cannot be used.
    pub fn authority(&self, now: SystemTime) -> Result<Authority, BundleError> {
        Authority::new(
            &Bundle {
                roots: self.roots()?,
                ..self.signer.clone()
            },
            now,
        )
    }

    /// Begins to distribute another CA, which signs later. A CA whose roots are already trusted,
    /// such as another intermediate of the same root, signs at once.
    ///
    /// # Errors
    /// If another CA is being distributed, or this one cannot be used.
    pub fn begin(
        &self,
        next: Bundle,
        origin: Origin,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Result<Self, CommandRejection>, BundleError> {
        Authority::new(&next, now)?;
        let trusted = bundle::certificates(&self.signer.roots, "the roots")?;
        let wanted = bundle::certificates(&next.roots, "the roots")?;
        if wanted.iter().all(|root| trusted.contains(root)) {
            let mut former = self.former.clone();
            if trusted.iter().any(|root| !wanted.contains(root)) {
                former.push(self.as_former(rules, now)?);
            }
            return Ok(Ok(Self {
                signer: next,
                origin,
                next: self.next.clone(),
                former,
            }));
        }

        if self.next.as_ref().is_some_and(|known| known.bundle != next) {
            return Ok(Err(CommandRejection::UnderWay));
        }

        let next = Next {
            bundle: next,
            origin,
            since: now,
        };

        Ok(Ok(Self {
            next: Some(next),
            ..self.clone()
        }))
    }

    /// Another CA in place of the one that is being distributed. Its time begins anew only if it
    /// adds roots to those.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(super) fn replace_next(
        &self,
        next: Bundle,
        origin: Origin,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Option<Self>, BundleError> {
        let free = Self {
            next: None,
            ..self.clone()
        };
        let mut begun = free.begin(next, origin, rules, now)?.ok();

        if let Some(next) = begun.as_mut().and_then(|set| set.next.as_mut())
            && let Some(before) = &self.next
        {
            let mut known = bundle::certificates(&self.signer.roots, "the roots")?;
            known.extend(bundle::certificates(&before.bundle.roots, "the roots")?);
            let wanted = bundle::certificates(&next.bundle.roots, "the roots")?;
            if wanted.iter().all(|root| known.contains(root)) {
                next.since = before.since;
            }
        }

        Ok(begun)
    }

    /// The set if `next` is the signing CA with fewer roots: an operator has removed the others,
    /// which are no longer trusted, although they may have signed certificates that are in use.
    ///
    /// # Errors
    /// If a certificate is invalid.
    pub(super) fn without_removed_roots(&self, next: &Bundle) -> Result<Option<Self>, BundleError> {
        let trusted = bundle::certificates(&self.signer.roots, "the roots")?;
        let wanted = bundle::certificates(&next.roots, "the roots")?;
        let is_same_signer = self.signer.certificate == next.certificate
            && self.signer.key == next.key
            && self.signer.chain == next.chain;
        let has_fewer = wanted.iter().all(|root| trusted.contains(root))
            && trusted.iter().any(|root| !wanted.contains(root));
        if !is_same_signer || !has_fewer {
            return Ok(None);
        }

        let mut former = Vec::new();
        for one in &self.former {
            let left: String = bundle::certificates(&one.roots, "the roots")?
                .iter()
                .filter(|root| !trusted.contains(root) || wanted.contains(root))
                .map(|root| pem::encode(root))
                .collect();
            if !left.is_empty() {
                former.push(FormerRoots {
                    roots: left,
                    until: one.until,
                });
            }
        }

        Ok(Some(Self {
            signer: next.clone(),
            origin: self.origin,
            next: None,
            former,
        }))
    }

    /// Switches signing to the next CA.
    ///
    /// # Errors
    /// If there is no next CA, or a certificate is invalid.
    pub fn switch(
        &self,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Result<Self, CommandRejection>, BundleError> {
        let Some(next) = self.next.clone() else {
            return Ok(Err(CommandRejection::NothingToDo));
        };
        let mut former = self.former.clone();
        former.push(self.as_former(rules, now)?);
        Ok(Ok(Self {
            signer: next.bundle,
            origin: next.origin,
            next: None,
            former,
        }))
    }

    /// The current roots as retired ones.
    fn as_former(
        &self,
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<FormerRoots, BundleError> {
        let (_, ends) = bundle::validity(&self.signer.certificate)?;
        // Certificates that other replicas sign until they read this set count, too. A shorter
        // overlap asserts that they read it sooner.
        let until = ends.min(now + rules.longest + rules.overlap.min(BACKDATE));
        Ok(FormerRoots {
            roots: self.signer.roots.clone(),
            until,
        })
    }

    /// The set that follows automatically at a time, given the proxies that lack roots; `None` if
    /// this one stays.
    ///
    /// # Errors
    /// If a certificate is invalid.
    pub fn advance(
        &self,
        missing: &[Missing],
        rules: &RotationRules,
        now: SystemTime,
    ) -> Result<Option<Self>, BundleError> {
        if let Some(next) = &self.next {
            let (begins, ends) = bundle::validity(&self.signer.certificate)?;
            let life = ends.duration_since(begins).unwrap_or_default();
            let is_urgent =
                ends.duration_since(now).unwrap_or_default() < life / FORCED_SIGNING_DIVISOR;
            let is_known = missing.is_empty() && now >= next.since + rules.overlap;
            return Ok(if is_known || is_urgent {
                self.switch(rules, now)?.ok()
            } else {
                None
            });
        }
        let mut later = self.clone();
        later.former.retain(|former| former.until > now);
        Ok((later != *self).then_some(later))
    }

    /// Whether it is time for a new self-signed root.
    ///
    /// # Errors
    /// If the certificate is invalid.
    pub fn is_due(&self, rules: &RotationRules, now: SystemTime) -> Result<bool, BundleError> {
        let (Some(percent), Origin::SelfSigned, None) = (rules.renewed_at, self.origin, &self.next)
        else {
            return Ok(false);
        };
        let (begins, ends) = bundle::validity(&self.signer.certificate)?;
        let life = ends.duration_since(begins).unwrap_or_default();
        Ok(ends.duration_since(now).unwrap_or_default() < life * percent.min(99) / 100)
    }
}

#[cfg(test)]
mod tests;
