//! Settings for the Gateway API given at start.

use serde::{Deserialize, Serialize};

/// Istio's environment variables for the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one for each environment variable"
)]
pub struct GatewayApiSettings {
    /// `PILOT_ENABLE_GATEWAY_API`: the Gateway API is read. Default true.
    pub enabled: bool,
    /// `PILOT_ENABLE_GATEWAY_API_STATUS`: status is written. Default true.
    pub status: bool,
    /// `PILOT_ENABLE_ALPHA_GATEWAY_API`: experimental kinds are read. Default false.
    pub alpha: bool,
    /// `ENABLE_GATEWAY_API_INFERENCE_EXTENSION`: InferencePools are read. Default false.
    pub inference: bool,
    /// `PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME`: the class that exists without an object.
    /// Default `istio`.
    pub default_class: String,
    /// `PILOT_GATEWAY_API_CONTROLLER_NAME`: the controller of that class. Default
    /// `istio.io/gateway-controller`.
    pub controller: String,
    /// `ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT`: addresses of a Gateway may name manually deployed
    /// proxies. Default true.
    pub manual_deployment: bool,
    /// `PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API`: the class `istio-remote` marks Gateways of other
    /// networks. Default true.
    pub remote_class: bool,
    /// `PILOT_ENABLE_AMBIENT_WAYPOINTS`: Gateways may be waypoints. Default that of
    /// `PILOT_ENABLE_AMBIENT`, false.
    pub waypoints: bool,
    /// `AMBIENT_ENABLE_MULTI_NETWORK`: Gateways may connect the networks of an ambient mesh.
    /// Default false.
    pub east_west: bool,
    /// `MCS_API_GROUP`: the group of ServiceImports. Default `multicluster.x-k8s.io`.
    pub mcs_group: String,
    /// `MCS_API_VERSION`: the version of ServiceImports. Default `v1alpha1`.
    pub mcs_version: String,
    /// `ENABLE_MCS_HOST`: ServiceImports have hosts of their own. Default false.
    pub mcs_host: bool,
}

impl Default for GatewayApiSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            status: true,
            alpha: false,
            inference: false,
            default_class: "istio".to_owned(),
            controller: "istio.io/gateway-controller".to_owned(),
            manual_deployment: true,
            remote_class: true,
            waypoints: false,
            east_west: false,
            mcs_group: "multicluster.x-k8s.io".to_owned(),
            mcs_version: "v1alpha1".to_owned(),
            mcs_host: false,
        }
    }
}
