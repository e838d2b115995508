//! Access logs in files, and the formats that logs of all kinds share.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::accesslog::v3::AccessLog;
use navarch_proto::envoy::config::core::v3::substitution_format_string::Format;
use navarch_proto::envoy::config::core::v3::{
    DataSource, JsonFormatOptions, SubstitutionFormatString, TypedExtensionConfig, data_source,
};
use navarch_proto::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use navarch_proto::envoy::extensions::access_loggers::file::v3::file_access_log::AccessLogFormat;
use navarch_proto::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use crate::filters::access_logger::log;
use crate::substitution;
use navarch_api::mesh::{AccessLogEncoding, EnvoyFileAccessLogProvider, MeshConfig};
use navarch_push::view::View;

/// The default format of a line (Istio's since 1.9).
pub(super) const DEFAULT_TEXT: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% ",
    "%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ",
    "\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ",
    "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" ",
    "\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% ",
    "%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% ",
    "%REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"
);

/// The default fields of a JSON entry.
const DEFAULT_FIELDS: [(&str, &str); 24] = [
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    (
        "connection_termination_details",
        "%CONNECTION_TERMINATION_DETAILS%",
    ),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("route_name", "%ROUTE_NAME%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    (
        "upstream_service_time",
        "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    ),
    (
        "upstream_transport_failure_reason",
        "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    ),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

/// The command that requires a formatter extension in Envoy.
const WITHOUT_QUERY: &str = "%REQ_WITHOUT_QUERY";

/// The log of mesh config in this file. An invalid JSON format falls back to the default fields.
pub(super) fn of_mesh(view: &View<'_>, path: &str, mesh: &MeshConfig) -> AccessLog {
    let setting = "mesh config: accessLogFormat";
    let format = match mesh.access_log_encoding {
        AccessLogEncoding::Text => text_format(valid_text(view, setting, &mesh.access_log_format)),
        AccessLogEncoding::Json => match serde_json::from_str(&mesh.access_log_format) {
            Ok(serde_json::Value::Object(fields)) => {
                json_format(valid_fields(view, setting, structure(fields)))
            }
            Ok(_) | Err(_) => json_format(default_fields()),
        },
    };
    in_file(path, format)
}

pub(super) fn of_provider(
    view: &View<'_>,
    name: &str,
    provider: &EnvoyFileAccessLogProvider,
) -> AccessLog {
    let setting = format!("mesh config: extensionProviders[{name}].envoyFileAccessLog.logFormat");
    let path = if provider.path.is_empty() {
        "/dev/stdout"
    } else {
        &provider.path
    };

    let chosen = provider.log_format.as_ref();
    let text = chosen.and_then(|format| format.text.as_deref());
    let labels = chosen.and_then(|format| format.labels.as_ref());
    let mut format = match (text, labels) {
        (None, Some(labels)) if labels.is_empty() => json_format(default_fields()),
        (None, Some(labels)) => json_format(valid_fields(view, &setting, label_fields(labels))),
        (text, _) => text_format(valid_text(view, &setting, text.unwrap_or_default())),
    };

    format.omit_empty_values = provider.omit_empty_values;
    in_file(path, format)
}

fn in_file(path: &str, format: SubstitutionFormatString) -> AccessLog {
    let config = FileAccessLog {
        path: path.to_owned(),
        access_log_format: Some(AccessLogFormat::LogFormat(format)),
    };
    log("envoy.access_loggers.file", &config)
}

/// A text format; `None` (the default format) if Envoy would reject the listener for it.
pub(super) fn valid_text<'a>(view: &View<'_>, setting: &str, text: &'a str) -> &'a str {
    match substitution::check(text) {
        Ok(()) => text,
        Err(fault) => {
            view.remark(format!(
                "{setting}: {fault}; the default format is used instead"
            ));
            ""
        }
    }
}

/// The fields that Envoy accepts.
pub(super) fn valid_fields(view: &View<'_>, setting: &str, mut fields: Struct) -> Struct {
    fields.fields.retain(|name, value| {
        let checked = check_value(value);
        if let Err(fault) = &checked {
            view.remark(format!("{setting}: field {name:?} is ignored: {fault}"));
        }
        checked.is_ok()
    });
    fields
}

/// Checks the format strings in a value.
fn check_value(value: &Value) -> Result<(), String> {
    match &value.kind {
        Some(Kind::StringValue(text)) => substitution::check(text),
        Some(Kind::StructValue(inner)) => inner.fields.values().try_for_each(check_value),
        Some(Kind::ListValue(list)) => list.values.iter().try_for_each(check_value),
        Some(Kind::NullValue(_) | Kind::NumberValue(_) | Kind::BoolValue(_)) | None => Ok(()),
    }
}

/// A line of text; each entry ends its line.
fn text_format(text: &str) -> SubstitutionFormatString {
    let text = match text {
        "" => DEFAULT_TEXT.to_owned(),
        text if text.ends_with('\n') => text.to_owned(),
        text => format!("{text}\n"),
    };
    SubstitutionFormatString {
        formatters: formatters([text.as_str()]),
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(data_source::Specifier::InlineString(text)),
            ..DataSource::default()
        })),
        ..SubstitutionFormatString::default()
    }
}

