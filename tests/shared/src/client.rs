//! A gRPC client over TLS with rustls.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The credentials of a client.
#[derive(Clone)]
pub enum Proof {
    /// None.
    Nothing,
    Token(String),
    /// A certificate: chain and key in PEM.
    Certificate(String, String),
}

/// Connects over TLS.
#[derive(Clone)]
struct Connector {
    server: SocketAddr,
    config: Arc<ClientConfig>,
}

impl tonic::codegen::Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { server, config } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(server).await?;
            let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
            Ok(TokioIo::new(
                TlsConnector::from(config).connect(name, stream).await?,
            ))
        })
    }
}

/// The TLS configuration of a client that trusts these roots.
fn tls(roots: &str, proof: &Proof) -> ClientConfig {
    tls_of(rustls::DEFAULT_VERSIONS, roots, proof)
}

/// The same for these versions of TLS.
pub fn tls_of(
    versions: &[&'static rustls::SupportedProtocolVersion],
    roots: &str,
    proof: &Proof,
) -> ClientConfig {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(
        CertificateDer::pem_slice_iter(roots.as_bytes()).map(Result::unwrap),
    );
    let provider = navarch_net::cryptography::provider();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap();
    let builder = builder.with_root_certificates(store);

    match proof {
        Proof::Certificate(chain, key) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .map(Result::unwrap)
                .collect();
            builder
                .with_client_auth_cert(
                    chain,
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap()
        }
        Proof::Nothing | Proof::Token(_) => builder.with_no_client_auth(),
    }
}

/// A TLS connection to a server whose certificate these roots verify, for callers with their own
/// HTTP client.
pub async fn connection(
    server: SocketAddr,
    roots: &str,
    protocols: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    connection_over(TcpStream::connect(server).await?, roots, protocols).await
}

/// The same over an existing connection.
pub async fn connection_over(
    stream: TcpStream,
    roots: &str,
    protocols: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    let mut config = tls(roots, &Proof::Nothing);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// A channel to a server whose certificate these roots verify.
pub fn channel(server: SocketAddr, roots: &str, proof: &Proof) -> Channel {
    let mut config = tls(roots, proof);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = Connector {
        server,
        config: Arc::new(config),
    };
    Endpoint::from_static("http://istiod.istio-system.svc").connect_with_connector_lazy(connector)
}

/// A request with the token, if the credentials are one.
pub fn signed<T>(message: T, proof: &Proof) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Proof::Token(token) = proof {
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}
