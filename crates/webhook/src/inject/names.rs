//! Names of labels, annotations and containers.

/// Asks for a proxy, or for none; a label, or of old an annotation.
pub(super) const INJECT: &str = "sidecar.istio.io/inject";
/// The templates to inject.
pub(super) const TEMPLATES: &str = "inject.istio.io/templates";
/// What was injected.
pub(super) const STATUS: &str = "sidecar.istio.io/status";
/// What the user's own containers say where injection has containers of the same names.
pub(super) const OVERRIDES: &str = "proxy.istio.io/overrides";
pub(super) const PROXY_CONFIG: &str = "proxy.istio.io/config";
/// Whether the proxy is a native sidecar.
pub(super) const NATIVE_SIDECAR: &str = "sidecar.istio.io/nativeSidecar";
/// How traffic gets into the proxy.
pub(super) const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// Whether probes go through the agent.
pub(super) const REWRITE_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
/// The agent's port.
pub(super) const STATUS_PORT: &str = "status.sidecar.istio.io/port";
/// The network of a pod.
pub(super) const NETWORK: &str = "topology.istio.io/network";

/// The proxy's container.
pub(super) const PROXY: &str = "istio-proxy";
/// The container that sets up capture.
pub(super) const INIT: &str = "istio-init";
/// The container that checks capture which the CNI plugin has set up.
pub(super) const VALIDATION: &str = "istio-validation";
/// The container that once let the proxy dump core.
pub(super) const CORE_DUMP: &str = "enable-core-dump";
