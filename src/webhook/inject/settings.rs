//! What an injector is made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::istio::ProxyConfig;
use crate::api::mesh::MeshConfig;
use crate::api::object::Object;

/// Everything that decides how pods are injected, as it came from its sources.
#[derive(Clone, Debug)]
pub struct InjectorInputs {
    /// `values` of the ConfigMap `istio-sidecar-injector`: the chart's values as JSON or YAML. What it leaves out has the
    /// chart's default; an empty text is the default installation.
    pub values: String,
    /// `config` of the ConfigMap: policy, selectors and templates as YAML. An empty text is what the chart would write
    /// from the values.
    pub config: String,
    /// Mesh config, laid over the defaults.
    pub mesh: Arc<MeshConfig>,
    /// All objects of the kind `ProxyConfig`.
    pub proxy_configs: Vec<Arc<Object<ProxyConfig>>>,
    /// The revision of the control plane (`REVISION`); empty is the default one.
    pub revision: String,
    /// Whether proxies become init containers that keep running.
    pub native_sidecars: NativeSidecars,
    /// Kubelet versions by node; native sidecars in mode `auto` need 1.33 on the pod's node, or on all.
    pub kubelets: BTreeMap<String, String>,
    /// The policy that cryptography must comply with (`COMPLIANCE_POLICY`); empty is none.
    pub compliance_policy: String,
    /// Variables that templates may read by `env`.
    pub environment: BTreeMap<String, String>,
    /// Whether the cluster is OpenShift, which gives each namespace its own user ids.
    pub openshift: bool,
}

impl InjectorInputs {
    /// The default installation with this mesh config.
    #[must_use]
    pub fn new(mesh: Arc<MeshConfig>) -> Self {
        Self {
            values: String::new(),
            config: String::new(),
            mesh,
            proxy_configs: Vec::new(),
            revision: String::new(),
            native_sidecars: NativeSidecars::Auto,
            kubelets: BTreeMap::new(),
            compliance_policy: String::new(),
            environment: BTreeMap::new(),
            openshift: false,
        }
    }
}

/// Whether proxies become init containers that keep running (`ENABLE_NATIVE_SIDECARS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeSidecars {
    /// Where the nodes can.
    #[default]
    Auto,
    /// Always.
    Enabled,
    /// Never.
    Disabled,
}

impl NativeSidecars {
    /// Reads the environment variable; anything but `true` and `false` is `auto`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "true" => Self::Enabled,
            "false" => Self::Disabled,
            _ => Self::Auto,
        }
    }
}
