//! Who signs for which namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use super::super::keeper::FindMissing;
use super::{ExternalAuthority, SignerReport};
use crate::trust_bundle;
use navarch_api::names::Namespace;
use navarch_net::watched::send_if_changed;

/// The signers of workload certificates. Clones share them.
#[derive(Clone, Debug)]
pub struct ExternalSigners {
    /// For all other namespaces; `None` is Navarch's own CA.
    default: Option<Arc<ExternalAuthority>>,
    /// By namespaces; `None` is Navarch's own CA.
    by_namespace: Arc<BTreeMap<Namespace, Option<Arc<ExternalAuthority>>>>,
    /// The signers without repetition.
    all: Arc<[Arc<ExternalAuthority>]>,
    /// The roots of all, in PEM, each certificate once.
    roots: watch::Receiver<Arc<str>>,
    sender: Arc<watch::Sender<Arc<str>>>,
}

impl Default for ExternalSigners {
    /// Navarch's own CA signs for all.
    fn default() -> Self {
        Self::new(None, BTreeMap::new())
    }
}

impl ExternalSigners {
    /// One signer by namespaces, and another for all other namespaces; `None` is Navarch's own CA.
    #[must_use]
    pub fn new(
        default: Option<Arc<ExternalAuthority>>,
        by_namespace: BTreeMap<Namespace, Option<Arc<ExternalAuthority>>>,
    ) -> Self {
        let mut all: Vec<Arc<ExternalAuthority>> = Vec::new();
        for signer in default.iter().chain(by_namespace.values().flatten()) {
            if !all.iter().any(|known| Arc::ptr_eq(known, signer)) {
                all.push(signer.clone());
            }
        }

        let all: Arc<[_]> = all.into();
        let (sender, roots) = watch::channel(roots_of(&all));
        Self {
            default,
            by_namespace: Arc::new(by_namespace),
            all,
            roots,
            sender: Arc::new(sender),
        }
    }

    /// The signer for a namespace; `None` if Navarch's own CA signs.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> Option<&Arc<ExternalAuthority>> {
        match self.by_namespace.get(namespace) {
            Some(signer) => signer.as_ref(),
            None => self.default.as_ref(),
        }
    }

    /// All signers, each once.
    #[must_use]
    pub fn all(&self) -> &[Arc<ExternalAuthority>] {
        &self.all
    }

    /// A watch of the roots of all signers, in PEM.
    #[must_use]
    pub fn roots(&self) -> watch::Receiver<Arc<str>> {
        self.roots.clone()
    }

    /// Waits until the roots of all signers are known: a trust bundle without them would break the
    /// connections of proxies that have certificates of them.
    pub async fn known(&self) {
        for signer in self.all.iter() {
            signer.known().await;
        }
        self.publish();
    }

    /// Follows the roots of a signer; does not return.
    pub async fn follow(self, signer: Arc<ExternalAuthority>, find_missing: FindMissing) {
        signer.follow(find_missing, || self.publish()).await;
    }

    /// The state of all signers, for operators.
    #[must_use]
    pub fn reports(&self) -> Vec<SignerReport> {
        let report = |signer: &Arc<ExternalAuthority>| {
            let is_its = |known: &Option<Arc<ExternalAuthority>>| {
                known
                    .as_ref()
                    .is_some_and(|known| Arc::ptr_eq(known, signer))
            };
            let namespaces = match is_its(&self.default) {
                true => Vec::new(),
                false => self
                    .by_namespace
                    .iter()
                    .filter(|(_, known)| is_its(known))
                    .map(|(namespace, _)| namespace.as_str().to_owned())
                    .collect(),
            };
            SignerReport {
                namespaces,
                ..signer.report()
            }
        };
        self.all.iter().map(report).collect()
    }

    /// Sends the roots of all signers, if they have changed.
    fn publish(&self) {
        send_if_changed(&self.sender, roots_of(&self.all));
    }
}

/// The roots of signers in PEM, each certificate once.
fn roots_of(signers: &[Arc<ExternalAuthority>]) -> Arc<str> {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for signer in signers {
        let roots = trust_bundle::split(&signer.roots(), "the signer's roots").unwrap_or_default();
        for root in roots {
            if seen.insert(root.clone()) {
                text.push_str(&root);
            }
        }
    }
    text.into()
}
