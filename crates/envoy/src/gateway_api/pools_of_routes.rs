//! The InferencePools behind merged routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inference_pools::{PoolsOf, RulePickers};
use super::merged;
use super::settings::ApiSettings;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Whether a route of a generated Gateway has a pool as backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewayHasPools(Arc<str>);

impl Query for GatewayHasPools {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        merged::routes_of_gateway(view, &self.0)
            .iter()
            .any(|route| !view.get(&PoolsOf(route.clone())).is_empty())
    }
}

/// Whether a route of a generated Gateway has a pool as backend.
pub(crate) fn has_pools(view: &View<'_>, gateway: &Arc<str>) -> bool {
    view.get(&ApiSettings).api.inference && *view.get(&GatewayHasPools(gateway.clone()))
}

/// The endpoint pickers of a generated VirtualService, by name of the rule.
pub(crate) fn endpoint_pickers(
    view: &View<'_>,
    name: &NamespacedName,
) -> Arc<BTreeMap<String, RulePickers>> {
    if !view.get(&ApiSettings).api.inference {
        return Arc::default();
    }
    merged::pickers(view, name)
}
