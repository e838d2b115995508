//! Filters that pass properties of a tunnel to later filters and listeners.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::cluster::v3::Filter as ClusterFilter;
use navarch_proto::envoy::config::common::mutation_rules::v3::{
    HeaderMutation as Mutation, header_mutation,
};
use navarch_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use navarch_proto::envoy::config::core::v3::{
    DataSource, HeaderValue, HeaderValueOption, SubstitutionFormatString, TypedExtensionConfig,
    data_source, substitution_format_string,
};
use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use navarch_proto::envoy::extensions::filters::common::set_filter_state::v3::filter_state_value::{
    Key, SharedWithUpstream, Value as StateValue,
};
use navarch_proto::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation, Mutations,
};
use navarch_proto::envoy::extensions::filters::http::set_filter_state::v3::Config as HttpState;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::envoy::extensions::filters::network::set_filter_state::v3::Config as NetworkState;
use navarch_proto::envoy::extensions::formatter::cel::v3::Cel;
use prost_types::Value;

use super::http::{
    PEER_METADATA_TYPE, bool_value, filter, list, object, packed_filter, text, typed_struct,
};
use super::network::{network_filter, packed_network_filter};
use super::{istio_version, metrics_log};
use crate::hbone::{BAGGAGE, LOCAL_PRINCIPAL, PEER_PRINCIPAL, discovers_peers};
use navarch_push::view::View;

/// The filter state key of the address that the peer connects to.
const LOCAL_ADDRESS: &str = "envoy.filters.listener.original_dst.local_ip";
/// The filter state key of the peer's address.
const REMOTE_ADDRESS: &str = "envoy.filters.listener.original_dst.remote_ip";
/// The filter state key of the requested address or host.
pub(crate) const AUTHORITY: &str = "io.istio.connect_authority";
/// The filter state key of the policies that were already applied to a connection.
pub(crate) const SOURCE: &str = "io.istio.source";
/// The filter state key of the host and port behind a gateway of another network.
const TARGET: &str = "istio.double_hbone.hbone_target_address";
/// The filter state type of texts that filter chains can match, in Istio's proxies. Envoy may only
/// give a stream a connection to an internal listener that was opened for another one if their
/// shared values are equal, and compares those alone that have a hash: without, a tunnel can end at
/// the service, and with the identity, of another (istio/istio#58630).
const ISTIO_HASHABLE: &str = "istio.hashable_string";
/// The same type of a stock Envoy since 1.38.
const HASHABLE: &str = "envoy.hashable_string";
/// The type of older Envoys, of Istio's as well: it has no hash.
const PLAIN: &str = "envoy.string";
/// Maximum size in bytes of a peer's baggage.
const MAX_BAGGAGE: usize = 1024;
/// The configuration types of peer metadata exchange through tunnels: of listeners, and of
/// clusters.
const TUNNEL_METADATA: [&str; 2] = [
    "type.googleapis.com/envoy.extensions.network_filters.peer_metadata.Config",
    "type.googleapis.com/envoy.extensions.network_filters.peer_metadata.UpstreamConfig",
];
/// The filter name of that exchange.
const TUNNEL_METADATA_NAME: &str = "upstream_hbone_peer_metadata";

/// A filter state value for later filters, and for those of internal listeners.
fn state(key: &str, format: &str, shared: SharedWithUpstream) -> FilterStateValue {
    FilterStateValue {
        key: Some(Key::ObjectKey(key.to_owned())),
        value: Some(StateValue::FormatString(formatted(format))),
        shared_with_upstream: shared.into(),
        ..FilterStateValue::default()
    }
}

/// A format string of Envoy.
fn formatted(format: &str) -> SubstitutionFormatString {
    let text = DataSource {
        specifier: Some(data_source::Specifier::InlineString(format.to_owned())),
        ..DataSource::default()
    };
    SubstitutionFormatString {
        format: Some(substitution_format_string::Format::TextFormatSource(text)),
        ..SubstitutionFormatString::default()
    }
}

