//! A connection to the server that runs in the task of its proxy: of a thousand proxies, each wake-up of one task by
//! another is paid by the server as well, which shares the machine.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tonic::body::Body;
use tower_service::Service;

/// Bytes that a server may send ahead, as Envoy allows.
const WINDOW: u32 = 16 << 20;
/// How long a connection may take to say good-bye.
const FAREWELL: Duration = Duration::from_secs(1);

/// What runs beside a proxy.
type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes in what HTTP/2 has to run. Clones are of one connection.
#[derive(Clone, Default)]
pub(crate) struct Beside(Arc<Mutex<Vec<Part>>>);

/// Calls on a connection.
#[derive(Debug)]
pub(crate) struct Calls {
    /// The connection.
    sender: http2::SendRequest<Body>,
    /// The server.
    server: SocketAddr,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Beside {
    fn execute(&self, part: F) {
        self.0.lock().push(Box::pin(part));
    }
}

impl Beside {
    /// Runs what connects and speaks, and beside it whatever is handed in meanwhile, all in the caller's task.
    pub(crate) async fn run<T>(&self, speaker: impl Future<Output = T>) -> T {
        let mut parts = FuturesUnordered::new();
        let outcome = {
            let mut speaker = pin!(speaker);
            poll_fn(|context| {
                // What came wakes the speaker; what it says goes out at once.
                self.turn(&mut parts, context);
                let outcome = speaker.as_mut().poll(context);
                self.turn(&mut parts, context);
                outcome
            })
            .await
        };
        let farewell = poll_fn(|context| if self.turn(&mut parts, context) { Poll::Ready(()) } else { Poll::Pending });
        // A server that does not answer is left without a word.
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        outcome
    }

    /// Turns to all parts that have something to do; true if there is none left.
    fn turn(&self, parts: &mut FuturesUnordered<Part>, context: &mut Context<'_>) -> bool {
        loop {
            parts.extend(std::mem::take(&mut *self.0.lock()));
            match Pin::new(&mut *parts).poll_next(context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) | Poll::Pending if !self.0.lock().is_empty() => {}
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Connects.
    pub(crate) async fn connect(&self, server: SocketAddr) -> Result<Calls> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut builder = http2::Builder::new(self.clone());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        hyper::rt::Executor::execute(self, async move {
            // The stream on it says that it broke.
            let _ = connection.await;
        });
        Ok(Calls { sender, server })
    }
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let uri = Uri::builder().scheme("http").authority(self.server.to_string());
        if let Ok(uri) = uri.path_and_query(request.uri().path()).build() {
            *request.uri_mut() = uri;
        }
        Box::pin(self.sender.send_request(request))
    }
}
