//! The calls on a connection: which service each goes to, and how its answer goes out.

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

use super::outbox::room;
use super::together::Companions;

/// The answer to a call.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
/// Answers calls.
pub(super) type Handler = Arc<dyn Fn(Request<Body>) -> Answer + Send + Sync>;
/// Handlers by the names of their services.
pub(super) type Services = Arc<[(&'static str, Handler)]>;

/// What answers the calls of one connection.
pub(super) struct Calls<I> {
    pub(super) services: Services,
    /// What is known of the client.
    pub(super) info: I,
    /// The port that it came to.
    pub(super) port: PortName,
    /// Where the answers are made.
    pub(super) companions: Companions,
}

/// Where the answer to a call goes: whoever takes it answers by himself, and what else comes of the call is dropped.
/// A request has it among its extensions.
#[derive(Clone)]
pub(super) struct Reply(Arc<Mutex<Option<SendResponse<Bytes>>>>);

/// The port that a call came to, by its name in metrics. A request has it among its extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortName(pub(super) &'static str);

/// What a client says in a call.
struct Said(RecvStream);

impl<I: Clone + Send + Sync + 'static> Calls<I> {
    /// Takes a call up.
    pub(super) fn take(&self, request: Request<RecvStream>, reply: SendResponse<Bytes>) {
        let mut request = request.map(|said| Body::new(Said(said)));
        let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
        let handler = self.services.iter().find(|(name, _)| *name == service).map(|(_, handler)| handler);
        let reply = Reply(Arc::new(Mutex::new(Some(reply))));
        let answer = match handler {
            Some(handler) => {
                let extensions = request.extensions_mut();
                extensions.insert(self.info.clone());
                extensions.insert(self.port);
                extensions.insert(self.companions.clone());
                extensions.insert(reply.clone());
                handler(request)
            }
            None => Box::pin(async { Ok(Status::unimplemented("no such service").into_http()) }),
        };
        self.companions.join(carry_out(answer, reply));
    }
}

impl Reply {
    /// Takes it; `None` for all but the first.
    pub(super) fn take(&self) -> Option<SendResponse<Bytes>> {
        self.0.lock().take()
    }

    /// Waits until the client gives the call up.
    async fn given_up(&self) {
        poll_fn(|context| match self.0.lock().as_mut() {
            Some(reply) => reply.poll_reset(context).map(drop),
            None => Poll::Pending,
        })
        .await;
    }
}

/// Waits for the answer to a call, and sends it.
async fn carry_out(answer: Answer, reply: Reply) {
    let response = tokio::select! {
        biased;
        () = reply.given_up() => return,
        Ok(response) = answer => response,
    };
    let Some(mut reply) = reply.take() else { return };
    let (parts, body) = response.into_parts();
    let is_all = body.is_end_stream();
    // The client may be gone, which ends the call all the same.
    if let Ok(stream) = reply.send_response(Response::from_parts(parts, ()), is_all)
        && !is_all
    {
        let _ = send(body, stream).await;
    }
}

/// Sends a body as fast as it is read.
async fn send(mut body: Body, mut stream: SendStream<Bytes>) -> Result<(), h2::Error> {
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

impl http_body::Body for Said {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let said = &mut self.0;
        Poll::Ready(match ready!(said.poll_data(context)) {
            Some(Ok(data)) => {
                // Taken is as good as read: who takes more than he can read bounds that himself.
                let _ = said.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            // A client that has no use for the answer any more.
            Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => None,
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
