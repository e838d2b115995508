//! The Gateway API: policies on its Gateways, and the versions of its definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::{
    AuthorizationPolicy, PolicyTargetReference, PolicyWorkloadSelector, RequestAuthentication,
    Telemetry, WasmPlugin,
};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::labels::is_subset;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::{Resource, Texts};

/// Checks that policies are attached to Gateways of the Gateway API in a way that has an effect,
/// and that its definitions are recent enough.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "k8sgateway.SelectorAnalyzer",
        description: "Check that selectors are effective for Kubernetes gateway",
        inputs: &[
            Kind::AuthorizationPolicy,
            Kind::RequestAuthentication,
            Kind::Telemetry,
            Kind::WasmPlugin,
            Kind::Pod,
        ],
        run: selectors,
    },
    Analyzer {
        name: "k8sgateway.CRDVersionAnalyzer",
        description: "Checks Gateway API CRDs are at the minimum version required by this Istio version",
        inputs: &[Kind::CustomResourceDefinition],
        run: versions,
    },
];

/// The label of pods that names the Gateway they were made for.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The annotation of definitions with the release that they are of.
const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// The oldest supported releases of the definitions.
const OLDEST: [(&str, [u64; 3]); 4] = [
    ("grpcroutes.gateway.networking.k8s.io", [1, 1, 0]),
    ("backendtlspolicies.gateway.networking.k8s.io", [1, 4, 0]),
    ("tlsroutes.gateway.networking.k8s.io", [1, 5, 0]),
    ("tcproutes.gateway.networking.k8s.io", [1, 6, 0]),
];

/// A policy with what it is attached by.
type Attached<'a> = (
    &'a Arc<Resource>,
    Option<&'a PolicyWorkloadSelector>,
    Option<&'a PolicyTargetReference>,
);

/// Warns of policies that select pods of a Gateway by label, which has no effect there.
fn selectors(context: &Context, report: &mut Report) {
    let mut pods: BTreeMap<&str, Vec<(&Texts, &str)>> = BTreeMap::new();

    for pod in context.each(Kind::Pod) {
        if let Some(gateway) = pod.label(GATEWAY_NAME) {
            pods.entry(&pod.namespace)
                .or_default()
                .push((&pod.labels, gateway));
        }
    }

    let policies = context.specs::<AuthorizationPolicy>();
    let mut all: Vec<Attached<'_>> = policies
        .map(|(resource, policy)| {
            (
                resource,
                policy.selector.as_ref(),
                policy.target_ref.as_ref(),
            )
        })
        .collect();

    let policies = context.specs::<RequestAuthentication>();
    all.extend(policies.map(|(resource, policy)| {
        (
            resource,
            policy.selector.as_ref(),
            policy.target_ref.as_ref(),
        )
    }));

    let policies = context.specs::<Telemetry>();
    all.extend(policies.map(|(resource, policy)| {
        (
            resource,
            policy.selector.as_ref(),
            policy.target_ref.as_ref(),
        )
    }));

    let policies = context.specs::<WasmPlugin>();
    all.extend(policies.map(|(resource, policy)| {
        (
            resource,
            policy.selector.as_ref(),
            policy.target_ref.as_ref(),
        )
    }));

    for (resource, selector, target) in all {
        let Some(selector) = selector.filter(|_| target.is_none()) else {
            continue;
        };
        let own = pods.get(resource.namespace.as_str()).into_iter().flatten();
        for (_, gateway) in own.filter(|(labels, _)| is_subset(&selector.match_labels, labels)) {
            report.add(Message::new(
                &messages::INEFFECTIVE_SELECTOR,
                resource,
                parameters![*gateway],
            ));
        }
    }
}

/// Warns of definitions that are too old to be read.
fn versions(context: &Context, report: &mut Report) {
    for (name, oldest) in OLDEST {
        let Some(resource) = context.find(Kind::CustomResourceDefinition, "", name) else {
            continue;
        };
        let Some((numbers, text)) = resource.annotation(BUNDLE_VERSION).and_then(version) else {
            continue;
        };
        if numbers < oldest {
            let oldest = oldest.map(|number| number.to_string()).join(".");
            let parameters = parameters![name, text, oldest];
            report.add(Message::new(
                &messages::GATEWAY_API_CRD_VERSION_BELOW_MINIMUM,
                resource,
                parameters,
            ));
        }
    }
}

/// The numbers of a version, and the version as it is written in full.
fn version(text: &str) -> Option<([u64; 3], String)> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (numbers, suffix) = bare.split_at(bare.find(['-', '+']).unwrap_or(bare.len()));
    let mut parts = numbers.split('.');
    let mut found = [0; 3];
    for (index, number) in found.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if index == 0 => return None,
            None => {}
        }
    }
    let full = format!(
        "{}{suffix}",
        found.map(|number| number.to_string()).join(".")
    );
    parts.next().is_none().then_some((found, full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_written_in_full() {
        assert_eq!(version("v1.4"), Some(([1, 4, 0], "1.4.0".to_owned())));
        assert_eq!(
            version("v1.5.1-rc.2"),
            Some(([1, 5, 1], "1.5.1-rc.2".to_owned()))
        );
        assert_eq!(
            [version(""), version("x"), version("1.2.3.4")],
            [None, None, None]
        );
    }
}
