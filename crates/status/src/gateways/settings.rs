//! Settings of the Gateway controllers.

use navarch_api::gateway_api::GatewayApiSettings;

/// Settings of the Gateway controllers, from flags and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one for each environment variable"
)]
pub struct GatewayControllerSettings {
    /// Common settings of the Gateway API.
    pub api: GatewayApiSettings,
    /// `PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER`: GatewayClasses are created. Default
    /// true.
    pub classes: bool,
    /// `PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER`: proxies of Gateways are deployed. Default
    /// true.
    pub deploys: bool,
    /// `PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS`: labels and annotations of a Gateway are
    /// copied to its objects if `infrastructure` has none. Default true.
    pub copies_metadata: bool,
    /// `PILOT_ENABLE_QUIC_LISTENERS`: HTTPS ports are also QUIC ports. Default false.
    pub quic: bool,
    /// The name of the cluster.
    pub cluster: String,
    /// The namespace of the control plane.
    pub namespace: String,
    /// The revision of the control plane; empty is `default`.
    pub revision: String,
}

impl Default for GatewayControllerSettings {
    fn default() -> Self {
        Self {
            api: GatewayApiSettings::default(),
            classes: true,
            deploys: true,
            copies_metadata: true,
            quic: false,
            cluster: "Kubernetes".to_owned(),
            namespace: "istio-system".to_owned(),
            revision: String::new(),
        }
    }
}

impl GatewayControllerSettings {
    /// The name of the revision; `default` if it is empty.
    pub(super) fn revision(&self) -> &str {
        if self.revision.is_empty() {
            "default"
        } else {
            &self.revision
        }
    }
}
