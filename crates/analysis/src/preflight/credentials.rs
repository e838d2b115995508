//! Values that may be credentials: they are never printed.

use navarch_api::credential_names::{CredentialLikelihood, credential_likelihood};
use serde_json::Value;

/// Lists of headers, whose values may be credentials whatever their names.
const HEADERS: [&str; 4] = [
    "headers",
    "httpHeaders",
    "initialMetadata",
    "includeAdditionalHeadersInCheck",
];

/// Removes what may be a credential, and returns the paths of what was removed.
pub(super) fn remove(value: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    remove_below(value, "", false, &mut removed);
    removed
}

/// Whether a text is an address with a password in it, such as `https://user:password@host`.
fn has_password(text: &str) -> bool {
    let after_scheme = text.split_once("://").map(|(_, rest)| rest);
    let authority = after_scheme.and_then(|rest| rest.split('/').next());
    authority.is_some_and(|authority| authority.contains('@'))
}

/// Removes what may be a credential below a path. `of_header` is set within a list of headers.
fn remove_below(value: &mut Value, path: &str, of_header: bool, removed: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.retain(|name, member| {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };

            let is_name = name == "name" || name == "key";
            let is_credential = credential_likelihood(name) == CredentialLikelihood::Certain;
            let is_secret = |text: &str| {
                !text.is_empty() && (is_credential || has_password(text) || of_header && !is_name)
            };
            if member.as_str().is_some_and(is_secret) {
                removed.push(path);
                return false;
            }

            let of_header = of_header || HEADERS.contains(&name.as_str());
            remove_below(member, &path, of_header, removed);
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                remove_below(item, &format!("{path}[{index}]"), of_header, removed);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_removed_and_what_looks_like_them_stays() {
        let mut values = json!({
            "env": {
                "LIGHTSTEP_ACCESS_TOKEN": "hunter2",
                "PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER": "true",
                "PROXY": "http://user:hunter2@proxy:3128/",
            },
            "global": {
                "sds": {"token": {"aud": "istio-ca"}},
                "tracer": {"lightstep": {"accessToken": "hunter2", "address": "a:1"}},
                "imagePullSecrets": ["pull"],
            },
            "meshConfig": {"extensionProviders": [{
                "name": "otel",
                "opentelemetry": {"http": {"headers": [{"name": "x-api", "value": "hunter2"}]}},
            }]},
        });
        assert_eq!(
            remove(&mut values),
            [
                "env.LIGHTSTEP_ACCESS_TOKEN",
                "env.PROXY",
                "global.tracer.lightstep.accessToken",
                "meshConfig.extensionProviders[0].opentelemetry.http.headers[0].value",
            ]
        );

        let left = values.to_string();
        assert!(!left.contains("hunter2"), "{left}");
        for kept in ["istio-ca", "a:1", "pull", "x-api", "\"true\""] {
            assert!(left.contains(kept), "{kept}: {left}");
        }
    }
}
