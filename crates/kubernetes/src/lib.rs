//! What all clients of the Kubernetes API here share: the client itself, errors in words, patches,
//! and which answers mean that an object has changed.

mod api_rate;
mod client;

use std::error::Error;
use std::fmt;

use kube::api::Patch;
use kube::core::Status;
use kube::runtime::watcher;
use serde_json::{Value, json};

pub use api_rate::ApiRate;
pub use client::{ClientError, Connector, client, client_of, connect_by};

/// The length of the longest name of an object, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// An error of the client in one line for a log. kube's own text has the API server's whole answer
/// a second time, in the syntax of Rust's `Debug`.
#[derive(Clone, Copy)]
pub struct InWords<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = Some(self.0);
        while let Some(error) = next {
            if let Some(status) = status(error) {
                text = text
                    .replace(&format!(" ({status:?})"), "")
                    .replace("ApiError: ", "");
            }
            next = error.source();
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The API server's answer, if the error is one.
fn status<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status),
        Some(_) => None,
        None => error.downcast_ref::<Status>(),
    }
}

/// A name that cannot be an object's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of an object: lower case letters, digits, '-' and '.' are allowed, 253 characters at most"
)]
pub struct InvalidName(pub String);

/// A name that becomes part of a path of the API server, if it is a DNS subdomain (RFC 1123). The
/// client does not escape names, so `../secrets/x` would be another object's path.
///
/// # Errors
/// If it is not.
pub fn object_name(name: &str) -> Result<&str, InvalidName> {
    let is_label = |label: &str| {
        let is_edge = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = label.as_bytes();
        let is_inner =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(is_inner)
    };

    if name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label) {
        Ok(name)
    } else {
        // Longer ones are only ever quoted in errors.
        Err(InvalidName(name.chars().take(MAX_NAME_BYTES).collect()))
    }
}

/// A JSON patch (RFC 6902) of an array of operations.
///
/// # Errors
/// When an operation is none.
pub fn json_patch(operations: Value) -> Result<Patch<()>, kube::Error> {
    serde_json::from_value(operations)
        .map(Patch::Json)
        .map_err(kube::Error::SerdeError)
}

/// A JSON patch that sets members of the status of an object, named by their paths in it, if the
/// object is still of this resource version. Others stay.
///
/// # Errors
/// As of [`json_patch`].
pub fn status_patch<M: AsRef<str>, V: Into<Value>>(
    resource_version: impl Into<Value>,
    has_status: bool,
    members: impl IntoIterator<Item = (M, V)>,
) -> Result<Patch<()>, kube::Error> {
    let version: Value = resource_version.into();
    let mut operations =
        vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    if !has_status {
        operations.push(json!({ "op": "add", "path": "/status", "value": {} }));
    }
    for (member, value) in members {
        let value: Value = value.into();
        operations.push(
            json!({ "op": "add", "path": format!("/status/{}", member.as_ref()), "value": value }),
        );
    }
    json_patch(Value::Array(operations))
}

/// Whether a watch failed because the cluster has no such kind.
#[must_use]
pub fn is_absent(error: &watcher::Error) -> bool {
    code(error) == Some(404)
}

/// Whether a watch failed because the API server denied access to it.
#[must_use]
pub fn is_denied(error: &watcher::Error) -> bool {
    matches!(code(error), Some(401 | 403))
}

/// The code of the API server's answer to a watch, if there was one.
fn code(error: &watcher::Error) -> Option<u16> {
    let error = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => error,
        watcher::Error::WatchError(status) => return Some(status.code),
        watcher::Error::WatchFailed(_) | watcher::Error::NoResourceVersion => return None,
    };
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

/// Whether the API server rejected a write because the object has changed or is gone since it was
/// read: 404, 409, or 422 for a patch whose test failed.
#[must_use]
pub fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
}

/// Whether the API server rejected a write because another writer was faster: the object has changed
/// since it was read, or exists already (409).
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the API server rejected a write because the object has changed or is gone since it was
/// read: 409, or 404, which also a namespace that is gone gives. A watch reports either.
#[must_use]
pub fn is_conflict_or_gone(error: &kube::Error) -> bool {
    let is_gone = matches!(error, kube::Error::Api(status) if status.code == 404);
    is_gone || is_conflict(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_path_of_their_kind() {
        let longest = "a".repeat(MAX_NAME_BYTES);
        for name in ["web", "web-1.shop", "0", &*longest] {
            assert_eq!(object_name(name), Ok(name));
        }

        let too_long = "a".repeat(MAX_NAME_BYTES + 1);
        for name in [
            "",
            ".",
            "..",
            "../../kube-system/x",
            "a/status",
            "a%2Fb",
            "a?b",
            "a#b",
            "A",
            "-a",
            "a-",
            "a..b",
            "a b",
            "a\n",
            &*too_long,
        ] {
            assert!(object_name(name).is_err(), "{name:?}");
        }
    }

    fn forbidden() -> kube::Error {
        let message =
            "pods is forbidden: User \"a\" cannot list resource \"pods\" (at \"b\")".to_owned();
        let status = Status {
            code: 403,
            message,
            reason: "Forbidden".to_owned(),
            ..Status::default()
        };
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn api_server_errors_are_printed_once_and_readably() {
        let words =
            "pods is forbidden: User \"a\" cannot list resource \"pods\" (at \"b\"): Forbidden";
        assert!(
            forbidden().to_string().contains("Status {"),
            "kube prints it once alone now: this wrapper can go"
        );
        assert_eq!(InWords(&forbidden()).to_string(), words);
        let of_watch = watcher::Error::InitialListFailed(forbidden());
        assert_eq!(
            InWords(&of_watch).to_string(),
            format!("failed to perform initial object list: {words}")
        );
        assert_eq!(
            InWords(&std::fmt::Error).to_string(),
            std::fmt::Error.to_string()
        );
    }

    #[test]
    fn a_status_patch_tests_the_resource_version() {
        let Patch::Json::<()>(patch) =
            status_patch("7", false, [("conditions", json!([]))]).unwrap()
        else {
            panic!("not a JSON patch");
        };
        let expected = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/status", "value": {}},
            {"op": "add", "path": "/status/conditions", "value": []},
        ]);
        assert_eq!(serde_json::to_value(patch).unwrap(), expected);
    }

    #[test]
    fn only_a_changed_object_is_stale() {
        let of = |code| {
            kube::Error::Api(
                Status {
                    code,
                    ..Status::default()
                }
                .boxed(),
            )
        };
        assert_eq!(
            [403, 404, 409, 422, 500].map(|code| is_stale(&of(code))),
            [false, true, true, true, false]
        );
        assert_eq!(
            [403, 404, 409, 422, 500].map(|code| is_conflict_or_gone(&of(code))),
            [false, true, true, false, false]
        );
        assert_eq!(
            [404, 409, 422].map(|code| is_conflict(&of(code))),
            [false, true, false]
        );
        assert!(json_patch(json!([{"op": "no"}])).is_err());
    }
}
