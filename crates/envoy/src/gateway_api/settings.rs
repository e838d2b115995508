//! The mesh settings that the Gateway API uses, as a separate query: mesh config changes, and these
//! rarely do.

use navarch_api::gateway_api::GatewayApiSettings;
use navarch_push::query::Query;
use navarch_push::view::View;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ApiSettings;

/// The value of [`ApiSettings`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub(super) api: GatewayApiSettings,
    /// The DNS suffix of Kubernetes services.
    pub(super) domain: String,
    /// `PILOT_ENABLE_AMBIENT`.
    pub(super) ambient: bool,
}

impl Query for ApiSettings {
    type Value = Values;

    fn compute(&self, view: &View<'_>) -> Values {
        let settings = &view.mesh().settings;
        Values {
            api: settings.gateway_api.clone(),
            domain: settings.domain_suffix.clone(),
            ambient: settings.ambient,
        }
    }
}

impl Values {
    /// The host of a Kubernetes Service.
    pub(super) fn host(&self, name: &str, namespace: &str) -> String {
        format!("{name}.{namespace}.svc.{}", self.domain)
    }
}
