//! The proxy of a stream: the node of its first request, checked against the authenticated
//! identity.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::config::core::v3::node::UserAgentVersionType;
use prost_types::value::Kind as ValueKind;
use serde_json::{Map, Number, Value};
use tonic::Status;

use navarch_api::identity::{Caller, Identity};
use navarch_api::settings::Settings;
use navarch_push::proxy::{Locality, NodeError, Proxy, ProxyKind, check_shown};

/// The kinds of proxies that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// Sidecars and gateways.
    #[default]
    Envoys,
    /// Also ztunnels and waypoints: `PILOT_ENABLE_AMBIENT`.
    Ambient,
    /// Also gateways between the networks of an ambient mesh: `AMBIENT_ENABLE_MULTI_NETWORK`.
    Networks,
}

impl Served {
    /// The kinds that are served with these settings.
    #[must_use]
    pub fn under(settings: &Settings) -> Self {
        match (settings.ambient, settings.gateway_api.east_west) {
            (true, true) => Self::Networks,
            (true, false) => Self::Ambient,
            (false, _) => Self::Envoys,
        }
    }
}

/// Integers are exact in a double up to here.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// The proxy that a node describes.
///
/// # Errors
/// `InvalidArgument` if the node does not describe a proxy; `PermissionDenied` if the authenticated
/// identity is another one; `Unimplemented` if proxies of this kind are not served.
pub(super) fn proxy(node: Node, caller: Option<&Caller>, served: Served) -> Result<Proxy, Status> {
    let metadata = node.metadata.map_or_else(
        || Value::Object(Map::new()),
        |metadata| object(metadata.fields),
    );
    let locality = node
        .locality
        .map_or_else(Locality::default, |locality| Locality {
            region: Arc::from(locality.region),
            zone: Arc::from(locality.zone),
            sub_zone: Arc::from(locality.sub_zone),
        });

    let invalid = |error: NodeError| Status::invalid_argument(error.to_string());
    let mut proxy = Proxy::parse(&node.id, metadata, locality).map_err(invalid)?;
    check_shown("cluster", &node.cluster).map_err(invalid)?;
    let extensions: BTreeSet<Arc<str>> = node
        .extensions
        .into_iter()
        .map(|extension| Arc::from(extension.name))
        .collect();
    proxy.extensions = (!extensions.is_empty()).then(|| Arc::new(extensions));

    proxy.service_cluster = Arc::from(node.cluster);
    is_served(&proxy, served)?;
    if let Some(caller) = caller {
        proxy.identity = Some(identity_of(&proxy, caller)?);
    }

    Ok(proxy)
}

/// The major and minor version of a node that is an Envoy; `None` for other programs, and without
/// a version.
pub(super) fn envoy_version(node: &Node) -> Option<(u32, u32)> {
    let Some(UserAgentVersionType::UserAgentBuildVersion(build)) = &node.user_agent_version_type
    else {
        return None;
    };
    let version = build.version.as_ref()?;
    (node.user_agent_name == "envoy").then_some((version.major_number, version.minor_number))
}

/// Whether a waypoint is a gateway between the networks of an ambient mesh.
fn joins_networks(proxy: &Proxy) -> bool {
    proxy
        .labels
        .get("gateway.istio.io/managed")
        .is_some_and(|managed| **managed == *"istio.io-eastwest-controller")
}

/// Rejects proxies of other kinds, which would take the configuration of sidecars and gateways for
/// an empty mesh.
fn is_served(proxy: &Proxy, served: Served) -> Result<(), Status> {
    let kind = match proxy.kind {
        ProxyKind::Sidecar | ProxyKind::Router => None,
        ProxyKind::Ztunnel if served >= Served::Ambient => None,
        ProxyKind::Waypoint if served >= Served::Networks => None,
        ProxyKind::Waypoint if served >= Served::Ambient && joins_networks(proxy) => {
            return Err(Status::unimplemented(
                "east-west gateways (class istio-east-west) require AMBIENT_ENABLE_MULTI_NETWORK=true; \
                 set it on the control plane, or delete the Gateway",
            ));
        }
        ProxyKind::Waypoint if served >= Served::Ambient => None,
        ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            Some(kind_name(proxy.kind))
        }
    };

    if let Some(kind) = kind {
        return Err(Status::unimplemented(format!(
            "proxies of type {kind} are not supported by this control plane"
        )));
    }

    match proxy.meta("GENERATOR").as_deref() {
        // Proxyless gRPC applications are sidecars as well; operators' tools and other control
        // planes declare themselves as sidecars.
        None | Some("" | "grpc" | "event" | "api") => Ok(()),
        Some(generator) => {
            let generator: String = generator.chars().take(64).collect();
            Err(Status::unimplemented(format!(
                "clients with GENERATOR {generator:?} in their metadata are not supported by this control plane"
            )))
        }
    }
}

