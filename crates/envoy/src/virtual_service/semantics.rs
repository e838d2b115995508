//! The semantics of a VirtualService's routes: Istio's, or those of the objects that it is generated
//! from.

use super::RouteSemantics;
use crate::config_objects;
use navarch_api::istio::VirtualService;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The annotation with the route semantics of VirtualServices that are generated from other
/// objects.
const SEMANTICS_ANNOTATION: &str = "internal.istio.io/route-semantics";

/// The semantics of the routes of the VirtualService with this name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SemanticsOf {
    pub(super) name: NamespacedName,
}

impl Query for SemanticsOf {
    type Value = RouteSemantics;

    fn compute(&self, view: &View<'_>) -> RouteSemantics {
        config_objects::virtual_service(view, &self.name)
            .map_or(RouteSemantics::Istio, |object| semantics_of(&object))
    }
}

/// The semantics of a VirtualService's routes, by its annotation.
pub(super) fn semantics_of(object: &Object<VirtualService>) -> RouteSemantics {
    match object
        .meta
        .annotations
        .get(SEMANTICS_ANNOTATION)
        .map(|semantics| &**semantics)
    {
        Some("gateway") => RouteSemantics::Gateway,
        Some("ingress") => RouteSemantics::Ingress,
        Some(_) | None => RouteSemantics::Istio,
    }
}
