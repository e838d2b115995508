//! `/plan`: reports the effects of an object that is about to be stored or deleted as admission
//! warnings. It allows every object: `/validate` rejects invalid ones.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::review::{self, PendingResponse, Request, ReviewAnswer, cut};
use super::verdict::validate;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::Subject;
use navarch_api::object::{NamespacedName, ObjectRef};

/// Maximum number of warnings for one object.
const WARNINGS: usize = 3;
/// Maximum length of a warning: API servers truncate longer ones.
const MAX_WARNING_LENGTH: usize = 250;

/// A change that a user is about to make.
#[derive(Clone, Debug)]
pub enum Intent {
    /// Store this object.
    Put(Box<AnyObject>),
    /// Delete this object.
    Remove(ObjectRef),
}

/// The response to an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The effects of the change, one per line; empty if it changes nothing.
    Warnings(Vec<String>),
    /// No warnings: the plan was not ready in time.
    Late,
    /// No warnings: another plan is being computed, or recent plans took too long.
    Busy,
    /// No warnings: the objects are not all read yet, or the plan failed.
    Unknown,
}

/// Returns the effects of an intent, within a time limit of its own.
pub type Adviser =
    Arc<dyn Fn(Intent) -> Pin<Box<dyn Future<Output = Advice> + Send>> + Send + Sync>;

impl Advice {
    /// The metric label of the outcome.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Warnings(lines) if lines.is_empty() => "unchanged",
            Self::Warnings(_) => "told",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }

    /// The warnings for the response.
    pub(super) fn lines(self) -> Vec<String> {
        match self {
            Self::Warnings(lines) => lines
                .iter()
                .take(WARNINGS)
                .map(|line| cut(line, MAX_WARNING_LENGTH))
                .collect(),
            Self::Late | Self::Busy | Self::Unknown => Vec::new(),
        }
    }
}

/// Decodes a review. Returns a response that allows the object, and the intent to plan, if there is
/// one.
pub(super) fn read(body: &[u8]) -> (PendingResponse, Option<Intent>) {
    let mut intent = None;
    let answer = review::answered(body, |request| {
        intent = intent_of(&request);
        ReviewAnswer::allow()
    });
    (answer, intent)
}

/// The intent of a request; `None` if the object is invalid, or its kind is unknown.
fn intent_of(request: &Request) -> Option<Intent> {
    match request.operation.as_str() {
        "CREATE" | "UPDATE" if request.object.is_object() => {
            let judged = validate(&request.object);
            let object = judged.object.filter(|_| judged.verdict.is_valid())?;
            Some(Intent::Put(Box::new(object.without_internal_annotations())))
        }
        "DELETE" => {
            let kind = &request.kind;
            let api_version = format!("{}/{}", kind.group, kind.version);
            let subject = Subject {
                api_version,
                kind: kind.kind.clone(),
                ..Subject::default()
            };
            let kind = subject.known_kind()?;

            let name = request.name.as_deref().filter(|name| !name.is_empty())?;
            let namespace = request
                .namespace
                .as_deref()
                .filter(|_| !kind.is_cluster_scoped())
                .unwrap_or_default();

            Some(Intent::Remove(ObjectRef {
                kind,
                name: NamespacedName::new(namespace, name),
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review(operation: &str, object: &Value) -> Vec<u8> {
        let request = json!({
            "uid": "u",
            "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
            "namespace": "shop",
            "name": "reviews",
            "operation": operation,
            "object": object,
        });
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn advice_never_denies_and_only_valid_objects_get_warnings() {
        let object = |hosts: &Value| {
            json!({
                "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
                "metadata": {"name": "reviews", "namespace": "shop"},
                "spec": {"hosts": hosts, "http": [{"route": [{"destination": {"host": "reviews"}}]}]},
            })
        };

        let intent_of = |operation, object: &Value| {
            let (answer, intent) = read(&review(operation, object));
            let written: Value = serde_json::from_slice(&answer.write().unwrap()).unwrap();
            assert_eq!(written["response"], json!({"uid": "u", "allowed": true}));
            intent
        };

        let good = object(&json!(["reviews"]));
        assert!(
            matches!(intent_of("CREATE", &good), Some(Intent::Put(put)) if put.object_ref().name.name == "reviews".into())
        );
        assert!(intent_of("UPDATE", &object(&json!(["*.com", "a b"]))).is_none());
        let removed = intent_of("DELETE", &Value::Null);
        assert!(
            matches!(removed, Some(Intent::Remove(name)) if name.to_string() == "VirtualService shop/reviews")
        );

        assert!(
            intent_of("CONNECT", &good).is_none() && intent_of("CREATE", &Value::Null).is_none()
        );
    }

    #[test]
    fn warnings_are_few_and_short() {
        let long = "ü".repeat(1000);
        let lines = Advice::Warnings(vec![long; 9]).lines();
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.len() <= 256),
            "{lines:?}"
        );
        assert!(Advice::Late.lines().is_empty());
    }
}
