//! Which Ingresses are served, and their gateway.

use navarch_api::kubernetes::{Ingress, IngressClass};
use navarch_api::mesh::IngressRule;
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The Ingress settings of mesh config.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct IngressSettings;

/// The value of [`IngressSettings`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Which Ingresses are served.
    rule: IngressRule,
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
        let rule = mesh.config.ingress_rule();
        Settings {
            gateway: rule.gateway().to_owned(),
            rule,
            namespace: mesh.settings.ingress_namespace.clone(),
            domain: mesh.settings.domain_suffix.clone(),
        }
    }
}

impl Settings {
    pub(super) fn serves(&self, ingress: &Object<Ingress>, view: &View<'_>) -> bool {
        if self.rule.is_annotated(ingress) {
            return self.rule.serves(ingress, None);
        }
        let class = ingress
            .spec
            .class_name
            .as_deref()
            .map(|name| NamespacedName::new("", name));
        let class = class.and_then(|class| view.object::<IngressClass>(&class));
        self.rule.serves(ingress, class.map(|class| &class.spec))
    }
}
