//! Whether namespaces and pods get sidecars.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec};
use serde_json::Value;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{
    AMBIENT, DATAPLANE_MODE, ENABLED, INJECT, INJECTION, PROXY, REVISION, containers, has_proxy,
};
use crate::kind::Kind;
use crate::label_selector;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Texts;

/// Checks that namespaces decide about injection, that their pods have a sidecar, and that image
/// `auto` is replaced.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "injection.Analyzer",
        description: "Checks conditions related to Istio sidecar injection",
        inputs: &[Kind::Namespace, Kind::Pod, Kind::ConfigMap],
        run: injection,
    },
    Analyzer {
        name: "injection.ImageAutoAnalyzer",
        description: "Makes sure that Pods and Deployments with `image: auto` are going to be injected",
        inputs: &[
            Kind::Namespace,
            Kind::Pod,
            Kind::Deployment,
            Kind::MutatingWebhookConfiguration,
        ],
        run: image_auto,
    },
];

/// The system namespace, which is not checked for injection.
const SYSTEM_NAMESPACE: &str = "istio-system";

/// The settings of the injector of a revision, as its ConfigMap holds them under `values`.
pub(super) fn injector_values(config: &ConfigMap) -> Value {
    let text = config
        .data
        .as_ref()
        .and_then(|data| data.get("values"))
        .map(String::as_str)
        .unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// The ConfigMap of the injector of a revision.
pub(super) fn injector_name(revision: &str) -> String {
    match revision {
        "" | "default" => "istio-sidecar-injector".to_owned(),
        revision => format!("istio-sidecar-injector-{revision}"),
    }
}

/// Reports namespaces without an injection label, and pods without a sidecar in namespaces with
/// one.
fn injection(context: &Context, report: &mut Report) {
    let mut injected = BTreeSet::new();
    for namespace in context
        .each(Kind::Namespace)
        .filter(|namespace| namespace.name != SYSTEM_NAMESPACE)
    {
        let injection = namespace.label(INJECTION);
        let mut labels: Vec<_> = injection
            .map(|value| format!("{INJECTION}={value}"))
            .into_iter()
            .collect();
        if injection.is_none_or(|value| value == ENABLED) {
            let others = [REVISION, DATAPLANE_MODE].into_iter();
            labels
                .extend(others.filter_map(|key| Some(format!("{key}={}", namespace.label(key)?))));
        }

        if labels.len() > 1 {
            report.add(Message::new(
                &messages::NAMESPACE_MULTIPLE_INJECTION_LABELS,
                namespace,
                parameters![labels],
            ));
        }

        if namespace.label(DATAPLANE_MODE) == Some(AMBIENT) {
            continue;
        }
        let revision = namespace.label(REVISION);
        match injection.unwrap_or_default() {
            "" if revision.is_none() => {
                if is_enabled_by_default(context) {
                    report.add(Message::new(
                        &messages::NAMESPACE_INJECTION_ENABLED_BY_DEFAULT,
                        namespace,
                        parameters![],
                    ));
                } else {
                    let parameters = parameters![&namespace.name, &namespace.name];
                    let message =
                        Message::new(&messages::NAMESPACE_NOT_INJECTED, namespace, parameters);
                    report.add(message.at("metadata.name"));
                }
            }
            ENABLED => {
                injected.insert(namespace.name.as_str());
            }
            _ => {}
        }
    }

    for (resource, pod) in context
        .specs::<Pod>()
        .filter(|(resource, _)| injected.contains(resource.namespace.as_str()))
    {
        let value = resource
            .label(INJECT)
            .or_else(|| resource.annotation(INJECT))
            .unwrap_or_default();
        let Some(spec) = &pod.spec else { continue };
        if value.eq_ignore_ascii_case("false")
            || spec.host_network == Some(true)
            || has_proxy(containers(spec))
        {
            continue;
        }
        report.add(Message::new(
            &messages::POD_MISSING_PROXY,
            resource,
            parameters![resource.full_name()],
        ));
    }
}

/// Whether the injector also takes namespaces without a label for injection.
fn is_enabled_by_default(context: &Context) -> bool {
    let name = injector_name("");
    let config = context
        .specs::<ConfigMap>()
        .find(|(resource, _)| resource.name == name);
    let values = config
        .map(|(_, config)| injector_values(config))
        .unwrap_or_default();
    values.pointer("/sidecarInjectorWebhook/enableNamespacesByDefault") == Some(&Value::Bool(true))
}

/// Reports proxies with image `auto` that are not injected.
fn image_auto(context: &Context, report: &mut Report) {
    let hooks = context
        .specs::<MutatingWebhookConfiguration>()
        .flat_map(|(_, config)| config.webhooks.iter().flatten());
    let hooks: Vec<_> = hooks
        .filter(|hook| hook.name.ends_with("istio.io"))
        .collect();

    for (resource, pod) in context.specs::<Pod>() {
        if pod.spec.as_ref().is_some_and(has_auto_image) {
            let parameters = parameters!["Pod", &resource.name];
            report.add(Message::new(
                &messages::IMAGE_AUTO_WITHOUT_INJECTION_ERROR,
                resource,
                parameters,
            ));
        }
    }

    let none = Texts::new();

    for (resource, deployment) in context.specs::<Deployment>() {
        let Some(template) = deployment.spec.as_ref().map(|spec| &spec.template) else {
            continue;
        };

        if !template.spec.as_ref().is_some_and(has_auto_image) {
            continue;
        }

        let namespace = context.namespace(if resource.namespace.is_empty() {
            "default"
        } else {
            &resource.namespace
        });

        let namespace = namespace.map_or(&none, |namespace| &namespace.labels);
        let labels = template
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.labels.as_ref())
            .unwrap_or(&none);

        if !hooks.iter().any(|hook| matches(hook, namespace, labels)) {
            let parameters = parameters!["Deployment", &resource.name];
            report.add(Message::new(
                &messages::IMAGE_AUTO_WITHOUT_INJECTION_WARNING,
                resource,
                parameters,
            ));
        }
    }
}

/// Whether a webhook matches objects with these labels in a namespace with those.
pub(super) fn matches(hook: &MutatingWebhook, namespace: &Texts, object: &Texts) -> bool {
    label_selector::matches(hook.namespace_selector.as_ref(), namespace)
        && label_selector::matches(hook.object_selector.as_ref(), object)
}

/// Whether the image of the proxy is to be filled in.
fn has_auto_image(spec: &PodSpec) -> bool {
    spec.containers
        .iter()
        .any(|container| container.name == PROXY && container.image.as_deref() == Some("auto"))
}
