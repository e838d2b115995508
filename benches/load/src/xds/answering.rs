//! A server of the delta protocol whose responses a closure computes.

use std::ops::ControlFlow;

use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryService;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The outcome of a request: the stream continues, with a response if there is one, or ends.
pub(crate) type Answer = ControlFlow<(), Option<DeltaDiscoveryResponse>>;

/// The server; the closure returns the outcome of each request.
#[derive(Clone, Debug)]
pub(crate) struct Answering<F>(pub(crate) F);

#[tonic::async_trait]
impl<F> AggregatedDiscoveryService for Answering<F>
where
    F: Fn(&DeltaDiscoveryRequest) -> Answer + Clone + Send + Sync + 'static,
{
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "this server implements the delta protocol alone",
        ))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (sender, receiver) = mpsc::channel(4);
        let Self(answer) = self.clone();
        let mut requests = request.into_inner();
        #[expect(clippy::disallowed_methods, reason = "it ends with its stream")]
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let ControlFlow::Continue(response) = answer(&request) else {
                    return;
                };
                if let Some(response) = response
                    && sender.send(Ok(response)).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
