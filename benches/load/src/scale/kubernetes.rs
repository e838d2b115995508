//! Objects and events as a Kubernetes API server sends them to a watch.
//!
//! Services, EndpointSlices and pods are in protobuf form, in which Navarch reads them, with the
//! field numbers of `generated.proto` in k8s.io/api and k8s.io/apimachinery. They have the fields
//! that Navarch reads and `uid`, but not `managedFields`, which a real server sends, too.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::json;

/// The media type of a watch in protobuf form.
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What precedes each object in protobuf form.
const MAGIC: &[u8] = b"k8s\0";
/// The annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// 2026-01-01, the creation time of all objects.
const CREATED_SECONDS: i64 = 1_767_225_600;

/// The form of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Messages, each behind its length in four bytes.
    Protobuf,
    /// Lines.
    Json,
}

impl Form {
    /// The media type of a watch.
    pub(super) fn media_type(self) -> String {
        match self {
            Self::Protobuf => format!("{PROTOBUF};stream=watch"),
            Self::Json => "application/json".to_owned(),
        }
    }

    /// A bookmark, with which a server also ends the initial events.
    pub(super) fn bookmark(self, version: u64, ends_initial: bool) -> Vec<u8> {
        let version = version.to_string();
        let annotations: BTreeMap<String, String> = ends_initial
            .then(|| (INITIAL_EVENTS_END.to_owned(), "true".to_owned()))
            .into_iter()
            .collect();

        match self {
            Self::Json => {
                let metadata = json!({ "resourceVersion": version, "annotations": annotations });
                let object =
                    json!({ "kind": "Bookmark", "apiVersion": "v1", "metadata": metadata });
                json_event("BOOKMARK", &object)
            }
            Self::Protobuf => {
                let metadata = ObjectMeta {
                    resource_version: version,
                    annotations,
                    ..ObjectMeta::default()
                };
                let bare = Bare {
                    metadata: Some(metadata),
                };
                frame("BOOKMARK", "v1", "Bookmark", &bare)
            }
        }
    }
}

/// An event in JSON: the type comes before the object, as from a server.
pub(super) fn json_event(happened: &str, object: &serde_json::Value) -> Vec<u8> {
    format!("{{\"type\":\"{happened}\",\"object\":{object}}}\n").into_bytes()
}

/// An object that is served in protobuf form.
pub(super) trait Served: Message + Sized {
    /// Such as `v1`.
    const API_VERSION: &'static str;
    const KIND: &'static str;

    /// An event with this object; `happened` is `ADDED` or `MODIFIED`.
    fn event(&self, happened: &str) -> Vec<u8> {
        frame(happened, Self::API_VERSION, Self::KIND, self)
    }
}

/// An event behind its length.
fn frame(happened: &str, api_version: &str, kind: &str, object: &impl Message) -> Vec<u8> {
    let unknown = Unknown {
        type_meta: Some(TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }),
        raw: object.encode_to_vec(),
    };
    let mut raw = MAGIC.to_vec();
    raw.extend(unknown.encode_to_vec());
    let event = WatchEvent {
        happened: happened.to_owned(),
        object: Some(RawExtension { raw }),
    };

    let length = u32::try_from(event.encoded_len()).unwrap_or(u32::MAX);
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(event.encode_to_vec());
    frame
}

/// `metav1.WatchEvent`.
#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    /// `type`.
    #[prost(string, tag = "1")]
    happened: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

/// `runtime.RawExtension`.
#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

/// `runtime.Unknown`.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// An object of which only the metadata is set.
#[derive(Clone, PartialEq, Message)]
struct Bare {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(string, tag = "6")]
    pub(super) resource_version: String,
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
    #[prost(message, optional, tag = "8")]
    pub(super) created: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(super) annotations: BTreeMap<String, String>,
}

impl ObjectMeta {
    /// The metadata of an object; `number` makes its UID unique.
    pub(super) fn new(namespace: &str, name: String, number: usize, version: u64) -> Self {
        Self {
            name,
            namespace: namespace.to_owned(),
            uid: format!("6f1b3c1e-0d1c-4c7b-9b5e-{number:012x}"),
            resource_version: version.to_string(),
            generation: 1,
            created: Some(Time {
                seconds: CREATED_SECONDS,
            }),
            ..Self::default()
        }
    }

    /// Adds a label.
    pub(super) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// `metav1.Time`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

/// `v1.Service`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Service {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<ServiceSpec>,
}

impl Served for Service {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Service";
}

/// `v1.ServiceSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    pub(super) ports: Vec<ServicePort>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) selector: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) cluster_ip: String,
    /// `type`.
    #[prost(string, tag = "4")]
    pub(super) kind: String,
    #[prost(string, repeated, tag = "18")]
    pub(super) cluster_ips: Vec<String>,
}

impl ServiceSpec {
    /// A service with the port 80, which its pods serve on 8080.
    pub(super) fn http(app: &str, cluster_ip: String) -> Self {
        Self {
            ports: vec![ServicePort {
                name: "http".to_owned(),
                protocol: "TCP".to_owned(),
                port: 80,
                target: Some(NumberOrName { number: 8080 }),
            }],
            selector: [("app".to_owned(), app.to_owned())].into(),
            cluster_ips: vec![cluster_ip.clone()],
            cluster_ip,
            kind: "ClusterIP".to_owned(),
        }
    }
}

