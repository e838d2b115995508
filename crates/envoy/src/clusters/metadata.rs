//! Cluster metadata for metrics and Istio's filters, under the key `istio`.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::core::v3::Metadata;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use crate::config_info;
use crate::filters::alpn::{self, UpstreamVersion};
use crate::filters::peer_headers::{EXTERNAL, NO_EXCHANGE};
use navarch_api::istio::ClientTlsMode;
use navarch_api::object::{Kind as ObjectKind, NamespacedName};
use navarch_registry::model::Service;

/// The key of Istio's metadata.
const ISTIO: &str = "istio";
/// The key of peer metadata.
const PEER_METADATA: &str = "istio.peer_metadata";

/// Istio's metadata of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks")]
pub(super) struct ClusterMetadata {
    /// The services behind it; `None` writes no list.
    pub(super) services: Option<Vec<NamedService>>,
    /// Whether the service is outside the mesh.
    pub(super) external: bool,
    /// Whether all endpoints are reached by HBONE, which exchanges peer metadata itself.
    pub(super) is_tunnelled: bool,
    /// The DestinationRule of the cluster.
    pub(super) rule: Option<NamespacedName>,
    pub(super) subset: Option<String>,
    /// Whether peer metadata exchange is disabled inside tunnels, since their content is TLS.
    pub(super) keeps_baggage: bool,
    /// Whether the client's ALPN must be kept, since the user's own TLS settings apply.
    pub(super) keeps_alpn: bool,
    /// The HTTP version for the ALPN protocols of the mesh's mutual TLS, for proxies without Istio's
    /// ALPN filter.
    pub(super) alpn: Option<UpstreamVersion>,
}

/// A service in metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedService {
    host: String,
    /// The short name.
    name: String,
    namespace: String,
}

impl NamedService {
    /// The names of a service.
    pub(super) fn new(service: &Service) -> Self {
        Self {
            host: service.key.hostname.to_string(),
            name: service.name.to_string(),
            namespace: service.key.namespace.to_string(),
        }
    }

    /// The metadata value.
    fn to_value(&self) -> Value {
        let fields = [
            ("host", &self.host),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ];
        structure(
            fields
                .map(|(key, value)| (key.to_owned(), text(value)))
                .into(),
        )
    }
}

impl ClusterMetadata {
    /// Sets the TLS mode of the policy.
    pub(super) fn set_tls_mode(&mut self, mode: Option<ClientTlsMode>) {
        self.keeps_alpn = matches!(mode, Some(ClientTlsMode::Simple | ClientTlsMode::Mutual));
    }

    /// The Envoy message; `None` if empty.
    pub(super) fn into_wire(self) -> Option<Metadata> {
        let mut fields = BTreeMap::new();

        if let Some(services) = self.services {
            let values = services.iter().map(NamedService::to_value).collect();
            fields.insert(
                "services".to_owned(),
                value(Kind::ListValue(ListValue { values })),
            );
        }

        if self.is_tunnelled {
            fields.insert(NO_EXCHANGE.to_owned(), value(Kind::BoolValue(true)));
        } else if self.external {
            fields.insert(EXTERNAL.to_owned(), value(Kind::BoolValue(true)));
        }

        if let Some(rule) = self.rule {
            fields.insert(
                "config".to_owned(),
                text(&config_info::path(ObjectKind::DestinationRule, &rule)),
            );
        }

        if let Some(subset) = self.subset {
            fields.insert("subset".to_owned(), text(&subset));
        }

        if self.keeps_alpn {
            fields.insert("alpn_override".to_owned(), text("false"));
        }

        if let Some(version) = self.alpn {
            fields.insert(alpn::METADATA.to_owned(), text(version.as_str()));
        }

        let mut filter_metadata = BTreeMap::new();
        if !fields.is_empty() {
            filter_metadata.insert(ISTIO.to_owned(), Struct { fields });
        }

        if self.keeps_baggage {
            let off = BTreeMap::from([(
                "disable_baggage_discovery".to_owned(),
                value(Kind::BoolValue(true)),
            )]);
            filter_metadata.insert(PEER_METADATA.to_owned(), Struct { fields: off });
        }

        (!filter_metadata.is_empty()).then(|| Metadata {
            filter_metadata,
            ..Metadata::default()
        })
    }
}

/// Changes the HTTP version for ALPN protocols, if the cluster has one.
pub(super) fn correct_alpn(metadata: &mut Metadata, version: UpstreamVersion) {
    let fields = metadata
        .filter_metadata
        .get_mut(ISTIO)
        .map(|istio| &mut istio.fields);
    if let Some(written) = fields.and_then(|fields| fields.get_mut(alpn::METADATA)) {
        *written = text(version.as_str());
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

/// A string value.
fn text(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

/// A struct value.
fn structure(fields: BTreeMap<String, Value>) -> Value {
    value(Kind::StructValue(Struct { fields }))
}