/// The filter state type of shared texts for the view's proxy.
fn text_type(view: &View<'_>) -> String {
    let is_stock = !discovers_peers(view);
    if is_stock && view.proxy().supports(HASHABLE) {
        HASHABLE
    } else if !is_stock && istio_version::at_least_patch(view, [1, 29, 2]) {
        ISTIO_HASHABLE
    } else {
        PLAIN
    }
    .to_owned()
}

/// Stores the authority of a CONNECT request and its client in filter state.
pub(crate) fn connect_authority(view: &View<'_>) -> HttpFilter {
    let once = SharedWithUpstream::Once;
    let typed = |value| FilterStateValue {
        factory_key: text_type(view),
        ..value
    };
    let mut values = vec![
        state(LOCAL_ADDRESS, "%REQ(:AUTHORITY)%", once),
        typed(state(AUTHORITY, "%REQ(:AUTHORITY)%", once)),
        state(REMOTE_ADDRESS, "%DOWNSTREAM_REMOTE_ADDRESS%", once),
        typed(state(PEER_PRINCIPAL, "%DOWNSTREAM_PEER_URI_SAN%", once)),
        typed(state(LOCAL_PRINCIPAL, "%DOWNSTREAM_LOCAL_URI_SAN%", once)),
    ];

    if metrics_log::are_taken(view) {
        let value = format!("%REQ(baggage):{MAX_BAGGAGE}%");
        values.push(typed(state(BAGGAGE, &value, once)));
    }

    filter(
        "connect_authority",
        &HttpState {
            on_request_headers: values,
            ..HttpState::default()
        },
    )
}

/// Stores the header of a CONNECT request about applied policies in filter state.
pub(crate) fn request_source(view: &View<'_>) -> HttpFilter {
    let value = state(SOURCE, "%REQ(x-istio-source)%", SharedWithUpstream::Once);
    let values = vec![FilterStateValue {
        factory_key: text_type(view),
        ..value
    }];
    filter(
        "request_source",
        &HttpState {
            on_request_headers: values,
            ..HttpState::default()
        },
    )
}

/// Passes the address that the peer connects to on to the next tunnel.
pub(crate) fn forwarded_authority() -> Filter {
    let format = format!("%FILTER_STATE({LOCAL_ADDRESS}:PLAIN)%");
    network_state(
        "connect_authority",
        vec![state(LOCAL_ADDRESS, &format, SharedWithUpstream::Once)],
    )
}

/// Passes the address of an endpoint, and the target behind it, on to the tunnels to its network.
pub(crate) fn endpoint_metadata(view: &View<'_>) -> Filter {
    let shared = SharedWithUpstream::Transitive;
    let target = state(
        TARGET,
        "%DYNAMIC_METADATA(istio:double_hbone:hbone_target_address)%",
        shared,
    );

    let values = vec![
        state(
            LOCAL_ADDRESS,
            "%DYNAMIC_METADATA(envoy.filters.listener.original_dst:local)%",
            shared,
        ),
        FilterStateValue {
            factory_key: text_type(view),
            ..target
        },
    ];

    network_state("propagate_endpoint_metadata", values)
}

/// The host and port behind a gateway of another network, as a format string.
pub(crate) fn target_format() -> String {
    format!("%FILTER_STATE({TARGET}:PLAIN)%")
}

/// Sends traffic for the original destination of a service to the address that the peer requested,
/// else to the service's own address.
pub(crate) fn destination(own: &str) -> Filter {
    let format = format!(
        "%CEL('{LOCAL_ADDRESS}' in filter_state ? filter_state['{LOCAL_ADDRESS}']: r'{own}')%"
    );
    let cel = TypedExtensionConfig {
        name: "envoy.formatter.cel".to_owned(),
        typed_config: Some(pack(&Cel::default())),
    };
    let format = SubstitutionFormatString {
        formatters: vec![cel],
        ..formatted(&format)
    };

    let value = FilterStateValue {
        key: Some(Key::ObjectKey(
            "envoy.network.transport_socket.original_dst_address".to_owned(),
        )),
        value: Some(StateValue::FormatString(format)),
        ..FilterStateValue::default()
    };

    network_state("set_dst_address", vec![value])
}