/// A JSON object.
fn json_format(fields: Struct) -> SubstitutionFormatString {
    SubstitutionFormatString {
        formatters: formatters(fields.fields.values().filter_map(as_text)),
        json_format_options: Some(JsonFormatOptions::default()),
        format: Some(Format::JsonFormat(fields)),
        ..SubstitutionFormatString::default()
    }
}

/// The formatter extensions that these formats need.
pub(super) fn formatters<'a>(
    formats: impl IntoIterator<Item = &'a str>,
) -> Vec<TypedExtensionConfig> {
    if !formats
        .into_iter()
        .any(|format| format.contains(WITHOUT_QUERY))
    {
        return Vec::new();
    }
    vec![TypedExtensionConfig {
        name: "envoy.formatter.req_without_query".to_owned(),
        typed_config: Some(pack(&ReqWithoutQuery {})),
    }]
}

/// The text of a JSON string, `None` for anything else.
pub(super) fn as_text(value: &Value) -> Option<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => Some(text),
        Some(
            Kind::NullValue(_)
            | Kind::NumberValue(_)
            | Kind::BoolValue(_)
            | Kind::StructValue(_)
            | Kind::ListValue(_),
        )
        | None => None,
    }
}

/// The default fields of a JSON entry.
fn default_fields() -> Struct {
    let field = |(name, format): (&str, &str)| {
        (
            name.to_owned(),
            Value {
                kind: Some(Kind::StringValue(format.to_owned())),
            },
        )
    };
    Struct {
        fields: DEFAULT_FIELDS.into_iter().map(field).collect(),
    }
}

/// The fields that a provider sets.
pub(super) fn label_fields(labels: &BTreeMap<String, serde_json::Value>) -> Struct {
    structure(
        labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    )
}

/// A JSON object as a Protocol Buffers message.
fn structure(fields: impl IntoIterator<Item = (String, serde_json::Value)>) -> Struct {
    Struct {
        fields: fields
            .into_iter()
            .map(|(name, value)| (name, json_value(value)))
            .collect(),
    }
}

/// A JSON value as a Protocol Buffers message.
fn json_value(value: serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(value),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(values) => Kind::ListValue(ListValue {
            values: values.into_iter().map(json_value).collect(),
        }),
        serde_json::Value::Object(fields) => Kind::StructValue(structure(fields)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_ends_with_one_line_break() {
        for (given, expected) in [
            ("%PROTOCOL%", "%PROTOCOL%\n"),
            ("%PROTOCOL%\n", "%PROTOCOL%\n"),
            ("", DEFAULT_TEXT),
        ] {
            let Some(Format::TextFormatSource(source)) = text_format(given).format else {
                panic!("text")
            };
            assert_eq!(
                source.specifier,
                Some(data_source::Specifier::InlineString(expected.to_owned()))
            );
        }
    }

    #[test]
    fn a_formatter_is_named_only_where_it_is_needed() {
        assert_eq!(text_format("%REQ(:PATH)%").formatters.len(), 0);
        assert_eq!(
            text_format("%REQ_WITHOUT_QUERY(:PATH)%").formatters.len(),
            1
        );
    }
}
