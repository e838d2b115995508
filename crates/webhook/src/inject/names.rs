//! Names of labels, annotations and containers.

/// Enables or disables injection; a label, or formerly an annotation.
pub(super) const INJECT: &str = "sidecar.istio.io/inject";
/// The names of the templates to inject.
pub(super) const TEMPLATES: &str = "inject.istio.io/templates";
/// The status annotation: names of the injected parts, and the revision.
pub(super) const STATUS: &str = "sidecar.istio.io/status";
/// The pod's own fields for containers that the injection also contains.
pub(super) const OVERRIDES: &str = "proxy.istio.io/overrides";
pub(super) const PROXY_CONFIG: &str = "proxy.istio.io/config";
/// Whether the proxy is a native sidecar.
pub(super) const NATIVE_SIDECAR: &str = "sidecar.istio.io/nativeSidecar";
/// The mode of traffic interception.
pub(super) const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// Whether probes are redirected to the agent.
pub(super) const REWRITE_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
/// The agent's port.
pub(super) const STATUS_PORT: &str = navarch_api::status_port::ANNOTATION;
/// The network of the pod.
pub(super) const NETWORK: &str = "topology.istio.io/network";

/// The proxy container.
pub(super) const PROXY: &str = "istio-proxy";
/// The init container that sets up traffic capture.
pub(super) const INIT: &str = "istio-init";
/// The init container that validates traffic capture by the CNI plugin.
pub(super) const VALIDATION: &str = "istio-validation";
/// The former init container that enabled core dumps of the proxy.
pub(super) const CORE_DUMP: &str = "enable-core-dump";
