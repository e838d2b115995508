//! Access logs to an OpenTelemetry collector.

use navarch_proto::envoy::config::accesslog::v3::AccessLog;
use navarch_proto::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use navarch_proto::opentelemetry::proto::common::v1::{
    AnyValue, KeyValue, KeyValueList, any_value,
};

use super::file::{DEFAULT_TEXT, as_text, formatters, label_fields, valid_fields, valid_text};
use super::grpc::{PEERS_OF_ALL_VERSIONS, non_empty};
use crate::filters::access_logger::{grpc_destination, log};
use crate::filters::provider::ProviderCluster;
use navarch_api::mesh::EnvoyOpenTelemetryLogProvider;
use navarch_push::view::View;

/// The log of a provider: its text is the body of entries, its labels are their attributes.
pub(super) fn of_provider(
    view: &View<'_>,
    name: &str,
    provider: &EnvoyOpenTelemetryLogProvider,
    cluster: &ProviderCluster,
) -> AccessLog {
    let setting = format!("mesh config: extensionProviders[{name}].envoyOtelAls.logFormat");
    let format = provider.log_format.as_ref();
    let text = format
        .and_then(|format| format.text.as_deref())
        .unwrap_or_default();
    let text = non_empty(valid_text(view, &setting, text), DEFAULT_TEXT);
    let labels = format
        .and_then(|format| format.labels.as_ref())
        .map(label_fields)
        .unwrap_or_default();
    let labels = valid_fields(view, &setting, labels);
    let attributes: Vec<KeyValue> = labels
        .fields
        .iter()
        .map(|(key, value)| KeyValue {
            key: key.clone(),
            value: Some(string_value(as_text(value).unwrap_or_default())),
            ..KeyValue::default()
        })
        .collect();

    #[allow(
        deprecated,
        reason = "the field that Istio sets, which every proxy in use reads"
    )]
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(grpc_destination(
            non_empty(&provider.log_name, "otel_envoy_accesslog"),
            cluster,
            &PEERS_OF_ALL_VERSIONS,
        )),
        disable_builtin_labels: true,
        body: Some(string_value(text)),
        formatters: formatters(
            [text]
                .into_iter()
                .chain(labels.fields.values().filter_map(as_text)),
        ),
        attributes: (!attributes.is_empty()).then_some(KeyValueList { values: attributes }),
        ..OpenTelemetryAccessLogConfig::default()
    };

    log("envoy.access_loggers.open_telemetry", &config)
}

fn string_value(text: &str) -> AnyValue {
    AnyValue {
        value: Some(any_value::Value::StringValue(text.to_owned())),
    }
}
