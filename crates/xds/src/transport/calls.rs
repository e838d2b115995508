//! Dispatches the calls of a connection to services, and sends their responses.

use std::convert::Infallible;
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
pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
pub(super) type Handler = Arc<dyn Fn(Request<Body>) -> ResponseFuture + Send + Sync>;
/// Services by name.
pub(super) type Services = Arc<[(&'static str, Handler)]>;

/// Dispatches the calls of one connection.
pub(super) struct Calls<I> {
    pub(super) services: Services,
    /// What is known of the client.
    pub(super) info: I,
    /// The port that the connection came to, by its name in metrics.
    pub(super) port: &'static str,
    /// Runs the responses.
    pub(super) spawner: Spawner,
}

/// One call, as a service that answers with a long-lived stream needs it: such a service sends the response head itself and
/// spawns the stream as a task of the connection. What the service returns is then dropped. A request has its context among its
/// extensions.
#[derive(Clone)]
pub(crate) struct CallContext {
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
        let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
        let handler = self.services.iter().find(|(name, _)| *name == service).map(|(_, handler)| handler);
        let response = Arc::new(Mutex::new(Some(response)));
        let call = CallContext { response, port: self.port, spawner: self.spawner.clone() };
        let response = match handler {
            Some(handler) => {
                let extensions = request.extensions_mut();
                extensions.insert(self.info.clone());
                extensions.insert(call.clone());
                handler(request)
            }
            None => Box::pin(async { Ok(Status::unimplemented("no such service").into_http()) }),
        };
        self.spawner.spawn(send_response(response, call));
    }
}

impl CallContext {
    /// The port that the call came to, by its name in metrics.
    pub(crate) fn port(&self) -> &'static str {
        self.port
    }

    /// Sends the head of the response, and gives the stream for its body; `None` when the client has gone or a head was sent.
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

/// Waits for the response of a service, and sends it unless the service has done so.
async fn send_response(response: ResponseFuture, call: CallContext) {
    let response = tokio::select! {
        biased;
        () = call.reset() => return,
        Ok(response) = response => response,
    };
    let Some(mut sender) = call.take() else { return };
    let (parts, body) = response.into_parts();
    let has_no_body = body.is_end_stream();
    // When the client has gone there is nobody to send to.
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
        let Some(frame) = frame else { return stream.send_data(Bytes::new(), true) };
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
                // The window opens when data is taken: each service bounds what it keeps of a body.
                let _ = body.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            // The client needs no response any more.
            Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => None,
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
