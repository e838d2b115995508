//! Compiled EnvoyFilters: each is parsed once, whatever the number of proxies.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use navarch_proto::json::UnknownFields;
use navarch_proto::prost_reflect::{DynamicMessage, Value};
use prost::Message;
use regex::{Regex, RegexBuilder};

use crate::constraints;
use navarch_api::envoy_json::{codec, patch_value};
use navarch_api::istio::{
    ApplyTo, EnvoyConfigMatch, EnvoyConfigPatch, EnvoyFilter, PatchContext, PatchOperation,
    PolicyTargetReference,
};
use navarch_api::object::{NamespacedName, Object};
use navarch_api::validation::{MAX_PATCHES, MAX_PROXY_VERSION};
use navarch_push::notice::Notice;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Labels;

/// Maximum memory of the compiled expression for a version.
const MAX_VERSION_PROGRAM: usize = 64 * 1024;

/// Maximum depth of a value: Envoy and prost read at most 100 levels, some of which are messages
/// that the value is put into.
const MAX_DEPTH: usize = 90;

/// The annotation with services whose clusters a gateway needs for its patches.
const REFERENCED_SERVICES: &str = "envoyfilter.istio.io/referenced-services";

/// An EnvoyFilter, ready to be applied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompiledFilter {
    pub(super) name: NamespacedName,
    /// The priority; lower ones are applied first.
    pub(super) priority: i32,
    pub(super) created: Option<Timestamp>,
    /// The labels of workloads that it applies to; `None` means any.
    pub(super) selector: Option<Labels>,
    /// The objects that it applies to.
    pub(super) target_refs: Vec<PolicyTargetReference>,
    /// Its patches; invalid ones are omitted.
    pub(super) patches: Vec<Arc<Patch>>,
    /// `host` or `namespace/host` of services that its patches reference.
    pub(super) services: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The EnvoyFilter that has the patch.
    pub filter: NamespacedName,
    pub index: usize,
    /// The type of object that it is applied to.
    pub apply_to: ApplyTo,
    pub operation: PatchOperation,
    /// The match criteria, except for the proxy.
    pub matches: EnvoyConfigMatch,
    /// The matching versions of the proxy's agent.
    pub(super) version: VersionMatch,
    /// The Envoy message; `None` for removal.
    value: Option<PatchValue>,
}

/// The Envoy message of a patch.
#[derive(Clone, Debug, PartialEq)]
struct PatchValue {
    /// The form for merging.
    message: DynamicMessage,
    /// The form for adding.
    bytes: Vec<u8>,
}

/// The versions of the proxy's agent that a patch applies to.
#[derive(Clone, Debug)]
pub(super) enum VersionMatch {
    Any,
    /// Versions that match the expression.
    Pattern(Regex),
    /// No version: the expression is invalid, or too large.
    Never,
}

impl PartialEq for VersionMatch {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any) | (Self::Never, Self::Never) => true,
            (Self::Pattern(a), Self::Pattern(b)) => a.as_str() == b.as_str(),
            (Self::Any | Self::Never | Self::Pattern(_), _) => false,
        }
    }
}

impl VersionMatch {
    /// Compiles an expression; the empty one matches any version, and one that is invalid in Istio
    /// matches none.
    fn new(expression: &str) -> Self {
        if expression.is_empty() {
            return Self::Any;
        }
        if expression.len() > MAX_PROXY_VERSION {
            return Self::Never;
        }
        RegexBuilder::new(expression)
            .size_limit(MAX_VERSION_PROGRAM)
            .build()
            .map_or(Self::Never, Self::Pattern)
    }
}

impl Patch {
    /// The patch at an index of its filter; the error is the reason why it is invalid.
    fn new(
        filter: &NamespacedName,
        index: usize,
        config: &EnvoyConfigPatch,
    ) -> Result<Self, String> {
        let patch = config.patch.as_ref().ok_or("has no patch")?;
        let matches = config.matches.clone().unwrap_or_default();
        let version = VersionMatch::new(
            matches
                .proxy
                .as_ref()
                .map_or("", |proxy| &proxy.proxy_version),
        );

        let value = match &patch.value {
            Some(value) => {
                let message = patch_value(config.apply_to, value, UnknownFields::Skip)
                    .map_err(|error| error.to_string())?;
                if depth(&message) > MAX_DEPTH {
                    return Err(format!("its value nests more than {MAX_DEPTH} messages"));
                }

                // A merged value is a partial message; extension configs are completed by the
                // agent.
                let is_whole =
                    !patch.operation.merges() && patch.operation != PatchOperation::Remove;
                if is_whole && config.apply_to != ApplyTo::ExtensionConfig {
                    constraints::check(&message)
                        .map_err(|fault| format!("Envoy would reject its value: {fault}"))?;
                }
                let bytes = codec().encode(&message);
                Some(PatchValue { message, bytes })
            }
            None if patch.operation == PatchOperation::Remove => None,
            None => return Err(format!("has no value, which {} needs", patch.operation)),
        };

        let operation = operation(config.apply_to, patch.operation);
        Ok(Self {
            filter: filter.clone(),
            index,
            apply_to: config.apply_to,
            operation,
            matches,
            version,
            value,
        })
    }

