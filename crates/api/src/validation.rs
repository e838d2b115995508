//! What makes an object valid: istiod's rules, each fault with its field and a message that says what would be right.
//!
//! The rules are those of Istio's `pkg/config/validation`; where a oneof has two members set, which istiod's schema
//! refuses before its validation sees it, the refusal is here. An object is valid when its verdict holds no errors;
//! warnings never refuse.

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
pub use self::mesh_config::{validate_mesh_config, validate_proxy_config};
pub use self::mesh_networks::validate_mesh_networks;
pub use self::server_tls::is_cipher_suite;
pub use self::service_entry_size::ServedLists;
pub use cel::check as check_cel;
pub use re2_size::MAX_REGEX_PROGRAM;

use self::path::Path;
use super::any_object::{AnyObject, INTERNAL};
use super::field_error::FieldError;
use super::object::{Object, ObjectMeta};
use super::rollout;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field from the object's root, such as `spec.http[0].route[1].destination.host`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// Whether it tells of a route or match that no traffic reaches.
    #[must_use]
    pub fn is_of_reach(&self) -> bool {
        self.message.starts_with(unreachable::NEVER_REACHED)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What validation says of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the object is refused; empty when it is valid.
    pub errors: Vec<Problem>,
    /// What is probably not meant, though it is valid.
    pub warnings: Vec<Problem>,
}

impl Verdict {
    /// Whether the object is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Takes over the findings of another verdict.
    pub fn extend(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }

    /// Takes over the errors of another verdict; istiod leaves the warnings of some inner parts unsaid.
    fn extend_errors(&mut self, other: Self) {
        self.errors.extend(other.errors);
    }

    /// Notes an error.
    fn error(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.errors.push(Problem { field: at.to_string(), message: message.into() });
    }

    /// Notes a warning.
    fn warn(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.warnings.push(Problem { field: at.to_string(), message: message.into() });
    }

    /// Notes the error that a check found, if it found one.
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

/// Checks an expression for Envoy's engine; returns about how many steps its program has.
///
/// # Errors
/// With what is wrong.
pub fn check_regex(expression: &str) -> Result<usize, String> {
    // Envoy knows one escape that the API's own checks do not.
    if !expression.contains("\\C") {
        re2::check(expression).map_err(|fault| fault.to_string())?;
    }
    Ok(re2_size::program_size(expression))
}

/// A spec that can tell whether it is valid.
pub trait Validate {
    /// Validates the spec; name and namespace matter to some rules.
    fn validate(&self, meta: &ObjectMeta) -> Verdict;

    /// Validates the value of the annotation that asks for a dry run; only AuthorizationPolicy has one.
    ///
    /// # Errors
    /// With what is wrong and what would be right.
    fn validate_dry_run(&self, value: &str) -> Result<(), String> {
        let _ = value;
        Err("only AuthorizationPolicy can be tried in a dry run; remove the annotation".to_owned())
    }
}

/// Validates an object: what holds for all kinds, then the rules of its own kind.
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

/// The annotation that asks for a dry run.
const DRY_RUN: &str = "istio.io/dry-run";

/// Validates an object of any kind. Kubernetes' own kinds are judged by the API server alone, and valid here, unless how their
/// changes reach proxies cannot be read.
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

/// Annotations that users may not set on the kinds judged here.
const REFUSED_ANNOTATIONS: [(&str, &str); 3] = [
    ("internal.istio.io/webhook-always-reject", "objects with this annotation are always refused; remove it"),
    ("internal.istio.io/parent-namespace", "is for generated objects only; remove the annotation"),
    ("internal.istio.io/parents", "is for generated objects only; remove the annotation"),
];

/// Validates the annotations.
fn annotations(meta: &ObjectMeta) -> Verdict {
    let mut verdict = Verdict::default();
    let metadata = Path::root("metadata");
    let all = metadata.field("annotations");
    for (name, message) in REFUSED_ANNOTATIONS {
        if meta.annotations.contains_key(name) {
            verdict.error(&all.field(name), message);
        }
    }
    let refused = |key: &str| REFUSED_ANNOTATIONS.iter().any(|(name, _)| *name == key);
    for key in meta.annotations.keys().filter(|key| key.starts_with(INTERNAL) && !refused(key)) {
        verdict.warn(&all.field(key), "is for generated objects only and has no effect; remove the annotation");
    }
    verdict
}
