//! Connections to the control plane over TCP or TLS, with the workload's credentials. All files are
//! read again for every connection and every call, so that tokens, roots and certificates may be
//! replaced at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;

use crate::credentials::{TokenError, TokenSource};
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_net::grpc_target::{GrpcTarget, Io, Keepalive, Opening};
use navarch_net::{cryptography, system_roots};
use navarch_pki::pem::{self, PemError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server name for loopback addresses, as with a forwarded port.
const FORWARDED: &str = "istiod.istio-system.svc";

/// The roots that verify the server certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The roots in a file, in PEM.
    File(PathBuf),
    /// The system's roots.
    System,
}

/// A certificate and its key in files, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// The chain, leaf first.
    pub chain: PathBuf,
    /// The private key of the leaf. If either file is missing, no client certificate is presented.
    pub key: PathBuf,
}

/// How connections to the control plane and the CA are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Plain text.
    Plain,
    /// TLS 1.2 or 1.3 with ALPN `h2`; the server certificate is always verified.
    Tls {
        /// The roots that verify the server certificate.
        roots: Roots,
        /// The client certificate; none while the files are missing.
        certificate: Option<KeyFiles>,
        /// The expected name in the server certificate, if not that of the address (`ISTIOD_SAN`).
        server_name: Option<String>,
    },
}

/// Address and credentials for the control plane.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// `host:port`.
    pub address: String,
    /// Plain text or TLS.
    pub transport: Transport,
    /// Where the token comes from; `None` if none is sent.
    pub token: Option<TokenSource>,
    /// The cluster that the workload runs in.
    pub cluster: String,
    /// Further headers (`CA_HEADER_*`, `XDS_HEADER_*`), by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// When the server is pinged.
    pub keepalive: Keepalive,
}

/// A connector to the control plane. Clones share their state.
#[derive(Clone)]
pub struct Upstream {
    config: Arc<UpstreamConfig>,
    /// Opens connections in place of TCP and TLS, if set.
    opener: Option<Arc<dyn Fn() -> Opening + Send + Sync>>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.config).finish()
    }
}