    /// Whether the patch applies to generated resources of this context.
    pub(super) fn applies_to(&self, context: PatchContext) -> bool {
        self.matches.context == context || self.matches.context == PatchContext::Any
    }

    /// Whether the patch adds to resources of this context; without a context, to outbound ones.
    pub(super) fn adds_for(&self, context: PatchContext) -> bool {
        let by_default = matches!(
            context,
            PatchContext::SidecarOutbound | PatchContext::Gateway
        );
        self.operation == PatchOperation::Add
            && (self.matches.context == context
                || (self.matches.context == PatchContext::Any && by_default))
    }

    /// The value as a message for merging.
    pub(super) fn message(&self) -> Option<&DynamicMessage> {
        self.value.as_ref().map(|value| &value.message)
    }

    /// The encoded value; empty if there is none.
    pub(super) fn bytes(&self) -> &[u8] {
        self.value.as_ref().map_or(&[], |value| &value.bytes)
    }

    /// The value as a message for adding. `M` must be the type of `apply_to`.
    pub(super) fn value<M: Message + Default>(&self) -> Option<M> {
        let bytes = self.value.as_ref()?.bytes.as_slice();
        Some(M::decode(bytes).expect("the bytes encode this type, and nest at most MAX_DEPTH deep"))
    }

    /// The name in the value; empty if it has none.
    pub(super) fn value_name(&self) -> String {
        let name = self
            .message()
            .and_then(|message| message.get_field_by_name("name"));
        name.and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Records that the patch changed a resource, if enabled.
    pub(super) fn note(&self, view: &View<'_>) {
        if !view.mesh().settings.envoy_filter_stats {
            return;
        }

        let kind = match self.apply_to {
            ApplyTo::Cluster => "cluster",
            ApplyTo::Listener => "listener",
            ApplyTo::ListenerFilter => "listenerfilter",
            ApplyTo::FilterChain => "filterchain",
            ApplyTo::NetworkFilter => "networkfilter",
            ApplyTo::HttpFilter => "httpfilter",
            ApplyTo::RouteConfiguration | ApplyTo::HttpRoute => "route",
            ApplyTo::VirtualHost => "vhost",
            ApplyTo::Bootstrap => "bootstrap",
            ApplyTo::Invalid | ApplyTo::ExtensionConfig => return,
        };

        view.notice(Notice::Patched {
            filter: self.filter.to_string().into(),
            kind,
        });
    }

    /// The name of the patch in remarks.
    pub(super) fn describe(&self) -> String {
        format!(
            "EnvoyFilter {}: spec.configPatches[{}]",
            self.filter, self.index
        )
    }
}

/// The number of messages that are nested in each other, this one included. An entry of a map is a
/// message, too.
fn depth(message: &DynamicMessage) -> usize {
    let inner = message.fields().map(|(_, value)| depth_of_value(value));
    1 + inner.max().unwrap_or(0)
}

/// The same for the value of a field.
fn depth_of_value(value: &Value) -> usize {
    if let Some(message) = value.as_message() {
        depth(message)
    } else if let Some(items) = value.as_list() {
        items.iter().map(depth_of_value).max().unwrap_or(0)
    } else if let Some(entries) = value.as_map() {
        1 + entries.values().map(depth_of_value).max().unwrap_or(0)
    } else {
        0
    }
}

/// The applied operation: only filters and routes have an order.
fn operation(apply_to: ApplyTo, operation: PatchOperation) -> PatchOperation {
    let inserts = matches!(
        operation,
        PatchOperation::InsertAfter | PatchOperation::InsertBefore | PatchOperation::InsertFirst
    );
    let ordered = matches!(
        apply_to,
        ApplyTo::HttpFilter | ApplyTo::NetworkFilter | ApplyTo::HttpRoute | ApplyTo::ListenerFilter
    );
    if inserts && !ordered {
        PatchOperation::Add
    } else {
        operation
    }
}

impl CompiledFilter {
    /// Compiles an object.
    fn new(view: &View<'_>, object: &Object<EnvoyFilter>) -> Self {
        let name = object.meta.key();
        let EnvoyFilter {
            workload_selector,
            target_refs,
            config_patches,
            priority,
        } = &object.spec;

        let mut patches = Vec::new();

        for (index, config) in config_patches.iter().enumerate().take(MAX_PATCHES) {
            match Patch::new(&name, index, config) {
                Ok(patch) => patches.push(Arc::new(patch)),
                Err(reason) => {
                    view.remark(format!(
                        "EnvoyFilter {name}: spec.configPatches[{index}] is ignored: {reason}"
                    ));
                }
            }
        }

        let text =
            |(key, value): (&String, &String)| (Arc::from(key.as_str()), Arc::from(value.as_str()));
        let services = object
            .meta
            .annotations
            .get(REFERENCED_SERVICES)
            .map_or("", |services| services);

        Self {
            name,
            priority: *priority,
            created: object.meta.created,
            selector: workload_selector
                .as_ref()
                .map(|selector| selector.labels.iter().map(text).collect()),
            target_refs: target_refs.clone(),
            patches,
            services: services
                .split(',')
                .filter(|service| !service.is_empty())
                .map(Arc::from)
                .collect(),
        }
    }

