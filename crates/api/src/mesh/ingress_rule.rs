//! Which Ingresses are served, and by which gateway.

use super::{IngressControllerMode, MeshConfig};
use crate::kubernetes::{Ingress, IngressClass};
use crate::object::Object;

/// The annotation for the class of an Ingress, which preceded `ingressClassName`.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The controller of served IngressClasses.
const CONTROLLER: &str = "istio.io/ingress-controller";
/// The Service of Istio's own gateway.
const DEFAULT_SERVICE: &str = "istio-ingressgateway";
/// The value of the label `istio` of that gateway's pods.
const DEFAULT_GATEWAY: &str = "ingressgateway";

/// The settings of mesh config for Ingresses.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressRule {
    /// `ingressControllerMode`.
    mode: IngressControllerMode,
    /// `ingressClass`.
    class: String,
    /// `ingressSelector`.
    selector: String,
    /// `ingressService`.
    service: String,
}

impl MeshConfig {
    /// Returns the settings for Ingresses.
    #[must_use]
    pub fn ingress_rule(&self) -> IngressRule {
        IngressRule {
            mode: self.ingress_controller_mode,
            class: self.ingress_class.clone(),
            selector: self.ingress_selector.clone(),
            service: self.ingress_service.clone(),
        }
    }
}

impl IngressRule {
    /// The value of the label `istio` of the gateway that serves Ingresses.
    #[must_use]
    pub fn gateway(&self) -> &str {
        match (self.selector.as_str(), self.service.as_str()) {
            ("", "" | DEFAULT_SERVICE) => DEFAULT_GATEWAY,
            ("", service) => service,
            (selector, _) => selector,
        }
    }

    /// Whether an Ingress sets its class by the older annotation, which takes precedence.
    #[must_use]
    pub fn is_annotated(&self, ingress: &Object<Ingress>) -> bool {
        ingress.meta.annotations.contains_key(CLASS_ANNOTATION)
    }

    /// Whether an Ingress is served; `class` is its IngressClass, if that exists. A missing class
    /// is the same as an unset class.
    #[must_use]
    pub fn serves(&self, ingress: &Object<Ingress>, class: Option<&IngressClass>) -> bool {
        if let Some(class) = ingress.meta.annotations.get(CLASS_ANNOTATION) {
            return match self.mode {
                IngressControllerMode::Strict | IngressControllerMode::Default => {
                    **class == *self.class
                }
                IngressControllerMode::Off | IngressControllerMode::Unspecified => false,
            };
        }
        match class {
            Some(class) => &*class.controller == CONTROLLER,
            None => match self.mode {
                IngressControllerMode::Default => true,
                IngressControllerMode::Strict
                | IngressControllerMode::Off
                | IngressControllerMode::Unspecified => false,
            },
        }
    }
}
