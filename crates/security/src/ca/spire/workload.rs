//! Follows the control plane's own SVID, which the SPIFFE Workload API of its node hands out.

use std::io;
use std::time::Duration;

use navarch_proto::spiffe_workload_api_client::SpiffeWorkloadApiClient;
use navarch_proto::{X509svid, X509svidRequest};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::tls::{self, SvidError};
use crate::Clock;
use navarch_net::backoff::Backoff;
use navarch_net::grpc_target::{GrpcTarget, Io};
use navarch_net::unix_channel::UnixTarget;

/// Metadata without which the Workload API answers no request: a page in a browser cannot send it.
const SECURITY_HEADER: &str = "workload.spiffe.io";
/// Maximum size of a response.
const MAX_RESPONSE: usize = 4 << 20;
/// Timeout of a connection to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delays between attempts to follow the SVID.
const RETRY_DELAYS: Backoff =
    Backoff::jittered(Duration::from_millis(500), Duration::from_secs(15));

/// Why there is no SVID.
#[derive(Debug, thiserror::Error)]
enum WorkloadError {
    /// The agent did not answer, or has no SVID for the control plane.
    #[error("the agent hands out no SVID")]
    Call(#[source] Box<Status>),
    /// The agent closed the stream.
    #[error("the agent closed the stream of SVIDs")]
    Ended,
    /// The SVID cannot be used.
    #[error("the control plane's SVID cannot be used")]
    Svid(#[from] SvidError),
}

/// Sends a channel to the server for each SVID of the control plane; does not return.
pub(super) async fn follow(
    server: GrpcTarget,
    agent: UnixTarget,
    server_id: String,
    channels: watch::Sender<Option<Channel>>,
    clock: Clock,
) {
    let client =
        SpiffeWorkloadApiClient::new(agent.channel()).max_decoding_message_size(MAX_RESPONSE);
    let mut delays = RETRY_DELAYS;

    loop {
        let mut use_svid = |svid: &X509svid| -> Result<(), SvidError> {
            let channel = channel(&server, svid, &server_id, clock)?;
            channels.send_replace(Some(channel));
            delays.reset();
            Ok(())
        };
        let error = follow_stream(client.clone(), &mut use_svid).await;
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the control plane's SVID is not followed; the last one stays in use"
        );
        tokio::time::sleep(delays.next_delay()).await;
    }
}

/// Follows one stream of SVIDs until it ends. The first SVID of each message is used.
async fn follow_stream(
    mut client: SpiffeWorkloadApiClient<Channel>,
    use_svid: &mut (impl FnMut(&X509svid) -> Result<(), SvidError> + Send),
) -> WorkloadError {
    let failed = |status: Status| WorkloadError::Call(Box::new(status));
    let mut request = Request::new(X509svidRequest {});
    request
        .metadata_mut()
        .insert(SECURITY_HEADER, MetadataValue::from_static("true"));

    let mut stream = match client.fetch_x509svid(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return failed(status),
    };
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                let Some(svid) = message.svids.first() else {
                    continue;
                };
                if let Err(error) = use_svid(svid) {
                    return error.into();
                }
            }
            Ok(None) => return WorkloadError::Ended,
            Err(status) => return failed(status),
        }
    }
}

/// A channel to the server with an SVID.
fn channel(
    server: &GrpcTarget,
    svid: &X509svid,
    server_id: &str,
    clock: Clock,
) -> Result<Channel, SvidError> {
    let config = tls::client_config(svid, server_id, clock)?;
    let connector = TlsConnector::from(config);
    // SPIRE's certificates have no DNS names; the SPIFFE ID is checked instead.
    let name = ServerName::try_from("spire-server").map_err(|_| SvidError::Name)?;

    let secure = move |stream: TcpStream| {
        let connector = connector.clone();
        let name = name.clone();
        async move {
            let stream = connector.connect(name, stream).await?;
            io::Result::Ok(Box::new(stream) as Box<dyn Io>)
        }
    };
    Ok(server.clone().connect_lazily(CONNECT_TIMEOUT, secure))
}
