//! TLS towards a collector. Files are read for each new connection: certificates may be exchanged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use navarch_net::{cryptography, system_roots};
use navarch_pki::pem::{self, PemError};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::variables::TlsFiles;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    #[error("failed to read {0}")]
    File(PathBuf, #[source] io::Error),
    /// The root certificates of the system cannot be read.
    #[error("failed to read the root certificates")]
    Roots(#[source] io::Error),
    /// A file holds something else.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Certificate and key do not fit.
    #[error("invalid OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE or OTEL_EXPORTER_OTLP_CLIENT_KEY")]
    Certificate(#[source] rustls::Error),
}

/// What speaks TLS by these files; `protocol` is what is spoken in it.
pub(crate) async fn connector(files: &TlsFiles, protocol: &[u8]) -> Result<TlsConnector, TlsError> {
    let roots = match &files.roots {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path).await?);
            roots
        }
        None => system_roots::read().await.map_err(TlsError::Roots)?,
    };

    let builder = ClientConfig::builder_with_provider(cryptography::provider())
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs supports the default versions of TLS")
        .with_root_certificates(roots);
    let mut config = match &files.own {
        Some((chain, key)) => {
            let key = pem::private_key(&file(key).await?, key.display())?;
            builder
                .with_client_auth_cert(certificates(chain).await?, key)
                .map_err(TlsError::Certificate)?
        }
        None => builder.with_no_client_auth(),
    };

    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Speaks TLS with a host.
pub(crate) async fn secure(
    tls: &TlsConnector,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    tls.connect(name, stream).await
}

async fn file(path: &Path) -> Result<Vec<u8>, TlsError> {
    regular_file::read_async(path, MAX_SETTINGS_BYTES)
        .await
        .map_err(|error| TlsError::File(path.to_owned(), error))
}

/// The certificates of a file; at least one.
async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = file(path).await?;
    Ok(pem::readable_certificates(&content, path.display())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_missing_or_holds_something_else_is_named() {
        let files = |roots: &str| TlsFiles {
            roots: Some(PathBuf::from(roots)),
            own: None,
        };
        let error = async |roots: &str| {
            let made = connector(&files(roots), b"h2").await;
            made.err().unwrap().to_string()
        };
        assert_eq!(
            error("/nowhere/roots.pem").await,
            "failed to read /nowhere/roots.pem"
        );
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(error(here).await, format!("no PEM certificate in {here}"));
        assert!(connector(&TlsFiles::default(), b"h2").await.is_ok());
    }
}
