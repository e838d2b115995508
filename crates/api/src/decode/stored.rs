//! Decoding of objects stored in an API server in one pass, without fields that are not used.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Deserialize, DeserializeSeed, Error, MapAccess, Visitor};
use serde_json::Value;

use super::binary::decode_status;
use super::pruned::{Keep, pruned};
use super::{Outcome, Subject, decode_value};
use crate::any_object::AnyObject;
use crate::object::{Kind, NamespacedName};
use crate::shared_texts::{HasTexts, SharedTexts};

/// The annotation in which kubectl keeps a copy of the applied object.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The used fields of metadata.
const METADATA: Keep = Keep::Only(&[
    ("name", Keep::All),
    ("generateName", Keep::All),
    ("namespace", Keep::All),
    ("labels", Keep::All),
    ("annotations", Keep::Without(&[LAST_APPLIED])),
    ("creationTimestamp", Keep::All),
    ("deletionTimestamp", Keep::All),
    ("resourceVersion", Keep::All),
    ("generation", Keep::All),
    ("uid", Keep::All),
    ("ownerReferences", Keep::All),
]);

/// The used fields of a container.
const CONTAINER: Keep = Keep::Only(&[
    ("name", Keep::All),
    ("ports", Keep::All),
    ("restartPolicy", Keep::All),
]);

/// The used fields of a pod.
static POD: Keep = Keep::Only(&[
    ("apiVersion", Keep::All),
    ("kind", Keep::All),
    ("metadata", METADATA),
    (
        "spec",
        Keep::Only(&[
            ("containers", CONTAINER),
            ("initContainers", CONTAINER),
            ("hostNetwork", Keep::All),
            ("hostname", Keep::All),
            ("nodeName", Keep::All),
            ("serviceAccount", Keep::All),
            ("serviceAccountName", Keep::All),
            ("subdomain", Keep::All),
        ]),
    ),
    (
        "status",
        Keep::Only(&[
            (
                "conditions",
                Keep::Only(&[("type", Keep::All), ("status", Keep::All)]),
            ),
            ("phase", Keep::All),
            ("podIP", Keep::All),
            ("podIPs", Keep::All),
        ]),
    ),
]);

/// The used fields of a node, which exclude the list of its images.
static NODE: Keep = Keep::Only(&[
    ("apiVersion", Keep::All),
    ("kind", Keep::All),
    ("metadata", METADATA),
    (
        "status",
        Keep::Only(&[
            ("addresses", Keep::All),
            ("nodeInfo", Keep::Only(&[("kubeletVersion", Keep::All)])),
        ]),
    ),
]);

/// The used fields of any other object.
static OBJECT: Keep = Keep::Only(&[
    ("apiVersion", Keep::All),
    ("kind", Keep::All),
    ("metadata", METADATA),
    ("spec", Keep::All),
    ("status", Keep::All),
    ("type", Keep::All),
    ("data", Keep::All),
    ("binaryData", Keep::All),
    ("stringData", Keep::All),
    ("addressType", Keep::All),
    ("endpoints", Keep::All),
    ("ports", Keep::All),
]);

/// The used fields of a deleted object or a bookmark.
static HEADER: Keep = Keep::Only(&[(
    "metadata",
    Keep::Only(&[
        ("name", Keep::All),
        ("namespace", Keep::All),
        ("resourceVersion", Keep::All),
        ("annotations", Keep::All),
    ]),
)]);

/// The annotation of the bookmark after the initial events of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The reason in `details` if a server has not seen the requested version yet.
const VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

/// An event in the response to a watch of the Kubernetes API.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// An object was added or modified.
    Put(StoredObject),
    /// An object is gone.
    Gone {
        /// Namespace and name of the deleted object.
        name: NamespacedName,
        /// The version of the collection at its deletion.
        version: String,
    },
    /// There were no events up to a version of the collection.
    Bookmark {
        /// `resourceVersion` of the collection up to which there were none.
        version: String,
        /// Whether this ends the initial events.
        ends_initial: bool,
    },
    /// `ERROR`: the server ends the watch, such as with code 410 if the requested version is too
    /// old.
    Failed(ServerStatus),
}

