//! Whether a gateway passes mutual TLS on by SNI, which takes a second set of clusters.

use crate::api::istio::{Gateway, ServerTlsMode};
use crate::push::query::Query;
use crate::push::view::View;
use crate::registry::model::Labels;

/// The selectors of all gateways that route by SNI.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Selectors;

/// Whether some gateway that selects the proxy routes by SNI.
pub(super) fn is_used(view: &View<'_>) -> bool {
    view.get(&Selectors).iter().any(|selector| view.proxy().selected_by(selector))
}

impl Query for Selectors {
    type Value = Vec<Labels>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let routes = |gateway: &Gateway| {
            let mut modes = gateway.servers.iter().filter_map(|server| server.tls.as_ref()).map(|tls| tls.mode);
            modes.any(|mode| mode == ServerTlsMode::AutoPassthrough)
        };
        let labels = |gateway: &Gateway| -> Labels {
            gateway.selector.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
        };
        let mut selectors: Vec<Labels> =
            view.list_all::<Gateway>().filter(|gateway| routes(&gateway.spec)).map(|g| labels(&g.spec)).collect();
        selectors.sort_unstable();
        selectors.dedup();
        selectors
    }
}
