//! Dispatches the calls of a connection to services, and sends their responses.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;

use crate::transport::connection_task::Spawner;
use crate::transport::grpc_writer::room;

/// The response of a service.
pub(super) type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
/// The start of a long-lived stream; a status that rejects it is its response.
pub(super) type StartFuture = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;
/// Services by name.
pub(super) type Services = Arc<[(&'static str, Service)]>;

/// How the calls of a service are answered.
#[derive(Clone)]
pub(super) enum Service {
    /// By the response that it returns.
    Unary(Arc<dyn Fn(Request<Body>) -> ResponseFuture + Send + Sync>),
    /// By a long-lived stream, which sends its response itself.
    Stream(Arc<dyn Fn(Request<Body>, CallContext) -> StartFuture + Send + Sync>),
}

/// Dispatches the calls of one connection.
pub(super) struct Calls<I> {
    pub(super) services: Services,
    /// Information about the client.
    pub(super) info: I,
    /// The name of the port in metrics.
    pub(super) port: &'static str,
    /// Runs the responses.
    pub(super) spawner: Spawner,
}

/// One call of a service that answers with a long-lived stream: the service sends the response head
/// and spawns the stream as a task of the connection.
#[derive(Clone)]
pub struct CallContext {
    /// `None` once the response head was sent.
    response: Arc<Mutex<Option<SendResponse<Bytes>>>>,
    port: &'static str,
    spawner: Spawner,
}

struct RequestBody(RecvStream);

impl<I: Clone + Send + Sync + 'static> Calls<I> {
    /// Starts the service that the request names.
    pub(super) fn dispatch(&self, request: Request<RecvStream>, response: SendResponse<Bytes>) {
        let mut request = request.map(|body| Body::new(RequestBody(body)));
        let service = request
            .uri()
            .path()
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();

        let service = self
            .services
            .iter()
            .find(|(name, _)| *name == service)
            .map(|(_, service)| service);
        request.extensions_mut().insert(self.info.clone());

        match service {
            Some(Service::Unary(handler)) => {
                self.spawner.spawn(respond(handler(request), response))
            }
            Some(Service::Stream(handler)) => {
                let response = Arc::new(Mutex::new(Some(response)));
                let call = CallContext {
                    response,
                    port: self.port,
                    spawner: self.spawner.clone(),
                };
                self.spawner
                    .spawn(start_stream(handler(request, call.clone()), call));
            }
            None => self.spawner.spawn(send(
                Status::unimplemented("no such service").into_http(),
                response,
            )),
        }
    }
}

impl CallContext {
    /// The name of the port in metrics.
    pub(crate) fn port(&self) -> &'static str {
        self.port
    }

    /// Sends the head of the response, and returns the stream for its body; `None` if the client
    /// disconnected or a head was sent before.
    pub(crate) fn send_head(&self, head: Response<()>) -> Option<SendStream<Bytes>> {
        self.take()?.send_response(head, false).ok()
    }

    /// Runs a task of the connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(task);
    }

    fn take(&self) -> Option<SendResponse<Bytes>> {
        self.response.lock().take()
    }

    /// Waits until the client resets the call.
    async fn reset(&self) {
        poll_fn(|context| match self.response.lock().as_mut() {
            Some(response) => response.poll_reset(context).map(drop),
            None => Poll::Pending,
        })
        .await;
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Waits for the response of a service, and sends it.
async fn respond(response: ResponseFuture, mut sender: SendResponse<Bytes>) {
    let response = tokio::select! {
        biased;
        _ = poll_fn(|context| sender.poll_reset(context)) => return,
        Ok(response) = response => response,
    };
    send(response, sender).await;
}

/// Waits for the start of a stream, and sends the status of one that is rejected.
async fn start_stream(start: StartFuture, call: CallContext) {
    let started = tokio::select! {
        biased;
        () = call.reset() => return,
        started = start => started,
    };
    if let Err(status) = started
        && let Some(sender) = call.take()
    {
        send(status.into_http(), sender).await;
    }
}

async fn send(response: Response<Body>, mut sender: SendResponse<Bytes>) {
    let (parts, body) = response.into_parts();
    let has_no_body = body.is_end_stream();
    // This fails if the client has disconnected.
    if let Ok(stream) = sender.send_response(Response::from_parts(parts, ()), has_no_body)
        && !has_no_body
    {
        let _ = send_body(body, stream).await;
    }
}

/// Sends a body as fast as the client reads it.
async fn send_body(mut body: Body, mut stream: SendStream<Bytes>) -> Result<(), h2::Error> {
    loop {
        let frame = tokio::select! {
            biased;
            _ = poll_fn(|context| stream.poll_reset(context)) => return Ok(()),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else {
            return stream.send_data(Bytes::new(), true);
        };

        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                if !room(&mut stream).await {
                    return Ok(());
                }
                stream.send_data(data, false)?;
            }
            Ok(Err(other)) => {
                if let Ok(trailers) = other.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
            Err(_) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let body = &mut self.0;
        Poll::Ready(match ready!(body.poll_data(context)) {
            Some(Ok(data)) => {
                // The window opens when data is received: each service bounds how much of a body it
                // keeps.
                let _ = body.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            // The client needs no response any more.
            Some(Err(error))
                if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) =>
            {
                None
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
