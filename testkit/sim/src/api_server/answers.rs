//! Responses of the simulated API server.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};

use super::objects::metadata;
use super::requests::{Failure, PatchKind, Request, merge};
use super::watches::shown;

/// The service accounts that may list the secrets of their namespace contain this.
const READS_SECRETS: &str = "gateway";

/// The response to a review of rights; `None` if the request is none.
pub(crate) fn review(head: &Parts, body: &Bytes) -> Option<Value> {
    let resource = head.uri.path().rsplit('/').next()?;
    if head.method != Method::POST || !resource.ends_with("accessreviews") {
        return None;
    }

    let mut review: Value = serde_json::from_slice(body).ok()?;
    let user = review.pointer("/spec/user").and_then(Value::as_str);
    let allowed = user.is_none_or(|user| user.contains(READS_SECRETS));
    let review_object = review.as_object_mut()?;
    review_object.insert("status".to_owned(), json!({ "allowed": allowed }));
    Some(review)
}

/// A time in RFC 3339, in seconds since the start of the simulation.
pub(crate) fn timestamp(seconds: u64) -> String {
    let days = seconds / 86_400;
    let rest = seconds % 86_400;
    // No simulation lasts longer than January.
    format!(
        "2026-01-{:02}T{:02}:{:02}:{:02}Z",
        1 + days.min(30),
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

pub(crate) fn not_found(request: &Request) -> Failure {
    Failure::new(
        404,
        "NotFound",
        format!("{} {:?} not found", request.resource.plural, request.name),
    )
}

pub(crate) fn expired(message: &str) -> Failure {
    Failure::new(410, "Expired", message)
}

/// The failure of a watch from a version that the server does not have yet.
pub(crate) fn too_large(version: u64, newest: u64) -> Failure {
    Failure::new(
        504,
        "Timeout",
        format!("Too large resource version: {version}, current: {newest}"),
    )
}

/// Version and number of skipped objects of a `continue` token.
pub(crate) fn page(token: &str) -> Option<(u64, usize)> {
    let (version, skipped) = token.split_once('-')?;
    Some((version.parse().ok()?, skipped.parse().ok()?))
}

/// A list or a page of it.
pub(crate) fn list(request: &Request, objects: &[&Value], version: u64, skipped: usize) -> Value {
    let limit = request.query.limit.unwrap_or(usize::MAX);
    let rest = objects.get(skipped..).unwrap_or_default();
    let items: Vec<Value> = rest
        .iter()
        .take(limit)
        .map(|object| item(request, object))
        .collect();

    let mut meta = json!({ "resourceVersion": version.to_string() });
    if rest.len() > items.len()
        && let Some(meta) = meta.as_object_mut()
    {
        let token = format!("{version}-{}", skipped + items.len());
        meta.insert("continue".to_owned(), json!(token));
    }

    let (kind, api_version) = if request.is_metadata_only {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1")
    } else {
        (
            format!("{}List", request.resource.kind),
            request.api_version.as_str(),
        )
    };
    json!({ "kind": kind, "apiVersion": api_version, "metadata": meta, "items": items })
}

/// An item of a list: without kind and version, as of a real server.
fn item(request: &Request, object: &Value) -> Value {
    let mut item = shown(request, object);
    if !request.is_metadata_only
        && let Some(item) = item.as_object_mut()
    {
        item.remove("kind");
        item.remove("apiVersion");
    }
    item
}

/// An object after a patch.
pub(crate) fn patched(request: &Request, before: Value) -> Result<Value, Failure> {
    let mut object = before;
    match request.patch {
        PatchKind::Json => {
            let invalid = |error: &dyn std::fmt::Display| {
                Failure::new(422, "Invalid", format!("the patch does not apply: {error}"))
            };
            let patch: json_patch::Patch =
                serde_json::from_value(request.body.clone()).map_err(|error| invalid(&error))?;
            json_patch::patch(&mut object, &patch).map_err(|error| invalid(&error))?;
        }
        PatchKind::Merge | PatchKind::Apply => merge(&mut object, &request.body),
    }
    Ok(object)
}

/// Checks the preconditions of a deletion.
pub(crate) fn check_preconditions(
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Failure> {
    let preconditions = request.body.get("preconditions").unwrap_or(&Value::Null);
    for member in ["uid", "resourceVersion"] {
        let expected = preconditions.get(member).and_then(Value::as_str);
        let is_met = |object: &Value| {
            expected.is_none_or(|expected| metadata(object, member).as_str() == Some(expected))
        };
        if object.is_some_and(|object| !is_met(object)) {
            return Err(Failure::new(409, "Conflict", "a precondition failed"));
        }
    }
    Ok(())
}
