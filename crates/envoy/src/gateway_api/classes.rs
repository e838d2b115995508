//! GatewayClasses and their controllers (istiod's `gatewaycommon`, `classinfo.go`).

use super::settings::{ApiSettings, Values};
use navarch_api::gateway_api::{GatewayApiSettings, GatewayClass, KubernetesGateway};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// A controller of Gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Gateways for requests from outside the mesh.
    Gateway,
    /// No proxies here: these represent gateways of other networks.
    Remote,
    /// Waypoints of an ambient mesh.
    Waypoint,
    /// Gateways between the networks of an ambient mesh.
    EastWest,
}

/// The controller of waypoints, and of policies for the mesh in their status.
pub(super) const MESH_CONTROLLER: &str = "istio.io/mesh-controller";
/// The controller of gateways of other networks.
const REMOTE_CONTROLLER: &str = "istio.io/unmanaged-gateway";
/// The controller of gateways between networks.
const EAST_WEST_CONTROLLER: &str = "istio.io/eastwest-controller";
/// The annotation with the Service name of a Gateway, which overrides the generated one.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
/// The annotation with the ServiceAccount of a Gateway's proxies.
const SERVICE_ACCOUNT: &str = "gateway.istio.io/service-account";

/// The controller of a class; `None` if it belongs to another implementation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ControllerOfClass(pub(super) String);

impl Query for ControllerOfClass {
    type Value = Option<Controller>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let settings = view.get(&ApiSettings);
        let class = view.object::<GatewayClass>(&NamespacedName::new("", &self.0));
        let named = class.and_then(|class| {
            controller_of(&settings.api, &self.0, Some(&class.spec.controller_name))
        });
        // As in istiod, a class of another implementation with a built-in name is ignored, except
        // for deployments.
        named.or_else(|| controller_of(&settings.api, &self.0, None))
    }
}

/// The controller of the Gateways of a class whose object has this controller name; `None` means
/// that the class has no object, which some classes do not need.
#[must_use]
pub fn controller_of(
    settings: &GatewayApiSettings,
    class: &str,
    controller: Option<&str>,
) -> Option<Controller> {
    if !settings.enabled {
        return None;
    }

    let known = |controller: Controller| controller.is_served(settings).then_some(controller);

    match controller {
        Some(name) if name == settings.controller => Some(Controller::Gateway),
        Some(REMOTE_CONTROLLER) => known(Controller::Remote),
        Some(MESH_CONTROLLER) => known(Controller::Waypoint),
        Some(EAST_WEST_CONTROLLER) => known(Controller::EastWest),
        Some(_) => None,
        None if class == settings.default_class => Some(Controller::Gateway),
        None => match class {
            "istio-remote" => known(Controller::Remote),
            "istio-waypoint" => known(Controller::Waypoint),
            "istio-east-west" => known(Controller::EastWest),
            _ => None,
        },
    }
}

impl Controller {
    /// Whether it is enabled by the settings.
    fn is_served(self, settings: &GatewayApiSettings) -> bool {
        match self {
            Self::Gateway => true,
            Self::Remote => settings.remote_class,
            Self::Waypoint => settings.waypoints,
            Self::EastWest => settings.east_west,
        }
    }

    /// Whether ListenerSets may add listeners.
    pub(super) fn allows_listener_sets(self) -> bool {
        self == Self::Gateway
    }

    /// The type of addresses that are reported if no external one is known; `None` means all types.
    pub(super) fn address_type(self) -> Option<&'static str> {
        match self {
            Self::Gateway | Self::Remote => Some("Hostname"),
            Self::Waypoint | Self::EastWest => None,
        }
    }

    /// Whether names of deployed objects end with that of the class.
    fn names_class(self) -> bool {
        matches!(self, Self::Gateway | Self::Remote)
    }
}

/// Whether the control plane deploys the proxies of a Gateway: not if it has an address other than
/// a single IP.
pub(super) fn is_managed(settings: &GatewayApiSettings, gateway: &KubernetesGateway) -> bool {
    match gateway.addresses.as_slice() {
        _ if !settings.manual_deployment => true,
        [] => true,
        [only] => only.kind == "IPAddress",
        _ => false,
    }
}

/// The default name of the objects that are deployed for a Gateway.
fn default_name(gateway: &Object<KubernetesGateway>, controller: Controller) -> String {
    let name = &gateway.meta.key.name;
    match controller.names_class() {
        true => format!("{name}-{}", gateway.spec.gateway_class_name),
        false => name.to_string(),
    }
}

/// The host of the Service that is deployed for a Gateway.
pub(super) fn managed_service(
    gateway: &Object<KubernetesGateway>,
    controller: Controller,
    values: &Values,
) -> String {
    let named = gateway
        .meta
        .annotations
        .get(NAME_OVERRIDE)
        .filter(|name| !name.is_empty());
    let name = named.map_or_else(|| default_name(gateway, controller), ToString::to_string);
    values.host(&name, gateway.meta.key.namespace.as_str())
}

/// The ServiceAccount of the proxies that are deployed for a Gateway; empty for manual deployment.
pub(super) fn service_account(
    gateway: &Object<KubernetesGateway>,
    controller: Controller,
    values: &Values,
) -> String {
    if !is_managed(&values.api, &gateway.spec) {
        return String::new();
    }
    let named = gateway
        .meta
        .annotations
        .get(SERVICE_ACCOUNT)
        .filter(|name| !name.is_empty());
    named.map_or_else(|| default_name(gateway, controller), ToString::to_string)
}
