//! The address and metadata of one endpoint as Envoy messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::{Address, Metadata, Pipe, address};
use navarch_proto::envoy::config::endpoint::v3::endpoint::AdditionalAddress;
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use navarch_proto::envoy::config::endpoint::v3::{Endpoint as WireEndpoint, LbEndpoint};
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::build::socket_address;
use navarch_base::metrics_log::exchanged_labels;
use navarch_registry::WorkloadLabels;

/// The metadata that selects a cluster's transport socket.
pub(super) const SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// The key of the TLS mode in it.
const TLS_MODE: &str = "tlsMode";
/// The value for Istio's mutual TLS.
const MTLS: &str = "istio";
/// The key of Istio's own metadata.
pub(super) const ISTIO: &str = "istio";
/// Prefix of addresses that are Unix socket paths.
const UNIX_PREFIX: &str = "unix://";
/// The label with the canonical service name of a workload.
pub(super) const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
/// The label with the canonical revision of a workload.
pub(super) const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

/// The names of a destination in a client's metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Names<'a> {
    pub(super) workload: &'a str,
    pub(super) namespace: &'a str,
    /// The canonical service name.
    pub(super) canonical: &'a str,
    /// The canonical revision; empty for the default.
    pub(super) revision: &'a str,
    pub(super) cluster: &'a str,
    /// Only for proxies whose metrics are derived from access logs.
    pub(super) more: Option<More<'a>>,
}

/// Fields that Istio's filter discovers from an endpoint's proxy or the control plane, and that
/// access logs do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct More<'a> {
    /// The identity in its certificate; empty if logs contain it.
    pub(super) identity: &'a str,
    pub(super) app: &'a str,
    pub(super) version: &'a str,
    /// The text of [`exchanged_labels`].
    pub(super) labels: String,
}

impl<'a> More<'a> {
    /// The fields that a proxy sends of its own workload, with `exchanged` labels, a comma-separated
    /// list.
    pub(super) fn of_labels(labels: WorkloadLabels<'a>, exchanged: &str) -> Self {
        let label = |keys: &[&str]| first_label(labels, keys).unwrap_or_default();
        Self {
            identity: "",
            app: label(&["app.kubernetes.io/name", "app"]),
            version: label(&["app.kubernetes.io/version", "version"]),
            labels: exchanged_labels(exchanged, |name| labels.get(name).map(|value| &**value)),
        }
    }

    /// The names that Istio's proxies get for workloads that they look up by address.
    pub(super) fn of_discovered(names: &Names<'a>) -> Self {
        let version = if names.revision.is_empty() {
            "latest"
        } else {
            names.revision
        };
        Self {
            identity: "",
            app: names.canonical,
            version,
            labels: String::new(),
        }
    }

    /// The fields, unless none is set.
    pub(super) fn non_empty(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

/// The canonical service name: from labels, else the workload's name.
pub(super) fn canonical_name<'a>(labels: WorkloadLabels<'a>, workload: &'a str) -> &'a str {
    first_label(labels, &[CANONICAL_NAME, "app.kubernetes.io/name", "app"]).unwrap_or(workload)
}

/// The revision for [`canonical_name`]; empty for `latest`, the default.
pub(super) fn canonical_revision(labels: WorkloadLabels<'_>) -> &str {
    let found = first_label(
        labels,
        &[CANONICAL_REVISION, "app.kubernetes.io/version", "version"],
    );
    found.filter(|revision| *revision != "latest").unwrap_or("")
}

/// The value of the first of these labels that is set.
fn first_label<'a>(labels: WorkloadLabels<'a>, keys: &[&str]) -> Option<&'a str> {
    keys.iter()
        .find_map(|key| labels.get(key))
        .map(|value| &**value)
}

/// The metadata of an endpoint. Set even when empty, as in Istio.
pub(super) fn metadata(mtls: bool, names: Option<&Names<'_>>) -> Metadata {
    let mut filter_metadata = BTreeMap::new();
    if mtls {
        filter_metadata.insert(SOCKET_MATCH.to_owned(), field(TLS_MODE, MTLS));
    }

    if let Some(Names {
        workload,
        namespace,
        canonical,
        revision,
        cluster,
        more,
    }) = names
    {
        let mut joined = format!("{workload};{namespace};{canonical};{revision};{cluster}");
        if let Some(More {
            identity,
            app,
            version,
            labels,
        }) = more
        {
            joined.push_str(&format!(";{identity};{app};{version}"));
            if !labels.is_empty() {
                joined.push(';');
                joined.push_str(labels);
            }
        }
        filter_metadata.insert(ISTIO.to_owned(), field("workload", &joined));
    }

    Metadata {
        filter_metadata,
        ..Metadata::default()
    }
}

