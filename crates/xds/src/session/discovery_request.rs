//! Parses and validates the requests of both protocols.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_base::printable::escape_lines;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use navarch_proto::google::rpc::Status as ErrorDetail;
use prost::Message as _;
use tonic::Status;

use crate::debug::is_debug;
use crate::node::Served;
use crate::session::initial_resource_versions::{DeltaDiscoveryRequest, InitialVersions};
use navarch_api::mcp;
use navarch_api::names::ResourceName;
use navarch_proto::any::TYPE_URL_PREFIX;
use navarch_push::resource::ResourceType;

/// Names in one request. Several requests can add up to more, which
/// [`MAX_WATCHED`](crate::session::MAX_WATCHED) bounds.
pub(crate) const MAX_NAMES: usize = 100_000;
/// Bytes of one name. Istio's longest names contain two 253-byte hosts and some separators.
pub(crate) const MAX_NAME_BYTES: usize = 4096;
/// Names in one request to the debug API. istioctl sends one at most.
const MAX_QUESTION_NAMES: usize = 8;
/// Bytes of one type URL.
const MAX_URL_BYTES: usize = 1024;
/// Bytes of a node: a pod's labels and annotations (256 KiB at most), and some hundred extension
/// names.
const MAX_NODE_BYTES: usize = 1 << 20;
/// Bytes of a node's id, which is in every log line of its stream: two Kubernetes names, a domain
/// and an address.
const MAX_NODE_ID_BYTES: usize = 2048;
/// Maximum bytes kept of a rejection's message.
const MAX_ERROR_BYTES: usize = 4096;
/// The prefix of Envoy's type URLs. Those that are not served are not part of a mesh configuration.
const ENVOY: &str = "type.googleapis.com/envoy.";
/// The name that subscribes to all resources of a type.
const STAR: &str = "*";
/// The type of virtual machines' health reports, which use the same stream.
const HEALTH_URL: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// The protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `StreamAggregatedResources`.
    StateOfTheWorld,
    /// `DeltaAggregatedResources`.
    Delta,
}

#[derive(Debug)]
pub(crate) enum Request {
    /// The complete subscription of a type.
    State(StateRequest),
    /// Added and removed names of a subscription.
    Delta(DeltaRequest),
    /// A request to the debug API.
    Question {
        /// The type URL.
        url: String,
        names: Vec<String>,
        /// The nonce of the request; tools send one that they made up.
        nonce: String,
    },
    /// A type that is not served.
    Unserved {
        /// The type URL.
        url: String,
    },
    /// A health report, with the error if the workload is unhealthy. It gets no response.
    Health(Option<Rejection>),
}

/// A state-of-the-world request.
#[derive(Debug)]
pub(crate) struct StateRequest {
    pub(crate) resource_type: ResourceType,
    /// The reference to the last response.
    pub(crate) quoted: Quoted,
    pub(crate) wanted: RequestedNames,
}

#[derive(Debug)]
pub(crate) struct DeltaRequest {
    pub(crate) resource_type: ResourceType,
    /// The reference to an earlier response.
    pub(crate) quoted: Quoted,
    pub(crate) subscribe: RequestedNames,
    pub(crate) unsubscribe: RequestedNames,
    /// The client's resources from an earlier stream.
    pub(crate) initial_versions: InitialVersions,
}

/// The reference to a response that a request acknowledges or rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// The response's nonce; empty if the request refers to no response.
    pub(crate) nonce: String,
    /// Why the response was rejected, if it was.
    pub(crate) error: Option<Rejection>,
}

/// The error of a NACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The gRPC code.
    pub code: i32,
    /// The client's message.
    pub message: Arc<str>,
}

/// Requested names, and whether `*` is among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedNames {
    pub(crate) star: bool,
    pub(crate) names: BTreeSet<ResourceName>,
}

/// A request message of either protocol.
pub(crate) trait Wire: prost::Message + Default + 'static {
    /// The protocol that it belongs to.
    const PROTOCOL: Protocol;

    /// The client's node, which is set on the first request only.
    fn node(&mut self) -> &mut Option<Node>;

    /// Whether it is a health report, which has no node.
    fn is_health(&self) -> bool;

    /// Parses the message.
    ///
    /// # Errors
    /// If it exceeds a limit.
    fn parse(self) -> Result<Request, Status>;
}

