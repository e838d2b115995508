//! Peer metadata exchange for proxies without Istio's filter, by the same headers.
//!
//! The client's proxy sets them, from its own environment; the server's moves them to where access
//! logs read them, so that the application does not get them. They are only for servers with a
//! sidecar: an application behind a tunnel, or outside the mesh where Telemetry or the mesh config
//! says so, would get them. As in Istio's filter, the metadata of the cluster decides.

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
use navarch_base::metrics_log::{
    PEER_HEADER, PEER_ID_HEADER, PEER_ID_KEY, PEER_ID_VARIABLE, PEER_KEY, PEER_NAMESPACE,
    PEER_VARIABLE,
};
use navarch_push::view::View;

/// A header of the exchange.
struct PeerHeader {
    name: &'static str,
    /// The environment variable of Envoy with its value.
    variable: &'static str,
    /// Where the server's access logs read it, in [`PEER_NAMESPACE`].
    key: &'static str,
    /// The header that carries the value in the client's proxy until the cluster is known.
    unchecked: &'static str,
}

const HEADERS: [PeerHeader; 2] = [
    PeerHeader {
        name: PEER_HEADER,
        variable: PEER_VARIABLE,
        key: PEER_KEY,
        unchecked: "x-envoy-peer-metadata-unchecked",
    },
    PeerHeader {
        name: PEER_ID_HEADER,
        variable: PEER_ID_VARIABLE,
        key: PEER_ID_KEY,
        unchecked: "x-envoy-peer-metadata-id-unchecked",
    },
];

/// The member of a cluster's metadata `istio` for servers that get no headers.
pub(crate) const NO_EXCHANGE: &str = "disable_mx";
/// The member of a cluster's metadata `istio` for servers outside the mesh.
pub(crate) const EXTERNAL: &str = "external";

/// What Envoy reads the cluster of a request with.
const FORMATTER: &str = "envoy.built_in_formatters.cel";

/// The filter for listeners of a class; `None` if Istio's exchange is disabled, or the result is
/// not used. With `skip_external`, servers outside the mesh do not get the headers either.
pub(crate) fn filter_of(
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
        return Some(filter(
            name,
            &HeaderToMetadata {
                request_rules: HEADERS.iter().map(kept).collect(),
                ..HeaderToMetadata::default()
            },
        ));
    }

    let can_choose = view.proxy().supports(FORMATTER);
    let request = |header: &PeerHeader| match can_choose {
        true => written(header, skip_external),
        false => vec![removed(header.name)],
    };
    let mutations = Mutations {
        request_mutations: HEADERS.iter().flat_map(request).collect(),
        // A server with Istio's proxy responds with its own headers.
        response_mutations: HEADERS.iter().map(|header| removed(header.name)).collect(),
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
fn kept(header: &PeerHeader) -> Rule {
    let place = KeyValuePair {
        metadata_namespace: PEER_NAMESPACE.to_owned(),
        key: header.key.to_owned(),
        ..KeyValuePair::default()
    };
    Rule {
        header: header.name.to_owned(),
        on_header_present: Some(place),
        remove: true,
        ..Rule::default()
    }
}

/// Sets a header in place of an existing one, if the cluster of the request may get it. An
/// expression can read neither the environment nor a value that is not there, so a header with
/// another name has the value until the cluster is known.
fn written(header: &PeerHeader, skip_external: bool) -> Vec<Mutation> {
    let expression = format!(
        "{} ? '' : request.headers['{}']",
        is_skipped(skip_external),
        header.unchecked
    );
    vec![
        // From the application, if Envoy has no such variable.
        removed(header.unchecked),
        set(
            header.unchecked,
            format!("%ENVIRONMENT({})%", header.variable),
        ),
        removed(header.name),
        // An empty value is not added.
        set(header.name, format!("%CEL({expression})%")),
        removed(header.unchecked),
    ]
}

/// The CEL expression that is true if the cluster of a request does not get the headers.
fn is_skipped(skip_external: bool) -> String {
    let metadata = "xds.cluster_metadata.filter_metadata";
    let has = |member: &str| format!("'{member}' in {metadata}['istio']");
    if skip_external {
        format!(
            "xds.cluster_name == 'PassthroughCluster' || 'istio' in {metadata} && ({} || {})",
            has(NO_EXCHANGE),
            has(EXTERNAL)
        )
    } else {
        format!("'istio' in {metadata} && {}", has(NO_EXCHANGE))
    }
}

/// Sets a header, overwriting an existing one.
fn set(header: &str, value: String) -> Mutation {
    let value = HeaderValue {
        key: header.to_owned(),
        value,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_behind_tunnels_get_no_headers_and_external_ones_by_choice() {
        assert_eq!(
            is_skipped(false),
            "'istio' in xds.cluster_metadata.filter_metadata && \
             'disable_mx' in xds.cluster_metadata.filter_metadata['istio']"
        );
        assert_eq!(
            is_skipped(true),
            "xds.cluster_name == 'PassthroughCluster' || \
             'istio' in xds.cluster_metadata.filter_metadata && \
             ('disable_mx' in xds.cluster_metadata.filter_metadata['istio'] || \
             'external' in xds.cluster_metadata.filter_metadata['istio'])"
        );
    }

    #[test]
    fn a_header_of_the_application_never_becomes_metadata() {
        let names: Vec<String> = written(&HEADERS[0], false)
            .into_iter()
            .map(|mutation| match mutation.action {
                Some(header_mutation::Action::Remove(name)) => format!("-{name}"),
                Some(header_mutation::Action::Append(option)) => {
                    format!("+{}", option.header.unwrap_or_default().key)
                }
                _ => String::new(),
            })
            .collect();
        assert_eq!(
            names,
            [
                "-x-envoy-peer-metadata-unchecked",
                "+x-envoy-peer-metadata-unchecked",
                "-x-envoy-peer-metadata",
                "+x-envoy-peer-metadata",
                "-x-envoy-peer-metadata-unchecked",
            ]
        );
    }
}
