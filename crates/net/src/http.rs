//! HTTP requests of clients: single ones, each over a connection of its own, and connections for
//! several.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

/// HTTP/2 flow-control window in bytes.
const WINDOW: u32 = 64 << 10;
/// Maximum size of HTTP/2 headers in bytes.
const HEADERS: u32 = 16 << 10;

/// Sends a request by HTTP/1.1. `read` reads the response while the connection is polled. The
/// connection is closed at the end of the call.
///
/// # Errors
/// If there is no response.
pub async fn exchange<B, T>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<B>,
    read: impl AsyncFnOnce(Response<Incoming>) -> T,
) -> hyper::Result<T>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    drive(connection, async move {
        Ok(read(sender.send_request(request).await?).await)
    })
    .await
}

/// A connection for several requests, one after another. It is polled only during a request, so that
/// what the peer does meanwhile is noticed with the next one.
pub struct ClientConnection<B> {
    sender: Sender<B>,
    /// `None` once it has ended: the sender learns of the end when this is dropped.
    connection: Option<Driver>,
}

/// Reads and writes the stream of a connection while it is polled.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The sender of requests.
enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

impl<B> ClientConnection<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A connection by HTTP/1.1.
    ///
    /// # Errors
    /// If the stream has failed.
    pub async fn http1(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender: Sender::Http1(sender),
            connection: Some(Box::pin(connection)),
        })
    }

    /// A connection by HTTP/2, with small limits: the server is not trusted.
    ///
    /// # Errors
    /// If the stream has failed.
    pub async fn http2(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEADERS);
        builder.max_concurrent_reset_streams(1);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender: Sender::Http2(sender),
            connection: Some(Box::pin(connection)),
        })
    }

    /// Whether requests are sent by HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Whether the connection was open at the end of the last request.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Sends a request. `read` reads the response while the connection is polled; if it does not
    /// read it completely, the connection cannot be used again.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn exchange<T>(
        &mut self,
        request: Request<B>,
        read: impl AsyncFnOnce(Response<Incoming>) -> T,
    ) -> hyper::Result<T> {
        let Self { sender, connection } = self;
        let answered = sender.exchange(request, read);
        tokio::pin!(answered);

        if let Some(driver) = connection {
            tokio::select! {
                biased;
                answer = &mut answered => return answer,
                _ = driver.as_mut() => {}
            }
        }

        // Received data must still be read.
        *connection = None;
        answered.await
    }
}

impl<B> Sender<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Waits until the previous request has ended, then sends this one and reads its response.
    async fn exchange<T>(
        &mut self,
        request: Request<B>,
        read: impl AsyncFnOnce(Response<Incoming>) -> T,
    ) -> hyper::Result<T> {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        Ok(read(response).await)
    }
}

impl<B> fmt::Debug for ClientConnection<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection")
            .field("is_open", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}

/// Waits for a response while its connection is polled.
async fn drive<T>(
    connection: impl Future<Output = hyper::Result<()>>,
    answered: impl Future<Output = hyper::Result<T>>,
) -> hyper::Result<T> {
    tokio::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        // Received data must still be read after the peer has closed the connection.
        _ = connection => answered.await,
    }
}