/// The outcome of decoding an object.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject {
    /// `metadata.resourceVersion`.
    pub version: String,
    /// The identity of the object, as far as it is known.
    pub subject: Subject,
    /// The object without fields that Navarch does not use, or why there is none.
    pub outcome: Outcome,
}

/// The error of an API server (`metav1.Status`).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// The HTTP status code.
    pub code: u16,
    /// For people; the first 300 characters of the body if a response is not a `metav1.Status`.
    pub message: String,
    /// Machine-readable details.
    pub(super) details: Option<StatusDetails>,
}

/// The used fields of `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusDetails {
    pub(super) causes: Vec<StatusCause>,
    pub(super) retry_after_seconds: u32,
}

/// The used fields of `metav1.StatusCause`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub(super) struct StatusCause {
    pub(super) reason: String,
}

impl ServerStatus {
    /// From the body of an error response: `metav1.Status`, or the text of an intermediary.
    #[must_use]
    pub fn of_answer(code: u16, body: &[u8]) -> Self {
        let status = decode_status(body)
            .or_else(|| serde_json::from_slice::<Self>(body).ok())
            .filter(|status| !status.message.is_empty());
        let text = || {
            String::from_utf8_lossy(body)
                .trim()
                .chars()
                .take(300)
                .collect()
        };
        let status = status.unwrap_or_else(|| Self {
            message: text(),
            ..Self::default()
        });
        Self { code, ..status }
    }

    /// Whether the server has not seen the requested version: it was restored, or lags behind
    /// another replica.
    #[must_use]
    pub fn is_version_too_large(&self) -> bool {
        self.details
            .iter()
            .flat_map(|details| &details.causes)
            .any(|cause| cause.reason == VERSION_TOO_LARGE)
    }

    /// Seconds after which to retry; 0 if unset.
    #[must_use]
    pub fn retry_after_seconds(&self) -> u32 {
        self.details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds)
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

/// Decodes one line of a watch over objects of a kind. Repeated texts are interned.
///
/// # Errors
/// When the line is not a watch event.
pub fn decode_watch_event(
    kind: Kind,
    line: &[u8],
    texts: &mut SharedTexts,
) -> Result<WatchEvent, serde_json::Error> {
    let mut event = decode_line(kind, line)?;
    event.share(texts);
    Ok(event)
}

/// Reads one line of a watch.
fn decode_line(kind: Kind, line: &[u8]) -> Result<WatchEvent, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    match (EventSeed { kind }).deserialize(&mut deserializer) {
        Ok(event) => Ok(event),
        // It is invalid: decode it again by the slow path, which reports the error.
        Err(_) => read_slowly(line),
    }
}

/// Decodes one line of a watch by a JSON tree.
fn read_slowly(line: &[u8]) -> Result<WatchEvent, serde_json::Error> {
    let value: Value = serde_json::from_slice(line)?;
    let object = value.get("object").unwrap_or(&Value::Null);
    match value.get("type").and_then(Value::as_str) {
        Some("ADDED" | "MODIFIED") => Ok(WatchEvent::Put(decode_stored(object))),
        Some("DELETED") => Header::deserialize(object).map(Header::deleted),
        Some("BOOKMARK") => Header::deserialize(object).map(Header::bookmark),
        Some("ERROR") => ServerStatus::deserialize(object).map(WatchEvent::Failed),
        Some(_) | None => Err(serde_json::Error::custom("is not a watch event")),
    }
}

impl HasTexts for WatchEvent {
    fn share(&mut self, texts: &mut SharedTexts) {
        if let Self::Put(stored) = self {
            stored.share(texts);
        }
    }
}