/// The identity that authorizes the client as this proxy (istiod's
/// `PILOT_ENABLE_XDS_IDENTITY_CHECK`).
fn identity_of(proxy: &Proxy, caller: &Caller) -> Result<Identity, Status> {
    let account = proxy.meta("SERVICE_ACCOUNT").unwrap_or_default();
    let fits = |identity: &&Identity| {
        identity.namespace == proxy.namespace
            && (account.is_empty() || identity.service_account == *account)
    };

    caller.identities.iter().find(fits).cloned().ok_or_else(|| {
        let proved: Vec<String> = caller.identities.iter().map(ToString::to_string).collect();
        let claimed = if account.is_empty() {
            "any service account"
        } else {
            &account
        };
        Status::permission_denied(format!(
            "the node claims to be {claimed} in namespace {}, but the caller is {}",
            proxy.namespace,
            proved.join(", ")
        ))
    })
}

/// Istio's name of a proxy kind in debug output.
pub(super) fn kind_name(kind: ProxyKind) -> &'static str {
    match kind {
        ProxyKind::Sidecar => "sidecar",
        ProxyKind::Router => "router",
        ProxyKind::Waypoint => "waypoint",
        ProxyKind::Ztunnel => "ztunnel",
        ProxyKind::AgentGateway => "agentgateway",
    }
}

/// A `google.protobuf.Struct` as JSON.
fn object(fields: impl IntoIterator<Item = (String, prost_types::Value)>) -> Value {
    Value::Object(
        fields
            .into_iter()
            .map(|(key, value)| (key, json(value)))
            .collect(),
    )
}

/// A `google.protobuf.Value` as JSON. The recursion is bounded by the decoder.
fn json(value: prost_types::Value) -> Value {
    match value.kind {
        None | Some(ValueKind::NullValue(_)) => Value::Null,
        Some(ValueKind::NumberValue(number)) => json_number(number),
        Some(ValueKind::StringValue(text)) => Value::String(text),
        Some(ValueKind::BoolValue(truth)) => Value::Bool(truth),
        Some(ValueKind::StructValue(inner)) => object(inner.fields),
        Some(ValueKind::ListValue(list)) => {
            Value::Array(list.values.into_iter().map(json).collect())
        }
    }
}