/// Parses bytes as the first request of an unauthenticated stream, for tests with arbitrary input.
///
/// # Errors
/// If they are not a request, or exceed a limit.
pub fn check_first_request(protocol: Protocol, bytes: &[u8]) -> Result<(), Status> {
    match protocol {
        Protocol::StateOfTheWorld => taken::<DiscoveryRequest>(bytes),
        Protocol::Delta => taken::<DeltaDiscoveryRequest>(bytes),
    }
}

/// Parses a first request as streams do.
fn taken<M: Wire>(bytes: &[u8]) -> Result<(), Status> {
    let mut request =
        M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let node = sender(&mut request)?;
    crate::node::proxy(node, None, Served::Networks)?;
    request.parse().map(drop)
}

/// Takes the node of a first request.
///
/// # Errors
/// If the node is missing, or exceeds a limit.
pub(crate) fn sender<M: Wire>(request: &mut M) -> Result<Node, Status> {
    let node = request.node().take().filter(|node| !node.id.is_empty());
    let node = node.ok_or_else(|| Status::invalid_argument("missing node information"))?;
    if node.id.len() > MAX_NODE_ID_BYTES {
        return Err(Status::invalid_argument(format!(
            "the node id exceeds {MAX_NODE_ID_BYTES} bytes"
        )));
    }
    if node.encoded_len() > MAX_NODE_BYTES {
        return Err(Status::invalid_argument(format!(
            "the node exceeds {MAX_NODE_BYTES} bytes"
        )));
    }
    Ok(node)
}

impl Request {
    /// The type, if it is served.
    pub(crate) fn resource_type(&self) -> Option<ResourceType> {
        match self {
            Self::State(request) => Some(request.resource_type),
            Self::Delta(request) => Some(request.resource_type),
            Self::Question { .. } | Self::Unserved { .. } | Self::Health(_) => None,
        }
    }

    /// The nonce of the response that it refers to, and whether it is an ACK.
    pub(crate) fn answers(&self) -> Option<(&str, bool)> {
        let quoted = match self {
            Self::State(request) => &request.quoted,
            Self::Delta(request) => &request.quoted,
            Self::Question { .. } | Self::Unserved { .. } | Self::Health(_) => return None,
        };
        (!quoted.nonce.is_empty()).then(|| (&*quoted.nonce, quoted.error.is_none()))
    }
}

impl RequestedNames {
    /// Parses a list of names.
    fn parse(names: &[String]) -> Result<Self, Status> {
        if names.len() > MAX_NAMES {
            return Err(Status::resource_exhausted(format!(
                "the request has more than {MAX_NAMES} resource names"
            )));
        }
        let mut star = false;
        let named = names.iter().filter(|name| {
            star |= *name == STAR;
            *name != STAR
        });
        // A set is built bottom-up from all names at once: for thousands of names, that takes a
        // third of the time.
        let names: BTreeSet<ResourceName> = named
            .map(|name| resource_name(name))
            .collect::<Result<_, _>>()?;
        Ok(Self { star, names })
    }

    /// Whether it contains no names.
    pub(crate) fn is_empty(&self) -> bool {
        !self.star && self.names.is_empty()
    }
}

impl Quoted {
    /// The reference of a request to a response.
    fn new(nonce: String, error: Option<ErrorDetail>) -> Self {
        let error = error.map(|error| Rejection {
            code: error.code,
            message: Arc::from(&*kept_message(&error.message)),
        });
        Self { nonce, error }
    }
}

/// What is kept of an error message, which is the client's word: Envoy's have several lines.
fn kept_message(message: &str) -> String {
    let head = &message[..message.floor_char_boundary(MAX_ERROR_BYTES)];
    let mut kept = escape_lines(head).into_owned();
    kept.truncate(kept.floor_char_boundary(MAX_ERROR_BYTES));
    kept
}

impl Wire for DiscoveryRequest {
    const PROTOCOL: Protocol = Protocol::StateOfTheWorld;

    fn node(&mut self) -> &mut Option<Node> {
        &mut self.node
    }

    fn is_health(&self) -> bool {
        self.type_url == HEALTH_URL
    }

