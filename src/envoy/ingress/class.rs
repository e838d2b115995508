//! Which Ingresses are served, and by which gateway.

use super::{DEFAULT_GATEWAY, DEFAULT_SERVICE};
use crate::api::kubernetes::{Ingress, IngressClass};
use crate::api::mesh::IngressControllerMode;
use crate::api::names::Namespace;
use crate::api::object::{NamespacedName, Object};
use crate::push::query::Query;
use crate::push::view::View;

/// The annotation by which Ingresses named their class before `ingressClassName`.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The controller that IngressClasses name to be served.
const CONTROLLER: &str = "istio.io/ingress-controller";

/// What the mesh says of Ingresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct IngressSettings;

/// The value of [`IngressSettings`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Which are served.
    mode: IngressControllerMode,
    /// The class of those that are.
    class: String,
    /// The value of the label `istio` of the gateway that serves them.
    pub(super) gateway: String,
    /// The namespace of that gateway.
    pub(super) namespace: Namespace,
    /// The DNS suffix of Kubernetes services.
    pub(super) domain: String,
}

impl Query for IngressSettings {
    type Value = Settings;

    fn compute(&self, view: &View<'_>) -> Settings {
        let mesh = view.mesh();
        let config = &mesh.config;
        let gateway = match (config.ingress_selector.as_str(), config.ingress_service.as_str()) {
            ("", "" | DEFAULT_SERVICE) => DEFAULT_GATEWAY,
            ("", service) => service,
            (selector, _) => selector,
        };
        Settings {
            mode: config.ingress_controller_mode,
            class: config.ingress_class.clone(),
            gateway: gateway.to_owned(),
            namespace: mesh.settings.ingress_namespace.clone(),
            domain: mesh.settings.domain_suffix.clone(),
        }
    }
}

impl Settings {
    /// Whether an Ingress is served. The older annotation goes first; a class that does not exist is as none.
    pub(super) fn serves(&self, ingress: &Object<Ingress>, view: &View<'_>) -> bool {
        if let Some(class) = ingress.meta.annotations.get(CLASS_ANNOTATION) {
            return match self.mode {
                IngressControllerMode::Strict | IngressControllerMode::Default => **class == *self.class,
                IngressControllerMode::Off | IngressControllerMode::Unspecified => false,
            };
        }
        let class = ingress.spec.class_name.as_deref().map(|name| NamespacedName::new("", name));
        match class.and_then(|class| view.object::<IngressClass>(&class)) {
            Some(class) => &*class.spec.controller == CONTROLLER,
            None => match self.mode {
                IngressControllerMode::Default => true,
                IngressControllerMode::Strict | IngressControllerMode::Off | IngressControllerMode::Unspecified => {
                    false
                }
            },
        }
    }
}
