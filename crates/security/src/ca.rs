//! The certificate authority (CA).

mod bundle;
mod call_metrics;
pub mod cert_manager;
pub mod external;
mod impersonate;
pub mod keeper;
mod metrics;
mod plugged_in;
mod plugin;
mod receipts;
mod registration;
mod replica_report;
pub mod root_store;
pub mod rotation;
pub mod service;
mod sign;
pub mod signer;
pub mod spire;

pub use bundle::{Bundle, BundleError};
pub use call_metrics::{CallMetrics, CountedCalls};
pub use metrics::Metrics;
pub use plugged_in::PluggedIn;
pub use plugin::Plugin;
pub use receipts::Receipts;
pub use registration::{
    MeshRoots, Registration, RegistrationConfig, RegistrationError, ServerChain,
};
pub use sign::{Authority, Lifetimes, SignError, Subject};

use std::sync::Arc;

use tokio::sync::watch;

use navarch_net::watched::send_if_changed;

/// The roots that the mesh trusts, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootBundle(Arc<str>);

impl RootBundle {
    /// Wraps PEM that is already validated.
    #[must_use]
    pub fn new(pem: &str) -> Self {
        Self(Arc::from(pem))
    }

    /// The PEM text.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.0
    }
}

/// The current authority, which can be watched. Clones watch the same authority.
#[derive(Clone, Debug)]
pub struct CurrentAuthority {
    authority: watch::Receiver<Arc<Authority>>,
    /// The roots in PEM.
    roots: watch::Receiver<Arc<str>>,
    /// The CRLs in PEM.
    revocations: watch::Receiver<Arc<str>>,
}

/// Replaces the current authority.
#[derive(Debug)]
pub struct AuthoritySwitch {
    authority: watch::Sender<Arc<Authority>>,
    /// The roots in PEM.
    roots: watch::Sender<Arc<str>>,
    /// The CRLs in PEM.
    revocations: watch::Sender<Arc<str>>,
}

/// Makes an authority current. Returns the sender that replaces it, and a receiver.
#[must_use]
pub fn in_force(authority: Authority) -> (AuthoritySwitch, CurrentAuthority) {
    let (roots_sender, roots) = watch::channel(authority.roots().0.clone());
    let (revocations_sender, revocations) = watch::channel(authority.revocations().clone());
    let (sender, receiver) = watch::channel(Arc::new(authority));
    let switch = AuthoritySwitch {
        authority: sender,
        roots: roots_sender,
        revocations: revocations_sender,
    };
    (
        switch,
        CurrentAuthority {
            authority: receiver,
            roots,
            revocations,
        },
    )
}

impl CurrentAuthority {
    /// The authority that signs now. Rotation replaces it: callers ask again for each use.
    #[must_use]
    pub fn get(&self) -> Arc<Authority> {
        self.authority.borrow().clone()
    }

    /// A watch of the roots in PEM, which change less often than the authority.
    #[must_use]
    pub fn roots(&self) -> watch::Receiver<Arc<str>> {
        self.roots.clone()
    }

    /// A watch of the CRLs in PEM; empty if there are none.
    #[must_use]
    pub fn revocations(&self) -> watch::Receiver<Arc<str>> {
        self.revocations.clone()
    }

    /// Waits for another authority; false if there will be none.
    pub async fn changed(&mut self) -> bool {
        self.authority.changed().await.is_ok()
    }
}

impl AuthoritySwitch {
    /// Replaces the current authority.
    pub fn put(&self, authority: Authority) {
        send_if_changed(&self.roots, authority.roots().0.clone());
        send_if_changed(&self.revocations, authority.revocations().clone());
        self.authority.send_replace(Arc::new(authority));
    }

    /// The authority of the last [`AuthoritySwitch::put`], or else of [`in_force`].
    #[must_use]
    pub fn current(&self) -> Arc<Authority> {
        self.authority.borrow().clone()
    }
}

#[cfg(test)]
mod tests;
