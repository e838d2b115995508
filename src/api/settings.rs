//! Settings given at start (flags and environment) that decide what is made of the configuration.
//!
//! One table: field, Istio's environment variable, default. They do not change while the process lives.

use super::names::{ClusterId, Namespace};

/// What flags and environment say. Field docs name Istio's variable or flag.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that do not depend on each other, as the environment has them"
)]
pub struct Settings {
    /// `CLUSTER_ID`: the cluster that Navarch itself runs in. Default `Kubernetes`.
    pub cluster_id: ClusterId,
    /// `--domain`: DNS suffix of Kubernetes services. Default `cluster.local`.
    pub domain_suffix: String,
    /// `POD_NAMESPACE`: where the control plane lives. Default `istio-system`.
    pub system_namespace: Namespace,
    /// `ISTIO_DUAL_STACK`: both address families of services and workloads are used. Default false.
    pub dual_stack: bool,
    /// `PILOT_ENABLE_IP_AUTOALLOCATE`: addresses of ServiceEntries are allocated by the controller. Default true.
    pub ip_autoallocate: bool,
    /// `PILOT_SEND_UNHEALTHY_ENDPOINTS` as the default of services. Default false.
    pub send_unhealthy_endpoints: bool,
    /// `PILOT_PERSISTENT_SESSION_LABEL`. Default `istio.io/persistent-session`.
    pub persistent_session_label: String,
    /// `PILOT_PERSISTENT_SESSION_HEADER_LABEL`. Default `istio.io/persistent-session-header`.
    pub persistent_session_header_label: String,
    /// `PILOT_ENABLE_AMBIENT`. Default false.
    pub ambient: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_id: ClusterId::new("Kubernetes"),
            domain_suffix: "cluster.local".to_owned(),
            system_namespace: Namespace::new("istio-system"),
            dual_stack: false,
            ip_autoallocate: true,
            send_unhealthy_endpoints: false,
            persistent_session_label: "istio.io/persistent-session".to_owned(),
            persistent_session_header_label: "istio.io/persistent-session-header".to_owned(),
            ambient: false,
        }
    }
}
