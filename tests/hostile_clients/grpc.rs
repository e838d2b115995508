//! gRPC calls whose caller chooses every frame.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use navarch_proto::envoy::config::core::v3::Node;
use prost::Message;
use prost_types::value::Kind;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::network::{Io, connect, connect_tls, tls_config};
use crate::plane;

/// The path of the delta ADS method.
pub(crate) const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Type URLs.
pub(crate) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub(crate) const ENDPOINTS: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// An attacker's timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP/2 connection; closed when dropped.
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    driver: AbortHandle,
}

impl Connection {
    /// Starts HTTP/2 on a byte stream.
    pub(crate) async fn on(stream: impl Io + 'static) -> Result<Self> {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(16 << 20)
            .initial_connection_window_size(16 << 20);
        let (requests, connection) = timeout(TIMEOUT, builder.handshake(stream)).await??;
        let driver = tokio::spawn(connection).abort_handle();
        Ok(Self { requests, driver })
    }

    /// Connects to the plain-text or the TLS port of xDS.
    pub(crate) async fn to_xds(from: Ipv4Addr, tls: bool) -> Result<Self> {
        match tls {
            true => Self::tls(from, plane::SECURE).await,
            false => Self::on(connect(from, plane::XDS).await?).await,
        }
    }

    /// Connects with TLS.
    pub(crate) async fn tls(from: Ipv4Addr, to: SocketAddr) -> Result<Self> {
        Self::on(timeout(TIMEOUT, connect_tls(from, to, tls_config("h2"))).await??).await
    }

    pub(crate) async fn call(&mut self, method: &str, token: Option<&str>) -> Result<Call> {
        let mut request = http::Request::post(format!("http://istiod.istio-system.svc{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut requests = timeout(TIMEOUT, self.requests.clone().ready()).await??;
        let (response, body) = requests.send_request(request.body(())?, false)?;
        Ok(Call {
            body,
            answer: Answer::Awaited(response),
        })
    }

    /// Whether it has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// An open call; reset when dropped.
pub(crate) struct Call {
    body: SendStream<Bytes>,
    answer: Answer,
}

/// The state of the response.
enum Answer {
    Awaited(ResponseFuture),
    Begun(RecvStream),
}

impl Call {
    /// Sends bytes as fast as flow control permits.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len());
            let room = timeout(
                TIMEOUT,
                std::future::poll_fn(|context| self.body.poll_capacity(context)),
            )
            .await?;
            let room = room.context("the stream has ended")??;
            self.body
                .send_data(bytes.split_to(room.min(bytes.len())), false)?;
        }
        Ok(())
    }

    /// The next bytes of the response; `None` at its end.
    pub(crate) async fn receive(&mut self) -> Result<Option<Bytes>> {
        if let Answer::Awaited(response) = &mut self.answer {
            self.answer = Answer::Begun(response.await?.into_body());
        }
        let Answer::Begun(body) = &mut self.answer else {
            unreachable!("begun above")
        };
        let Some(bytes) = body.data().await.transpose()? else {
            return Ok(None);
        };
        body.flow_control().release_capacity(bytes.len())?;
        Ok(Some(bytes))
    }

    /// Waits for the end of the call, and returns the gRPC status if there is one.
    pub(crate) async fn ended(&mut self) -> String {
        loop {
            match self.receive().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return error.to_string(),
            }
        }
        let Answer::Begun(body) = &mut self.answer else {
            unreachable!("begun above")
        };
        let trailers = body.trailers().await.ok().flatten();
        format!(
            "{:?}",
            trailers.map(|trailers| trailers.get("grpc-message").cloned())
        )
    }

    /// Waits for one complete message.
    pub(crate) async fn message(&mut self) -> Result<()> {
        let mut length = None;
        let mut came = BytesMut::new();
        while length.is_none_or(|length| came.len() < length) {
            came.extend_from_slice(
                &timeout(TIMEOUT, self.receive())
                    .await??
                    .context("the call ended")?,
            );
            if let (None, Some(prefix)) = (length, came.get(1..5)) {
                length = Some(5 + usize::try_from(u32::from_be_bytes(prefix.try_into()?))?);
            }
        }
        ensure!(came.first() == Some(&0), "compressed");
        Ok(())
    }
}

/// A message with its gRPC prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(length + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

/// A sidecar with a service account in the namespace `shop`, and further metadata.
pub(crate) fn node(pod: &str, account: &str, metadata: &[(&str, &str)]) -> Node {
    let text = |text: &str| prost_types::Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let own = [
        ("NAMESPACE", "shop"),
        ("SERVICE_ACCOUNT", account),
        ("CLUSTER_ID", "Kubernetes"),
    ];

    let fields = own
        .iter()
        .chain(metadata)
        .map(|(key, value)| ((*key).to_owned(), text(value)))
        .collect();

    Node {
        id: format!("sidecar~10.0.0.9~{pod}.shop~shop.svc.cluster.local"),
        metadata: Some(prost_types::Struct { fields }),
        ..Node::default()
    }
}
