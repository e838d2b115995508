//! Resource requests and limits of injected containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::super::context::Context;
use super::super::quantity::canonical;
use super::super::values::Text;

/// The resources of the proxy and of its init container. A single annotation overrides all settings
/// of the values.
pub(super) fn resources(context: &Context<'_>) -> ResourceRequirements {
    let requested = |resource: &str, annotation: &str| {
        let value = context.annotation(annotation)?;
        Some((resource.to_owned(), Quantity(canonical(value))))
    };
    let some = |pairs: [Option<(String, Quantity)>; 2]| -> Option<BTreeMap<_, _>> {
        Some(pairs.into_iter().flatten().collect()).filter(|map: &BTreeMap<_, _>| !map.is_empty())
    };
    let requests = some([
        requested("cpu", "sidecar.istio.io/proxyCPU"),
        requested("memory", "sidecar.istio.io/proxyMemory"),
    ]);

    let limits = some([
        requested("cpu", "sidecar.istio.io/proxyCPULimit"),
        requested("memory", "sidecar.istio.io/proxyMemoryLimit"),
    ]);
    if requests.is_some() || limits.is_some() {
        return ResourceRequirements {
            requests,
            limits,
            claims: None,
        };
    }

    let values = &context.values.global.proxy.resources;
    ResourceRequirements {
        requests: quantities(&values.requests),
        limits: quantities(&values.limits),
        claims: None,
    }
}

/// Converts quantities of the values; unset quantities are omitted.
fn quantities(values: &BTreeMap<String, Text>) -> Option<BTreeMap<String, Quantity>> {
    let set = values.iter().filter(|(_, value)| !value.is_empty());
    let set: BTreeMap<_, _> = set
        .map(|(name, value)| (name.clone(), Quantity(canonical(value.as_str()))))
        .collect();
    (!set.is_empty()).then_some(set)
}
