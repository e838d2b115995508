//! Whether workloads are part of the mesh.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::context::Context;
use crate::resource::{Resource, Texts};

/// The container of the proxy.
pub(crate) const PROXY: &str = "istio-proxy";
/// The label, and the older annotation, for sidecar injection.
pub(crate) const INJECT: &str = "sidecar.istio.io/inject";
/// The label of namespaces with sidecar injection.
pub(crate) const INJECTION: &str = "istio-injection";
/// The value of [`INJECTION`] that turns it on.
pub(crate) const ENABLED: &str = "enabled";
/// The label that names a revision.
pub(crate) const REVISION: &str = "istio.io/rev";
/// The label that chooses between sidecars and ambient.
pub(crate) const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
/// The value of [`DATAPLANE_MODE`] that takes no sidecar.
pub(crate) const AMBIENT: &str = "ambient";
/// The annotation of pods that ztunnel captures.
const REDIRECTION: &str = "ambient.istio.io/redirection";

pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
}

/// Whether one of the containers is a proxy with an image.
pub(crate) fn has_proxy<'a>(mut containers: impl Iterator<Item = &'a Container>) -> bool {
    let proxy = containers.find(|container| container.name == PROXY);
    proxy.is_some_and(|proxy| {
        proxy
            .image
            .as_deref()
            .is_some_and(|image| !image.is_empty())
    })
}

/// Whether a pod has a sidecar or would get one.
pub(crate) fn is_pod_in_mesh(resource: &Resource, pod: &Pod, context: &Context) -> bool {
    pod.spec
        .as_ref()
        .is_some_and(|spec| has_proxy(containers(spec)))
        || is_injected(
            &resource.labels,
            &resource.annotations,
            &resource.namespace,
            context,
        )
}

/// Whether the pods of a Deployment have a sidecar or would get one.
pub(crate) fn is_deployment_in_mesh(
    resource: &Resource,
    deployment: &Deployment,
    context: &Context,
) -> bool {
    let Some(template) = deployment.spec.as_ref().map(|spec| &spec.template) else {
        return false;
    };
    let none = Texts::new();
    let metadata = template.metadata.as_ref();
    let labels = metadata
        .and_then(|metadata| metadata.labels.as_ref())
        .unwrap_or(&none);
    let annotations = metadata
        .and_then(|metadata| metadata.annotations.as_ref())
        .unwrap_or(&none);
    template
        .spec
        .as_ref()
        .is_some_and(|spec| has_proxy(spec.containers.iter()))
        || is_injected(labels, annotations, &resource.namespace, context)
}

/// Whether pods with these labels and annotations get a sidecar.
fn is_injected(labels: &Texts, annotations: &Texts, namespace: &str, context: &Context) -> bool {
    match labels.get(INJECT).or_else(|| annotations.get(INJECT)) {
        Some(value) => value == "true",
        None => context
            .namespace(namespace)
            .is_some_and(|namespace| namespace.label(INJECTION) == Some(ENABLED)),
    }
}

/// Whether a pod's traffic goes through ztunnel.
pub(crate) fn is_pod_ambient(pod: &Resource) -> bool {
    pod.annotation(REDIRECTION) == Some(ENABLED)
}

/// Whether the pods of a namespace take part without sidecars.
pub(crate) fn is_namespace_ambient(namespace: &Resource) -> bool {
    let has_sidecars = namespace.label(INJECTION) == Some(ENABLED)
        || namespace
            .label(REVISION)
            .is_some_and(|revision| !revision.is_empty());
    !has_sidecars && namespace.label(DATAPLANE_MODE) == Some(AMBIENT)
}

/// Whether an object is part of the control plane itself.
pub(crate) fn is_control_plane(resource: &Resource) -> bool {
    resource.label("istio").is_some() || resource.label("release") == Some("istio")
}
