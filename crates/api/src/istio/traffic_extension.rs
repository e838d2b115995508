//! TrafficExtension: WebAssembly or Lua that proxies run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wasm_plugin::object;
use super::wire_enum::wire_enum;
use super::{
    FailStrategy, PluginType, PolicyTargetReference, PolicyWorkloadSelector, PullPolicy, TrafficSelector, VmConfig,
};

/// `extensions.istio.io/TrafficExtension`: WebAssembly or Lua that proxies run.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficExtension {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// The gateways and services it is for. At most one of selector and targets is set.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Where among the filters it stands.
    pub phase: ExecutionPhase,
    /// Its place within the phase: higher first.
    pub priority: Option<i32>,
    /// The traffic it is for; empty is all.
    #[serde(rename = "match")]
    pub matches: Vec<TrafficSelector>,
    /// A WebAssembly module. Exactly one of this and `lua` is set.
    pub wasm: Option<WasmConfig>,
    /// A Lua script.
    pub lua: Option<LuaConfig>,
}

wire_enum! {
    /// Where among the filters an extension stands.
    ExecutionPhase {
        /// At the end, before the router.
        Unspecified = 0, "UNSPECIFIED";
        /// Before authentication.
        Authn = 1, "AUTHN";
        /// After authentication and before authorization.
        Authz = 2, "AUTHZ";
        /// After authorization and before metrics.
        Stats = 3, "STATS";
    }
}

/// A WebAssembly module.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WasmConfig {
    /// Where it is: `oci://` (also without scheme), `http(s)://` or `file://`.
    pub url: String,
    /// Its checksum; empty is not checked.
    pub sha256: String,
    /// When a module that is known is fetched again.
    pub image_pull_policy: PullPolicy,
    /// The Secret with which the image is fetched.
    pub image_pull_secret: String,
    /// Read by nothing.
    pub verification_key: String,
    /// What it is told.
    #[serde(deserialize_with = "object")]
    pub plugin_config: Option<Value>,
    /// What it is called.
    pub plugin_name: String,
    /// What happens to traffic when it fails.
    pub fail_strategy: FailStrategy,
    /// The machine it runs in.
    pub vm_config: Option<VmConfig>,
    /// Whether it is a filter for HTTP or for connections.
    #[serde(rename = "type")]
    pub plugin_type: PluginType,
}

/// A Lua script.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LuaConfig {
    /// Its text.
    pub inline_code: String,
}
