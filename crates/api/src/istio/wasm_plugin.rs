//! WasmPlugin: WebAssembly that proxies run.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector, PortSelector};

/// Reads JSON that must be an object (`google.protobuf.Struct`).
pub(super) fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let members = Option::<serde_json::Map<String, Value>>::deserialize(deserializer)?;
    Ok(members.map(Value::Object))
}

/// `extensions.istio.io/WasmPlugin`: WebAssembly that proxies run.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WasmPlugin {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// The old form of `target_refs`, which wins over this.
    pub target_ref: Option<PolicyTargetReference>,
    /// The gateways and services it is for. At most one of selector and targets is set.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Where the module is: `oci://` (also without scheme), `http(s)://` or `file://`.
    pub url: String,
    /// The module's checksum; empty is not checked.
    pub sha256: String,
    /// When a module that is known is fetched again.
    pub image_pull_policy: PullPolicy,
    /// The Secret with which the image is fetched.
    pub image_pull_secret: String,
    /// Read by nothing.
    pub verification_key: String,
    /// What the module is told.
    #[serde(deserialize_with = "object")]
    pub plugin_config: Option<Value>,
    /// What the module is called.
    pub plugin_name: String,
    /// Where among the filters it stands.
    pub phase: PluginPhase,
    /// Its place within the phase: higher first.
    pub priority: Option<i32>,
    /// What happens to traffic when it fails.
    pub fail_strategy: FailStrategy,
    /// The machine it runs in.
    pub vm_config: Option<VmConfig>,
    /// The traffic it is for; empty is all.
    #[serde(rename = "match")]
    pub matches: Vec<TrafficSelector>,
    /// Whether it is a filter for HTTP or for connections.
    #[serde(rename = "type")]
    pub plugin_type: PluginType,
}

wire_enum! {
    /// What kind of filter a module is.
    PluginType {
        /// For HTTP.
        Unspecified = 0, "UNSPECIFIED_PLUGIN_TYPE";
        /// For HTTP.
        Http = 1, "HTTP";
        /// For connections.
        Network = 2, "NETWORK";
    }
}

wire_enum! {
    /// Where among the filters a module stands.
    PluginPhase {
        /// At the end, before the router.
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
    /// When a module that is known is fetched again.
    PullPolicy {
        /// `Always` for the tag `latest`, else `IfNotPresent`.
        Unspecified = 0, "UNSPECIFIED_POLICY";
        /// Never.
        IfNotPresent = 1, "IfNotPresent";
        /// Whenever the plugin changes.
        Always = 2, "Always";
    }
}

wire_enum! {
    /// What happens to traffic when a module fails.
    FailStrategy {
        /// It is refused.
        Close = 0, "FAIL_CLOSE";
        /// It passes.
        Open = 1, "FAIL_OPEN";
        /// It is refused while the module starts anew.
        Reload = 2, "FAIL_RELOAD";
    }
}

/// The machine that a module runs in.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VmConfig {
    /// Its environment.
    pub env: Vec<EnvVar>,
}

/// A variable of a module's environment.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub value_from: EnvValueSource,
    /// The value, where it is given here.
    pub value: String,
}

wire_enum! {
    /// Where the value of a variable comes from.
    EnvValueSource {
        /// It is given with the variable.
        Inline = 0, "INLINE";
        /// The proxy's own environment.
        Host = 1, "HOST";
    }
}

/// Which traffic is meant.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficSelector {
    /// The side of the request.
    pub mode: WorkloadMode,
    /// The ports; empty is all.
    pub ports: Vec<PortSelector>,
}

wire_enum! {
    /// The side of a request that a proxy is on.
    WorkloadMode {
        /// Both.
        Undefined = 0, "UNDEFINED";
        /// Where the request leaves.
        Client = 1, "CLIENT";
        /// Where the request arrives; gateways are servers here.
        Server = 2, "SERVER";
        /// Both.
        ClientAndServer = 3, "CLIENT_AND_SERVER";
    }
}
