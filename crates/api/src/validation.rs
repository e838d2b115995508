//! Validation of objects: istiod's rules. Each error has its field and a message with the valid
//! form.
//!
//! The rules are those of Istio's `pkg/config/validation`. A oneof with two set members, which
//! istiod's schema rejects before its validation, is rejected here, too. An object is valid if its
//! verdict contains no errors; warnings never reject an object.

mod authorization_condition;
mod authorization_policy;
mod authorization_values;
mod cel;
mod client_tls;
mod connection_pool;
mod destination_rule;
mod envoy_filter;
mod extension_provider;
mod fault;
mod gateway;
mod header;
mod host_set;
mod http_action;
mod http_match;
mod http_route;
mod l4_route;
mod load_balancer;
mod locality;
mod mesh_config;
mod mesh_networks;
mod name;
mod path;
mod peer_authentication;
mod port_protocol;
mod proxy_config;
mod re2;
mod re2_size;
mod request_authentication;
mod request_uri;
mod scope;
mod server_tls;
mod service_entry;
mod service_entry_size;
mod sidecar;
mod target_ref;
mod telemetry;
mod traffic_extension;
mod unreachable;
mod virtual_service;
mod wasm_plugin;
mod workload_entry;
mod workload_group;
mod workload_proxy_config;

use std::fmt;

pub use self::envoy_filter::{MAX_PATCHES, MAX_PROXY_VERSION};
pub use self::mesh_config::{is_curve, validate_mesh_config, validate_proxy_config};
pub use self::mesh_networks::validate_mesh_networks;
pub use self::server_tls::{is_alpn_protocol, is_cipher_suite};
pub use self::service_entry_size::ServedLists;
pub use cel::check as check_cel;
pub use re2_size::MAX_REGEX_PROGRAM;

use self::path::Path;
use super::any_object::{AnyObject, INTERNAL};
use super::field_error::FieldError;
use super::object::{Object, ObjectMeta};
use super::rollout;

/// A problem in one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field from the object's root, such as `spec.http[0].route[1].destination.host`.
    pub field: String,
    /// The problem and the valid form.
    pub message: String,
}

impl Problem {
    /// Whether it is about a route or match that no traffic reaches.
    #[must_use]
    pub fn is_of_reach(&self) -> bool {
        self.message.starts_with(unreachable::NEVER_REACHED)
    }

    /// Whether it is about a field that is read and has no effect.
    #[must_use]
    pub fn is_without_effect(&self) -> bool {
        self.message == mesh_config::NO_EFFECT
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The result of an object's validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the object is rejected; empty if it is valid.
    pub errors: Vec<Problem>,
    /// Probable mistakes in a valid object.
    pub warnings: Vec<Problem>,
}

impl Verdict {
    /// Whether the object is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds the findings of another verdict.
    pub fn extend(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }

    /// Adds the errors of another verdict alone, where istiod collects the findings of inner parts
    /// by `AppendErrors`, which drops warnings: API servers must show the same as under istiod.
    fn extend_errors(&mut self, other: Self) {
        self.errors.extend(other.errors);
    }

    /// Adds an error.
    fn error(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.errors.push(Problem {
            field: at.to_string(),
            message: message.into(),
        });
    }

    /// Adds a warning.
    fn warn(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.warnings.push(Problem {
            field: at.to_string(),
            message: message.into(),
        });
    }

    /// Adds the error of a failed check.
    fn check(&mut self, at: &Path<'_>, outcome: Result<(), String>) {
        if let Err(message) = outcome {
            self.error(at, message);
        }
    }
}

impl From<Problem> for FieldError {
    fn from(problem: Problem) -> Self {
        Self::new(problem.field, problem.message)
    }
}

/// Checks an expression for Envoy's engine; returns the approximate number of steps of its program.
///
/// # Errors
/// With what is wrong.
pub fn check_regex(expression: &str) -> Result<usize, String> {
    // Envoy supports one escape that the API's own checks reject.
    if !expression.contains("\\C") {
        re2::check(expression).map_err(|fault| fault.to_string())?;
    }
    Ok(re2_size::program_size(expression))
}

/// A spec that can be validated.
pub trait Validate {
    /// Validates the spec; some rules depend on name and namespace.
    fn validate(&self, meta: &ObjectMeta) -> Verdict;

