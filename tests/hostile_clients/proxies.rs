//! Well-behaved proxies: fifty with permanent streams on an object whose changes are timed, and new
//! proxies all the time.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use navarch_proto::envoy::config::core::v3::address::Address;
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::grpc::{CLUSTERS, ENDPOINTS, node};
use crate::network::{self, channel};
use crate::plane::{self, Plane};
use crate::series::{Question, Series};

/// Proxies with permanent streams; every fifth uses the plain-text port.
pub(crate) const PROXIES: usize = 50;
/// The cluster of the marker.
const MARKER: &str = "outbound|80||marker.example";
/// How long a new proxy waits for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An object that changes all the time.
pub(crate) struct Marker {
    /// Its file, and the temporary file for atomic writes.
    file: PathBuf,
    draft: PathBuf,
    number: AtomicU32,
    /// The changes that each proxy has not received yet.
    pending: Vec<Mutex<VecDeque<(u32, Question)>>>,
    /// The latency of changes per proxy.
    series: Arc<Series>,
}

impl Marker {
    /// Creates the object without writing it.
    pub(crate) fn new(plane: &Plane, series: Arc<Series>) -> Self {
        let pending = (0..PROXIES).map(|_| Mutex::default()).collect();
        let file = plane.mesh().join("marker.yaml");
        let draft = plane.folder().join("marker.draft");
        Self {
            file,
            draft,
            number: AtomicU32::new(0),
            pending,
            series,
        }
    }

    pub(crate) fn change(&self) -> Result<()> {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        let [_, a, b, c] = number.to_be_bytes();
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: marker, namespace: shop}}\n\
             spec: {{hosts: [marker.example], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, \
             endpoints: [{{address: 11.{a}.{b}.{c}}}]}}\n"
        );
        std::fs::write(&self.draft, text)?;
        for pending in &self.pending {
            pending.lock().push_back((number, self.series.ask()));
        }
        Ok(std::fs::rename(&self.draft, &self.file)?)
    }

    /// A proxy has received a version, and with it all earlier ones.
    fn seen(&self, proxy: usize, number: u32) {
        let mut pending = self.pending[proxy].lock();
        while pending
            .front()
            .is_some_and(|(requested, _)| *requested <= number)
        {
            let (_, question) = pending.pop_front().unwrap();
            question.answered();
        }
    }
}

/// The version of the object in a response, if it contains the object.
fn version(response: &DeltaDiscoveryResponse) -> Result<Option<u32>> {
    for resource in response
        .resources
        .iter()
        .filter(|resource| resource.name == MARKER)
    {
        let any = resource.resource.as_ref().context("no content")?;
        let assignment = ClusterLoadAssignment::decode(any.value.as_slice())?;
        let endpoint = assignment
            .endpoints
            .first()
            .and_then(|locality| locality.lb_endpoints.first());
        let Some(HostIdentifier::Endpoint(endpoint)) =
            endpoint.and_then(|one| one.host_identifier.as_ref())
        else {
            continue;
        };
        let Some(Address::SocketAddress(address)) = endpoint
            .address
            .as_ref()
            .and_then(|one| one.address.as_ref())
        else {
            bail!("not a socket address: {endpoint:?}")
        };
        let [_, a, b, c] = address.address.parse::<Ipv4Addr>()?.octets();
        return Ok(Some(u32::from_be_bytes([0, a, b, c])));
    }

    Ok(None)
}

/// A stream of a proxy.
struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Stream {
    /// Opens a stream and subscribes to a type and names.
    async fn open(
        from: Ipv4Addr,
        pod: &str,
        token: Option<&str>,
        type_url: &str,
        names: &[&str],
    ) -> Result<Self> {
        let to = if token.is_some() {
            plane::SECURE
        } else {
            plane::XDS
        };

        let channel = channel(from, to, token.is_some()).await?;
        let (requests, outgoing) = mpsc::channel(8);
        let stream_names = names.iter().map(ToString::to_string).collect();
        let hello = DeltaDiscoveryRequest {
            node: Some(node(pod, "web", &[])),
            type_url: type_url.to_owned(),
            resource_names_subscribe: stream_names,
            ..DeltaDiscoveryRequest::default()
        };

        requests.send(hello).await?;
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));

        if let Some(token) = token {
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {token}").parse()?);
        }

        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(256 << 20);
        let responses = client
            .delta_aggregated_resources(request)
            .await?
            .into_inner();

        Ok(Self {
            requests,
            responses,
        })
    }

    /// Receives and acknowledges the next response.
    async fn next(&mut self) -> Result<DeltaDiscoveryResponse> {
        let response = self
            .responses
            .message()
            .await?
            .context("the stream ended")?;
        let taken = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests
            .send(taken)
            .await
            .context("the stream ended")?;
        Ok(response)
    }
}

/// A proxy with a permanent stream; losing the stream counts as a failure.
pub(crate) async fn stay(number: usize, token: String, marker: Arc<Marker>) {
    let token = (!number.is_multiple_of(5)).then_some(token);
    let from = network::client(1, number);
    let pod = format!("web-{number}");

    loop {
        let follow = async {
            let mut stream =
                Stream::open(from, &pod, token.as_deref(), ENDPOINTS, &[MARKER]).await?;
            loop {
                if let Some(version) = version(&stream.next().await?)? {
                    marker.seen(number, version);
                }
            }
        };

        let lost: Result<()> = follow.await;
        marker.series.lost(format!(
            "{pod} lost its stream: {:#}",
            lost.expect_err("the loop ends only with an error")
        ));
        sleep(Duration::from_millis(500)).await;
    }
}

/// New proxies, two per second, alternating between a token and plain text.
pub(crate) async fn come(token: String, series: Arc<Series>) {
    let mut comers = tokio::task::JoinSet::new();

    for number in 0_usize.. {
        let question = series.ask();
        let token = number.is_multiple_of(2).then(|| token.clone());
        comers.spawn(async move {
            let from = network::client(2, number);
            let pod = format!("new-{number}");
            let come = async {
                let mut stream = Stream::open(from, &pod, token.as_deref(), CLUSTERS, &[]).await?;
                stream.next().await?;
                let endpoints = DeltaDiscoveryRequest {
                    type_url: ENDPOINTS.to_owned(),
                    resource_names_subscribe: vec![MARKER.to_owned()],
                    ..DeltaDiscoveryRequest::default()
                };
                stream.requests.send(endpoints).await?;
                while version(&stream.next().await?)?.is_none() {}
                Ok(())
            };

            let outcome = timeout(TIMEOUT, come).await;
            question.end(
                outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("no configuration in {TIMEOUT:?}"))),
            );
        });

        while comers.try_join_next().is_some() {}
        sleep(Duration::from_millis(500)).await;
    }
}
