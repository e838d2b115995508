//! TrafficExtension: WebAssembly modules or Lua scripts in the proxy.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wasm_plugin::object;
use super::wire_enum::wire_enum;
use super::{
    FailStrategy, PluginType, PolicyTargetReference, PolicyWorkloadSelector, PullPolicy,
    TrafficSelector, VmConfig,
};

/// `extensions.istio.io/TrafficExtension`: adds a WebAssembly module or a Lua script to Envoy's
/// filter chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficExtension {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Gateways and services that the extension applies to. Mutually exclusive with `selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The position among Envoy's filters.
    pub phase: ExecutionPhase,
    /// Order within the phase; a higher value comes first.
    pub priority: Option<i32>,
    /// The traffic that the extension processes; empty is all traffic.
    #[serde(rename = "match")]
    pub matches: Vec<TrafficSelector>,
    /// A WebAssembly module. Exactly one of `wasm` and `lua` is set.
    pub wasm: Option<WasmConfig>,
    /// A Lua script. Exactly one of `wasm` and `lua` is set.
    pub lua: Option<LuaConfig>,
}

wire_enum! {
    /// The position of an extension among Envoy's filters.
    ExecutionPhase {
        /// At the end of the chain, before the router.
        Unspecified = 0, "UNSPECIFIED";
        /// Before authentication.
        Authn = 1, "AUTHN";
        /// After authentication and before authorization.
        Authz = 2, "AUTHZ";
        /// After authorization and before metrics.
        Stats = 3, "STATS";
    }
}

/// A WebAssembly module and its configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WasmConfig {
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
    /// Handling of traffic when the module fails.
    pub fail_strategy: FailStrategy,
    /// Configuration of the WebAssembly VM.
    pub vm_config: Option<VmConfig>,
    /// Whether the module is an HTTP filter or a network filter.
    #[serde(rename = "type")]
    pub plugin_type: PluginType,
}

/// A Lua script, given inline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LuaConfig {
    /// The source code of the script.
    pub inline_code: String,
}
