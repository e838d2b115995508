//! An SDS server in place of the agent: it sends Envoy the workload's certificate and the mesh's
//! roots.

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

/// A workload's certificate.
#[derive(Clone)]
pub struct Workload {
    pub chain: String,
    pub key: String,
    pub roots: String,
}

/// The responses of a stream.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Workload {
    fn secret(&self, name: &str) -> Secret {
        let text = |text: &str| {
            Some(DataSource {
                specifier: Some(Specifier::InlineString(text.to_owned())),
                ..DataSource::default()
            })
        };

        let kind = match name {
            "ROOTCA" => secret::Type::ValidationContext(CertificateValidationContext {
                trusted_ca: text(&self.roots),
                ..CertificateValidationContext::default()
            }),
            _ => secret::Type::TlsCertificate(TlsCertificate {
                certificate_chain: text(&self.chain),
                private_key: text(&self.key),
                ..TlsCertificate::default()
            }),
        };

        Secret {
            name: name.to_owned(),
            r#type: Some(kind),
        }
    }
}

#[tonic::async_trait]
impl SecretDiscoveryService for Workload {
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
        let workload = self.clone();
        let answers = requests
            .into_inner()
            .filter_map(move |request| match request {
                Ok(request) if request.response_nonce.is_empty() => Some(Ok(DiscoveryResponse {
                    version_info: "1".to_owned(),
                    nonce: "1".to_owned(),
                    type_url: request.type_url.clone(),
                    resources: request
                        .resource_names
                        .iter()
                        .map(|name| navarch_proto::any::pack(&workload.secret(name)))
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
pub async fn serve(workload: Workload) -> Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder()
        .add_service(SecretDiscoveryServiceServer::new(workload));
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}
