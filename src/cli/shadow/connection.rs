//! Connections to istiod's xDS port: in plaintext, or over TLS with a token or a client certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use navarch_base::regular_file;
use navarch_net::cryptography;
use navarch_net::grpc_target::{GrpcTarget, Io};
use navarch_pki::pem::{private_key, readable_certificates};
use navarch_shadow::stream::StreamConfig;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;

/// How istiod's xDS port is reached.
#[derive(Args, Clone, Debug)]
pub(super) struct XdsFlags {
    /// Address of istiod's xDS port: plaintext (15010), or TLS (15012) with --xds-ca-file
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15010")]
    xds_address: String,
    /// File with the root certificates of istiod's certificate: connect over TLS
    #[arg(long, value_name = "FILE")]
    xds_ca_file: Option<PathBuf>,
    /// Name in istiod's certificate; if unset, that of the Service istiod in its namespace
    #[arg(long, value_name = "NAME", requires = "xds_ca_file")]
    xds_server_name: Option<String>,
    /// File with a token for istiod. istiod answers only for proxies of its service account
    #[arg(long, value_name = "FILE", requires = "xds_ca_file")]
    xds_token_file: Option<PathBuf>,
    /// File with a client certificate for istiod, instead of a token
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["xds_ca_file", "xds_key_file"],
        conflicts_with = "xds_token_file"
    )]
    xds_certificate_file: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "xds_certificate_file")]
    xds_key_file: Option<PathBuf>,
}

/// How to connect to istiod.
#[derive(Clone)]
pub(super) struct Connection {
    target: GrpcTarget,
    address: String,
    tls: Option<Tls>,
    /// How streams ask.
    pub(super) stream: StreamConfig,
}

/// TLS to istiod.
#[derive(Clone)]
struct Tls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl XdsFlags {
    /// Reads certificates and the token. No connection is opened yet.
    ///
    /// # Errors
    /// If the address is invalid, or a file cannot be read.
    pub(super) fn open(&self, namespace: &str, timeout: Duration) -> anyhow::Result<Connection> {
        let address = &self.xds_address;
        let Some(target) = GrpcTarget::parse(address) else {
            bail!("--xds-address {address:?} must be host:port");
        };
        Ok(Connection {
            target,
            address: address.clone(),
            tls: self.tls(namespace)?,
            stream: StreamConfig {
                authorization: self.authorization()?,
                timeout,
            },
        })
    }

    /// TLS, if there are root certificates.
    fn tls(&self, namespace: &str) -> anyhow::Result<Option<Tls>> {
        let Some(file) = &self.xds_ca_file else {
            return Ok(None);
        };

        let mut roots = RootCertStore::empty();
        let certificates = readable_certificates(&read(file)?, file.display())?;
        roots.add_parsable_certificates(certificates);
        let builder = ClientConfig::builder_with_provider(cryptography::provider())
            .with_safe_default_protocol_versions()
            .context("failed to set up TLS")?
            .with_root_certificates(roots);

        let own = self
            .xds_certificate_file
            .as_ref()
            .zip(self.xds_key_file.as_ref());
        let mut config = match own {
            Some((certificate, key)) => {
                let chain = readable_certificates(&read(certificate)?, certificate.display())?;
                let key = private_key(&read(key)?, key.display())?;
                builder
                    .with_client_auth_cert(chain, key)
                    .context("--xds-certificate-file and --xds-key-file do not match")?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];

        let name = self.xds_server_name.clone();
        let name = name.unwrap_or_else(|| format!("istiod.{namespace}.svc"));
        let server_name = ServerName::try_from(name.clone())
            .with_context(|| format!("--xds-server-name {name:?} is not a name of a server"))?;
        Ok(Some(Tls {
            config: Arc::new(config),
            server_name,
        }))
    }

    /// The header with the token, if there is one.
    fn authorization(&self) -> anyhow::Result<Option<AsciiMetadataValue>> {
        let Some(file) = &self.xds_token_file else {
            return Ok(None);
        };
        let token = regular_file::read_text(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let value = AsciiMetadataValue::try_from(format!("Bearer {}", token.trim()));
        let mut value =
            value.with_context(|| format!("{} has no valid bearer token", file.display()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The bytes of a file with certificates or keys.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    regular_file::read(file, regular_file::MAX_SETTINGS_BYTES)
        .with_context(|| format!("failed to read {}", file.display()))
}

impl Connection {
    /// Whether istiod can authenticate the caller.
    pub(super) fn is_authenticated(&self) -> bool {
        self.tls.is_some()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If istiod cannot be reached, or its certificate is not valid.
    pub(super) async fn connect(&self) -> anyhow::Result<Channel> {
        let tls = self.tls.clone();
        let secure = move |stream| secure(stream, tls.clone());
        let connecting = self.target.clone().connect(self.stream.timeout, secure);
        connecting.await.with_context(|| {
            format!(
                "failed to connect to istiod at {}: forward its port (`kubectl port-forward -n \
                 istio-system deploy/istiod 15010`), or name another by --xds-address",
                self.address
            )
        })
    }
}

/// Wraps a TCP connection in TLS, if configured.
async fn secure(stream: TcpStream, tls: Option<Tls>) -> io::Result<Box<dyn Io>> {
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let connector = TlsConnector::from(tls.config);
    let stream = connector.connect(tls.server_name, stream).await?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plaintext to an address.
    fn plaintext(address: &str) -> XdsFlags {
        XdsFlags {
            xds_address: address.to_owned(),
            xds_ca_file: None,
            xds_server_name: None,
            xds_token_file: None,
            xds_certificate_file: None,
            xds_key_file: None,
        }
    }

    /// The text of the error of opening a connection.
    fn error_of(flags: &XdsFlags) -> String {
        let opened = flags.open("istio-system", Duration::from_secs(1));
        opened
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default()
    }

    #[test]
    fn without_root_certificates_nobody_is_authenticated() {
        let opened = plaintext("127.0.0.1:15010").open("istio-system", Duration::from_secs(1));
        assert!(!opened.unwrap().is_authenticated());
    }

    #[test]
    fn an_invalid_address_and_a_missing_file_are_named() {
        assert!(error_of(&plaintext("istiod")).contains("--xds-address \"istiod\""));

        let flags = XdsFlags {
            xds_ca_file: Some("/nowhere/ca.pem".into()),
            ..plaintext("127.0.0.1:15012")
        };
        assert!(error_of(&flags).contains("failed to read /nowhere/ca.pem"));
    }
}