pub(super) fn field(key: &str, text: &str) -> Struct {
    let value = Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    Struct {
        fields: BTreeMap::from([(key.to_owned(), value)]),
    }
}

/// Whether an endpoint is reached by Istio's mutual TLS.
pub(super) fn speaks_mtls(endpoint: &LbEndpoint) -> bool {
    let metadata = endpoint
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.filter_metadata.get(SOCKET_MATCH));
    metadata
        .and_then(|fields| fields.fields.get(TLS_MODE))
        .is_some_and(|value| matches!(&value.kind, Some(Kind::StringValue(mode)) if mode == MTLS))
}

/// Whether the locality of an endpoint is unknown.
pub(super) fn is_without_address(endpoint: &LbEndpoint) -> bool {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
        return true;
    };
    match endpoint
        .address
        .as_ref()
        .and_then(|address| address.address.as_ref())
    {
        Some(address::Address::SocketAddress(socket)) => socket.address.is_empty(),
        // Unix sockets have no host either, and are omitted if the mesh has several networks.
        Some(address::Address::EnvoyInternalAddress(tunnelled)) => tunnelled.endpoint_id.is_empty(),
        Some(address::Address::Pipe(_)) | None => true,
    }
}

/// An address; port 0 makes it a path.
pub(crate) fn address(text: &str, port: u16) -> Address {
    if port != 0 {
        return socket_address(text, u32::from(port));
    }
    let path = text.strip_prefix(UNIX_PREFIX).unwrap_or(text).to_owned();
    Address {
        address: Some(address::Address::Pipe(Pipe {
            path,
            ..Pipe::default()
        })),
    }
}

/// The host of an endpoint. `further` are additional addresses of the same endpoint; Envoy uses the
/// first that connects.
pub(crate) fn host(first: &str, port: u16, further: &[Arc<str>]) -> HostIdentifier {
    HostIdentifier::Endpoint(WireEndpoint {
        address: Some(address(first, port)),
        additional_addresses: further
            .iter()
            .map(|text| AdditionalAddress {
                address: Some(address(text, port)),
            })
            .collect(),
        ..WireEndpoint::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_registry::model::Labels;

    #[test]
    fn port_zero_is_a_path() {
        let pipe = address("unix:///var/run/app.sock", 0);
        let Some(address::Address::Pipe(pipe)) = pipe.address else {
            panic!("a path")
        };
        assert_eq!(pipe.path, "/var/run/app.sock");
    }

    #[test]
    fn the_default_canonical_revision_is_omitted() {
        let labels: Labels = [("app", "web"), ("version", "latest")]
            .map(|(k, v)| (Arc::from(k), Arc::from(v)))
            .into();
        assert_eq!(
            (
                canonical_name((&labels).into(), "web-1"),
                canonical_revision((&labels).into())
            ),
            ("web", "")
        );
        assert_eq!(
            canonical_name((&Labels::default()).into(), "web-1"),
            "web-1"
        );
    }

    #[test]
    fn endpoint_metadata_encodes_app_and_version_like_istio() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs
                .iter()
                .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
                .collect()
        };

        let plain = labels(&[
            ("app", "web"),
            ("version", "v1"),
            (CANONICAL_NAME, "shop-web"),
        ]);

        assert_eq!(
            More::of_labels((&plain).into(), ""),
            More {
                app: "web",
                version: "v1",
                ..More::default()
            }
        );

        let qualified = labels(&[
            ("app", "web"),
            ("app.kubernetes.io/name", "w"),
            ("app.kubernetes.io/version", "2"),
        ]);

        assert_eq!(
            More::of_labels((&qualified).into(), "app,missing"),
            More {
                app: "w",
                version: "2",
                labels: "app=web".to_owned(),
                ..More::default()
            }
        );

        let names = Names {
            workload: "web-v1",
            namespace: "shop",
            canonical: "web",
            ..Names::default()
        };

        let more = More::of_discovered(&names);
        assert_eq!(
            more,
            More {
                app: "web",
                version: "latest",
                ..More::default()
            }
        );

        let written =
            |names: &Names<'_>| metadata(false, Some(names)).filter_metadata.remove(ISTIO);
        assert_eq!(
            written(&names),
            Some(field("workload", "web-v1;shop;web;;"))
        );
        let names = Names {
            more: Some(More {
                identity: "spiffe://a",
                ..more
            }),
            ..names
        };

        assert_eq!(
            written(&names),
            Some(field("workload", "web-v1;shop;web;;;spiffe://a;web;latest"))
        );

        let names = Names {
            more: Some(More {
                labels: "a=b,c=d".to_owned(),
                ..More::default()
            }),
            ..names
        };
        assert_eq!(
            written(&names),
            Some(field("workload", "web-v1;shop;web;;;;;;a=b,c=d"))
        );
    }
}
