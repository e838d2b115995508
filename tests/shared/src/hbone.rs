//! An HBONE peer in place of ztunnel: CONNECT requests over HTTP/2 and mutual TLS, as client and as
//! server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::workload_sds::Workload;

/// The port of HBONE.
pub const PORT: u16 = 15_008;

/// The baggage header that ztunnel sends about clients.
const BAGGAGE: &str = "k8s.cluster.name=Kubernetes,k8s.namespace.name=shop,k8s.deployment.name=friend-v1,service.name=friend,\
    service.version=v1";

/// A tunnel that a peer requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The peer's identity.
    pub identity: String,
    /// Address and port of the tunnelled connection.
    pub authority: String,
}

/// Terminates tunnels at an address, and connects them to their destinations. It stops when
/// dropped.
pub struct End {
    tunnels: Arc<Mutex<Vec<Tunnel>>>,
    task: JoinHandle<()>,
}

impl End {
    /// Listens on the HBONE port of an address, for a workload.
    pub fn start(address: std::net::IpAddr, workload: &Workload) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(workload)?));
        let socket = TcpSocket::new_v4()?;

        // Envoys on this machine bind the port on all addresses, as they would in their own pods.
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::new(address, PORT))?;
        let listener = socket.listen(64)?;
        let tunnels = Arc::new(Mutex::new(Vec::new()));
        let known = tunnels.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let known = known.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &acceptor, &known).await {
                        println!("a peer's connection ended: {error:#}");
                    }
                });
            }
        });

        Ok(Self { tunnels, task })
    }

    pub fn tunnels(&self) -> Vec<Tunnel> {
        self.tunnels.lock().clone()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Verifies certificates by the mesh's roots without checking host names: they have SPIFFE ids
/// instead.
#[derive(Debug)]
struct Mesh(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Mesh {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self
            .0
            .verify_server_cert(end, intermediates, name, ocsp, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The roots of the mesh, and a workload's certificate with its key.
type Credentials = (
    RootCertStore,
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
);

fn credentials(workload: &Workload) -> Result<Credentials> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(workload.roots.as_bytes()).map(Result::unwrap),
    );
    let chain = CertificateDer::pem_slice_iter(workload.chain.as_bytes())
        .map(Result::unwrap)
        .collect();
    Ok((
        roots,
        chain,
        PrivateKeyDer::from_pem_slice(workload.key.as_bytes())?,
    ))
}

/// The TLS configuration of the client.
fn client_config(workload: &Workload) -> Result<ClientConfig> {
    let provider = navarch_net::cryptography::provider();
    let (roots, chain, key) = credentials(workload)?;
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Mesh(verifier)));
    let mut config = builder.with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The TLS configuration of the server: clients need a certificate of the mesh.
fn server_config(workload: &Workload) -> Result<ServerConfig> {
    let provider = navarch_net::cryptography::provider();
    let (roots, chain, key) = credentials(workload)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The SPIFFE id of a certificate.
fn identity(certificate: &CertificateDer<'_>) -> Result<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate)?;
    let extensions = certificate
        .extensions()
        .iter()
        .map(|extension| extension.parsed_extension());
    let mut names = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    let uri = names
        .next()
        .into_iter()
        .flatten()
        .find_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        });

    uri.context("a certificate without a SPIFFE id")
}

/// Serves a connection of a peer.
async fn serve(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    tunnels: &Mutex<Vec<Tunnel>>,
) -> Result<()> {
    let stream = acceptor.accept(stream).await?;
    let certificates = stream
        .get_ref()
        .1
        .peer_certificates()
        .context("no certificate")?;
    let identity = identity(certificates.first().context("no certificate")?)?;
    let mut connection = h2::server::handshake(stream).await?;

    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        ensure!(
            request.method() == http::Method::CONNECT,
            "{request:?} is not a CONNECT request"
        );
        let authority = request
            .uri()
            .authority()
            .context("no authority")?
            .to_string();

        tunnels.lock().push(Tunnel {
            identity: identity.clone(),
            authority: authority.clone(),
        });
        tokio::spawn(async move {
            let application = TcpStream::connect(&authority).await;
            let status = if application.is_ok() { 200 } else { 503 };
            let answer = http::Response::builder().status(status).body(()).unwrap();
            let Ok(send) = respond.send_response(answer, application.is_err()) else {
                return;
            };
            if let Ok(application) = application {
                let (read, write) = application.into_split();
                let _both = tokio::join!(inwards(request.into_body(), write), outwards(read, send));
            }
        });
    }

    Ok(())
}

/// Copies bytes from the tunnel to the destination.
async fn inwards(mut from: RecvStream, mut to: OwnedWriteHalf) -> Result<()> {
    while let Some(bytes) = from.data().await {
        let bytes = bytes?;
        from.flow_control().release_capacity(bytes.len())?;
        to.write_all(&bytes).await?;
    }
    Ok(to.shutdown().await?)
}

/// Copies bytes back. The bytes of a test fit into the flow-control window.
async fn outwards(mut from: OwnedReadHalf, mut to: SendStream<Bytes>) -> Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        to.send_data(
            Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default()),
            count == 0,
        )?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// Sends bytes to `authority` through a workload's tunnel to the peer at `through`. Returns the
/// response, up to its end or a maximum length.
pub async fn send(
    through: SocketAddr,
    workload: &Workload,
    authority: &str,
    bytes: &str,
    most: usize,
) -> Result<String> {
    let stream = TcpStream::connect(through).await?;
    let name = ServerName::try_from("peer.invalid")?;
    let stream = TlsConnector::from(Arc::new(client_config(workload)?))
        .connect(name, stream)
        .await?;
    let (mut send, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::builder()
        .method(http::Method::CONNECT)
        .uri(authority)
        .header("baggage", BAGGAGE);
    let request = request.body(())?;
    let (answer, mut to) = send.send_request(request, false)?;
    let answer = answer.await?;
    if answer.status() != 200 {
        bail!("the tunnel to {authority} was rejected: {answer:?}");
    }

    to.send_data(Bytes::copy_from_slice(bytes.as_bytes()), false)?;
    let mut from = answer.into_body();
    let mut all = Vec::new();
    while all.len() < most
        && let Some(bytes) = from.data().await
    {
        let bytes = match bytes {
            // Envoy reports a closed connection in the tunnel by this reset.
            Err(error) if error.reason() == Some(h2::Reason::CONNECT_ERROR) && !all.is_empty() => {
                break;
            }
            bytes => bytes?,
        };
        from.flow_control().release_capacity(bytes.len())?;
        all.extend_from_slice(&bytes);
    }

    connection.abort();
    Ok(String::from_utf8(all)?)
}
