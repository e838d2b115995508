//! A gRPC stream of a simulated proxy, over a simulated connection.

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::client::handshake;
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use tokio::task::JoinHandle;

use crate::stream::SimStream;

/// The services of resources and of secrets, of both protocols.
pub(crate) const ADS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
pub(crate) const SDS: &str = "envoy.service.secret.v3.SecretDiscoveryService";
/// The bytes before each message: a flag, and the length.
const PREFIX: usize = 5;

/// An open stream. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Call {
    requests: SendStream<Bytes>,
    responses: RecvStream,
    received: BytesMut,
    connection: JoinHandle<()>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Call {
    /// Opens a stream of a service's method.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    pub(crate) async fn open(stream: SimStream, service: &str, method: &str) -> io::Result<Self> {
        let (mut client, connection) = handshake(stream).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(async move {
            // The stream reports the error.
            _ = connection.await;
        });

        let request = Request::post(format!("http://istiod/{service}/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(io::Error::other)?;
        let (response, requests) = client
            .send_request(request, false)
            .map_err(io::Error::other)?;
        let response = response.await.map_err(io::Error::other)?;
        if let Some(status) = response.headers().get("grpc-status") {
            return Err(io::Error::other(format!("gRPC status {status:?}")));
        }
        Ok(Self {
            requests,
            responses: response.into_body(),
            received: BytesMut::new(),
            connection,
        })
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &impl Message) -> io::Result<()> {
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        let mut frame = BytesMut::with_capacity(PREFIX + message.len());
        frame.put_u8(0);
        frame.put_u32(length);
        frame.extend_from_slice(&message);
        self.requests
            .send_data(frame.freeze(), false)
            .map_err(io::Error::other)
    }

    /// The next response; `None` at the end.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(message) = self.take() {
                return M::decode(message).map(Some).map_err(io::Error::other);
            }
            let Some(chunk) = self.responses.data().await else {
                return Ok(None);
            };
            let chunk = chunk.map_err(io::Error::other)?;
            self.responses
                .flow_control()
                .release_capacity(chunk.len())
                .map_err(io::Error::other)?;
            self.received.extend_from_slice(&chunk);
        }
    }

    /// A complete message that was received.
    fn take(&mut self) -> Option<Bytes> {
        let mut prefix = self.received.get(..PREFIX)?;
        prefix.advance(1);
        let length = usize::try_from(prefix.get_u32()).ok()?;
        if self.received.len() < PREFIX + length {
            return None;
        }
        self.received.advance(PREFIX);
        Some(self.received.split_to(length).freeze())
    }
}
