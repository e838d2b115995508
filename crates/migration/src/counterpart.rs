//! Features of sidecars that have no counterpart in ambient mode, or that are not judged.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::judge::MeshSettings;
use super::objects::{
    AUTHORIZATION, DESTINATION_RULE, ENVOY_FILTER, ObjectKind, Objects, SERVICE, SIDECAR,
    TELEMETRY, TRAFFIC_EXTENSION, VIRTUAL_SERVICE, WASM_PLUGIN, WORKLOAD_ENTRY, items, members,
    selects, text, texts,
};
use super::pods::{DataPlane, Owner, by_owner, is_proxyless};
use super::policies::{SELECTOR, is_for_pods};
use super::routes::{ServiceHost, is_for_mesh};
use super::steps::asks_others;

/// The selector of EnvoyFilter and Sidecar.
const WORKLOAD_SELECTOR: &str = "/spec/workloadSelector/labels";
/// How annotations of pods begin that say what a sidecar captures.
const CAPTURE: &str = "traffic.sidecar.istio.io/";
/// How annotations begin that are settings of a sidecar, without those that injection sets.
const SETTINGS: [&str; 2] = ["proxy.istio.io/", "sidecar.istio.io/"];
const SET_BY_INJECTION: [&str; 2] = ["sidecar.istio.io/status", "sidecar.istio.io/inject"];

/// What becomes of something that a sidecar does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Requests may depend on it, and no verdict takes it into account.
    NotJudged,
    /// It has no effect in ambient mode.
    NoCounterpart,
}

/// Something that a sidecar does for a workload, without a counterpart in ambient mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counterpart {
    /// What becomes of it.
    pub loss: Loss,
    /// The workload; `None` for all of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Owner>,
    /// The namespace of the workload.
    pub namespace: String,
    /// The object or annotation.
    pub object: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Something that requests depend on, and that no verdict takes into account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotJudged {
    /// Kind, namespace and name, such as `EnvoyFilter shop/lua`.
    pub what: String,
    /// Why it has no counterpart.
    pub reason: String,
}

impl From<&Counterpart> for NotJudged {
    fn from(counterpart: &Counterpart) -> Self {
        Self {
            what: counterpart.object.clone(),
            reason: counterpart.reason.clone(),
        }
    }
}

/// A kind that is applied to pods by a selector.
struct Selecting {
    kind: ObjectKind,
    selector: &'static str,
    loss: Loss,
    reason: &'static str,
    /// Whether an object of the kind concerns sidecars.
    is_meant: fn(&Value) -> bool,
}

const SELECTING: [Selecting; 7] = [
    Selecting {
        kind: ENVOY_FILTER,
        selector: WORKLOAD_SELECTOR,
        loss: Loss::NotJudged,
        reason: "filters of sidecars have no counterpart: use policies, routes or an extension",
        is_meant: is_for_sidecars,
    },
    Selecting {
        kind: WASM_PLUGIN,
        selector: SELECTOR,
        loss: Loss::NotJudged,
        reason: "bind it to the waypoint by targetRefs",
        is_meant: is_for_pods,
    },
    Selecting {
        kind: TRAFFIC_EXTENSION,
        selector: SELECTOR,
        loss: Loss::NotJudged,
        reason: "bind it to the waypoint by targetRefs",
        is_meant: is_for_pods,
    },
    Selecting {
        kind: AUTHORIZATION,
        selector: SELECTOR,
        loss: Loss::NotJudged,
        reason: "the verdict of an external authorizer is not known",
        is_meant: asks_others,
    },
    Selecting {
        kind: TELEMETRY,
        selector: SELECTOR,
        loss: Loss::NoCounterpart,
        reason: "bind it to the waypoint by targetRefs; ztunnel has its own logs and metrics",
        is_meant: is_for_pods,
    },
    Selecting {
        kind: SIDECAR,
        selector: WORKLOAD_SELECTOR,
        loss: Loss::NoCounterpart,
        reason: "ztunnel knows all services: what egress hides is not hidden in ambient mode",
        is_meant: has_egress,
    },
    Selecting {
        kind: SIDECAR,
        selector: WORKLOAD_SELECTOR,
        loss: Loss::NotJudged,
        reason: "listeners of its own (ingress) have no counterpart: requests reach the ports of \
                 the application",
        is_meant: has_ingress,
    },
];

