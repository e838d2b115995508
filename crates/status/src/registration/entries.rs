//! Requests to the API server about WorkloadEntries and WorkloadGroups.

use kube::api::{ApiResource, DeleteParams, DynamicObject, PatchParams, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::entry_state::Annotations;
use crate::cluster::Cluster;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::json_patch;

/// The API resource of WorkloadEntries.
fn entries() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("networking.istio.io", "v1", "WorkloadEntry"),
        "workloadentries",
    )
}

/// The API resource of WorkloadGroups.
pub(super) fn groups() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("networking.istio.io", "v1", "WorkloadGroup"),
        "workloadgroups",
    )
}

pub(super) fn all(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.0.clone(), &entries())
}

/// The API of a namespace's entries.
fn of(cluster: &Cluster, name: &NamespacedName) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.0.clone(), name.namespace.as_str(), &entries())
}

/// An entry, if it exists.
pub(super) async fn get(
    cluster: &Cluster,
    name: &NamespacedName,
) -> Result<Option<DynamicObject>, kube::Error> {
    let found = of(cluster, name).get_opt(&name.name).await?;
    Ok(found.filter(|entry| is_called(entry, name)))
}

/// Whether an object is the requested one: a crafted name in the path must not lead to another
/// object.
fn is_called(object: &DynamicObject, name: &NamespacedName) -> bool {
    let meta = &object.metadata;
    meta.name.as_deref() == Some(&*name.name)
        && meta.namespace.as_deref() == Some(name.namespace.as_str())
}

pub(super) async fn get_group(
    cluster: &Cluster,
    name: &NamespacedName,
) -> Result<Option<DynamicObject>, kube::Error> {
    let groups = Api::<DynamicObject>::namespaced_with(
        cluster.0.clone(),
        name.namespace.as_str(),
        &groups(),
    );
    let found = groups.get_opt(&name.name).await?;
    Ok(found.filter(|group| is_called(group, name)))
}

pub(super) async fn create(
    cluster: &Cluster,
    name: &NamespacedName,
    entry: Value,
) -> Result<(), kube::Error> {
    let entry = serde_json::from_value(entry).map_err(kube::Error::SerdeError)?;
    of(cluster, name)
        .create(&PostParams::default(), &entry)
        .await
        .map(drop)
}

/// Writes annotations, if the entry is still the version that was read.
pub(super) async fn annotate(
    cluster: &Cluster,
    name: &NamespacedName,
    entry: &DynamicObject,
    annotations: &Annotations,
) -> Result<(), kube::Error> {
    let operations = json!([same(entry), { "op": "add", "path": "/metadata/annotations", "value": annotations }]);
    of(cluster, name)
        .patch(
            &name.name,
            &PatchParams::default(),
            &json_patch(operations)?,
        )
        .await
        .map(drop)
}

/// Writes the conditions, if the entry is still the version that was read.
pub(super) async fn write_conditions(
    cluster: &Cluster,
    name: &NamespacedName,
    entry: &DynamicObject,
    conditions: &[Value],
) -> Result<(), kube::Error> {
    let mut operations = vec![same(entry)];
    if entry.data.get("status").is_none() {
        operations.push(json!({ "op": "add", "path": "/status", "value": {} }));
    }
    operations.push(json!({ "op": "add", "path": "/status/conditions", "value": conditions }));
    let patch = json_patch(Value::Array(operations))?;
    of(cluster, name)
        .patch_status(&name.name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Deletes an entry, if it is still the version that was read.
pub(super) async fn delete(
    cluster: &Cluster,
    name: &NamespacedName,
    entry: &DynamicObject,
) -> Result<(), kube::Error> {
    let preconditions = Preconditions {
        resource_version: entry.resource_version(),
        uid: entry.uid(),
    };
    let parameters = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    of(cluster, name)
        .delete(&name.name, &parameters)
        .await
        .map(drop)
}

/// The JSON patch test that the entry is still the version that was read.
fn same(entry: &DynamicObject) -> Value {
    json!({ "op": "test", "path": "/metadata/resourceVersion", "value": entry.resource_version().unwrap_or_default() })
}
