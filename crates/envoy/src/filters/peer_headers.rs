//! Peer metadata exchange for proxies without Istio's filter, by the same headers.
//!
//! The client's proxy sets them, from its own environment; the server's moves them to where access
//! logs read them, so that the application does not get them.

use navarch_proto::envoy::config::common::mutation_rules::v3::{
    HeaderMutation as Mutation, header_mutation,
};
use navarch_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use navarch_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use navarch_proto::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation, Mutations,
};
use navarch_proto::envoy::extensions::filters::http::header_to_metadata::v3::Config as HeaderToMetadata;
use navarch_proto::envoy::extensions::filters::http::header_to_metadata::v3::config::{
    KeyValuePair, Rule,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::class::ListenerClass;
use super::http::filter;
use super::metrics_log;
use navarch_api::metrics_log::{
    PEER_HEADER, PEER_ID_HEADER, PEER_ID_KEY, PEER_ID_VARIABLE, PEER_KEY, PEER_NAMESPACE,
    PEER_VARIABLE,
};
use navarch_push::view::View;

/// The headers, each with the environment variable of its value and its metadata key.
const HEADERS: [(&str, &str, &str); 2] = [
    (PEER_HEADER, PEER_VARIABLE, PEER_KEY),
    (PEER_ID_HEADER, PEER_ID_VARIABLE, PEER_ID_KEY),
];

/// The filter for listeners of a class; `None` if Istio's exchange is disabled, or the result is
/// not used. If headers may not leave the mesh none are set, since the destination of a request is
/// not known yet.
pub(super) fn filter_of(
    view: &View<'_>,
    class: ListenerClass,
    skip_external: bool,
) -> Option<HttpFilter> {
    if !view.mesh().settings.metadata_exchange || !metrics_log::are_taken(view) {
        return None;
    }

    let (name, is_client) = match class {
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => {
            ("envoy.filters.http.header_mutation", true)
        }
        ListenerClass::SidecarInbound => ("envoy.filters.http.header_to_metadata", false),
    };

    if !view.proxy().supports(name) {
        return None;
    }

    if !is_client {
        let request_rules = HEADERS.map(|(header, _, key)| kept(header, key)).into();
        return Some(filter(
            name,
            &HeaderToMetadata {
                request_rules,
                ..HeaderToMetadata::default()
            },
        ));
    }

    let request = |(header, variable, _): (&str, &str, &str)| match skip_external {
        true => removed(header),
        false => written(header, variable),
    };
    let mutations = Mutations {
        request_mutations: HEADERS.map(request).into(),
        // A server with Istio's proxy responds with its own headers.
        response_mutations: HEADERS.map(|(header, _, _)| removed(header)).into(),
        ..Mutations::default()
    };

    Some(filter(
        name,
        &HeaderMutation {
            mutations: Some(mutations),
            ..HeaderMutation::default()
        },
    ))
}

/// Moves a header of the request to metadata.
fn kept(header: &str, key: &str) -> Rule {
    let place = KeyValuePair {
        metadata_namespace: PEER_NAMESPACE.to_owned(),
        key: key.to_owned(),
        ..KeyValuePair::default()
    };
    Rule {
        header: header.to_owned(),
        on_header_present: Some(place),
        remove: true,
        ..Rule::default()
    }
}

/// Sets a header, overwriting an existing one.
fn written(header: &str, variable: &str) -> Mutation {
    let value = HeaderValue {
        key: header.to_owned(),
        value: format!("%ENVIRONMENT({variable})%"),
        ..HeaderValue::default()
    };
    let option = HeaderValueOption {
        header: Some(value),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    Mutation {
        action: Some(header_mutation::Action::Append(option)),
    }
}

fn removed(header: &str) -> Mutation {
    Mutation {
        action: Some(header_mutation::Action::Remove(header.to_owned())),
    }
}
