//! The certificate authority: what it signs with, and what it signs.

mod bundle;
mod impersonate;
pub mod keeper;
mod metrics;
mod plugged_in;
mod receipts;
mod registration;
pub mod root_store;
pub mod rotation;
pub mod service;
mod sign;

pub use bundle::{Bundle, BundleError};
pub use metrics::Metrics;
pub use plugged_in::PluggedIn;
pub use receipts::Receipts;
pub use registration::{MeshRoots, Registration, RegistrationConfig, RegistrationError, ServerChain};
pub use sign::{Authority, Lifetimes, SignError, Subject};

use std::sync::Arc;

use tokio::sync::watch;

/// The roots that the mesh trusts, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootBundle(Arc<str>);

impl RootBundle {
    /// From PEM that was checked.
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

/// The authority in force, to be watched. Clones watch the same.
#[derive(Clone, Debug)]
pub struct CurrentAuthority {
    authority: watch::Receiver<Arc<Authority>>,
    /// Its roots in PEM.
    roots: watch::Receiver<Arc<str>>,
    /// Its lists of revoked certificates in PEM.
    revocations: watch::Receiver<Arc<str>>,
}

/// Puts another authority in force.
#[derive(Debug)]
pub struct AuthoritySwitch {
    authority: watch::Sender<Arc<Authority>>,
    /// Its roots in PEM.
    roots: watch::Sender<Arc<str>>,
    /// Its lists of revoked certificates in PEM.
    revocations: watch::Sender<Arc<str>>,
}

/// An authority in force and the switch to another.
#[must_use]
pub fn in_force(authority: Authority) -> (AuthoritySwitch, CurrentAuthority) {
    let (roots_sender, roots) = watch::channel(authority.roots().0.clone());
    let (revocations_sender, revocations) = watch::channel(authority.revocations().clone());
    let (sender, receiver) = watch::channel(Arc::new(authority));
    let switch = AuthoritySwitch { authority: sender, roots: roots_sender, revocations: revocations_sender };
    (switch, CurrentAuthority { authority: receiver, roots, revocations })
}

impl CurrentAuthority {
    /// The one of this moment.
    #[must_use]
    pub fn get(&self) -> Arc<Authority> {
        self.authority.borrow().clone()
    }

    /// The roots in PEM, to be watched: they change less often than the authority.
    #[must_use]
    pub fn roots(&self) -> watch::Receiver<Arc<str>> {
        self.roots.clone()
    }

    /// The lists of revoked certificates in PEM, to be watched; empty is none.
    #[must_use]
    pub fn revocations(&self) -> watch::Receiver<Arc<str>> {
        self.revocations.clone()
    }

    /// Waits for another; false when there will be none.
    pub async fn changed(&mut self) -> bool {
        self.authority.changed().await.is_ok()
    }
}

impl AuthoritySwitch {
    /// Puts another in force.
    pub fn put(&self, authority: Authority) {
        replace(&self.roots, &authority.roots().0);
        replace(&self.revocations, authority.revocations());
        self.authority.send_replace(Arc::new(authority));
    }

    /// The one in force.
    #[must_use]
    pub fn current(&self) -> Arc<Authority> {
        self.authority.borrow().clone()
    }
}

/// Tells a text, unless it is the same.
fn replace(told: &watch::Sender<Arc<str>>, text: &Arc<str>) {
    told.send_if_modified(|known| {
        let differs = **known != **text;
        known.clone_from(text);
        differs
    });
}

#[cfg(test)]
mod tests;
