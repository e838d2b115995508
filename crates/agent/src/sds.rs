//! The SDS server for the local Envoy, on a Unix socket: the workload's certificate and roots, and
//! file secrets.
//!
//! A subscription waits for its secret: while the CA is unreachable there is no response, and Envoy
//! keeps its current secret. Changes are sent at once.

mod answer;
mod stream;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::envoy::service::secret::v3::secret_discovery_service_server::{
    SecretDiscoveryService, SecretDiscoveryServiceServer,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::server::NamedService as _;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::secrets::Secrets;
use navarch_api::mesh::PrivateKeyProvider;
use navarch_reflection::reflection;

/// Configuration of the SDS server.
#[derive(Clone, Debug, Default)]
pub struct SdsConfig {
    /// The certificate revocation list that is sent with roots, if the file exists
    /// (`/var/run/secrets/istio/crl`).
    pub revocations: Option<PathBuf>,
    /// The hardware provider for private keys (`privateKeyProvider`), for Envoys that support it.
    pub hardware: Option<PrivateKeyProvider>,
}

#[derive(Clone, Debug)]
struct Sds {
    /// The secrets to serve.
    secrets: Secrets,
    config: Arc<SdsConfig>,
    tasks: TaskTracker,
    /// Ends all streams.
    stop: CancellationToken,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves secrets until shutdown.
///
/// # Errors
/// If the socket fails.
pub async fn serve(
    listener: UnixListener,
    secrets: Secrets,
    config: SdsConfig,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    serve_connections(UnixListenerStream::new(listener), secrets, config, stop).await
}

/// The same over connections from elsewhere, such as those of a simulation.
///
/// # Errors
/// If accepting fails.
pub async fn serve_connections<C>(
    connections: impl Stream<Item = io::Result<C>>,
    secrets: Secrets,
    config: SdsConfig,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let service = Sds {
        secrets,
        config: Arc::new(config),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
    };
    let tasks = service.tasks.clone();
    let (reflection_v1, reflection_v1alpha) =
        reflection([SecretDiscoveryServiceServer::<Sds>::NAME]);

    tonic::transport::Server::builder()
        .add_service(SecretDiscoveryServiceServer::new(service))
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha)
        .serve_with_incoming_shutdown(connections, stop.cancelled())
        .await?;
    tasks.close();
    tasks.wait().await;
    Ok(())
}

#[tonic::async_trait]
impl SecretDiscoveryService for Sds {
    type DeltaSecretsStream = ResponseStream<DeltaDiscoveryResponse>;
    type StreamSecretsStream = ResponseStream<DiscoveryResponse>;

    async fn delta_secrets(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaSecretsStream>, Status> {
        Ok(self.begin::<stream::Delta>(request))
    }

    async fn stream_secrets(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        Ok(self.begin::<stream::StateOfTheWorld>(request))
    }

    async fn fetch_secrets(
        &self,
        _: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented(
            "fetching secrets is not supported; use a stream, which receives renewed secrets",
        ))
    }
}

impl Sds {
    fn begin<P: stream::Protocol>(
        &self,
        request: Request<Streaming<P::Request>>,
    ) -> Response<ResponseStream<P::Response>> {
        // Capacity of one: the next response is computed when there is room for it.
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let run = stream::run::<P>(
            request.into_inner(),
            sender,
            self.secrets.clone(),
            self.config.clone(),
        );
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = run => {}
                () = stop.cancelled() => {}
            }
        });
        Response::new(Box::pin(ReceiverStream::new(receiver)))
    }
}

#[cfg(test)]
mod tests;
