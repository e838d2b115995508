//! Requests of the Kubernetes API, as far as Navarch sends them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};

use super::objects::Name;
use super::resources::{Resource, Resources};
use super::selectors::Selector;
use crate::KEY_LINE;

/// A parsed request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) resource: Resource,
    /// `apiVersion` of the request, such as `networking.istio.io/v1`.
    pub(crate) api_version: String,
    pub(crate) namespace: String,
    /// The name of the object; empty for a collection.
    pub(crate) name: String,
    /// Such as `status`; empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) query: Query,
    /// Whether only metadata is requested.
    pub(crate) is_metadata_only: bool,
    pub(crate) patch: PatchKind,
    pub(crate) body: Value,
}

/// The parameters that matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) watch: bool,
    pub(crate) sends_initial_events: bool,
    pub(crate) bookmarks: bool,
    pub(crate) resource_version: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) continues: Option<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) selector: Selector,
}

/// The form of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Apply,
}

impl Request {
    /// The object's name.
    pub(crate) fn object_name(&self) -> Name {
        (self.namespace.clone(), self.name.clone())
    }

    /// Whether it would store a private key where everyone may read it.
    pub(crate) fn shows_key(&self) -> bool {
        self.resource.kind != "Secret" && has_key(&self.body)
    }

    /// Reads a request; `None` if the server has no such resource.
    pub(crate) fn parse(head: &Parts, body: &Bytes, resources: &Resources) -> Option<Self> {
        let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // The namespace as an object.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };

        let header = |name: http::HeaderName| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let content_type = header(http::header::CONTENT_TYPE);
        let patch = if content_type.starts_with("application/json-patch") {
            PatchKind::Json
        } else if content_type.starts_with("application/apply-patch") {
            PatchKind::Apply
        } else {
            PatchKind::Merge
        };

        Some(Self {
            method: head.method.clone(),
            resource: resources.get(group, plural)?.clone(),
            api_version: if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            query: query(head.uri.query().unwrap_or_default(), namespace),
            is_metadata_only: header(http::header::ACCEPT).contains("PartialObjectMetadata"),
            patch,
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        })
    }
}

/// Whether one of the texts of an object contains a private key, encoded or not.
fn has_key(object: &Value) -> bool {
    match object {
        Value::String(text) => {
            let decoded = BASE64_STANDARD.decode(text).unwrap_or_default();
            text.contains(KEY_LINE) || String::from_utf8_lossy(&decoded).contains(KEY_LINE)
        }
        Value::Array(items) => items.iter().any(has_key),
        Value::Object(members) => members.values().any(has_key),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Reads the parameters of a request for a namespace.
fn query(text: &str, namespace: &str) -> Query {
    let mut query = Query::default();
    let mut fields = String::new();
    let mut labels = String::new();

    for pair in text.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value);
        let is_set = matches!(value.as_str(), "true" | "1");
        match key {
            "watch" => query.watch = is_set,
            "sendInitialEvents" => query.sends_initial_events = is_set,
            "allowWatchBookmarks" => query.bookmarks = is_set,
            "resourceVersion" => {
                query.resource_version = Some(value).filter(|value| !value.is_empty());
            }
            "limit" => query.limit = value.parse().ok(),
            "continue" => query.continues = Some(value).filter(|value| !value.is_empty()),
            "timeoutSeconds" => query.timeout_seconds = value.parse().ok(),
            "fieldSelector" => fields = value,
            "labelSelector" => labels = value,
            _ => {}
        }
    }

    query.selector = Selector::parse(&fields, &labels, namespace);
    query
}

/// Decodes `%2C` and `+`.
fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let hex = std::str::from_utf8(&hex).unwrap_or_default();
                u8::from_str_radix(hex, 16).unwrap_or(b'%')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// An error status.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Seconds of `Retry-After`.
    pub(crate) retry_after: Option<u64>,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The `Status` object of the response.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let (Some(seconds), Some(status)) = (self.retry_after, status.as_object_mut()) {
            status.insert(
                "details".to_owned(),
                json!({ "retryAfterSeconds": seconds }),
            );
        }
        status
    }
}

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Some(target) = target.as_object_mut() {
        for (member, value) in patch {
            if value.is_null() {
                target.remove(member);
            } else {
                merge(target.entry(member.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
