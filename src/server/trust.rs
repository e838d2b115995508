//! Keeps the mesh's trust bundle in the snapshot, from which proxies receive it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};
use navarch_base::regular_file;
use navarch_push::context::{Mesh, PushContext};
use navarch_push::mesh_state::Change;
use navarch_push::worker::{Ended, PushHandle};
use navarch_security::trust_bundle::{self, BundleEndpoints, Fetched, TrustBundle, TrustError};
use navarch_source::{FetchError, Fetcher};

/// The delay when nothing is due.
const IDLE_DELAY: Duration = Duration::from_hours(24);
/// Timeout of an endpoint.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the bundle of an endpoint is not used.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    /// It was not fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It is not a bundle of roots.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Roots besides the CA's own and those of mesh config.
pub(super) struct OtherRoots {
    /// The file with the roots of Kubernetes' signers, if they sign.
    pub(super) file: Option<PathBuf>,
    /// The roots of other signers in PEM; empty if there are none.
    pub(super) signers: watch::Receiver<Arc<str>>,
    /// The bundles of trust domains that a SPIRE server federates with.
    pub(super) federated: watch::Receiver<Fetched>,
}

/// Keeps the trust bundle of the snapshot up to date.
pub(super) struct Trust {
    push: PushHandle,
    /// The roots of the CA.
    own: watch::Receiver<Arc<str>>,
    others: OtherRoots,
    /// The roots in the file of an external CA when it was last readable; empty if there is none.
    further_roots: String,
    /// The client of SPIFFE endpoints.
    fetcher: Fetcher,
    /// The endpoints, with their bundles.
    endpoints: BundleEndpoints,
    /// The trust bundle in the snapshot.
    published: TrustBundle,
}

impl Trust {
    /// Puts the CA's roots and those of mesh config into the snapshot.
    ///
    /// # Errors
    /// If the push thread has stopped.
    pub(super) async fn start(
        push: PushHandle,
        own: watch::Receiver<Arc<str>>,
        others: OtherRoots,
        fetcher: Fetcher,
    ) -> Result<Self, Ended> {
        let endpoints = BundleEndpoints::default();
        let published = TrustBundle::default();
        let further_roots = roots_in(others.file.as_deref(), "");
        let mut trust = Self {
            push,
            own,
            others,
            further_roots,
            fetcher,
            endpoints,
            published,
        };
        trust.publish().await?;
        Ok(trust)
    }

    /// Follows the CA's roots, mesh config, the file of an external CA, and SPIFFE endpoints; does
    /// not return.
    ///
    /// # Errors
    /// If the push thread has stopped.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        let mut contexts = self.push.contexts();
        let mut own = self.own.clone();
        let mut ends = false;
        let mut signers = self.others.signers.clone();
        let mut federated = self.others.federated.clone();
        let mut events = FileEvents::of_files(self.others.file.as_deref());

        loop {
            let mesh = contexts.borrow_and_update().mesh.clone();
            self.further_roots = self.read_further();
            self.publish().await?;
            if self.fetch().await {
                self.publish().await?;
            }

            let due = self
                .endpoints
                .next_due()
                .unwrap_or_else(|| Instant::now() + IDLE_DELAY);

            tokio::select! {
                // The sender of the CA's roots may be closed while the others continue.
                changed = own.changed(), if !ends => ends = changed.is_err(),
                () = other_roots(&mut contexts, &mesh) => {}
                () = tokio::time::sleep_until(due) => {}
                () = self.other_file(&mut events), if self.others.file.is_some() => {}
                () = next(&mut signers) => {}
                () = next(&mut federated) => {}
            }
        }
    }

    /// The current roots of the external CA's file.
    fn read_further(&self) -> String {
        roots_in(self.others.file.as_deref(), &self.further_roots)
    }

    /// Waits until the file of an external CA has changed.
    async fn other_file(&self, events: &mut FileEvents) {
        loop {
            events.wait(WATCHED_INTERVAL).await;
            if self.read_further() != self.further_roots {
                return;
            }
        }
    }

    /// Puts the current trust bundle into the snapshot.
    async fn publish(&mut self) -> Result<(), Ended> {
        let signers = self.others.signers.borrow().clone();
        let own = self.own.borrow().to_string() + &self.further_roots + &signers;
        let federated = self.others.federated.borrow().clone();
        let context = self.push.context();

        let bundle = trust_bundle::assemble(
            &own,
            &context.mesh.config.ca_certificates,
            self.endpoints.fetched(),
            &federated,
        );
        if bundle == self.published {
            return Ok(());
        }

        for fault in bundle.faults.difference(&self.published.faults) {
            tracing::warn!(%fault, "a root certificate is not trusted");
        }
        tracing::info!(roots = bundle.roots.len(), "the trust bundle changed");

        self.push
            .change(vec![Change::TrustBundle(bundle.roots.clone())])
            .await?;
        self.published = bundle;
        Ok(())
    }

    /// Fetches the endpoints that are due; returns whether a bundle changed. The last bundle stays
    /// while an endpoint fails.
    async fn fetch(&mut self) -> bool {
        let named = trust_bundle::endpoints(&self.push.context().mesh.config.ca_certificates);
        let mut is_new = false;

        for endpoint in self.endpoints.due(&named, Instant::now()) {
            match self.fetch_bundle(&endpoint).await {
                Ok(roots) => is_new |= self.endpoints.set_roots(endpoint, roots, Instant::now()),
                Err(error) => {
                    tracing::warn!(endpoint, %error, "failed to fetch a SPIFFE bundle");
                    self.endpoints.set_failed(endpoint, Instant::now());
                }
            }
        }

        is_new
    }

    /// Fetches an endpoint. Its certificate is verified, whatever its URL.
    async fn fetch_bundle(&self, endpoint: &str) -> Result<Arc<[Arc<str>]>, BundleError> {
        let bare = endpoint.strip_prefix("https://").unwrap_or(endpoint);
        let document = self
            .fetcher
            .document(&format!("https://{bare}"), FETCH_TIMEOUT)
            .await?;
        Ok(trust_bundle::from_spiffe(&document)?)
    }
}

/// The roots in the file of an external CA; empty if there is none. While the file cannot be read,
/// the `last` ones: proxies would reject the certificates that the CA has issued without them.
fn roots_in(file: Option<&Path>, last: &str) -> String {
    let Some(file) = file else {
        return String::new();
    };
    match regular_file::read_text(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            tracing::warn!(
                file = %file.display(),
                %error,
                "failed to read the roots of the external CA; the last ones stay trusted"
            );
            last.to_owned()
        }
    }
}

/// Waits for another value; forever if there will be none.
async fn next<T>(values: &mut watch::Receiver<T>) {
    if values.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the roots in mesh config have changed.
async fn other_roots(contexts: &mut watch::Receiver<Arc<PushContext>>, known: &Arc<Mesh>) {
    loop {
        if contexts.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = contexts.borrow_and_update().mesh.clone();
        if !Arc::ptr_eq(&now, known) && now.config.ca_certificates != known.config.ca_certificates {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_stay_trusted_while_their_file_is_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root-cert.pem");
        assert_eq!(roots_in(None, "last"), "");
        assert_eq!(roots_in(Some(&file), "last"), "", "it was removed");
        std::fs::write(&file, "new").unwrap();
        assert_eq!(roots_in(Some(&file), "last"), "new");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&file, &file).unwrap();
        assert_eq!(roots_in(Some(&file), "last"), "last");
    }
}