/// `v1.ServicePort`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ServicePort {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) protocol: String,
    #[prost(int32, tag = "3")]
    pub(super) port: i32,
    /// `targetPort`.
    #[prost(message, optional, tag = "4")]
    pub(super) target: Option<NumberOrName>,
}

/// `intstr.IntOrString` of a number.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberOrName {
    /// `intVal`.
    #[prost(int32, tag = "2")]
    pub(super) number: i32,
}

/// `discovery.v1.EndpointSlice`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointSlice {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    pub(super) ports: Vec<EndpointPort>,
    #[prost(string, tag = "4")]
    pub(super) address_type: String,
}

impl Served for EndpointSlice {
    const API_VERSION: &'static str = "discovery.k8s.io/v1";
    const KIND: &'static str = "EndpointSlice";
}

/// `discovery.v1.Endpoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    pub(super) addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) conditions: Option<EndpointConditions>,
    /// `targetRef`.
    #[prost(message, optional, tag = "4")]
    pub(super) target: Option<ObjectReference>,
}

impl Endpoint {
    /// A ready endpoint without a pod.
    pub(super) fn ready(address: String) -> Self {
        Self {
            addresses: vec![address],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                serving: Some(true),
                terminating: Some(false),
            }),
            target: None,
        }
    }
}

/// `discovery.v1.EndpointConditions`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointConditions {
    #[prost(bool, optional, tag = "1")]
    pub(super) ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(super) serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) terminating: Option<bool>,
}

/// `v1.ObjectReference`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectReference {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `discovery.v1.EndpointPort`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) protocol: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(super) port: Option<i32>,
}

impl EndpointPort {
    /// The port that pods serve.
    pub(super) fn http() -> Self {
        Self {
            name: Some("http".to_owned()),
            protocol: Some("TCP".to_owned()),
            port: Some(8080),
        }
    }
}

/// `v1.Pod`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<PodStatus>,
}

impl Served for Pod {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
}

/// `v1.PodSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSpec {
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<Container>,
    #[prost(string, tag = "8")]
    pub(super) service_account: String,
    #[prost(string, tag = "10")]
    pub(super) node: String,
}

/// `v1.Container`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) image: String,
}

/// `v1.PodStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodStatus {
    #[prost(string, tag = "1")]
    pub(super) phase: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) conditions: Vec<PodCondition>,
    #[prost(string, tag = "6")]
    pub(super) ip: String,
    #[prost(message, repeated, tag = "12")]
    pub(super) ips: Vec<PodIp>,
}

impl PodStatus {
    /// A running pod.
    pub(super) fn running(ip: String, is_ready: bool) -> Self {
        let status = if is_ready { "True" } else { "False" };
        Self {
            phase: "Running".to_owned(),
            conditions: vec![PodCondition {
                kind: "Ready".to_owned(),
                status: status.to_owned(),
            }],
            ips: vec![PodIp { ip: ip.clone() }],
            ip,
        }
    }
}

/// `v1.PodCondition`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodCondition {
    /// `type`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
}

/// `v1.PodIP`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodIp {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event of a frame, and the content of its object.
    fn opened(frame: &[u8]) -> (WatchEvent, Unknown) {
        let (length, rest) = frame.split_first_chunk::<4>().unwrap();
        assert_eq!(
            usize::try_from(u32::from_be_bytes(*length)).unwrap(),
            rest.len()
        );
        let event = WatchEvent::decode(rest).unwrap();
        let raw = event.object.clone().unwrap().raw;
        let unknown = Unknown::decode(raw.strip_prefix(MAGIC).unwrap()).unwrap();
        (event, unknown)
    }

    #[test]
    fn an_event_in_protobuf_contains_its_object() {
        let metadata = ObjectMeta::new("shop", "web".to_owned(), 7, 3).label("app", "web");
        let service = Service {
            metadata: Some(metadata),
            spec: Some(ServiceSpec::http("web", "10.96.0.1".to_owned())),
        };

        let (event, unknown) = opened(&service.event("ADDED"));
        let type_meta = unknown.type_meta.unwrap();
        assert_eq!(event.happened, "ADDED");
        assert_eq!(type_meta.api_version, "v1");
        assert_eq!(type_meta.kind, "Service");
        assert_eq!(Service::decode(&unknown.raw[..]).unwrap(), service);
    }

    #[test]
    fn only_the_bookmark_after_the_initial_events_ends_them() {
        for ends_initial in [true, false] {
            let (event, unknown) = opened(&Form::Protobuf.bookmark(9, ends_initial));
            let metadata = Bare::decode(&unknown.raw[..]).unwrap().metadata.unwrap();
            assert_eq!(event.happened, "BOOKMARK");
            assert_eq!(metadata.resource_version, "9");
            assert_eq!(
                metadata.annotations.contains_key(INITIAL_EVENTS_END),
                ends_initial
            );

            let line = Form::Json.bookmark(9, ends_initial);
            let text = std::str::from_utf8(&line).unwrap();
            assert!(text.starts_with("{\"type\":\"BOOKMARK\",\"object\":") && text.ends_with('\n'));
            assert_eq!(text.contains(INITIAL_EVENTS_END), ends_initial);
        }
    }
}
