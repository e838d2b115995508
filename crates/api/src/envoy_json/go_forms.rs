//! What Go reads in the values of patches and proto3's JSON does not support: durations in Go's
//! notation, `1m30s`, and base64 in several lines.

use navarch_proto::json::Codec;
use navarch_proto::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use crate::duration::Duration;
use navarch_base::base64_text;

/// The message type of durations.
const DURATION: &str = "google.protobuf.Duration";

/// The message type that can contain any other.
const ANY: &str = "google.protobuf.Any";

/// Rewrites all durations and bytes in the JSON of a message of this type to proto3's form. What is
/// invalid stays, and decoding rejects it.
pub(super) fn normalize(codec: &Codec, descriptor: &MessageDescriptor, json: &mut Value) {
    match (descriptor.full_name(), json) {
        (DURATION, Value::String(text)) => {
            if let Ok(span) = Duration::parse(text) {
                *text = span.to_string();
            }
        }
        (ANY, Value::Object(fields)) => in_any(codec, fields),
        (_, Value::Object(fields)) => in_fields(codec, descriptor, fields),
        (
            _,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        ) => {}
    }
}

/// Rewrites the values of a message that contains its own type.
fn in_any(codec: &Codec, fields: &mut Map<String, Value>) {
    let named = fields
        .get("@type")
        .and_then(Value::as_str)
        .and_then(|name| codec.descriptor(name).ok());
    let Some(descriptor) = named else { return };
    in_fields(codec, &descriptor, fields);
    // A message whose JSON is not an object is in `value`, beside its type.
    if let Some(value) = fields
        .get_mut("value")
        .filter(|_| descriptor.full_name().starts_with("google.protobuf."))
    {
        normalize(codec, &descriptor, value);
    }
}

fn in_fields(codec: &Codec, descriptor: &MessageDescriptor, fields: &mut Map<String, Value>) {
    for (name, value) in fields {
        let field = descriptor
            .get_field_by_json_name(name)
            .or_else(|| descriptor.get_field_by_name(name));
        if let Some(field) = field {
            in_field(codec, &field, value);
        }
    }
}

fn in_field(codec: &Codec, field: &FieldDescriptor, value: &mut Value) {
    if field.kind() == Kind::Bytes {
        return join_lines(value);
    }
    let Kind::Message(inner) = field.kind() else {
        return;
    };

    if field.is_map() {
        let of_entries = inner.map_entry_value_field();
        let entries = value
            .as_object_mut()
            .into_iter()
            .flat_map(|entries| entries.values_mut());
        entries.for_each(|entry| in_field(codec, &of_entries, entry));
    } else if field.is_list() {
        value
            .as_array_mut()
            .into_iter()
            .flatten()
            .for_each(|item| normalize(codec, &inner, item));
    } else {
        normalize(codec, &inner, value);
    }
}

/// Takes the line breaks out of base64, in a list or alone.
fn join_lines(value: &mut Value) {
    match value {
        Value::String(text) => *text = base64_text::joined(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::json::UnknownFields;
    use serde_json::json;

    use super::*;
    use crate::envoy_json::{codec, patch_value};
    use crate::istio::ApplyTo;

    #[test]
    fn go_durations_are_accepted_at_any_depth() {
        let typed = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        let cluster = json!({
            "connectTimeout": "1m30s",
            "dns_refresh_rate": "250ms",
            "healthChecks": [{ "timeout": "1h", "interval": "2s" }, { "timeout": "x" }],
            "typedExtensionProtocolOptions": {
                "o": { "@type": typed, "commonHttpProtocolOptions": { "idleTimeout": "1.5m" } },
                "d": { "@type": "type.googleapis.com/google.protobuf.Duration", "value": "3m" },
            },
            "unknown": { "timeout": "1m" },
        });

        let mut read = cluster.clone();
        normalize(
            codec(),
            &codec()
                .descriptor("envoy.config.cluster.v3.Cluster")
                .unwrap(),
            &mut read,
        );

        let mut expected = cluster;
        expected["connectTimeout"] = json!("90s");
        expected["dns_refresh_rate"] = json!("0.250s");
        expected["healthChecks"][0]["timeout"] = json!("3600s");
        expected["typedExtensionProtocolOptions"]["o"]["commonHttpProtocolOptions"]["idleTimeout"] =
            json!("90s");
        expected["typedExtensionProtocolOptions"]["d"]["value"] = json!("180s");
        assert_eq!(read, expected);

        for (written, good) in [
            ("1m30s", true),
            ("10s", true),
            ("0", true),
            ("5", false),
            ("1d", false),
            ("", false),
        ] {
            let value = json!({ "connectTimeout": written });
            let read = patch_value(
                ApplyTo::Cluster,
                value.as_object().unwrap(),
                UnknownFields::Reject,
            );
            assert_eq!(read.is_ok(), good, "{written:?}");
        }
    }

    #[test]
    fn bytes_in_several_lines_are_joined() {
        let value = json!({
            "transportSocket": { "name": "tls", "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "commonTlsContext": { "validationContext": { "trustedCa": { "inlineBytes": "LS0t\nLS0t\r\n" } } },
            } },
        });

        let read = patch_value(
            ApplyTo::Cluster,
            value.as_object().unwrap(),
            UnknownFields::Reject,
        );

        assert!(read.is_ok(), "{read:?}");
    }
}
