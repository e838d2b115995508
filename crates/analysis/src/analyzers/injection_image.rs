//! Whether the proxies of pods are those that the injector would add now.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use navarch_api::istio;
use navarch_api::mesh;
use serde_json::Value;

use super::injection::{injector_name, injector_values};
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{ENABLED, INJECTION, PROXY, REVISION, containers};
use crate::kind::Kind;
use crate::labels::is_subset;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that proxies have the image that the injector would give them now.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "injection.ImageAnalyzer",
    description: "Checks the image of auto-injection configured with the running proxies on pods",
    inputs: &[
        Kind::Namespace,
        Kind::Pod,
        Kind::ConfigMap,
        Kind::ProxyConfig,
    ],
    run,
}];

/// Warns of namespaces with pods whose proxy image differs from the injector's.
fn run(context: &Context, report: &mut Report) {
    let configs = context
        .specs::<ConfigMap>()
        .filter(|(resource, _)| resource.name.starts_with("istio-sidecar-injector"));
    let images: BTreeMap<_, _> = configs
        .map(|(resource, config)| (resource.name.clone(), image(config)))
        .collect();
    if images.is_empty() {
        return;
    }

    let variants = Variants::of(context);
    let mut found: BTreeMap<&str, (&Arc<Resource>, Vec<&str>)> = BTreeMap::new();

    for (resource, pod) in context.specs::<Pod>() {
        let Some(namespace) = context.namespace(&resource.namespace) else {
            continue;
        };

        let revision = namespace
            .label(REVISION)
            .or_else(|| (namespace.label(INJECTION) == Some(ENABLED)).then_some("default"));
        let Some(image) = revision.and_then(|revision| images.get(&injector_name(revision))) else {
            continue;
        };

        if resource
            .annotation("sidecar.istio.io/proxyImage")
            .is_some_and(|image| !image.is_empty())
        {
            continue;
        }
        let with_variant = format!("{image}-{}", variants.of_pod(resource));

        for proxy in pod
            .spec
            .iter()
            .flat_map(containers)
            .filter(|container| container.name == PROXY)
        {
            let has = proxy.image.as_deref().unwrap_or_default();
            if has != image && has != with_variant {
                found
                    .entry(&resource.namespace)
                    .or_insert((namespace, Vec::new()))
                    .1
                    .push(&resource.name);
            }
        }
    }

    for (namespace, pods) in found.into_values() {
        let kind = &messages::PODS_ISTIO_PROXY_IMAGE_MISMATCH_IN_NAMESPACE;
        report.add(Message::new(kind, namespace, parameters![pods]));
    }
}

/// The image that an injector adds.
fn image(config: &ConfigMap) -> String {
    let values = injector_values(config);
    let text = |path: &str| {
        values.pointer(path).map(|value| {
            value
                .as_str()
                .map_or_else(|| Value::to_string(value), str::to_owned)
        })
    };
    let image = text("/global/proxy/image").unwrap_or_default();
    if image.contains('/') {
        return image;
    }
    format!(
        "{}/{image}:{}",
        text("/global/hub").unwrap_or_default(),
        text("/global/tag").unwrap_or_default()
    )
}

/// Which flavour of the image pods have, from what holds for all to what holds for one.
struct Variants<'a> {
    mesh: &'a str,
    /// That of ProxyConfigs without a selector, by namespace.
    namespaces: BTreeMap<&'a str, &'a str>,
    /// Those with one: namespace, and the ProxyConfig.
    workloads: Vec<(&'a str, &'a istio::ProxyConfig)>,
}

impl<'a> Variants<'a> {
    /// Gathers them.
    fn of(context: &'a Context) -> Self {
        let config = &context.mesh.config;
        let root = if config.root_namespace.is_empty() {
            "istio-system"
        } else {
            config.root_namespace.as_str()
        };

        let mesh = config
            .default_config
            .image
            .as_ref()
            .map(|image| image.image_type.as_str())
            .unwrap_or_default();

        let mut variants = Self {
            mesh,
            namespaces: BTreeMap::new(),
            workloads: Vec::new(),
        };

        for (resource, config) in context.specs::<istio::ProxyConfig>() {
            let variant = variant(config);
            if resource.namespace == root {
                variants.mesh = variant.unwrap_or(variants.mesh);
            } else if config.selector.is_some() {
                variants.workloads.push((&resource.namespace, config));
            } else if let Some(variant) = variant {
                variants.namespaces.insert(&resource.namespace, variant);
            }
        }

        variants
    }

    fn of_pod(&self, pod: &Resource) -> String {
        let own = pod.annotation("proxy.istio.io/config").and_then(|text| {
            let config = mesh::ProxyConfig::default().apply(text).ok()?.value;
            config
                .image
                .map(|image| image.image_type)
                .filter(|variant| !variant.is_empty())
        });

        let selected = self.workloads.iter().filter(|(namespace, config)| {
            *namespace == pod.namespace
                && config
                    .selector
                    .as_ref()
                    .is_some_and(|selector| is_subset(&selector.match_labels, &pod.labels))
        });

        let selected = selected
            .filter_map(|(_, config)| variant(config))
            .next_back();
        let wider = || {
            selected
                .or_else(|| self.namespaces.get(pod.namespace.as_str()).copied())
                .unwrap_or(self.mesh)
        };
        let variant = own.unwrap_or_else(|| wider().to_owned());

        if variant == "default" {
            String::new()
        } else {
            variant
        }
    }
}

/// The image type of a ProxyConfig.
fn variant(config: &istio::ProxyConfig) -> Option<&str> {
    config
        .image
        .as_ref()
        .map(|image| image.image_type.as_str())
        .filter(|variant| !variant.is_empty())
}