/// What the workloads of a namespace lose.
pub(crate) fn counterparts(
    objects: &Objects,
    namespace: &str,
    settings: &MeshSettings,
) -> BTreeSet<Counterpart> {
    let mut found = BTreeSet::new();
    for (owner, pods) in by_owner(objects, namespace) {
        let with_sidecar = pods
            .iter()
            .filter_map(|pod| objects.get(pod))
            .find(|pod| DataPlane::of(pod) == DataPlane::Sidecar);
        if let Some(pod) = with_sidecar {
            add_selecting(&mut found, objects, pod, &owner, settings.root());
            add_annotations(&mut found, pod, &owner);
        }
    }
    add_client_side(&mut found, objects, namespace, settings.domain());

    for (name, _) in objects.within(WORKLOAD_ENTRY, namespace) {
        found.insert(Counterpart {
            loss: Loss::NotJudged,
            workload: None,
            namespace: namespace.to_owned(),
            object: name.to_string(),
            reason: "workloads outside of Kubernetes keep their sidecar".to_owned(),
        });
    }
    found
}

/// Adds the objects that select a pod, of its namespace and the root namespace.
fn add_selecting(
    found: &mut BTreeSet<Counterpart>,
    objects: &Objects,
    pod: &Value,
    owner: &Owner,
    root: &str,
) {
    for selecting in &SELECTING {
        for namespace in BTreeSet::from([owner.namespace.as_str(), root]) {
            for (name, object) in objects.within(selecting.kind, namespace) {
                if (selecting.is_meant)(object) && selects(object, selecting.selector, pod) {
                    found.insert(Counterpart {
                        loss: selecting.loss,
                        workload: Some(owner.clone()),
                        namespace: owner.namespace.clone(),
                        object: name.to_string(),
                        reason: selecting.reason.to_owned(),
                    });
                }
            }
        }
    }
}

/// Adds the annotations of a pod.
fn add_annotations(found: &mut BTreeSet<Counterpart>, pod: &Value, owner: &Owner) {
    let mut add = |loss, object: &str, reason: &str| {
        found.insert(Counterpart {
            loss,
            workload: Some(owner.clone()),
            namespace: owner.namespace.clone(),
            object: object.to_owned(),
            reason: reason.to_owned(),
        });
    };

    for (key, _) in members(pod, "/metadata/annotations") {
        if key.starts_with(CAPTURE) {
            let reason = "ztunnel captures all TCP connections: policies apply to the ports and \
                          addresses that were left out";
            add(Loss::NotJudged, key, reason);
        } else if SETTINGS.iter().any(|prefix| key.starts_with(prefix))
            && !SET_BY_INJECTION.contains(&key.as_str())
        {
            add(Loss::NoCounterpart, key, "it is a setting of the sidecar");
        }
    }
    if is_proxyless(pod) {
        let reason = "gRPC without a proxy is configured over xDS, which pods in ambient mode do \
                      not get";
        add(Loss::NotJudged, "inject.istio.io/templates", reason);
    }
}

/// Adds what the sidecars of a namespace do for hosts of others.
fn add_client_side(
    found: &mut BTreeSet<Counterpart>,
    objects: &Objects,
    namespace: &str,
    domain: &str,
) {
    let hosts: Vec<ServiceHost<'_>> = objects
        .within(SERVICE, namespace)
        .map(|(_, service)| ServiceHost::of(service, domain))
        .collect();
    let is_own = |host: &str| hosts.iter().any(|own| own.is(host, namespace));
    let mut add = |object: String, kind: &str| {
        found.insert(Counterpart {
            loss: Loss::NoCounterpart,
            workload: None,
            namespace: namespace.to_owned(),
            object,
            reason: format!(
                "sidecars of the namespace apply its {kind} to hosts of others; waypoints apply \
                 those that the namespace of the host has"
            ),
        });
    };

    for (name, rule) in objects.within(DESTINATION_RULE, namespace) {
        if !is_own(text(rule, "/spec/host")) {
            add(name.to_string(), "traffic policy");
        }
    }
    for (name, routes) in objects.within(VIRTUAL_SERVICE, namespace) {
        let is_of_others = texts(routes, "/spec/hosts").any(|host| !is_own(host));
        if is_for_mesh(routes) && is_of_others {
            add(name.to_string(), "routes");
        }
    }
}

/// Whether an EnvoyFilter has a patch for sidecars.
fn is_for_sidecars(filter: &Value) -> bool {
    is_for_pods(filter)
        && items(filter, "/spec/configPatches")
            .any(|patch| text(patch, "/match/context") != "GATEWAY")
}

fn has_egress(sidecar: &Value) -> bool {
    items(sidecar, "/spec/egress").next().is_some()
        || sidecar.pointer("/spec/outboundTrafficPolicy").is_some()
}

fn has_ingress(sidecar: &Value) -> bool {
    items(sidecar, "/spec/ingress").next().is_some()
}
