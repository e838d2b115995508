//! An SDS server in place of the agent: one certificate under every name, enough for Envoy to
//! accept its configuration.

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::Result;
use navarch_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret,
};
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::envoy::service::secret::v3::secret_discovery_service_server::{
    SecretDiscoveryService, SecretDiscoveryServiceServer,
};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// A certificate for testing.
const CERTIFICATE: &str = include_str!("testdata/cert.pem");
const KEY: &str = include_str!("testdata/key.pem");

/// The secret with a name: a validation context if the name is one of roots, else a key pair.
pub(crate) fn secret(name: &str) -> Secret {
    let text = |text: &str| {
        Some(DataSource {
            specifier: Some(Specifier::InlineString(text.to_owned())),
            ..DataSource::default()
        })
    };

    let kind =
        if name.contains("ROOTCA") || name.ends_with("-cacert") || name.starts_with("file-root") {
            let context = CertificateValidationContext {
                trusted_ca: text(CERTIFICATE),
                ..CertificateValidationContext::default()
            };
            secret::Type::ValidationContext(context)
        } else {
            let pair = TlsCertificate {
                certificate_chain: text(CERTIFICATE),
                private_key: text(KEY),
                ..TlsCertificate::default()
            };
            secret::Type::TlsCertificate(pair)
        };

    Secret {
        name: name.to_owned(),
        r#type: Some(kind),
    }
}

struct Secrets;

/// The responses of a stream.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl SecretDiscoveryService for Secrets {
    type DeltaSecretsStream = Answers<DeltaDiscoveryResponse>;
    type StreamSecretsStream = Answers<DiscoveryResponse>;

    async fn delta_secrets(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaSecretsStream>, Status> {
        Err(Status::unimplemented(
            "Envoy uses the state-of-the-world protocol with the agent",
        ))
    }

    async fn stream_secrets(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        let answers = requests.into_inner().filter_map(|request| match request {
            Ok(request) if request.response_nonce.is_empty() => Some(Ok(DiscoveryResponse {
                version_info: "1".to_owned(),
                nonce: "1".to_owned(),
                type_url: request.type_url.clone(),
                resources: request
                    .resource_names
                    .iter()
                    .map(|name| navarch_proto::any::pack(&secret(name)))
                    .collect(),
                ..DiscoveryResponse::default()
            })),
            Ok(_) => None,
            Err(status) => Some(Err(status)),
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_secrets(
        &self,
        _: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("Envoy streams"))
    }
}

/// Serves on loopback until the test's runtime ends.
pub(crate) async fn serve() -> Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server =
        tonic::transport::Server::builder().add_service(SecretDiscoveryServiceServer::new(Secrets));
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}
