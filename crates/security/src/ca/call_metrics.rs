//! Metrics of unary gRPC calls, under the names of go-grpc-prometheus, as in istiod: those of
//! certificate requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_service::Service;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
}

/// Labels of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handled {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
    grpc_code: &'static str,
}

/// The certificate service's only method. Calls of other methods share one label, so that clients
/// cannot create label sets.
const METHOD_LABELS: [&str; 2] = ["CreateCertificate", "other"];

/// Handles of the metrics.
#[derive(Clone, Debug)]
pub struct CallMetrics {
    started: Family<Call, Counter>,
    handled: Family<Handled, Counter>,
    received: Family<Call, Counter>,
    sent: Family<Call, Counter>,
    seconds: Family<Call, Histogram>,
}

impl CallMetrics {
    /// Registers the metrics; no calls yet.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = || {
            Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ])
        };

        let metrics = Self {
            started: Family::default(),
            handled: Family::default(),
            received: Family::default(),
            sent: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };

        let handles = metrics.clone();
        registry.register(
            "grpc_server_started",
            "Unary calls started",
            handles.started,
        );
        registry.register(
            "grpc_server_handled",
            "Unary calls completed, by code",
            handles.handled,
        );

        registry.register(
            "grpc_server_msg_received",
            "Messages received in unary calls",
            handles.received,
        );

        registry.register(
            "grpc_server_msg_sent",
            "Messages sent in unary calls",
            handles.sent,
        );

        registry.register(
            "grpc_server_handling_seconds",
            "Duration of unary calls, in seconds",
            handles.seconds,
        );

        metrics
    }
}

/// Counts the calls of a service.
#[derive(Clone, Debug)]
pub struct CountedCalls<S> {
    /// What answers the calls.
    pub inner: S,
    /// Where its calls are counted.
    pub metrics: CallMetrics,
}

impl<S: NamedService> NamedService for CountedCalls<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for CountedCalls<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default();
        let [.., other] = METHOD_LABELS;
        let grpc_method = METHOD_LABELS
            .into_iter()
            .find(|known| *known == name)
            .unwrap_or(other);
        let grpc_type = "unary";
        let grpc_service = S::NAME;

        let call = Call {
            grpc_type,
            grpc_service,
            grpc_method,
        };
        let metrics = self.metrics.clone();
        let begun = Instant::now();
        metrics.started.get_or_create(&call).inc();

        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;

            // A failed call has its status in the headers; a successful one has a message, and its
            // status in the trailers.
            let code = Status::from_header_map(response.headers())
                .map_or(Code::Ok, |status| status.code());
            let grpc_code = code_name(code);
            metrics
                .handled
                .get_or_create(&Handled {
                    grpc_type,
                    grpc_service,
                    grpc_method,
                    grpc_code,
                })
                .inc();

            metrics.received.get_or_create(&call).inc();
            if code == Code::Ok {
                metrics.sent.get_or_create(&call).inc();
            }

            metrics
                .seconds
                .get_or_create(&call)
                .observe(begun.elapsed().as_secs_f64());

            Ok(response)
        })
    }
}

/// Go's name of a code.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