/// A number; integers without a fraction, as ports are usually written.
fn json_number(number: f64) -> Value {
    let number = if number.fract() == 0.0 && number.abs() < MAX_WHOLE {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number is whole and in range, as just checked"
        )]
        let whole = number as i64;
        Some(Number::from(whole))
    } else {
        Number::from_f64(number)
    };
    number.map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::core::v3::Extension;

    use super::*;

    const ID: &str = "sidecar~10.1.2.3~web-1.shop~shop.svc.cluster.local";

    fn node(metadata: &[(&str, ValueKind)]) -> Node {
        let fields = metadata
            .iter()
            .map(|(key, kind)| {
                (
                    (*key).to_owned(),
                    prost_types::Value {
                        kind: Some(kind.clone()),
                    },
                )
            })
            .collect();
        Node {
            id: ID.to_owned(),
            metadata: Some(prost_types::Struct { fields }),
            ..Node::default()
        }
    }

    fn text(text: &str) -> ValueKind {
        ValueKind::StringValue(text.to_owned())
    }

    fn caller(identity: &str) -> Caller {
        let identities =
            ["spiffe://x/ns/other/sa/web", identity].map(|text| Identity::parse(text).unwrap());
        Caller {
            identities: identities.into(),
            ..Caller::default()
        }
    }

    #[test]
    fn a_node_is_read() {
        let labels = prost_types::Struct {
            fields: [(
                "app".to_owned(),
                prost_types::Value {
                    kind: Some(text("web")),
                },
            )]
            .into(),
        };

        let mut node = node(&[
            ("NAMESPACE", text("shop")),
            ("INSTANCE_IPS", text("10.1.2.3,fd00::3")),
            ("PORT", ValueKind::NumberValue(15020.0)),
            ("LABELS", ValueKind::StructValue(labels)),
        ]);

        node.extensions = vec![Extension {
            name: "envoy.filters.http.router".to_owned(),
            ..Extension::default()
        }];
        let proxy = proxy(node, None, Served::Envoys).unwrap();
        assert_eq!(proxy.ips.len(), 2);
        assert_eq!(proxy.metadata["PORT"], 15020);
        assert_eq!(&*proxy.labels["app"], "web");

        assert!(proxy.supports("envoy.filters.http.router") && !proxy.supports("istio.alpn"));
        assert_eq!(proxy.identity, None);
    }

    #[test]
    fn a_node_without_a_list_of_extensions_supports_all() {
        assert!(
            proxy(node(&[]), None, Served::Envoys)
                .unwrap()
                .supports("istio.alpn")
        );
    }

    #[test]
    fn an_invalid_node_id_is_rejected() {
        let rejected = proxy(
            Node {
                id: "me".to_owned(),
                ..Node::default()
            },
            None,
            Served::Envoys,
        )
        .unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn unsupported_node_types_and_generators_are_rejected() {
        for (kind, metadata, served) in [
            ("sidecar", vec![], true),
            ("router", vec![("GENERATOR", text(""))], true),
            ("waypoint", vec![], false),
            ("ztunnel", vec![], false),
            ("agentgateway", vec![], false),
            ("sidecar", vec![("GENERATOR", text("grpc"))], true),
            ("sidecar", vec![("GENERATOR", text("event"))], true),
            ("sidecar", vec![("GENERATOR", text("api"))], true),
            ("sidecar", vec![("GENERATOR", text("other"))], false),
        ] {
            let mut node = node(&metadata);
            node.id = node.id.replace("sidecar", kind);

            let found = proxy(node, None, Served::Envoys)
                .map(|_| ())
                .map_err(|status| status.code());

            assert_eq!(
                found,
                if served {
                    Ok(())
                } else {
                    Err(tonic::Code::Unimplemented)
                },
                "{kind} {metadata:?}"
            );
        }
    }

    #[test]
    fn ztunnel_and_waypoints_are_served_in_ambient_mode() {
        let label = prost_types::Value {
            kind: Some(text("istio.io-eastwest-controller")),
        };
        let labels = prost_types::Struct {
            fields: [("gateway.istio.io/managed".to_owned(), label)].into(),
        };
        let east_west = [("LABELS", ValueKind::StructValue(labels))];

        for (kind, metadata, served) in [
            ("ztunnel", &[][..], true),
            ("waypoint", &[], true),
            ("waypoint", &east_west, false),
            ("agentgateway", &[], false),
        ] {
            let mut node = node(metadata);
            node.id = node.id.replace("sidecar", kind);
            assert_eq!(
                proxy(node.clone(), None, Served::Ambient).is_ok(),
                served,
                "{kind}"
            );
            assert_eq!(
                proxy(node, None, Served::Networks).is_ok(),
                kind != "agentgateway",
                "{kind}"
            );
        }
    }

    #[test]
    fn a_caller_may_only_be_itself() {
        let account = [
            ("NAMESPACE", text("shop")),
            ("SERVICE_ACCOUNT", text("web")),
        ];

        for (identity, metadata, allowed) in [
            ("spiffe://cluster.local/ns/shop/sa/web", &account[..], true),
            ("spiffe://cluster.local/ns/shop/sa/api", &account[..], false),
            ("spiffe://cluster.local/ns/shop/sa/api", &account[..1], true),
            (
                "spiffe://cluster.local/ns/bank/sa/web",
                &account[..1],
                false,
            ),
        ] {
            let found = proxy(node(metadata), Some(&caller(identity)), Served::Envoys);
            match found {
                Ok(proxy) => assert_eq!(
                    (proxy.identity, allowed),
                    (Identity::parse(identity).ok(), true)
                ),
                Err(status) => assert_eq!(
                    (status.code(), allowed),
                    (tonic::Code::PermissionDenied, false)
                ),
            }
        }
    }
}
