//! WasmPlugin: WebAssembly modules in the proxy.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector, PortSelector};

/// Deserializes JSON that must be an object (`google.protobuf.Struct`).
pub(super) fn object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    let members = Option::<serde_json::Map<String, Value>>::deserialize(deserializer)?;
    Ok(members.map(Value::Object))
}

/// `extensions.istio.io/WasmPlugin`: adds a WebAssembly module to Envoy's filter chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WasmPlugin {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Deprecated form of `target_refs`; `target_refs` takes precedence.
    pub target_ref: Option<PolicyTargetReference>,
    /// Gateways and services that the plugin applies to. Mutually exclusive with `selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// URL of the module: `oci://` (the default scheme), `http(s)://` or `file://`.
    pub url: String,
    /// The module's SHA-256 checksum; empty skips the check.
    pub sha256: String,
    /// When the agent fetches a cached module again.
    pub image_pull_policy: PullPolicy,
    /// The Secret with the credentials for the image registry.
    pub image_pull_secret: String,
    /// Ignored.
    pub verification_key: String,
    /// The configuration that the module receives.
    #[serde(deserialize_with = "object")]
    pub plugin_config: Option<Value>,
    /// The module's name in Envoy's configuration.
    pub plugin_name: String,
    /// The position among Envoy's filters.
    pub phase: PluginPhase,
    /// Order within the phase; a higher value comes first.
    pub priority: Option<i32>,
    /// Handling of traffic when the module fails.
    pub fail_strategy: FailStrategy,
    /// Configuration of the WebAssembly VM.
    pub vm_config: Option<VmConfig>,
    /// The traffic that the module processes; empty is all traffic.
    #[serde(rename = "match")]
    pub matches: Vec<TrafficSelector>,
    /// Whether the module is an HTTP filter or a network filter.
    #[serde(rename = "type")]
    pub plugin_type: PluginType,
}

wire_enum! {
    /// The type of filter that a module implements.
    PluginType {
        /// Like `HTTP`.
        Unspecified = 0, "UNSPECIFIED_PLUGIN_TYPE";
        /// HTTP filter.
        Http = 1, "HTTP";
        /// Network filter.
        Network = 2, "NETWORK";
    }
}

wire_enum! {
    /// The position of a module among Envoy's filters.
    PluginPhase {
        /// At the end of the chain, before the router.
        Unspecified = 0, "UNSPECIFIED_PHASE";
        /// Before authentication.
        Authn = 1, "AUTHN";
        /// After authentication and before authorization.
        Authz = 2, "AUTHZ";
        /// After authorization and before metrics.
        Stats = 3, "STATS";
    }
}

wire_enum! {
    /// When the agent fetches a cached module again.
    PullPolicy {
        /// `Always` for the tag `latest`, else `IfNotPresent`.
        Unspecified = 0, "UNSPECIFIED_POLICY";
        /// Uses the cached module.
        IfNotPresent = 1, "IfNotPresent";
        /// Fetches the module whenever the plugin changes.
        Always = 2, "Always";
    }
}

wire_enum! {
    /// Handling of traffic when a module fails.
    FailStrategy {
        /// Envoy rejects the traffic.
        Close = 0, "FAIL_CLOSE";
        /// The traffic bypasses the module.
        Open = 1, "FAIL_OPEN";
        /// Envoy rejects the traffic while the module restarts.
        Reload = 2, "FAIL_RELOAD";
    }
}

/// Configuration of the VM that runs a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VmConfig {
    /// Environment variables of the VM.
    pub env: Vec<EnvVar>,
}

/// An environment variable of the VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// The variable's name.
    pub name: String,
    /// The source of the value.
    pub value_from: EnvValueSource,
    /// The value, for `INLINE`.
    pub value: String,
}

wire_enum! {
    /// The source of a variable's value.
    EnvValueSource {
        /// The field `value`.
        Inline = 0, "INLINE";
        /// The variable of the same name in the proxy's environment.
        Host = 1, "HOST";
    }
}

/// Selects traffic by side and port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficSelector {
    /// The side of the request that the proxy is on.
    pub mode: WorkloadMode,
    /// The ports; empty selects all.
    pub ports: Vec<PortSelector>,
}

wire_enum! {
    /// The side of a request that a proxy is on.
    WorkloadMode {
        /// Client and server.
        Undefined = 0, "UNDEFINED";
        /// The proxy of the client.
        Client = 1, "CLIENT";
        /// The proxy of the server; includes gateways.
        Server = 2, "SERVER";
        /// Client and server.
        ClientAndServer = 3, "CLIENT_AND_SERVER";
    }
}
