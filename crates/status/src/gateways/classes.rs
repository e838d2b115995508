//! The GatewayClasses of this control plane (istiod's `classinfo.go`).

use navarch_api::gateway_api::GatewayApiSettings;

/// Properties of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// The controller name in GatewayClasses.
    pub controller: String,
    /// The controller as a label value of pods.
    pub label: &'static str,
    /// The description of the created GatewayClass.
    pub description: &'static str,
    /// The template of the objects; `None` if none are created.
    pub template: Option<&'static str>,
    /// `spec.type` of Services, unless the Gateway has the annotation
    /// `networking.istio.io/service-type`.
    pub service_type: &'static str,
    /// Whether the names of the objects have the class as suffix.
    pub has_suffix: bool,
    /// Whether the Gateways connect the networks of an ambient mesh.
    pub east_west: bool,
}

impl ClassInfo {
    /// The classes that exist without a GatewayClass object: names and properties.
    #[must_use]
    pub fn builtin(settings: &GatewayApiSettings) -> Vec<(String, Self)> {
        let mut all = vec![(settings.default_class.clone(), Self::gateway(settings))];
        let others = [
            (settings.remote_class, "istio-remote", Self::remote()),
            (settings.waypoints, "istio-waypoint", Self::waypoint()),
            (
                settings.east_west,
                "istio-east-west",
                Self::between_networks(),
            ),
        ];
        let served = others.into_iter().filter(|(served, ..)| *served);
        all.extend(served.map(|(_, name, class)| (name.to_owned(), class)));
        all
    }

    /// The class of a controller; `None` if this control plane does not serve it.
    #[must_use]
    pub fn of_controller(settings: &GatewayApiSettings, controller: &str) -> Option<Self> {
        let all = Self::builtin(settings).into_iter().map(|(_, class)| class);
        // If a name is repeated, the last one counts.
        all.rev().find(|class| class.controller == controller)
    }

    /// Envoys for requests from outside of the mesh.
    fn gateway(settings: &GatewayApiSettings) -> Self {
        Self {
            controller: settings.controller.clone(),
            label: "istio.io-gateway-controller",
            description: "The default Istio GatewayClass",
            template: Some("kube-gateway"),
            service_type: "LoadBalancer",
            has_suffix: true,
            east_west: false,
        }
    }

    /// Gateways of other networks, whose proxies run elsewhere.
    fn remote() -> Self {
        Self {
            controller: "istio.io/unmanaged-gateway".to_owned(),
            label: "",
            description: "Remote to this cluster. Does not deploy or affect configuration.",
            template: None,
            service_type: "LoadBalancer",
            has_suffix: true,
            east_west: false,
        }
    }

    /// Waypoints of an ambient mesh.
    fn waypoint() -> Self {
        Self {
            controller: "istio.io/mesh-controller".to_owned(),
            label: "istio.io-mesh-controller",
            description: "The default Istio waypoint GatewayClass",
            template: Some("waypoint"),
            service_type: "ClusterIP",
            has_suffix: false,
            east_west: false,
        }
    }

    /// Gateways between the networks of an ambient mesh.
    fn between_networks() -> Self {
        Self {
            controller: "istio.io/eastwest-controller".to_owned(),
            label: "istio.io-eastwest-controller",
            description: "The default GatewayClass for Istio East West Gateways",
            template: Some("waypoint"),
            service_type: "LoadBalancer",
            has_suffix: false,
            east_west: true,
        }
    }
}