impl HasTexts for StoredObject {
    fn share(&mut self, texts: &mut SharedTexts) {
        if let Outcome::Read { object, .. } = &mut self.outcome {
            object.share(texts);
        }
    }
}

/// Reads one object that a server sent in a list.
#[must_use]
pub fn decode_stored(value: &Value) -> StoredObject {
    let version = value
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let (subject, outcome) = decode_value(value);
    StoredObject {
        version,
        subject,
        outcome,
    }
}

/// The used fields of an object of which only name and version matter.
#[derive(serde::Deserialize)]
pub(super) struct Header {
    pub(super) metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

impl Header {
    /// The event of a deleted object.
    pub(super) fn deleted(self) -> WatchEvent {
        let text = |text: Option<String>| text.unwrap_or_default();
        let name = NamespacedName::new(&text(self.metadata.namespace), &text(self.metadata.name));
        WatchEvent::Gone {
            name,
            version: text(self.metadata.resource_version),
        }
    }

    pub(super) fn bookmark(self) -> WatchEvent {
        let ends_initial = self
            .metadata
            .annotations
            .is_some_and(|annotations| annotations.contains_key(INITIAL_EVENTS_END));
        WatchEvent::Bookmark {
            version: self.metadata.resource_version.unwrap_or_default(),
            ends_initial,
        }
    }
}

/// Deserializes an event. Servers send the type before the object.
struct EventSeed {
    /// The kind of the objects.
    kind: Kind,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    /// An object was added.
    Added,
    /// An object was modified.
    Modified,
    /// An object was deleted.
    Deleted,
    /// See [`WatchEvent::Bookmark`].
    Bookmark,
    /// See [`WatchEvent::Failed`].
    Error,
}

/// The members of an event.
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Member {
    Type,
    Object,
}

impl<'de> DeserializeSeed<'de> for EventSeed {
    type Value = WatchEvent;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<WatchEvent, D::Error> {
        inner.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed {
    type Value = WatchEvent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event of a watch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<WatchEvent, A::Error> {
        let Some(Member::Type) = members.next_key()? else {
            return Err(A::Error::missing_field("type"));
        };

        let event: EventType = members.next_value()?;
        let Some(Member::Object) = members.next_key()? else {
            return Err(A::Error::missing_field("object"));
        };

        match event {
            EventType::Added | EventType::Modified => members
                .next_value_seed(ObjectSeed(self.kind))
                .map(WatchEvent::Put),
            EventType::Deleted => members
                .next_value_seed(Pruning::new(&HEADER))
                .map(Header::deleted),
            EventType::Bookmark => members
                .next_value_seed(Pruning::new(&HEADER))
                .map(Header::bookmark),
            EventType::Error => members.next_value().map(WatchEvent::Failed),
        }
    }
}

/// Deserializes a type without pruned fields.
struct Pruning<T> {
    /// What is kept.
    keep: &'static Keep,
    read: PhantomData<T>,
}

impl<T> Pruning<T> {
    fn new(keep: &'static Keep) -> Self {
        Self {
            keep,
            read: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Pruning<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T, D::Error> {
        T::deserialize(pruned(inner, self.keep))
    }
}

/// Reads an object of a kind.
struct ObjectSeed(Kind);

impl<'de> DeserializeSeed<'de> for ObjectSeed {
    type Value = StoredObject;

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other kinds are handled alike"
    )]
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<StoredObject, D::Error> {
        let keep = match self.0 {
            Kind::Node => &NODE,
            Kind::Pod => &POD,
            _ => &OBJECT,
        };
        Value::deserialize(pruned(inner, keep)).map(|value| decode_stored(&value))
    }
}

/// A decoded object of one of Kubernetes' own kinds, without unknown fields.
pub(super) fn stored(mut object: AnyObject) -> StoredObject {
    StoredObject {
        version: object.take_version(),
        subject: Subject::default(),
        outcome: Outcome::Read {
            object,
            unknown_fields: Vec::new(),
        },
    }
}