    /// The order in which two filters of a proxy are applied; `root` is the root namespace.
    pub(super) fn order(&self, other: &Self, root: &str) -> Ordering {
        let in_root = |filter: &Self| filter.name.namespace.as_str() == root;
        self.priority
            .cmp(&other.priority)
            .then_with(|| in_root(other).cmp(&in_root(self)))
            .then_with(|| self.created.cmp(&other.created))
            .then_with(|| self.name.name.cmp(&other.name.name))
            .then_with(|| self.name.namespace.cmp(&other.name.namespace))
    }
}

/// One compiled EnvoyFilter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Compiled {
    pub(super) name: NamespacedName,
}

impl Query for Compiled {
    type Value = Option<CompiledFilter>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.object::<EnvoyFilter>(&self.name)
            .map(|object| CompiledFilter::new(view, object))
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::cluster::v3::Cluster;
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_matched_anywhere_and_dear_expressions_not_at_all() {
        assert_eq!(VersionMatch::new(""), VersionMatch::Any);
        let VersionMatch::Pattern(pattern) = VersionMatch::new(r"1\.3[0-9]") else {
            panic!("compiles")
        };
        assert!(pattern.is_match("pre-1.32.0") && !pattern.is_match("1.29"));
        assert_eq!(VersionMatch::new("("), VersionMatch::Never);
        assert_eq!(
            VersionMatch::new(&"a".repeat(MAX_PROXY_VERSION + 1)),
            VersionMatch::Never
        );
        assert_eq!(VersionMatch::new(r"(\w{100}){100}"), VersionMatch::Never);
    }

    #[test]
    fn a_value_that_nests_deeper_than_decoders_read_is_invalid() {
        let name = NamespacedName::new("default", "deep");
        let patch = |levels: usize| {
            let nested = (0..levels).fold(json!("end"), |inner, _| json!({ "a": inner }));
            let config = json!({
                "applyTo": "CLUSTER",
                "patch": {
                    "operation": "MERGE",
                    "value": { "metadata": { "filterMetadata": { "test": nested } } },
                },
            });
            Patch::new(&name, 0, &serde_json::from_value(config).unwrap())
        };

        assert_eq!(
            patch(40).unwrap_err(),
            "its value nests more than 90 messages"
        );
        let cluster = patch(25).unwrap().value::<Cluster>().unwrap();
        assert!(cluster.metadata.is_some());
    }

    #[test]
    fn only_filters_and_routes_have_an_order() {
        assert_eq!(
            operation(ApplyTo::Cluster, PatchOperation::InsertFirst),
            PatchOperation::Add
        );
        assert_eq!(
            operation(ApplyTo::HttpRoute, PatchOperation::InsertFirst),
            PatchOperation::InsertFirst
        );
        assert_eq!(
            operation(ApplyTo::Cluster, PatchOperation::Remove),
            PatchOperation::Remove
        );
    }
}
