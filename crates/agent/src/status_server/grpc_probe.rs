//! Probes over gRPC's health protocol.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::HeaderMap;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Endpoint, Uri};
use tonic_prost::ProstCodec;

use super::probing::ProbeError;
use super::{StatusConfig, probing};

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    /// The service to check; empty is all.
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    /// The status: 1 is `SERVING`.
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The value of `SERVING`.
const SERVING: i32 = 1;

/// Checks the health of a service; the error is the reason why it is not serving.
pub(super) async fn probe(
    config: &StatusConfig,
    port: u16,
    service: &str,
    headers: &HeaderMap,
) -> Result<(), ProbeError> {
    let endpoint = Endpoint::from_static("http://application");
    let agent = headers
        .get("user-agent")
        .and_then(|agent| agent.to_str().ok());
    let endpoint = match agent {
        Some(agent) => endpoint.user_agent(agent)?,
        None => endpoint,
    };

    let connector = Connector {
        config: config.clone(),
        port,
    };
    let channel = endpoint.connect_with_connector(connector).await?;
    let mut client = Grpc::new(channel);
    client.ready().await?;

    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let question = tonic::Request::new(HealthCheckRequest {
        service: service.to_owned(),
    });
    let answer = client.unary(question, path, codec).await?;

    match answer.into_inner().status {
        SERVING => Ok(()),
        other => Err(ProbeError::NotServing(other)),
    }
}

/// Connects to the application, whatever the requested address is.
#[derive(Clone)]
struct Connector {
    /// Contains the application's address.
    config: StatusConfig,
    port: u16,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { config, port } = self.clone();
        Box::pin(async move { probing::connect(&config, port).await.map(TokioIo::new) })
    }
}
