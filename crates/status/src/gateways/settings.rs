//! What flags and environment say of these controllers.

use navarch_api::gateway_api::GatewayApiSettings;

/// What flags and environment say of GatewayClasses and the deployment of Gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that do not depend on each other, as the environment has them"
)]
pub struct GatewayControllerSettings {
    /// What holds for all that is made of the Gateway API.
    pub api: GatewayApiSettings,
    /// `PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER`: GatewayClasses are made. Default true.
    pub classes: bool,
    /// `PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER`: Gateways get proxies. Default true.
    pub deploys: bool,
    /// `PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS`: labels and annotations of a Gateway are those of its objects, where its
    /// `infrastructure` has none. Default true.
    pub copies_metadata: bool,
    /// `PILOT_ENABLE_QUIC_LISTENERS`: ports of HTTPS are also ports of QUIC. Default false.
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
    /// The revision, by its name.
    pub(super) fn revision(&self) -> &str {
        if self.revision.is_empty() { "default" } else { &self.revision }
    }
}
