//! The Telemetries of a proxy, for debugging (`/debug/telemetryz`).

use std::sync::Arc;

use super::{TelemetriesOf, is_namespace_wide};
use navarch_api::istio::Telemetry;
use navarch_api::object::Object;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Returns the Telemetries of the view's proxy, except those of services at a waypoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescribeTelemetry;

/// The Telemetries of a proxy, from the widest to the narrowest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryDescription {
    /// The one for the mesh: for the whole root namespace.
    pub root: Option<Arc<Object<Telemetry>>>,
    /// The one for the whole namespace of the proxy, unless that is the root namespace.
    pub namespace: Option<Arc<Object<Telemetry>>>,
    /// Those that select the proxy or target its Gateway, the oldest first.
    pub workload: Vec<Arc<Object<Telemetry>>>,
}

impl Query for DescribeTelemetry {
    type Value = TelemetryDescription;

    fn compute(&self, view: &View<'_>) -> TelemetryDescription {
        let mut description = TelemetryDescription::default();
        for telemetry in view.get(&TelemetriesOf { service: None }).iter() {
            let is_of_root =
                telemetry.meta.key.namespace == view.mesh().config.root_namespace.as_str();
            match (is_namespace_wide(telemetry), is_of_root) {
                (true, true) => description.root = Some(telemetry.clone()),
                (true, false) => description.namespace = Some(telemetry.clone()),
                (false, _) => description.workload.push(telemetry.clone()),
            }
        }
        description
    }

    fn fallback(&self, _: Option<&TelemetryDescription>) -> Option<TelemetryDescription> {
        Some(TelemetryDescription::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mesh::TestMesh;

    /// A Telemetry of a namespace with the rest of its spec.
    fn telemetry(namespace: &str, name: &str, spec: &str) -> String {
        format!(
            "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}\n---\n"
        )
    }

    #[test]
    fn telemetries_by_selector_are_listed_with_those_for_all() {
        let select = |app: &str| format!("selector: {{matchLabels: {{app: {app}}}}}");
        let mut mesh = TestMesh::new(
            &[
                telemetry("istio-system", "mesh", ""),
                telemetry("istio-system", "of-root", &select("web")),
                telemetry("shop", "all", ""),
                telemetry("shop", "younger", ""),
                telemetry("shop", "other", &select("db")),
                telemetry("shop", "web-1", &select("web")),
                telemetry("shop", "web-2", &select("web")),
            ]
            .concat(),
        );

        let name = |one: &Arc<Object<Telemetry>>| one.meta.key.name.to_string();
        let names_of = |mesh: &TestMesh, proxy| {
            let described = mesh.query(proxy, &DescribeTelemetry);
            let [root, namespace] =
                [&described.root, &described.namespace].map(|one| one.as_ref().map(name));
            (
                root,
                namespace,
                described.workload.iter().map(name).collect::<Vec<_>>(),
            )
        };

        let some = |name: &str| Some(name.to_owned());
        let web = mesh.sidecar("shop", "web");
        assert_eq!(
            names_of(&mesh, web),
            (
                some("mesh"),
                some("all"),
                vec!["web-1".to_owned(), "web-2".to_owned()]
            )
        );

        let of_root = mesh.sidecar("istio-system", "web");
        assert_eq!(
            names_of(&mesh, of_root),
            (some("mesh"), None, vec!["of-root".to_owned()])
        );
    }
}
