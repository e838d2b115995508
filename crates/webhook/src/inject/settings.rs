//! What an injector is made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::ProxyConfig;
use navarch_api::mesh::MeshConfig;
use navarch_api::object::Object;

/// The default cluster ID.
pub(super) const OWN_CLUSTER: &str = "Kubernetes";

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
    /// Kubelet versions by node, by cluster. Native sidecars in mode `auto` need 1.33 on the pod's node, or on all of its
    /// cluster; pods of clusters that are not here get none.
    pub kubelets: BTreeMap<String, BTreeMap<String, String>>,
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
            kubelets: BTreeMap::from([(OWN_CLUSTER.to_owned(), BTreeMap::new())]),
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

/// The first minor version of Kubernetes 1 in which native sidecars are stable.
const MIN_KUBELET_MINOR: u32 = 33;

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

    /// Whether they hold for a pod of this node, `None` where it is not scheduled yet, in a cluster with these kubelets,
    /// `None` where the cluster is unknown.
    pub(super) fn hold(self, kubelets: Option<&BTreeMap<String, String>>, node: Option<&str>) -> bool {
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

/// Whether a kubelet of this version runs native sidecars.
fn is_stable_on(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next(), parts.next());
    let minor = minor.and_then(|minor| minor.parse::<u32>().ok());
    major.is_some() && minor.is_some_and(|minor| minor >= MIN_KUBELET_MINOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_sidecars_need_kubelets_that_can() {
        let kubelets =
            BTreeMap::from([("new".to_owned(), "v1.33.1".to_owned()), ("old".to_owned(), "v1.32".to_owned())]);
        let auto = |node| NativeSidecars::Auto.hold(Some(&kubelets), node);
        assert_eq!((auto(Some("new")), auto(Some("old")), auto(None)), (true, false, false));
        assert!(NativeSidecars::Auto.hold(Some(&BTreeMap::new()), None));
        assert!(!NativeSidecars::Auto.hold(None, None));
        assert!(NativeSidecars::parse("true").hold(None, None));
        assert!(!NativeSidecars::parse("false").hold(Some(&BTreeMap::new()), None));
    }
}