    fn parse(self) -> Result<Request, Status> {
        // Envoy subscribes to virtual hosts on delta streams only.
        let resource_type = ResourceType::from_type_url(&self.type_url)
            .filter(|resource_type| *resource_type != ResourceType::VirtualHost);
        let Some(resource_type) = resource_type else {
            let names = self.resource_names;
            return unserved(self.type_url, names, self.response_nonce, self.error_detail);
        };
        let quoted = Quoted::new(self.response_nonce, self.error_detail);
        Ok(Request::State(StateRequest {
            resource_type,
            quoted,
            wanted: RequestedNames::parse(&self.resource_names)?,
        }))
    }
}

impl Wire for DeltaDiscoveryRequest {
    const PROTOCOL: Protocol = Protocol::Delta;

    fn node(&mut self) -> &mut Option<Node> {
        &mut self.fields.node
    }

    fn is_health(&self) -> bool {
        self.fields.type_url == HEALTH_URL
    }

    fn parse(self) -> Result<Request, Status> {
        let (fields, initial_versions) = self.into_parts()?;
        let Some(resource_type) = ResourceType::from_type_url(&fields.type_url) else {
            let names = fields.resource_names_subscribe;
            return unserved(
                fields.type_url,
                names,
                fields.response_nonce,
                fields.error_detail,
            );
        };
        Ok(Request::Delta(DeltaRequest {
            resource_type,
            quoted: Quoted::new(fields.response_nonce, fields.error_detail),
            subscribe: RequestedNames::parse(&fields.resource_names_subscribe)?,
            unsubscribe: RequestedNames::parse(&fields.resource_names_unsubscribe)?,
            initial_versions,
        }))
    }
}

/// A request for a type that is not served. Envoy's types get an empty response, as from istiod,
/// and kinds of objects do if the stream allows them. Other types are rejected: clients could take
/// an empty response for an empty mesh, or for no policies.
fn unserved(
    url: String,
    names: Vec<String>,
    nonce: String,
    error: Option<ErrorDetail>,
) -> Result<Request, Status> {
    match url.as_str() {
        HEALTH_URL => Ok(Request::Health(Quoted::new(String::new(), error).error)),
        _ if url.len() > MAX_URL_BYTES => Err(Status::invalid_argument(format!(
            "the type URL exceeds {MAX_URL_BYTES} bytes"
        ))),
        _ if is_debug(&url) => {
            let is_long = |name: &String| name.len() > MAX_NAME_BYTES;
            if names.len() > MAX_QUESTION_NAMES || names.iter().any(is_long) {
                return Err(Status::invalid_argument(
                    "the debug request has too many or too long resource names",
                ));
            }

            Ok(Request::Question { url, names, nonce })
        }
        // A kind of objects (`group/version/kind`): the stream checks whether the client may get an
        // empty response for it.
        _ if !url.starts_with(TYPE_URL_PREFIX) && !is_other_version(&url) => {
            Ok(Request::Unserved { url })
        }
        _ if !url.starts_with(ENVOY) => Err(not_served(&url)),
        _ => Ok(Request::Unserved { url }),
    }
}

/// Whether a type is another version of a served kind: on an empty response, the client would
/// remove existing objects.
fn is_other_version(url: &str) -> bool {
    let parts = |url: &str| {
        Some((
            url.split_once('/')?.0.to_owned(),
            url.rsplit_once('/')?.1.to_owned(),
        ))
    };
    let requested = parts(url);
    mcp::kinds().any(|kind| parts(mcp::type_url(kind)) == requested)
}

/// The status for a type that is not served.
pub(crate) fn not_served(url: &str) -> Status {
    Status::unimplemented(format!(
        "resources of type {url:?} are not supported by this control plane"
    ))
}