/// Errors of connecting and of adding credentials.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The address is not `host:port`.
    #[error("invalid host:port {0:?}")]
    Address(String),
    /// Reading a file failed.
    #[error("failed to read {path}")]
    File {
        /// As configured, relative to the working directory if it is not absolute.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Reading the root certificates of the system failed.
    #[error("failed to read the root certificates")]
    Roots(#[source] io::Error),
    /// The content of a file is invalid.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The TLS configuration is invalid.
    #[error("failed to configure TLS")]
    Tls(#[from] rustls::Error),
    /// The token, or the name or value of a header, is not a valid header.
    #[error("{0} is not a valid header")]
    Header(String),
    /// The token cannot be obtained.
    #[error("failed to get a token")]
    Token(#[from] TokenError),
    /// Connecting failed, or the server certificate is invalid.
    #[error("failed to connect to {address}")]
    Connect {
        /// `host:port`, as configured.
        address: String,
        /// Of TCP, of TLS, or the timeout after five seconds.
        source: tonic::transport::Error,
    },
}

impl Upstream {
    /// A connector; no connection is opened yet.
    #[must_use]
    pub fn new(config: UpstreamConfig) -> Self {
        Self {
            config: Arc::new(config),
            opener: None,
        }
    }

    /// The same over connections that `open` opens, whatever the transport of the configuration:
    /// those of a simulation.
    #[must_use]
    pub fn over(self, open: impl Fn() -> Opening + Send + Sync + 'static) -> Self {
        Self {
            opener: Some(Arc::new(open)),
            ..self
        }
    }

    /// `host:port` as configured, for logs and error messages.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.config.address
    }

    /// A new connection with the current files.
    ///
    /// # Errors
    /// If a file is invalid or the server is unreachable.
    pub async fn connect(&self) -> Result<Channel, UpstreamError> {
        let address = &self.config.address;
        let wrong = || UpstreamError::Address(address.clone());
        let target = GrpcTarget::parse(address).ok_or_else(wrong)?;
        let target = target.with_keepalive(self.config.keepalive);
        let failed = |source| UpstreamError::Connect {
            address: address.clone(),
            source,
        };
        if let Some(open) = self.opener.clone() {
            let connected = target.connect_over(CONNECT_TIMEOUT, move || open()).await;
            return connected.map_err(failed);
        }

        let tls = match &self.config.transport {
            Transport::Plain => None,
            Transport::Tls {
                roots,
                certificate,
                server_name,
            } => {
                let mut config = client_config(roots, certificate.as_ref()).await?;
                config.alpn_protocols = vec![b"h2".to_vec()];
                let host = target.host();
                let name = server_name.as_deref().unwrap_or(if host == "localhost" {
                    FORWARDED
                } else {
                    host
                });
                let name = ServerName::try_from(name.to_owned()).map_err(|_| wrong())?;
                Some((Arc::new(config), name))
            }
        };

        let connected = target
            .connect(CONNECT_TIMEOUT, move |stream| secure(stream, tls.clone()))
            .await;
        connected.map_err(failed)
    }

    /// Adds the current token, the cluster and the configured headers to a call.
    ///
    /// # Errors
    /// If one of them is not a valid header, or the metadata server has no token.
    pub async fn sign(&self, headers: &mut MetadataMap) -> Result<(), UpstreamError> {
        let value = |name: &str, text: &str| {
            text.parse::<AsciiMetadataValue>()
                .map_err(|_| UpstreamError::Header(name.to_owned()))
        };
        headers.insert("clusterid", value("the cluster", &self.config.cluster)?);

        for (name, text) in &self.config.headers {
            let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
            headers.insert(
                key.map_err(|_| UpstreamError::Header(name.clone()))?,
                value(name, text)?,
            );
        }

        if let Some(source) = &self.config.token
            && let Some(token) = source.token().await?
        {
            let mut value = value("the token", &format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert("authorization", value);
        }

        Ok(())
    }
}

/// A file's bytes.
async fn read(path: &Path) -> Result<Vec<u8>, UpstreamError> {
    let read = regular_file::read_async(path, MAX_SETTINGS_BYTES).await;
    read.map_err(|source| UpstreamError::File {
        path: path.to_owned(),
        source,
    })
}

/// The certificates in a file; at least one.
async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, UpstreamError> {
    Ok(pem::readable_certificates(
        &read(path).await?,
        path.display(),
    )?)
}

/// The TLS configuration of the current files, without ALPN.
pub(super) async fn client_config(
    roots: &Roots,
    certificate: Option<&KeyFiles>,
) -> Result<ClientConfig, UpstreamError> {
    let store = root_store(roots).await?;
    let builder = ClientConfig::builder_with_provider(cryptography::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(store);
    let present = certificate.filter(|files| files.chain.exists() && files.key.exists());
    Ok(match present {
        Some(files) => {
            let key = pem::private_key(&read(&files.key).await?, files.key.display())?;
            builder.with_client_auth_cert(certificates(&files.chain).await?, key)?
        }
        None => builder.with_no_client_auth(),
    })
}

pub(super) async fn root_store(roots: &Roots) -> Result<RootCertStore, UpstreamError> {
    let path = match roots {
        Roots::File(path) => path,
        Roots::System => return system_roots::read().await.map_err(UpstreamError::Roots),
    };

    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(path).await?);
    if added == 0 {
        return Err(PemError::Unreadable(path.display().to_string()).into());
    }
    Ok(store)
}

/// Performs the TLS handshake with this server name, if TLS is configured.
async fn secure(
    stream: TcpStream,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<Box<dyn Io>> {
    Ok(match tls {
        None => Box::new(stream),
        Some((config, name)) => Box::new(TlsConnector::from(config).connect(name, stream).await?),
    })
}
