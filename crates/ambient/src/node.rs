//! The locality of a node.

use std::sync::Arc;

use navarch_proto::istio::workload::Locality;

use navarch_api::kubernetes::Node;
use navarch_api::object::NamespacedName;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::{REGION_LABEL, SUBZONE_LABEL, ZONE_LABEL};

/// The locality of a node of a cluster, from its labels; `None` if they contain none, or the node
/// does not exist. Nodes change often, their localities do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LocalityOfNode(pub(super) ClusterRef, pub(super) Arc<str>);

impl Query for LocalityOfNode {
    type Value = Option<Locality>;

    fn compute(&self, view: &View<'_>) -> Option<Locality> {
        let node = view.object_in::<Node>(&self.0, &NamespacedName::new("", &self.1))?;
        let label = |name: &str| {
            node.meta
                .labels
                .get(name)
                .map(ToString::to_string)
                .unwrap_or_default()
        };
        locality(label(REGION_LABEL), label(ZONE_LABEL), label(SUBZONE_LABEL))
    }
}

/// A locality; `None` if all parts are empty.
pub(super) fn locality(region: String, zone: String, subzone: String) -> Option<Locality> {
    let is_known = !(region.is_empty() && zone.is_empty() && subzone.is_empty());
    is_known.then_some(Locality {
        region,
        zone,
        subzone,
    })
}
