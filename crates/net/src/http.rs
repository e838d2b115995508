//! Single HTTP requests, each over a connection of its own.

use std::error::Error;

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

/// As [`exchange`] over HTTP/2, with small limits: the server is not trusted.
///
/// # Errors
/// As for [`exchange`].
pub async fn exchange_http2<B, T>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<B>,
    read: impl AsyncFnOnce(Response<Incoming>) -> T,
) -> hyper::Result<T>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEADERS);
    builder.max_concurrent_reset_streams(1);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    drive(connection, async move {
        Ok(read(sender.send_request(request).await?).await)
    })
    .await
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