    /// Validates the value of the annotation that requests a dry run; only AuthorizationPolicy has
    /// one.
    ///
    /// # Errors
    /// With what is wrong and what would be right.
    fn validate_dry_run(&self, value: &str) -> Result<(), String> {
        let _ = value;
        Err("only AuthorizationPolicy can be tried in a dry run; remove the annotation".to_owned())
    }
}

/// Validates an object: the rules for all kinds, then the rules of its own kind.
#[must_use]
pub fn validate<T: Validate>(object: &Object<T>) -> Verdict {
    let mut verdict = annotations(&object.meta);
    if let Some(value) = object.meta.annotations.get(DRY_RUN) {
        let metadata = Path::root("metadata");
        let all = metadata.field("annotations");
        verdict.check(&all.field(DRY_RUN), object.spec.validate_dry_run(value));
    }
    verdict.extend(object.spec.validate(&object.meta));
    verdict
}

/// The annotation that requests a dry run.
const DRY_RUN: &str = "istio.io/dry-run";

/// Validates an object of any kind. Kubernetes' own kinds are validated by the API server alone,
/// and are valid here unless their rollout annotations are invalid.
#[must_use]
pub fn validate_any(object: &AnyObject) -> Verdict {
    let mut verdict = by_kind(object);
    let metadata = Path::root("metadata");
    let annotations = metadata.field("annotations");
    for fault in rollout::faults(object.kind(), object.meta()) {
        let at = annotations.field(fault.annotation);
        match rollout::is_staged(object.kind()) {
            true => verdict.error(&at, fault.message),
            false => verdict.warn(&at, fault.message),
        }
    }
    verdict
}

/// Validates an object by the rules of its kind.
fn by_kind(object: &AnyObject) -> Verdict {
    match object {
        AnyObject::VirtualService(object) => validate(object),
        AnyObject::DestinationRule(object) => validate(object),
        AnyObject::Gateway(object) => validate(object),
        AnyObject::ServiceEntry(object) => validate(object),
        AnyObject::WorkloadEntry(object) => validate(object),
        AnyObject::Sidecar(object) => validate(object),
        AnyObject::EnvoyFilter(object) => validate(object),
        AnyObject::ProxyConfig(object) => validate(object),
        AnyObject::WorkloadGroup(object) => validate(object),
        AnyObject::PeerAuthentication(object) => validate(object),
        AnyObject::AuthorizationPolicy(object) => validate(object),
        AnyObject::RequestAuthentication(object) => validate(object),
        AnyObject::Telemetry(object) => validate(object),
        AnyObject::WasmPlugin(object) => validate(object),
        AnyObject::TrafficExtension(object) => validate(object),

        AnyObject::Namespace(_)
        | AnyObject::Node(_)
        | AnyObject::Service(_)
        | AnyObject::EndpointSlice(_)
        | AnyObject::Pod(_)
        | AnyObject::Secret(_)
        | AnyObject::ConfigMap(_)
        | AnyObject::ServiceAccount(_)
        | AnyObject::Ingress(_)
        | AnyObject::IngressClass(_)
        | AnyObject::GatewayClass(_)
        | AnyObject::KubernetesGateway(_)
        | AnyObject::HttpRoute(_)
        | AnyObject::GrpcRoute(_)
        | AnyObject::TlsRoute(_)
        | AnyObject::TcpRoute(_)
        | AnyObject::ReferenceGrant(_)
        | AnyObject::BackendTlsPolicy(_)
        | AnyObject::ListenerSet(_)
        | AnyObject::XBackendTrafficPolicy(_)
        | AnyObject::XBackend(_)
        | AnyObject::InferencePool(_)
        | AnyObject::ServiceExport(_)
        | AnyObject::ServiceImport(_) => Verdict::default(),
    }
}

/// Annotations that users may not set on the kinds validated here.
const REJECTED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "internal.istio.io/webhook-always-reject",
        "objects with this annotation are always rejected; remove it",
    ),
    (
        "internal.istio.io/parent-namespace",
        "is for generated objects only; remove the annotation",
    ),
    (
        "internal.istio.io/parents",
        "is for generated objects only; remove the annotation",
    ),
];

/// Validates the annotations.
fn annotations(meta: &ObjectMeta) -> Verdict {
    let mut verdict = Verdict::default();
    let metadata = Path::root("metadata");
    let all = metadata.field("annotations");

    for (name, message) in REJECTED_ANNOTATIONS {
        if meta.annotations.contains_key(name) {
            verdict.error(&all.field(name), message);
        }
    }

    let is_rejected = |key: &str| REJECTED_ANNOTATIONS.iter().any(|(name, _)| *name == key);

    for key in meta
        .annotations
        .keys()
        .filter(|key| key.starts_with(INTERNAL) && !is_rejected(key))
    {
        verdict.warn(
            &all.field(key),
            "is for generated objects only and has no effect; remove the annotation",
        );
    }

    verdict
}
