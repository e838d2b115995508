//! TLS of Navarch's own ports: the server certificate and the roots for client certificates. Both
//! are replaced without closing connections.

mod files;
mod renewal;
mod tls_config;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use tokio::sync::watch;

use super::Clock;
use super::ca::{
    Authority, CurrentAuthority, Registration, RegistrationError, ServerChain, SignError, Subject,
};
use super::tls_rules::TlsRules;
use files::Files;
use navarch_pki::pem::{self, PemError};
use renewal::Renewal;
use tls_config::{server_config, web_config};

/// Lifetime of a server certificate that the CA issues.
const LIFETIME: Duration = Duration::from_secs(10 * 24 * 3600);

/// Errors of setting up TLS.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The CA did not issue a certificate.
    #[error("failed to issue the server certificate")]
    Sign(#[from] SignError),
    /// Kubernetes did not sign a certificate.
    #[error("Kubernetes did not sign the server certificate")]
    Request(#[from] RegistrationError),
    /// The TLS configuration is invalid.
    #[error("failed to configure TLS")]
    Tls(#[from] rustls::Error),
    /// The roots are invalid.
    #[error("the roots cannot be used to verify clients")]
    Roots(#[from] VerifierBuilderError),
    /// Reading a file failed.
    #[error("failed to read {0}")]
    File(PathBuf, #[source] std::io::Error),
    /// The content of a file is invalid.
    #[error(transparent)]
    Content(#[from] PemError),
}

/// The current TLS configuration, to be read at every connection. Clones share their state.
#[derive(Clone)]
pub struct ServingTls {
    /// The current certificates.
    served: watch::Receiver<Served>,
    /// Its root certificates.
    known_by: watch::Receiver<Arc<str>>,
}

/// Settings of the server's TLS.
#[derive(Clone, Debug)]
pub struct ServingConfig {
    /// Where the server certificate comes from: the CA, files, or a signer of Kubernetes.
    pub certificate: ServerCertificate,
    /// Files with further roots for client certificates, such as those of an external CA.
    pub further_roots: Vec<PathBuf>,
    /// Further roots for client certificates in PEM, such as those of a signer of workload
    /// certificates; empty if there are none.
    pub signer_roots: watch::Receiver<Arc<str>>,
    /// Versions and cipher suites.
    pub rules: TlsRules,
}

/// The source of the server certificate.
#[derive(Clone, Debug)]
pub enum ServerCertificate {
    /// From the CA, for these names.
    Issued(Vec<String>),
    /// From files, which are reloaded when they change.
    Given(ConfiguredFiles),
    /// From a signer of Kubernetes.
    Requested(Box<ServerRequest>),
}

/// Settings of a server certificate that is signed by Kubernetes.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// The DNS names.
    pub names: Vec<String>,
    /// The full name of the signer.
    pub signer: String,
    /// The client of the CSR API.
    pub registration: Registration,
}

/// The files of a configured certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredFiles {
    /// The chain, leaf first.
    pub chain: PathBuf,
    /// The private key in PEM: `--tls-key-file`, or istiod's path
    /// `./var/run/secrets/istiod/tls/tls.key`.
    pub key: PathBuf,
    /// Its roots; the CA's, if there are none.
    pub roots: Option<PathBuf>,
}

/// The TLS configurations of one certificate.
#[derive(Clone)]
struct Served {
    /// For clients that may use certificates of the mesh.
    mesh: Arc<ServerConfig>,
    /// For other clients.
    web: WebTls,
    /// The certificate chain, leaf first.
    chain: Arc<[CertificateDer<'static>]>,
}

/// TLS for callers without certificates of the mesh: API servers.
#[derive(Clone)]
pub struct WebTls {
    /// For HTTP/1.1 and HTTP/2, without a request for client certificates.
    pub config: Arc<ServerConfig>,
    /// The roots of its certificate, as PEM.
    pub roots: Arc<str>,
}

impl ServingTls {
    /// The current TLS configuration.
    #[must_use]
    pub fn get(&self) -> Arc<ServerConfig> {
        self.served.borrow().mesh.clone()
    }

    /// The current TLS configuration for HTTP/1.1 and HTTP/2 without client certificates.
    #[must_use]
    pub fn web(&self) -> WebTls {
        self.served.borrow().web.clone()
    }

    /// The current certificate chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> Arc<[CertificateDer<'static>]> {
        self.served.borrow().chain.clone()
    }

    /// A watch of the root certificates of the server certificate, as PEM. New roots are published
    /// before a certificate that they sign is served.
    #[must_use]
    pub fn roots(&self) -> watch::Receiver<Arc<str>> {
        self.known_by.clone()
    }

    /// Waits for a change; false if there will be none.
    pub async fn changed(&mut self) -> bool {
        self.served.changed().await.is_ok()
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

/// Navarch's DNS names: istiod's, so that agents and charts find it.
#[must_use]
pub fn host_names(namespace: &str, revision: &str, custom: &str) -> Vec<String> {
    let mut names: Vec<String> = ["istiod", "istiod-remote", "istio-pilot"]
        .iter()
        .map(|name| format!("{name}.{namespace}.svc"))
        .collect();
    if !matches!(revision, "" | "default") {
        names.push(format!("istiod-{revision}.{namespace}.svc"));
    }
    names.extend(
        custom
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
    );
    names.sort_unstable();
    names.dedup();
    names
}

/// TLS with a certificate of this source, and the task that renews it: at half its lifetime and
/// when the authority changes if the authority issues it, when files change if it is in files, when
/// the signer's roots change if Kubernetes signs.
///
/// # Errors
/// If the first certificate cannot be issued or loaded.
pub async fn start(
    authority: CurrentAuthority,
    config: ServingConfig,
    clock: Clock,
) -> Result<(ServingTls, impl Future<Output = ()> + Send + 'static), ServingError> {
    let files = Files::read(&config);
    let requested = request(&config).await?;
    let first = configure(
        &authority.get(),
        &config,
        &files,
        requested.as_ref(),
        clock(),
    )?;

    let (roots, known_by) = watch::channel(first.web.roots.clone());
    let (sender, served) = watch::channel(first);
    let renewal = Renewal {
        authority,
        config,
        files,
        requested,
        sender,
        roots,
        clock,
    };

    Ok((ServingTls { served, known_by }, renewal.run()))
}

/// Has Kubernetes sign a certificate, if it is the source.
async fn request(config: &ServingConfig) -> Result<Option<ServerChain>, ServingError> {
    let ServerCertificate::Requested(request) = &config.certificate else {
        return Ok(None);
    };
    let ServerRequest {
        names,
        signer,
        registration,
    } = &**request;
    Ok(Some(
        registration.sign_server(names, signer, LIFETIME).await?,
    ))
}

/// TLS with a new certificate, or with the one in files.
fn configure(
    authority: &Authority,
    config: &ServingConfig,
    files: &Files,
    requested: Option<&ServerChain>,
    now: SystemTime,
) -> Result<Served, ServingError> {
    let own = || Arc::from(authority.roots().pem());
    let (chain, key, known_by) = match &config.certificate {
        ServerCertificate::Issued(names) => {
            let (chain, key) = authority.issue(&Subject::Server(names.clone()), LIFETIME, now)?;
            (chain, PrivateKeyDer::from(key), own())
        }
        ServerCertificate::Given(given) => {
            let key = pem::private_key(files.get(&given.key)?.expose(), given.key.display())?;
            let known_by = match &given.roots {
                None => own(),
                Some(path) => {
                    files.certificates(path)?;
                    String::from_utf8_lossy(files.get(path)?.expose())
                        .as_ref()
                        .into()
                }
            };

            (files.certificates(&given.chain)?, key, known_by)
        }
        ServerCertificate::Requested(request) => {
            let none = || RegistrationError::NoMeshRoot(request.signer.clone());
            let held = requested.ok_or_else(none)?;
            (
                held.chain.clone(),
                PrivateKeyDer::from(held.key.clone_key()),
                Arc::from(held.roots.as_str()),
            )
        }
    };

    let web = WebTls {
        config: web_config(chain.clone(), key.clone_key(), &config.rules)?,
        roots: known_by,
    };
    let mut trusted = authority.root_certificates().to_vec();

    for path in &config.further_roots {
        match files.certificates(path) {
            Ok(roots) => trusted.extend(roots),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "root certificates beyond the limit are ignored"
            ),
        }
    }

    trusted.extend(
        pem::readable_certificates(
            config.signer_roots.borrow().as_bytes(),
            "the roots of signers",
        )
        .unwrap_or_default(),
    );

    if let ServerCertificate::Given(ConfiguredFiles {
        roots: Some(path), ..
    }) = &config.certificate
    {
        trusted.extend(files.certificates(path)?);
    }

    if let Some(held) = requested {
        // The signer may also sign for workloads.
        trusted.extend(
            pem::readable_certificates(held.roots.as_bytes(), "the signer's roots")
                .unwrap_or_default(),
        );
    }

    let shown = Arc::from(chain.as_slice());
    Ok(Served {
        mesh: server_config(chain, key, &trusted, authority.revocations(), &config.rules)?,
        web,
        chain: shown,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A certificate for a name, by an authority, put into files.
    fn put(folder: &Path, authority: &Authority, name: &str) -> Vec<CertificateDer<'static>> {
        let now = jiff::Timestamp::now().into();
        let (chain, key) = authority
            .issue(&Subject::Server(vec![name.to_owned()]), LIFETIME, now)
            .unwrap();
        let pem: String = chain.iter().map(|one| pem::encode(one)).collect();
        let key = rcgen::KeyPair::try_from(&PrivateKeyDer::from(key))
            .unwrap()
            .serialize_pem();
        std::fs::write(folder.join("tls.key"), key).unwrap();
        std::fs::write(folder.join("tls.crt"), pem).unwrap();
        std::fs::write(folder.join("ca.crt"), authority.roots().pem()).unwrap();
        chain
    }

    #[tokio::test]
    async fn a_configured_certificate_is_served_and_reloaded_with_its_files() {
        use super::super::ca::{Bundle, in_force};
        use navarch_pki::KeyType;

        let clock: Clock = || jiff::Timestamp::now().into();
        let authority = || {
            let bundle = Bundle::self_signed("td", KeyType::P256, LIFETIME, clock()).unwrap();
            Authority::new(&bundle, clock()).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let given = ConfiguredFiles {
            chain: path("tls.crt"),
            key: path("tls.key"),
            roots: Some(path("ca.crt")),
        };

        let config = ServingConfig {
            certificate: ServerCertificate::Given(given),
            further_roots: Vec::new(),
            signer_roots: watch::channel(Arc::default()).1,
            rules: TlsRules::default(),
        };
        let (_switch, current) = in_force(authority());
        assert!(
            start(current.clone(), config.clone(), clock).await.is_err(),
            "there are no files yet"
        );

        let outer = authority();
        put(folder.path(), &outer, "one.example");
        let (mut tls, renewing) = start(current, config, clock).await.unwrap();
        assert_eq!(&*tls.web().roots, outer.roots().pem());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(renewing);
        let other = authority();
        std::fs::write(path("tls.crt"), "nonsense").unwrap();

        tokio::time::sleep(Duration::from_millis(10)).await;
        put(folder.path(), &other, "two.example");
        tokio::time::timeout(Duration::from_secs(20), tls.changed())
            .await
            .unwrap();
        assert_eq!(
            (&*tls.web().roots, &**tls.roots().borrow()),
            (other.roots().pem(), other.roots().pem())
        );
    }

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
