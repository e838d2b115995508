//! Tags of spans.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use navarch_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use navarch_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};

use crate::filters::istio_version;
use crate::proxy_settings::EffectiveProxyConfig;
use crate::substitution;
use navarch_api::istio::TracingTag;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The tracing settings of the proxy's own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TracingSettings;

/// Tracing settings of the proxy's own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProxyTracing {
    /// The bits of the sampling percentage (as bits, so that values compare exactly).
    sampling: u64,
    /// Maximum length of the path tag; 0 means Envoy's default.
    pub(super) max_path_length: u32,
    /// Whether spans get Istio's own tags.
    pub(super) istio_tags: bool,
    /// Further tags by name.
    tags: BTreeMap<String, TagSource>,
}

/// The source of a tag's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TagSource {
    Literal(String),
    /// An environment variable of the proxy, or the default.
    Environment(String, String),
    /// A header of the request, or the default.
    Header(String, String),
}

/// The labels of the workload with its canonical service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CanonicalService;

/// A service's canonical name and revision, if labelled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Canonical {
    /// `service.istio.io/canonical-name`.
    name: Option<Arc<str>>,
    /// `service.istio.io/canonical-revision`.
    revision: Option<Arc<str>>,
}

/// Results of dry-run authorization: tag, and key of the filter's metadata.
const DRY_RUN_TAGS: [(&str, &str); 4] = [
    (
        "istio.authorization.dry_run.allow_policy.name",
        "istio_dry_run_allow_shadow_effective_policy_id",
    ),
    (
        "istio.authorization.dry_run.allow_policy.result",
        "istio_dry_run_allow_shadow_engine_result",
    ),
    (
        "istio.authorization.dry_run.deny_policy.name",
        "istio_dry_run_deny_shadow_effective_policy_id",
    ),
    (
        "istio.authorization.dry_run.deny_policy.result",
        "istio_dry_run_deny_shadow_engine_result",
    ),
];

/// Tags of a peer, and their fields in Istio's filter state object.
const PEER_FIELDS: [(&str, &str); 9] = [
    ("workload", "workload"),
    ("namespace", "namespace"),
    ("cluster_id", "cluster"),
    ("canonical_service", "service"),
    ("canonical_revision", "revision"),
    ("app", "app"),
    ("app_version", "version"),
    ("workload_type", "type"),
    ("instance_name", "name"),
];

impl Query for TracingSettings {
    type Value = ProxyTracing;

    fn compute(&self, view: &View<'_>) -> ProxyTracing {
        let config = view.get(&EffectiveProxyConfig);
        let tracing = config.tracing.clone().unwrap_or_default();
        let sampling = match tracing.sampling {
            0.0 => view.mesh().settings.trace_sampling,
            percent if (0.0..=100.0).contains(&percent) => percent,
            _ => 1.0,
        };

        let source = |tag: &navarch_api::mesh::CustomTag| {
            let environment = tag.environment.as_ref();
            let header = tag.header.as_ref();
            environment
                .map(|tag| TagSource::Environment(tag.name.clone(), tag.default_value.clone()))
                .or_else(|| {
                    header.map(|tag| TagSource::Header(tag.name.clone(), tag.default_value.clone()))
                })
                .or_else(|| {
                    tag.literal
                        .as_ref()
                        .map(|tag| TagSource::Literal(tag.value.clone()))
                })
        };

        ProxyTracing {
            sampling: sampling.to_bits(),
            max_path_length: tracing.max_path_tag_length,
            istio_tags: tracing.enable_istio_tags.unwrap_or(true),
            tags: tracing
                .custom_tags
                .iter()
                .filter_map(|(name, tag)| Some((name.clone(), source(tag)?)))
                .collect(),
        }
    }
}

impl ProxyQuery for TracingSettings {}

impl ProxyTracing {
    /// The percentage of traced requests.
    pub(super) fn sampling(&self) -> f64 {
        f64::from_bits(self.sampling)
    }
}

impl Query for CanonicalService {
    type Value = Canonical;

    fn compute(&self, view: &View<'_>) -> Canonical {
        let labels = view.proxy().labels();
        let label = |name: &str| labels.get(name).cloned().filter(|value| !value.is_empty());
        Canonical {
            name: label("service.istio.io/canonical-name"),
            revision: label("service.istio.io/canonical-revision"),
        }
    }
}

impl ProxyQuery for CanonicalService {}

