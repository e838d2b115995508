//! The TLS of Navarch's own ports: its certificate, and whose certificates it believes. Replaced without closing anything.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;

use super::Clock;
use super::ca::{Authority, CurrentAuthority, SignError, Subject};

/// How long a certificate of one's own lasts.
const LIFETIME: Duration = Duration::from_secs(10 * 24 * 3600);
/// How long to wait after a failure to renew.
const RETRY: Duration = Duration::from_secs(30);
/// What is spoken inside.
const H2: &[u8] = b"h2";
/// What else is spoken to callers of the web.
const HTTP1: &[u8] = b"http/1.1";
/// The versions of TLS.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// No certificate of one's own.
    #[error("no certificate for the server itself")]
    Sign(#[from] SignError),
    /// TLS cannot be set up with what there is.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The roots cannot be used.
    #[error("the roots cannot be used to check clients")]
    Roots(#[from] rustls::server::VerifierBuilderError),
}

/// The TLS in force, to be asked at every connection. Clones are one.
#[derive(Clone)]
pub struct ServingTls(watch::Receiver<Served>);

/// One certificate, as the ports show it.
#[derive(Clone)]
struct Served {
    /// To clients that may show certificates of the mesh.
    mesh: Arc<ServerConfig>,
    /// To all others.
    web: WebTls,
}

/// TLS for callers who show no certificate of the mesh: API servers.
#[derive(Clone)]
pub struct WebTls {
    /// The TLS.
    pub config: Arc<ServerConfig>,
    /// The roots by which callers know its certificate, as PEM.
    pub roots: Arc<str>,
}

impl ServingTls {
    /// The TLS of this moment.
    #[must_use]
    pub fn get(&self) -> Arc<ServerConfig> {
        self.0.borrow().mesh.clone()
    }

    /// The TLS of this moment for HTTP in both versions, where nobody is asked for a certificate.
    #[must_use]
    pub fn web(&self) -> WebTls {
        self.0.borrow().web.clone()
    }

    /// Waits for another; false when there will be none.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl fmt::Debug for WebTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebTls")
    }
}

impl fmt::Debug for ServingTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingTls")
    }
}

/// The names under which Navarch is reached: istiod's, so that agents and charts find it.
#[must_use]
pub fn host_names(namespace: &str, revision: &str, custom: &str) -> Vec<String> {
    let mut names: Vec<String> =
        ["istiod", "istiod-remote", "istio-pilot"].iter().map(|name| format!("{name}.{namespace}.svc")).collect();
    if !matches!(revision, "" | "default") {
        names.push(format!("istiod-{revision}.{namespace}.svc"));
    }
    names.extend(custom.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

/// TLS with a certificate from the authority for these names, and the task that renews it at half its life and whenever
/// the authority changes.
///
/// # Errors
/// When the first certificate cannot be had.
pub fn start(
    authority: CurrentAuthority,
    names: Vec<String>,
    clock: Clock,
) -> Result<(ServingTls, impl Future<Output = ()> + Send + 'static), ServingError> {
    let first = configure(&authority.get(), &names, clock())?;
    let (sender, receiver) = watch::channel(first);
    Ok((ServingTls(receiver), renew(authority, names, sender, clock)))
}

/// Renews for ever.
async fn renew(mut authority: CurrentAuthority, names: Vec<String>, sender: watch::Sender<Served>, clock: Clock) {
    let mut wait = half_life(&authority.get(), clock());
    loop {
        tokio::select! {
            changed = authority.changed() => {
                if !changed {
                    // The last one stays in force; its certificates must still be renewed.
                    tokio::time::sleep(wait).await;
                }
            }
            () = tokio::time::sleep(wait) => {}
        }
        wait = match configure(&authority.get(), &names, clock()) {
            Ok(config) => {
                sender.send_replace(config);
                tracing::info!(?names, "the server's certificate was renewed");
                half_life(&authority.get(), clock())
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the server's certificate cannot be renewed");
                RETRY
            }
        };
    }
}

/// When a certificate made now is to be renewed. It ends with the CA's own at the latest.
fn half_life(authority: &Authority, now: SystemTime) -> Duration {
    let left = authority.not_after().duration_since(now).unwrap_or_default();
    (left.min(LIFETIME) / 2).max(RETRY)
}

/// TLS with a new certificate.
fn configure(authority: &Authority, names: &[String], now: SystemTime) -> Result<Served, ServingError> {
    let (chain, key) = authority.issue(&Subject::Server(names.to_vec()), LIFETIME, now)?;
    let key = PrivateKeyDer::from(key);
    let web = WebTls { config: web_config(chain.clone(), key.clone_key())?, roots: Arc::from(authority.roots().pem()) };
    Ok(Served { mesh: server_config(chain, key, authority.root_certificates())?, web })
}

/// TLS 1.2 and later for a server with this certificate. Clients may show certificates of these roots, or none.
fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: &[CertificateDer<'static>],
) -> Result<Arc<ServerConfig>, ServingError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone());
    let verifier = verifier.allow_unauthenticated().build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![H2.to_vec()];
    Ok(Arc::new(config))
}

/// TLS 1.2 and later for a server with this certificate. Clients are not asked for certificates: an API server might show
/// one of a root of its own.
fn web_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, ServingError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istiods_names_are_ours() {
        assert_eq!(
            host_names("mesh", "canary", "a.example, b.example"),
            [
                "a.example",
                "b.example",
                "istio-pilot.mesh.svc",
                "istiod-canary.mesh.svc",
                "istiod-remote.mesh.svc",
                "istiod.mesh.svc"
            ]
        );
        assert_eq!(host_names("mesh", "default", "").len(), 3);
    }
}
