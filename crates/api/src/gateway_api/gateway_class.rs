//! GatewayClass.

use serde::{Deserialize, Serialize};

use super::ParametersRef;

/// `gateway.networking.k8s.io/GatewayClass`: the controller that serves Gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClass {
    /// The controller, such as `istio.io/gateway-controller`.
    pub controller_name: String,
    /// Settings for all Gateways of the class. istiod ignores them.
    pub parameters_ref: Option<ParametersRef>,
    /// For people, at most 64 characters.
    pub description: Option<String>,
}
