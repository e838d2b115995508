//! HTTP filters with constant, or almost constant, configuration.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::any::pack;
use navarch_proto::envoy::extensions::filters::http::cors::v3::Cors;
use navarch_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use navarch_proto::envoy::extensions::filters::http::grpc_stats::v3::{
    FilterConfig as GrpcStats, filter_config,
};
use navarch_proto::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use navarch_proto::envoy::extensions::filters::http::router::v3::Router;
use navarch_proto::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use navarch_proto::udpa::r#type::v1::TypedStruct;
use prost::{Message, Name};
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};

use super::class::ListenerClass;
use navarch_push::view::View;

/// The configuration type of peer metadata filters.
pub(crate) const PEER_METADATA_TYPE: &str =
    "type.googleapis.com/io.istio.http.peer_metadata.Config";

/// A filter with this name and configuration.
#[must_use]
pub fn filter<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    packed_filter(name, pack(config))
}

/// A filter with this name and packed configuration.
#[must_use]
pub fn packed_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}

/// CORS policies, which routes set.
#[must_use]
pub fn cors() -> HttpFilter {
    filter("envoy.filters.http.cors", &Cors::default())
}

/// Faults, which routes set.
#[must_use]
pub fn fault() -> HttpFilter {
    filter("envoy.filters.http.fault", &HttpFault::default())
}

/// Counts gRPC messages.
#[must_use]
pub fn grpc_stats() -> HttpFilter {
    let config = GrpcStats {
        emit_filter_state: true,
        per_method_stat_specifier: Some(filter_config::PerMethodStatSpecifier::StatsForAllMethods(
            false,
        )),
        ..GrpcStats::default()
    };
    filter("envoy.filters.http.grpc_stats", &config)
}

/// Converts gRPC-Web to gRPC.
#[must_use]
pub fn grpc_web() -> HttpFilter {
    filter("envoy.filters.http.grpc_web", &GrpcWeb {})
}

/// Persistent sessions, which routes set.
#[must_use]
pub fn empty_stateful_session() -> HttpFilter {
    filter(
        "envoy.filters.http.stateful_session",
        &StatefulSession::default(),
    )
}

/// The router; always the last filter.
#[must_use]
pub fn router(suppress_envoy_headers: bool) -> HttpFilter {
    filter(
        "envoy.filters.http.router",
        &Router {
            suppress_envoy_headers,
            ..Router::default()
        },
    )
}

/// Istio's exchange of peer metadata over HTTP headers. `None` if disabled or if the proxy does not
/// support it.
#[must_use]
pub fn metadata_exchange(
    view: &View<'_>,
    class: ListenerClass,
    skip_external: bool,
) -> Option<HttpFilter> {
    let settings = &view.mesh().settings;
    if !settings.metadata_exchange || !view.proxy().supports("envoy.filters.http.peer_metadata") {
        return None;
    }

    let headers = match class {
        ListenerClass::SidecarOutbound | ListenerClass::Gateway if skip_external => {
            object([("skip_external_clusters", bool_value(true))])
        }
        ListenerClass::SidecarOutbound | ListenerClass::Gateway | ListenerClass::SidecarInbound => {
            object([])
        }
    };

    let discovery = list([
        object([("istio_headers", object([]))]),
        object([("workload_discovery", object([]))]),
    ]);
    let propagation = list([object([("istio_headers", headers)])]);
    let (discover, propagate) = match class {
        ListenerClass::SidecarInbound => ("downstream_discovery", "downstream_propagation"),
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => {
            ("upstream_discovery", "upstream_propagation")
        }
    };

    let mut fields = BTreeMap::from([
        (discover.to_owned(), discovery),
        (propagate.to_owned(), propagation),
    ]);
    add_labels(&mut fields, &settings.metadata_exchange_labels);

    Some(packed_filter(
        "istio.metadata_exchange",
        typed_struct(PEER_METADATA_TYPE, fields),
    ))
}

/// Adds further labels, a comma-separated list, if any are set.
pub(super) fn add_labels(fields: &mut BTreeMap<String, Value>, labels: &str) {
    if !labels.is_empty() {
        let labels: BTreeSet<&str> = labels.split(',').collect();
        fields.insert(
            "additional_labels".to_owned(),
            list(labels.into_iter().map(text)),
        );
    }
}

/// A message as JSON in an envelope, so that control planes do not need its type.
#[must_use]
pub fn typed_struct(type_url: &str, fields: BTreeMap<String, Value>) -> Any {
    pack(&TypedStruct {
        type_url: type_url.to_owned(),
        value: Some(Struct { fields }),
    })
}

/// A JSON object.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Value {
        kind: Some(Kind::StructValue(Struct { fields })),
    }
}

/// A JSON array.
pub(crate) fn list(values: impl IntoIterator<Item = Value>) -> Value {
    let values = values.into_iter().collect();
    Value {
        kind: Some(Kind::ListValue(prost_types::ListValue { values })),
    }
}

/// A JSON string.
pub(crate) fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

/// A JSON bool.
pub(crate) fn bool_value(value: bool) -> Value {
    Value {
        kind: Some(Kind::BoolValue(value)),
    }
}