/// Parses a name and checks its length.
fn resource_name(name: &str) -> Result<ResourceName, Status> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Status::invalid_argument(format!(
            "a resource name exceeds {MAX_NAME_BYTES} bytes"
        )));
    }
    Ok(ResourceName::new(name))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
    use proptest::prelude::*;
    use prost::Message;
    use tonic::Code;

    use super::*;

    /// What a stranger may send: any bytes, and requests that are nearly right.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let honest = (
            any::<bool>(),
            prop::collection::vec(".{0,40}", 0..5),
            ".{0,80}",
        )
            .prop_map(|(known, names, text)| {
                let url = if known {
                    ResourceType::Cluster.type_url().to_owned()
                } else {
                    text.clone()
                };

                DeltaDiscoveryRequest {
                    node: Some(Node {
                        id: text.clone(),
                        ..Node::default()
                    }),
                    type_url: url,
                    initial_resource_versions: names
                        .iter()
                        .map(|name| (name.clone(), text.clone()))
                        .collect(),
                    resource_names_subscribe: names,
                    response_nonce: text.clone(),
                    error_detail: Some(ErrorDetail {
                        code: -1,
                        message: text,
                        details: Vec::new(),
                    }),
                    ..DeltaDiscoveryRequest::default()
                }
                .encode_to_vec()
            });

        prop_oneof![prop::collection::vec(any::<u8>(), 0..200), honest]
    }

    proptest! {
        #[test]
        fn every_request_is_decoded_or_rejected(bytes in bytes()) {
            for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
                drop(check_first_request(protocol, &bytes));
            }
        }
    }

    #[test]
    fn stored_rejection_messages_are_bounded() {
        let long = ErrorDetail {
            code: 13,
            message: "ä".repeat(10_000),
            details: Vec::new(),
        };
        let kept = Quoted::new(String::new(), Some(long))
            .error
            .unwrap()
            .message
            .len();
        assert_eq!(kept, MAX_ERROR_BYTES);
    }

    #[test]
    fn rejection_messages_cannot_move_the_cursor() {
        assert_eq!(
            kept_message("listener a: bad\nlistener b: \u{1b}[2J\u{202e}"),
            "listener a: bad\nlistener b: \\u{1b}[2J\\u{202e}"
        );
        assert_eq!(
            kept_message(&"\u{1b}".repeat(10_000)).len(),
            MAX_ERROR_BYTES
        );
    }

    #[test]
    fn oversized_requests_and_unserved_types_are_rejected() {
        let unserved = |name: &str| format!("type.googleapis.com/{name}");
        let unserved_type = || Err(Code::Unimplemented);
        let parse = |request: DeltaDiscoveryRequest| {
            request.parse().map(|_| ()).map_err(|status| status.code())
        };
        let url = || ResourceType::Endpoint.type_url().to_owned();

        for (request, expected) in [
            (
                DeltaDiscoveryRequest {
                    type_url: url(),
                    resource_names_subscribe: vec![String::new(); MAX_NAMES + 1],
                    ..DeltaDiscoveryRequest::default()
                },
                Err(Code::ResourceExhausted),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: url(),
                    initial_resource_versions: [("x".repeat(MAX_NAME_BYTES + 1), String::new())]
                        .into(),
                    ..DeltaDiscoveryRequest::default()
                },
                Err(Code::InvalidArgument),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: "x".repeat(MAX_URL_BYTES + 1),
                    ..DeltaDiscoveryRequest::default()
                },
                Err(Code::InvalidArgument),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: url(),
                    ..DeltaDiscoveryRequest::default()
                },
                Ok(()),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: unserved("istio.workload.Bus"),
                    ..Default::default()
                },
                unserved_type(),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: "istio.io/debug/syncz".to_owned(),
                    ..Default::default()
                },
                Ok(()),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: "example.com/v1/Widget".to_owned(),
                    ..Default::default()
                },
                Ok(()),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: "istio.io/debug".to_owned(),
                    resource_names_subscribe: vec![String::new(); MAX_QUESTION_NAMES + 1],
                    ..DeltaDiscoveryRequest::default()
                },
                Err(Code::InvalidArgument),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: "networking.istio.io/v1alpha3/ServiceEntry".to_owned(),
                    ..DeltaDiscoveryRequest::default()
                },
                unserved_type(),
            ),
            (
                DeltaDiscoveryRequest {
                    type_url: unserved("envoy.service.runtime.v3.Runtime"),
                    ..Default::default()
                },
                Ok(()),
            ),
        ] {
            assert_eq!(parse(request), expected);
        }

        for (id, cluster) in [(MAX_NODE_ID_BYTES + 1, 0), (1, MAX_NODE_BYTES)] {
            let node = Node {
                id: "x".repeat(id),
                cluster: "x".repeat(cluster),
                ..Node::default()
            };
            let mut request = DiscoveryRequest {
                node: Some(node),
                ..DiscoveryRequest::default()
            };
            assert_eq!(
                sender(&mut request).unwrap_err().code(),
                Code::InvalidArgument
            );
        }
    }
}
