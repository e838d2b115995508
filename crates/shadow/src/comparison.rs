//! The comparison of all resources of one proxy.

use std::collections::{BTreeMap, BTreeSet};

use navarch_push::resource::ResourceType;
use serde_json::Value;

use crate::canonical;
use crate::difference::{Difference, NamedObjects, of_resources};
use crate::documented::{self, Documented};
use crate::secrets::replace_by_digest;
use crate::subscriptions::ResourcesByType;

/// A difference between the resources of a proxy.
#[derive(Debug)]
pub struct Found {
    /// The type of the resource.
    pub resource_type: ResourceType,
    /// How it differs.
    pub difference: Difference,
    /// The intended difference that it is, if it is one.
    pub documented: Option<&'static Documented>,
    /// The objects that Navarch's resource was built from, as far as they were looked up.
    pub inputs: Vec<String>,
}

/// Compares what istiod and Navarch have sent to a proxy.
#[must_use]
pub fn compare(istiod: &ResourcesByType, navarch: &ResourcesByType) -> Vec<Found> {
    let types: BTreeSet<ResourceType> = istiod.keys().chain(navarch.keys()).copied().collect();
    let of = |answers: &ResourcesByType, resource_type| {
        answers.get(&resource_type).cloned().unwrap_or_default()
    };
    let mut found: Vec<Found> = types
        .into_iter()
        .flat_map(|resource_type| {
            compare_type(
                resource_type,
                of(istiod, resource_type),
                of(navarch, resource_type),
            )
        })
        .collect();
    inherit_from_clusters(&mut found);
    found
}

/// Compares the resources of a type.
fn compare_type(
    resource_type: ResourceType,
    istiod: Vec<Value>,
    navarch: Vec<Value>,
) -> Vec<Found> {
    let mut istiod = prepare(resource_type, istiod);
    let mut navarch = prepare(resource_type, navarch);
    let found_as = |documented: Option<&'static Documented>| {
        move |difference| Found {
            resource_type,
            difference,
            documented,
            inputs: Vec::new(),
        }
    };

    let mut left = of_resources(&istiod, &navarch);
    let mut found = Vec::new();
    for documented in documented::of_type(resource_type) {
        if left.is_empty() {
            break;
        }
        documented.remove(&mut istiod, &mut navarch);
        let after = of_resources(&istiod, &navarch);
        let removed = left.into_iter().filter(|one| !after.contains(one));
        found.extend(removed.map(found_as(Some(documented))));
        left = after;
    }

    found.extend(left.into_iter().map(found_as(None)));
    found
}

/// Resources in the form in which they are compared.
fn prepare(resource_type: ResourceType, mut resources: Vec<Value>) -> BTreeMap<String, Value> {
    for resource in &mut resources {
        replace_by_digest(resource_type, resource);
    }
    canonical::resources(&resources)
}

/// Endpoints name no objects: those of a cluster that differs because of an object differ because
/// of the same object.
fn inherit_from_clusters(found: &mut [Found]) {
    let of_clusters: BTreeMap<String, NamedObjects> = found
        .iter()
        .filter(|one| one.resource_type == ResourceType::Cluster)
        .map(|one| &one.difference)
        .filter(|difference| difference.objects.is_one_sided())
        .map(|difference| (difference.resource.clone(), difference.objects.clone()))
        .collect();

    for one in found {
        if one.resource_type == ResourceType::Endpoint
            && let Some(objects) = of_clusters.get(&one.difference.resource)
        {
            one.difference.objects = objects.clone();
        }
    }
}

#[cfg(test)]
mod tests;
