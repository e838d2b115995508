//! The inputs of an injector.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::ProxyConfig;
use navarch_api::mesh::MeshConfig;
use navarch_api::object::Object;

/// The default cluster ID.
pub(super) const OWN_CLUSTER: &str = "Kubernetes";

/// All settings of the injection, unparsed.
#[derive(Clone, Debug)]
pub struct InjectorInputs {
    /// `values` of the ConfigMap `istio-sidecar-injector`: the chart's values as JSON or YAML.
    /// Missing values have the chart's defaults; an empty text is the default installation.
    pub values: String,
    /// `config` of the ConfigMap: policy, selectors and templates as YAML. An empty text is
    /// replaced with the chart's config for the values.
    pub config: String,
    /// Mesh config, merged with the defaults.
    pub mesh: Arc<MeshConfig>,
    /// Of all namespaces. Namespace and selector decide which of them apply to a pod.
    pub proxy_configs: Vec<Arc<Object<ProxyConfig>>>,
    /// The revision of the control plane (`REVISION`); empty is the default revision.
    pub revision: String,
    /// Whether proxies are native sidecars.
    pub native_sidecars: NativeSidecars,
    /// Kubelet versions by cluster and node. Native sidecars in mode `auto` require 1.33 on the
    /// pod's node, or on all nodes for an unscheduled pod; pods of unlisted clusters do not use
    /// them.
    pub kubelets: BTreeMap<String, BTreeMap<String, String>>,
    /// The compliance policy for cryptography (`COMPLIANCE_POLICY`); empty is none.
    pub compliance_policy: String,
    /// Variables that templates may read with `env`.
    pub environment: BTreeMap<String, String>,
    /// Whether the cluster is OpenShift, which assigns user IDs to each namespace.
    pub openshift: bool,
}

impl InjectorInputs {
    /// The inputs of the default installation with this mesh config.
    #[must_use]
    pub fn new(mesh: Arc<MeshConfig>) -> Self {
        Self {
            values: String::new(),
            config: String::new(),
            mesh,
            proxy_configs: Vec::new(),
            revision: String::new(),
            native_sidecars: NativeSidecars::Auto,
            kubelets: BTreeMap::from([(OWN_CLUSTER.to_owned(), BTreeMap::new())]),
            compliance_policy: String::new(),
            environment: BTreeMap::new(),
            openshift: false,
        }
    }
}

/// Whether proxies are native sidecars, that is init containers that keep running
/// (`ENABLE_NATIVE_SIDECARS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeSidecars {
    /// If the nodes support native sidecars.
    #[default]
    Auto,
    /// Always.
    Enabled,
    /// Never.
    Disabled,
}

/// The first minor version of Kubernetes 1 in which native sidecars are stable.
const MIN_KUBELET_MINOR: u32 = 33;

impl NativeSidecars {
    /// Parses the environment variable; any value except `true` and `false` is `auto`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "true" => Self::Enabled,
            "false" => Self::Disabled,
            _ => Self::Auto,
        }
    }

    /// Whether a pod uses native sidecars. `node` is `None` for an unscheduled pod, `kubelets` is
    /// `None` for an unknown cluster.
    pub(super) fn hold(
        self,
        kubelets: Option<&BTreeMap<String, String>>,
        node: Option<&str>,
    ) -> bool {
        match (self, kubelets) {
            (Self::Enabled, _) => true,
            (Self::Disabled, _) | (Self::Auto, None) => false,
            (Self::Auto, Some(kubelets)) => match node.and_then(|node| kubelets.get(node)) {
                Some(version) => is_stable_on(version),
                None => kubelets.values().all(|version| is_stable_on(version)),
            },
        }
    }
}

/// Whether native sidecars are stable in this version of the kubelet.
fn is_stable_on(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next();
    let minor = parts.next();
    let minor = minor.and_then(|minor| minor.parse::<u32>().ok());
    major.is_some() && minor.is_some_and(|minor| minor >= MIN_KUBELET_MINOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_sidecars_need_kubelets_that_can() {
        let kubelets = BTreeMap::from([
            ("new".to_owned(), "v1.33.1".to_owned()),
            ("old".to_owned(), "v1.32".to_owned()),
        ]);
        let auto = |node| NativeSidecars::Auto.hold(Some(&kubelets), node);
        assert_eq!(
            (auto(Some("new")), auto(Some("old")), auto(None)),
            (true, false, false)
        );
        assert!(NativeSidecars::Auto.hold(Some(&BTreeMap::new()), None));
        assert!(!NativeSidecars::Auto.hold(None, None));
        assert!(NativeSidecars::parse("true").hold(None, None));
        assert!(!NativeSidecars::parse("false").hold(Some(&BTreeMap::new()), None));
    }
}
