//! What EnvoyFilters of a sidecar mean for clusters that are requested on demand: which clusters
//! they name, and which of them change the filters that request these.

use super::compiled::Patch;
use super::select::{PatchClass, patches};
use crate::named_clusters::NamedClusters;
use navarch_api::istio::{ApplyTo, PatchContext};
use navarch_push::view::View;

/// The classes of patches that name clusters.
const CLASSES: [PatchClass; 5] = [
    PatchClass::Clusters,
    PatchClass::Listeners,
    PatchClass::Routes,
    PatchClass::Extensions,
    PatchClass::Bootstrap,
];

/// A part of the type URL of connection managers.
const MANAGER: &[u8] = b".HttpConnectionManager";

/// The outbound clusters that the proxy's EnvoyFilters name anywhere: also in code, in mirrors of
/// routes, and in clusters of clusters.
pub(crate) fn named_clusters(view: &View<'_>) -> NamedClusters {
    let mut named = NamedClusters::default();
    for patches in CLASSES.iter().filter_map(|class| patches(view, *class)) {
        for patch in patches.iter() {
            named.extend(&NamedClusters::in_bytes(patch.bytes()));
        }
    }
    named
}

/// The first EnvoyFilter that does more to outbound listeners of the proxy than merge fields. Its
/// filters may change the route of a request after the cluster was requested, and its listeners and
/// connection managers do not request clusters at all.
pub(crate) fn outbound_filters_changed_by(view: &View<'_>) -> Option<String> {
    let patches = patches(view, PatchClass::Listeners)?;
    let outbound = PatchContext::SidecarOutbound;
    let mut others = patches.iter().filter(|patch| {
        let is_outbound = patch.applies_to(outbound) || patch.adds_for(outbound);
        // Filters of listeners act before there is a request.
        let merges = patch.operation.merges() && !adds_managers(patch);
        is_outbound && !merges && patch.apply_to != ApplyTo::ListenerFilter
    });
    others.next().map(|patch| patch.describe())
}

/// Whether a patch that merges a listener or a filter chain brings connection managers: lists are
/// merged by appending.
fn adds_managers(patch: &Patch) -> bool {
    let appends = matches!(patch.apply_to, ApplyTo::Listener | ApplyTo::FilterChain);
    let windows = || patch.bytes().windows(MANAGER.len());
    appends && windows().any(|bytes| bytes == MANAGER)
}
