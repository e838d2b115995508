//! The labels of an entry, by the rules of Istio's filter.

use std::borrow::Cow;

use navarch_base::metrics_log::Reporter;
use serde::Deserialize;

use super::entry_fields::{EntryFields, ProtocolOutcome};
use super::peers::{self, Workload};

/// The label value for unknown.
pub(super) const UNKNOWN: &str = "unknown";
/// The revision if the workload has none.
const LATEST: &str = "latest";

/// Labels in order.
pub(super) type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// All labels, in Istio's order.
const STANDARD: [&str; 25] = [
    "reporter",
    "source_workload",
    "source_canonical_service",
    "source_canonical_revision",
    "source_workload_namespace",
    "source_principal",
    "source_app",
    "source_version",
    "source_cluster",
    "destination_workload",
    "destination_workload_namespace",
    "destination_principal",
    "destination_app",
    "destination_version",
    "destination_service",
    "destination_canonical_service",
    "destination_canonical_revision",
    "destination_service_name",
    "destination_service_namespace",
    "destination_cluster",
    "request_protocol",
    "response_code",
    "grpc_response_status",
    "response_flags",
    "connection_security_policy",
];

/// A service in the metadata of a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Service {
    host: String,
    name: String,
    namespace: String,
}

/// Whether a label is a standard label of Istio.
pub(super) fn is_standard(label: &str) -> bool {
    STANDARD.contains(&label)
}

/// The text, or `unknown` if it is empty.
fn or_unknown(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(if text.is_empty() { UNKNOWN } else { text })
}

/// The namespace of an identity.
fn namespace_of(principal: &str) -> Option<&str> {
    let (_, rest) = principal.split_once("/ns/")?;
    let namespace = rest.split('/').next()?;
    (!namespace.is_empty()).then_some(namespace)
}

/// The labels of both peers, which all metrics have. `endpoint` is the destination of a waypoint's
/// request.
pub(super) fn of_peers<'a>(
    own: &'a Workload,
    peer: &'a Workload,
    endpoint: &'a Workload,
    fields: &EntryFields<'a>,
) -> Labels<'a> {
    let peer_namespace = namespace_of(fields.peer_principal).unwrap_or(&peer.namespace);
    let service = service(fields, own, peer_namespace);
    let side = |workload: &'a Workload, namespace: &'a str, principal: &'a str| {
        let revision = match workload.canonical_revision.as_str() {
            // As in Istio, an unknown destination of a waypoint has no revision.
            "" if std::ptr::eq(workload, endpoint) && workload.name.is_empty() => UNKNOWN,
            "" => LATEST,
            revision => revision,
        };

        [
            or_unknown(&workload.name),
            or_unknown(&workload.canonical_name),
            Cow::Borrowed(revision),
            or_unknown(namespace),
            or_unknown(principal),
            or_unknown(&workload.app),
            or_unknown(&workload.version),
            or_unknown(&workload.cluster),
        ]
    };

    let own_side = side(own, &own.namespace, fields.own_principal);
    let peer_side = side(peer, peer_namespace, fields.peer_principal);
    let (reporter, source, destination) = match fields.reporter {
        Reporter::Source => ("source", own_side, peer_side),
        Reporter::Destination => ("destination", peer_side, own_side),
        Reporter::Waypoint => {
            let principal = peers::identity_of_endpoint(fields.endpoint);
            (
                "waypoint",
                peer_side,
                side(endpoint, &endpoint.namespace, principal),
            )
        }
    };

    let [service_host, service_name, service_namespace] = service;
    let [
        workload,
        name,
        revision,
        namespace,
        principal,
        app,
        version,
        cluster,
    ] = destination;

    let destination = [
        workload,
        namespace,
        principal,
        app,
        version,
        service_host,
        name,
        revision,
        service_name,
        service_namespace,
        cluster,
    ];

    let values = std::iter::once(Cow::Borrowed(reporter))
        .chain(source)
        .chain(destination);
    STANDARD.into_iter().zip(values).collect()
}

/// Host, name and namespace of the requested service.
fn service<'a>(
    fields: &EntryFields<'a>,
    own: &'a Workload,
    peer_namespace: &'a str,
) -> [Cow<'a, str>; 3] {
    let mut host = Cow::Borrowed(fields.host);
    let mut name = host.clone();
    let mut namespace = Cow::Borrowed("");

    if let Some(place) = fields.no_service {
        name = Cow::Borrowed(place);
    } else if let Some(service) = first_service(fields.services) {
        name = Cow::Owned(match service.name.is_empty() {
            true => service
                .host
                .split('.')
                .next()
                .unwrap_or_default()
                .to_owned(),
            false => service.name,
        });
        host = Cow::Owned(service.host);
        namespace = Cow::Owned(service.namespace);
    }

    let known = |text: Cow<'a, str>, other: &'a str| {
        if text.is_empty() {
            or_unknown(other)
        } else {
            text
        }
    };

    match fields.reporter {
        Reporter::Source => [
            known(host, ""),
            known(name, ""),
            known(namespace, peer_namespace),
        ],
        Reporter::Waypoint => [known(host, ""), known(name, ""), known(namespace, "")],
        Reporter::Destination => [
            known(host, &own.canonical_name),
            known(name, &own.canonical_name),
            or_unknown(&own.namespace),
        ],
    }
}

/// The first of a cluster's services.
fn first_service(json: &str) -> Option<Service> {
    if json.is_empty() {
        return None;
    }
    serde_json::from_str::<Vec<Service>>(json)
        .ok()?
        .into_iter()
        .next()
}

/// Adds the labels that are known at the end of an entry.
pub(super) fn add_outcome<'a>(labels: &mut Labels<'a>, fields: &EntryFields<'a>) {
    match fields.outcome {
        ProtocolOutcome::Tcp => labels.push(("request_protocol", "tcp".into())),
        ProtocolOutcome::Http { code } => {
            labels.push(("request_protocol", "http".into()));
            labels.push(("response_code", code.to_string().into()));
            labels.push(("grpc_response_status", "".into()));
        }
        ProtocolOutcome::Grpc { code, status } => {
            labels.push(("request_protocol", "grpc".into()));
            labels.push(("response_code", code.to_string().into()));
            labels.push((
                "grpc_response_status",
                status
                    .map_or(String::new(), |status| status.to_string())
                    .into(),
            ));
        }
    }

    labels.push((
        "response_flags",
        Cow::Borrowed(if fields.flags.is_empty() {
            "-"
        } else {
            fields.flags
        }),
    ));

    let policy = match fields.reporter {
        Reporter::Source => UNKNOWN,
        Reporter::Destination | Reporter::Waypoint
            if !fields.peer_principal.is_empty() && !fields.own_principal.is_empty() =>
        {
            "mutual_tls"
        }
        Reporter::Destination | Reporter::Waypoint => "none",
    };

    labels.push(("connection_security_policy", policy.into()));
}
