//! The networks of the mesh.

use k8s_openapi::api::core::v1::Secret;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks that the registries in the networks of the mesh are known clusters.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "meshnetworks.MeshNetworksAnalyzer",
    description: "Check the validity of MeshNetworks in the cluster",
    inputs: &[Kind::MeshNetworks, Kind::Secret],
    run,
}];

/// The label of Secrets that say how other clusters are reached.
const REMOTE: &str = "istio/multiCluster";
/// The registries that there always are.
const OWN: [&str; 3] = ["Mock", "Kubernetes", "External"];

/// Reports registries without a known cluster.
fn run(context: &Context, report: &mut Report) {
    let remotes = context
        .specs::<Secret>()
        .filter(|(resource, _)| resource.label(REMOTE) == Some("true"));
    let clusters: Vec<&str> = remotes
        .flat_map(|(_, secret)| {
            secret
                .data
                .iter()
                .flat_map(|data| data.keys())
                .chain(secret.string_data.iter().flat_map(|data| data.keys()))
        })
        .map(String::as_str)
        .collect();

    for resource in context.each(Kind::MeshNetworks) {
        for (network, settings) in &context.mesh.networks.networks {
            let registries = settings
                .endpoints
                .iter()
                .filter_map(|endpoints| endpoints.from_registry.as_deref());
            for registry in registries
                .filter(|registry| !OWN.contains(registry) && !clusters.contains(registry))
            {
                let parameters = parameters![registry, network];
                report.add(Message::new(
                    &messages::UNKNOWN_MESH_NETWORKS_SERVICE_REGISTRY,
                    resource,
                    parameters,
                ));
            }
        }
    }
}