fn network_state(name: &str, values: Vec<FilterStateValue>) -> Filter {
    network_filter(
        name,
        &NetworkState {
            on_new_connection: values,
            ..NetworkState::default()
        },
    )
}

/// Discovers downstream peer metadata. `None` if the proxy does not support it.
pub(crate) fn downstream_metadata(view: &View<'_>) -> Option<HttpFilter> {
    let mut found = vec![of("workload_discovery")];
    let mut fields = BTreeMap::from([("shared_with_upstream".to_owned(), bool_value(true))]);
    if view.mesh().settings.hbone.baggage {
        found.push(of("baggage"));
        fields.insert("downstream_propagation".to_owned(), list([of("baggage")]));
    }
    fields.insert("downstream_discovery".to_owned(), list(found));
    let filter = packed_filter(
        "waypoint_downstream_peer_metadata",
        typed_struct(PEER_METADATA_TYPE, fields),
    );
    discovers_peers(view).then_some(filter)
}

/// Discovers upstream peer metadata. `None` if the proxy does not support it.
pub(crate) fn upstream_metadata(view: &View<'_>) -> Option<HttpFilter> {
    let mut found = vec![of("workload_discovery")];
    if view.mesh().settings.hbone.baggage {
        let key = object([("peer_metadata_key", text("upstream_peer"))]);
        found.push(object([("upstream_filter_state", key)]));
    }
    let fields = BTreeMap::from([("upstream_discovery".to_owned(), list(found))]);
    let filter = packed_filter(
        "waypoint_upstream_peer_metadata",
        typed_struct(PEER_METADATA_TYPE, fields),
    );
    discovers_peers(view).then_some(filter)
}

/// The configuration of a discovery method of peer metadata.
fn of(way: &str) -> Value {
    object([(way, object([]))])
}

/// Reads upstream peer metadata from the response to CONNECT, if enabled.
pub(crate) fn listener_baggage(view: &View<'_>) -> Option<Filter> {
    (view.mesh().settings.hbone.baggage && discovers_peers(view)).then(|| {
        let fields = BTreeMap::from([("baggage_key".to_owned(), text("io.istio.baggage"))]);
        let [listener, _] = TUNNEL_METADATA;
        packed_network_filter(TUNNEL_METADATA_NAME, typed_struct(listener, fields))
    })
}

/// The counterpart of [`listener_baggage`] in clusters.
pub(crate) fn cluster_baggage(view: &View<'_>) -> Option<ClusterFilter> {
    (view.mesh().settings.hbone.baggage && discovers_peers(view)).then(|| {
        let [_, cluster] = TUNNEL_METADATA;
        let config = typed_struct(cluster, BTreeMap::new());
        ClusterFilter {
            name: TUNNEL_METADATA_NAME.to_owned(),
            typed_config: Some(config),
            ..ClusterFilter::default()
        }
    })
}

/// Overwrites the request header with the peer's identity for the application.
pub(crate) fn client_identity() -> HttpFilter {
    let value = format!(
        "By=%FILTER_STATE({LOCAL_PRINCIPAL}:PLAIN)%;URI=%FILTER_STATE({PEER_PRINCIPAL}:PLAIN)%"
    );
    let append = overwriting("x-forwarded-client-cert", &value);
    let mutation = Mutation {
        action: Some(header_mutation::Action::Append(append)),
    };
    let mutations = Mutations {
        request_mutations: vec![mutation],
        ..Mutations::default()
    };
    let config = HeaderMutation {
        mutations: Some(mutations),
        ..HeaderMutation::default()
    };
    filter("istio.waypoint.xfcc_client_identity", &config)
}

/// A header that overwrites an existing one.
pub(crate) fn overwriting(key: &str, value: &str) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            ..HeaderValue::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    }
}