/// All tags, ordered by name. `given`, if not empty, replace those of the proxy's configuration.
pub(super) fn all(
    view: &View<'_>,
    istio_tags: bool,
    settings: &ProxyTracing,
    given: &BTreeMap<String, TracingTag>,
) -> Vec<CustomTag> {
    let mut tags: Vec<CustomTag> = Vec::new();

    if istio_tags {
        tags.extend(service_tags(view));
        tags.extend(DRY_RUN_TAGS.map(|(name, key)| dry_run_tag(name, key)));
    }

    if view.proxy().kind() == ProxyKind::Waypoint {
        tags.extend(peer_tags());
    }

    if given.is_empty() {
        tags.extend(
            settings
                .tags
                .iter()
                .map(|(name, source)| tag(name, source.to_proto())),
        );
    } else {
        tags.extend(
            given
                .iter()
                .filter_map(|(name, given)| given_tag(view, name, given)),
        );
    }

    tags.retain(|tag| {
        // Envoy rejects the listener because of a tag without a source or name.
        let is_sound = !tag.tag.is_empty() && tag.r#type.as_ref().is_none_or(names_its_source);
        if !is_sound {
            view.remark(format!(
                "tracing tag {:?} is ignored: its name, or the name of its header or variable, is empty",
                tag.tag
            ));
        }
        is_sound
    });

    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

/// Whether a tag has a source.
fn names_its_source(source: &custom_tag::Type) -> bool {
    match source {
        custom_tag::Type::RequestHeader(header) => !header.name.is_empty(),
        custom_tag::Type::Environment(variable) => !variable.name.is_empty(),
        custom_tag::Type::Literal(_)
        | custom_tag::Type::Metadata(_)
        | custom_tag::Type::Value(_) => true,
    }
}

/// Tags for the proxy itself.
fn service_tags(view: &View<'_>) -> [CustomTag; 5] {
    let proxy = view.proxy();
    let canonical = view.derived(&CanonicalService);
    let meta = |key: &str, default: &str| {
        proxy
            .meta(key)
            .filter(|value| !value.is_empty())
            .map_or_else(|| default.to_owned(), |value| value.to_string())
    };

    let cluster = Some(proxy.cluster_id().to_string()).filter(|cluster| !cluster.is_empty());
    let cluster = cluster.unwrap_or_else(|| "unknown".to_owned());
    let label =
        |value: &Option<Arc<str>>, default: &str| value.as_deref().unwrap_or(default).to_owned();
    [
        (
            "istio.canonical_revision",
            label(&canonical.revision, "latest"),
        ),
        ("istio.canonical_service", label(&canonical.name, "unknown")),
        ("istio.mesh_id", meta("MESH_ID", "unknown")),
        ("istio.namespace", meta("NAMESPACE", "default")),
        ("istio.cluster_id", cluster),
    ]
    .map(|(name, value)| {
        tag(
            name,
            custom_tag::Type::Literal(custom_tag::Literal { value }),
        )
    })
}

/// Tags for both sides of a waypoint.
fn peer_tags() -> impl Iterator<Item = CustomTag> {
    [
        ("destination", "upstream_peer_obj"),
        ("source", "downstream_peer_obj"),
    ]
    .into_iter()
    .flat_map(|(side, object)| {
        PEER_FIELDS.into_iter().map(move |(name, field)| {
            let value = format!("%FILTER_STATE({object}:FIELD:{field})%");
            tag(
                &format!("istio.{side}_{name}"),
                custom_tag::Type::Value(value),
            )
        })
    })
}

/// A tag with the outcome of a dry run; absent without one.
fn dry_run_tag(name: &str, key: &str) -> CustomTag {
    let segment = PathSegment {
        segment: Some(path_segment::Segment::Key(key.to_owned())),
    };
    let metadata = custom_tag::Metadata {
        kind: Some(MetadataKind {
            kind: Some(metadata_kind::Kind::Request(metadata_kind::Request {})),
        }),
        metadata_key: Some(MetadataKey {
            key: "envoy.filters.http.rbac".to_owned(),
            path: vec![segment],
        }),
        ..custom_tag::Metadata::default()
    };
    tag(name, custom_tag::Type::Metadata(metadata))
}

/// A tag of a Telemetry. Formats are omitted for proxies that do not support them.
fn given_tag(view: &View<'_>, name: &str, given: &TracingTag) -> Option<CustomTag> {
    let TracingTag {
        literal,
        environment,
        header,
        formatter,
    } = given;

    let source = if let Some(environment) = environment {
        TagSource::Environment(environment.name.clone(), environment.default_value.clone())
    } else if let Some(header) = header {
        TagSource::Header(header.name.clone(), header.default_value.clone())
    } else if let Some(literal) = literal {
        TagSource::Literal(literal.value.clone())
    } else if let Some(formatter) = formatter {
        if let Err(fault) = substitution::check(&formatter.value) {
            view.remark(format!(
                "Telemetry: tracing tag {name:?} is ignored: {fault}"
            ));
            return None;
        }

        let value = custom_tag::Type::Value(formatter.value.clone());
        return istio_version::at_least(view, 1, 29).then(|| tag(name, value));
    } else {
        return Some(CustomTag {
            tag: name.to_owned(),
            ..CustomTag::default()
        });
    };

    Some(tag(name, source.to_proto()))
}

fn tag(name: &str, source: custom_tag::Type) -> CustomTag {
    CustomTag {
        tag: name.to_owned(),
        r#type: Some(source),
    }
}

impl TagSource {
    /// The Envoy message.
    fn to_proto(&self) -> custom_tag::Type {
        match self.clone() {
            Self::Literal(value) => custom_tag::Type::Literal(custom_tag::Literal { value }),
            Self::Environment(name, default_value) => {
                custom_tag::Type::Environment(custom_tag::Environment {
                    name,
                    default_value,
                })
            }
            Self::Header(name, default_value) => {
                custom_tag::Type::RequestHeader(custom_tag::Header {
                    name,
                    default_value,
                })
            }
        }
    }
}
