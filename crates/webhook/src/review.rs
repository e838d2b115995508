//! `AdmissionReview` requests and responses, in the versions `v1` and `v1beta1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The supported API versions. As in istiod, reviews of unknown versions get a response of the
/// second one.
const V1: &str = "admission.k8s.io/v1";
const V1_BETA1: &str = "admission.k8s.io/v1beta1";

/// A review from the API server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    /// `apiVersion`, which the response repeats.
    #[serde(default)]
    api_version: String,
    /// `kind`: `AdmissionReview`.
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Option<Request>,
}

/// The request. Fields that are not needed, such as the old object and the user, are not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Request {
    /// The ID that the response repeats.
    pub(super) uid: String,
    /// The resource of the object.
    pub(super) resource: Resource,
    /// The kind of the object.
    pub(super) kind: GroupVersionKind,
    /// The namespace of the object.
    pub(super) namespace: Option<String>,
    /// The name of the object, if it has one yet.
    pub(super) name: Option<String>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(super) operation: String,
    /// Absent means false.
    pub(super) dry_run: Option<bool>,
    pub(super) object: Value,
}

/// The resource of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    /// The group; empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    /// The plural of the kind.
    pub(super) resource: String,
}

/// The kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct GroupVersionKind {
    /// The group; empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    /// The kind in the singular.
    pub(super) kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReviewAnswer {
    /// The ID of the request.
    uid: String,
    /// Whether the object is allowed.
    pub(super) allowed: bool,
    /// The reason, if it is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
    /// Warnings for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// A JSON patch of the object, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<String>,
    /// `JSONPatch` if there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) audit_annotations: BTreeMap<String, String>,
}

/// The reason of a rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    /// The text for the user.
    pub(super) message: String,
}

impl Request {
    #[must_use]
    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }
}

impl ReviewAnswer {
    /// Allows the object.
    #[must_use]
    pub(super) fn allow() -> Self {
        Self {
            allowed: true,
            ..Self::default()
        }
    }

    /// Denies the object.
    #[must_use]
    pub(super) fn deny(message: impl Into<String>) -> Self {
        Self {
            status: Some(Status {
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Adds an audit annotation.
    #[must_use]
    pub(super) fn noting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit_annotations.insert(name.into(), value.into());
        self
    }
}

/// Decodes a review, answers it, and encodes the response in the version of the review. Invalid
/// reviews are rejected.
pub(super) fn answer(
    body: &[u8],
    decide: impl FnOnce(Request) -> ReviewAnswer,
) -> Result<Vec<u8>, serde_json::Error> {
    answered(body, decide).write()
}

/// As [`answer`], without encoding the response.
pub(super) fn answered(
    body: &[u8],
    decide: impl FnOnce(Request) -> ReviewAnswer,
) -> PendingResponse {
    let (version, uid, answer) = match read(body) {
        Err(reason) => (V1_BETA1, String::new(), ReviewAnswer::deny(reason)),
        Ok((version, request)) => (version, request.uid.clone(), decide(request)),
    };
    PendingResponse {
        version,
        answer: ReviewAnswer { uid, ..answer },
    }
}

/// A response with its API version.
#[derive(Debug)]
pub(super) struct PendingResponse {
    version: &'static str,
    answer: ReviewAnswer,
}

impl PendingResponse {
    /// Adds a warning.
    pub(super) fn warn(&mut self, warnings: Vec<String>) {
        self.answer.warnings.extend(warnings);
    }

    pub(super) fn write(self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&ReviewResponse {
            kind: "AdmissionReview",
            api_version: self.version,
            response: self.answer,
        })
    }
}

/// The encoded form of a response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    /// `AdmissionReview`.
    kind: &'static str,
    api_version: &'static str,
    response: ReviewAnswer,
}

/// Decodes a review: its version and its request.
fn read(body: &[u8]) -> Result<(&'static str, Request), String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("could not decode body: not an AdmissionReview: {error}"))?;
    let version = match review.api_version.as_str() {
        V1 => V1,
        V1_BETA1 => V1_BETA1,
        other => {
            return Err(format!(
                "could not decode body: apiVersion is {:?}, want {V1} or {V1_BETA1}",
                shorten(other)
            ));
        }
    };

    if review.kind != "AdmissionReview" {
        return Err(format!(
            "could not decode body: kind is {:?}, want AdmissionReview",
            shorten(&review.kind)
        ));
    }

    let request = review
        .request
        .ok_or("could not decode body: the AdmissionReview has no request")?;
    Ok((version, request))
}

/// A text from users, truncated.
fn shorten(text: &str) -> String {
    cut(text, 100)
}

/// A text on one line, truncated to a maximum length.
pub(super) fn cut(text: &str, longest: usize) -> String {
    let (kept, _) = text.split_at(text.floor_char_boundary(longest));
    let is_cut = kept.len() < text.len();
    let mut kept = kept.replace(['\n', '\r'], " ");
    if is_cut {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Answers a body by allowing every object.
    fn allow_all(body: &[u8]) -> Value {
        serde_json::from_slice(&answer(body, |_| ReviewAnswer::allow()).unwrap()).unwrap()
    }

    #[test]
    fn responses_have_the_api_version_of_the_review() {
        for version in [V1, V1_BETA1] {
            let review = json!({ "apiVersion": version, "kind": "AdmissionReview", "request": { "uid": "u" } });
            let written = allow_all(review.to_string().as_bytes());
            let response = json!({ "uid": "u", "allowed": true });
            assert_eq!(
                written,
                json!({ "apiVersion": version, "kind": "AdmissionReview", "response": response })
            );
        }
    }

    #[test]
    fn invalid_admission_reviews_are_rejected_with_a_reason() {
        let bodies = [
            "x",
            "{}",
            "[]",
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{}}"#,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":3}}"#,
        ];

        for body in bodies
            .map(str::to_owned)
            .into_iter()
            .chain([format!("{}1", "[".repeat(100_000))])
        {
            let written = allow_all(body.as_bytes());
            assert_eq!(written["response"]["allowed"], false, "{body}");
            let message = written["response"]["status"]["message"].as_str().unwrap();
            assert!(message.starts_with("could not decode body: "), "{message}");
        }
    }
}
