//! The known keys of node metadata, and the parsing of their values.

use serde_json::{Map, Value, json};

use super::metadata::MetadataError;
use navarch_base::go_text::parse_bool;

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    /// `true` or `false`, as text.
    Switch,
    /// A list of ports, as JSON text.
    Ports,
}

/// The keys that users may set, without those that the agent determines itself.
const KEYS: &[(&str, Kind)] = &[
    ("APP_CONTAINERS", Kind::Text),
    ("AUTO_REGISTER_GROUP", Kind::Text),
    ("BASE", Kind::Text),
    ("CLOUDRUN_ADDR", Kind::Text),
    ("CLUSTER_ID", Kind::Text),
    ("DISABLE_HBONE_SEND", Kind::Switch),
    ("DNS_AUTO_ALLOCATE", Kind::Switch),
    ("DNS_CAPTURE", Kind::Switch),
    ("DNS_PROXY_ADDR", Kind::Text),
    ("ENABLE_HBONE", Kind::Switch),
    ("ENABLE_SELF_DISCOVERY", Kind::Switch),
    ("GENERATOR", Kind::Text),
    ("HTTP10", Kind::Text),
    ("HTTP_PROXY_PORT", Kind::Text),
    ("IDLE_TIMEOUT", Kind::Text),
    ("INBOUND_LISTENER_EXACT_BALANCE", Kind::Switch),
    ("INTERCEPTION_MODE", Kind::Text),
    ("ISTIO_PROXY_SHA", Kind::Text),
    ("ISTIO_REVISION", Kind::Text),
    ("ISTIO_VERSION", Kind::Text),
    ("MESH_ID", Kind::Text),
    ("NAME", Kind::Text),
    ("NAMESPACE", Kind::Text),
    ("NETWORK", Kind::Text),
    ("NODE_NAME", Kind::Text),
    ("OUTBOUND_LISTENER_EXACT_BALANCE", Kind::Switch),
    ("OWNER", Kind::Text),
    ("POD_PORTS", Kind::Ports),
    ("REQUESTED_NETWORK_VIEW", Kind::Text),
    ("SERVICE_ACCOUNT", Kind::Text),
    ("STS_PORT", Kind::Text),
    ("TLS_CLIENT_CERT_CHAIN", Kind::Text),
    ("TLS_CLIENT_KEY", Kind::Text),
    ("TLS_CLIENT_ROOT_CERT", Kind::Text),
    ("TLS_SERVER_CERT_CHAIN", Kind::Text),
    ("TLS_SERVER_KEY", Kind::Text),
    ("TLS_SERVER_ROOT_CERT", Kind::Text),
    ("UNPRIVILEGED_POD", Kind::Text),
    ("WORKLOAD_ENTRY", Kind::Text),
    ("WORKLOAD_NAME", Kind::Text),
];

/// Reads the known keys of user-defined metadata, case-insensitively like Go's JSON decoder.
///
/// # Errors
/// If a value has the wrong type.
pub(super) fn read(raw: &Map<String, Value>) -> Result<Map<String, Value>, MetadataError> {
    let mut known = Map::new();

    // Upper case sorts before lower case, so of two spellings the lower-case one applies, as in Go.
    let mut written: Vec<_> = raw.iter().collect();
    written.sort_by_key(|(key, _)| key.as_str());

    for (written, value) in written {
        let Some((key, kind)) = KEYS
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(written))
        else {
            continue;
        };

        let fault = || MetadataError {
            key: written.clone(),
            value: value.to_string(),
        };
        if let Some(value) = normal(*kind, value).ok_or_else(fault)? {
            known.insert((*key).to_owned(), value);
        } else {
            known.remove(*key);
        }
    }

    Ok(known)
}

/// The normalized value, or nothing if it is empty; `None` if it has the wrong type.
fn normal(kind: Kind, value: &Value) -> Option<Option<Value>> {
    let text = value.as_str()?;
    Some(match kind {
        Kind::Text => (!text.is_empty()).then(|| Value::from(text)),
        Kind::Switch => parse_bool(text)?.then(|| Value::from("true")),
        Kind::Ports => ports(text)?,
    })
}

/// A list of ports, with the known members in order.
fn ports(text: &str) -> Option<Option<Value>> {
    let ports: Vec<Value> = serde_json::from_str(text).ok()?;
    let port = |port: &Value| {
        let name = port
            .get("name")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let name = name
            .map(|name| format!("\"name\":{},", json!(name)))
            .unwrap_or_default();
        let number = port
            .get("containerPort")
            .and_then(Value::as_i64)
            .unwrap_or_default();

        let protocol = json!(
            port.get("protocol")
                .and_then(Value::as_str)
                .unwrap_or_default()
        );

        format!("{{{name}\"containerPort\":{number},\"protocol\":{protocol}}}")
    };

    let texts: Vec<_> = ports.iter().map(port).collect();
    Some((!texts.is_empty()).then(|| Value::from(format!("[{}]", texts.join(",")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sent_in_one_form_whatever_the_spelling() {
        let raw = json!({
            "DNS_CAPTURE": "1", "ENABLE_HBONE": "false", "owner": "me", "MESH_ID": "",
            "POD_PORTS": "[{\"containerPort\": 80, \"hostPort\": 1, \"protocol\": \"TCP\"}]",
        });
        let known = read(raw.as_object().unwrap()).unwrap();
        assert_eq!(
            Value::Object(known),
            json!({ "DNS_CAPTURE": "true", "OWNER": "me", "POD_PORTS": "[{\"containerPort\":80,\"protocol\":\"TCP\"}]" })
        );
        assert!(read(json!({ "DNS_CAPTURE": "maybe" }).as_object().unwrap()).is_err());
    }
}
