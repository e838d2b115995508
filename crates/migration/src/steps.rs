//! The steps of a namespace, as edits of its objects. A step whose edits are in force is left out.

use std::collections::BTreeMap;

use navarch_api::revision::REVISION_LABEL;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::edit::{Edit, RESTARTED};
use super::judge::MeshSettings;
use super::objects::{
    AUTHENTICATION, AUTHORIZATION, GATEWAY, MANAGED_BY, ObjectName, Objects, POD, SERVICE,
    TRAFFIC_EXTENSION, WASM_PLUGIN, annotation, label, text,
};
use super::pods::{DataPlane, GATEWAY_NAME, Owner, SIDECAR_STATUS, by_owner, is_alive};
use super::policies::{self, for_waypoint, is_about_requests, of_workloads, trusting};
use super::routes::{ServiceHost, needing_waypoint};

/// The label of namespaces and pods for ambient mode, and its value.
pub(crate) const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
pub(crate) const AMBIENT: &str = "ambient";
/// The class of waypoints.
pub(crate) const WAYPOINT_CLASS: &str = "istio-waypoint";
/// The label that names the waypoint, and that of its namespace.
pub(crate) const USE_WAYPOINT: &str = "istio.io/use-waypoint";
const USE_WAYPOINT_NAMESPACE: &str = "istio.io/use-waypoint-namespace";
/// The label that names a waypoint which serves the services before clients are sent to it.
pub(crate) const PREPARE_WAYPOINT: &str = "navarch.io/prepare-waypoint";
/// The labels by which gateways and sidecars use the waypoint, too.
pub(crate) const INGRESS_USE_WAYPOINT: &str = "istio.io/ingress-use-waypoint";
pub(crate) const SIDECAR_USE_WAYPOINT: &str = "navarch.io/sidecar-use-waypoint";
/// The label of namespaces for injection.
pub(crate) const INJECTION: &str = "istio-injection";
/// The label and annotation of pods for injection.
pub(crate) const INJECT: &str = "sidecar.istio.io/inject";
/// The value of that annotation in plans, in place of the time of the step.
pub(crate) const RESTARTED_AT: &str = "the time of the step";
/// The name of new waypoints.
const WAYPOINT: &str = "waypoint";

/// A step of the move to ambient mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The namespace that moves.
    pub namespace: String,
    /// What is done.
    pub title: String,
    /// What follows for requests.
    pub effect: String,
    /// The edits of objects.
    pub edits: Vec<Edit>,
    /// The workload whose pods are restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Owner>,
}

/// The steps of a namespace, and what stands against them.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    /// What must be done first.
    pub(crate) blockers: Vec<String>,
}

/// The waypoint of a namespace, existing or to be created.
#[derive(Debug)]
struct Waypoint {
    name: String,
    /// Its identity as policies write it.
    principal: String,
}

impl Steps {
    /// The steps of a namespace with this object.
    pub(crate) fn of(
        objects: &Objects,
        name: &ObjectName,
        namespace: &Value,
        settings: &MeshSettings,
    ) -> Self {
        let mut steps = Self::default();
        steps.add_waypoint(objects, name, namespace, settings);

        steps.add(
            &name.name,
            format!("label namespace {} {DATAPLANE_MODE}={AMBIENT}", name.name),
            "pods without a sidecar are redirected to ztunnel at once, others keep their sidecar",
            vec![namespace_labels(name, &[(DATAPLANE_MODE, AMBIENT)])],
            objects,
        );
        steps.add_restarts(objects, &name.name);

        let is_injected =
            !label(namespace, INJECTION).is_empty() || !label(namespace, REVISION_LABEL).is_empty();
        if is_injected {
            steps.add(
                &name.name,
                format!("turn injection off in namespace {}", name.name),
                "new pods get no sidecar",
                vec![namespace_labels(name, &[(INJECTION, "disabled")])],
                objects,
            );
        }
        steps
    }

    /// Adds a step with the edits that are not in force, if there are any.
    fn add(
        &mut self,
        namespace: &str,
        title: String,
        effect: &str,
        edits: Vec<Edit>,
        objects: &Objects,
    ) {
        let edits: Vec<Edit> = edits
            .into_iter()
            .filter(|edit| !edit.holds(objects.get(&edit.object)))
            .collect();
        if !edits.is_empty() {
            self.steps.push(Step {
                namespace: namespace.to_owned(),
                title,
                effect: effect.to_owned(),
                edits,
                restarts: None,
            });
        }
    }

    /// Adds the steps about the waypoint, if the namespace needs one.
    fn add_waypoint(
        &mut self,
        objects: &Objects,
        name: &ObjectName,
        namespace: &Value,
        settings: &MeshSettings,
    ) {
        let used = label(namespace, USE_WAYPOINT);
        let own = &name.name;
        if used == "none" || used.is_empty() && !needs_waypoint(objects, own, settings) {
            return;
        }
        let elsewhere = label(namespace, USE_WAYPOINT_NAMESPACE);
        if !elsewhere.is_empty() && elsewhere != own {
            self.blockers.push(format!(
                "Namespace {own} uses a waypoint of namespace {elsewhere}, to which its policies \
                 cannot be bound: remove the label {USE_WAYPOINT_NAMESPACE}"
            ));
            return;
        }

        let waypoint = Waypoint::of(objects, own, used, settings);
        self.add(
            own,
            format!("create waypoint {own}/{}", waypoint.name),
            "no request passes it yet",
            waypoint.gateway(objects, own, label(namespace, REVISION_LABEL)),
            objects,
        );

        let copies = for_waypoint(objects, own, &waypoint.name, &waypoint.principal);
        for (policy, problem) in copies.problems {
            self.blockers.push(format!("{policy}: {problem}"));
        }
        self.add(
            own,
            format!("bind the policies of {own} to its waypoint (targetRefs)"),
            "the waypoint would judge requests as sidecars do; those of pods stay in force",
            copies.edits,
            objects,
        );
        self.add(
            own,
            format!("let the policies of {own} accept what has passed the waypoint"),
            "requests through the waypoint are judged there, all others as before",
            trusting(objects, own, &waypoint.principal),
            objects,
        );

        // Before clients are sent to it: a ztunnel may learn of the binding first, and the waypoint
        // closes connections to services that it does not know.
        if used.is_empty() {
            self.add(
                own,
                format!("prepare the waypoint of {own} for its services"),
                "the waypoint learns the services, and no request passes it yet; wait some seconds \
                 until it has them before the next step",
                vec![namespace_labels(
                    name,
                    &[(PREPARE_WAYPOINT, waypoint.name.as_str())],
                )],
                objects,
            );
        }
        self.add(
            own,
            format!("bind the services of {own} to the waypoint"),
            "requests of pods in ambient mode pass the waypoint",
            vec![namespace_labels(
                name,
                &[(USE_WAYPOINT, waypoint.name.as_str())],
            )],
            objects,
        );

        // A step of its own: it is about other clients, and can be undone alone.
        let mut callers = Vec::new();
        if settings.settings.hbone.sidecar_waypoints {
            callers.push((SIDECAR_USE_WAYPOINT, "true"));
        }
        if settings.settings.hbone.ingress_waypoints && has_gateways(objects) {
            callers.push((INGRESS_USE_WAYPOINT, "true"));
        }
        self.add(
            own,
            format!("send requests to services of {own} through the waypoint"),
            "requests of gateways and sidecars pass the waypoint as far as they use waypoints",
            vec![namespace_labels(name, &callers)],
            objects,
        );
    }

    /// Adds a step for each workload with sidecars.
    fn add_restarts(&mut self, objects: &Objects, namespace: &str) {
        for (owner, pods) in by_owner(objects, namespace) {
            let pods = || pods.iter().filter_map(move |pod| objects.get(pod));
            let is_injected_gateway = pods().any(|pod| {
                DataPlane::of(pod) == DataPlane::Gateway
                    && !annotation(pod, SIDECAR_STATUS).is_empty()
            });
            if is_injected_gateway {
                self.blockers.push(format!(
                    "{owner} is a gateway that is injected, which the namespace could no longer \
                     do: move it to another namespace"
                ));
            }
            if !pods().any(|pod| DataPlane::of(pod) == DataPlane::Sidecar) {
                continue;
            }

            let Some((name, template)) = owner.template(objects) else {
                self.blockers.push(format!(
                    "{owner} has pods with sidecars that cannot be restarted by its template: \
                     delete it, or recreate it without a sidecar ({INJECT}: \"false\")"
                ));
                continue;
            };
            if is_without_injection(template) {
                continue;
            }
            self.steps.push(Step {
                namespace: namespace.to_owned(),
                title: format!("restart {owner} without sidecars"),
                effect: "its pods send and receive through ztunnel".to_owned(),
                edits: vec![without_injection(name, template)],
                restarts: Some(owner),
            });
        }
    }
}

impl Waypoint {
    /// The waypoint that a namespace uses, or will use.
    fn of(objects: &Objects, namespace: &str, used: &str, settings: &MeshSettings) -> Self {
        let name = if used.is_empty() { WAYPOINT } else { used };
        let pods = objects
            .within(POD, namespace)
            .filter(|(_, pod)| is_alive(pod) && label(pod, GATEWAY_NAME) == name);
        let account = pods
            .map(|(_, pod)| text(pod, "/spec/serviceAccountName"))
            .find(|account| !account.is_empty());
        // The gateway controller names the account after the Gateway.
        let account = account.unwrap_or(name);
        Self {
            name: name.to_owned(),
            principal: format!("{}/ns/{namespace}/sa/{account}", settings.trust_domain()),
        }
    }

    /// The edit that creates its Gateway, unless it exists.
    fn gateway(&self, objects: &Objects, namespace: &str, revision: &str) -> Vec<Edit> {
        if objects.find(GATEWAY, namespace, &self.name).is_some() {
            return Vec::new();
        }
        vec![Edit::create(new_waypoint(namespace, &self.name, revision))]
    }
}

/// The Gateway of a new waypoint.
fn new_waypoint(namespace: &str, name: &str, revision: &str) -> Value {
    let mut labels = Map::new();
    labels.insert("istio.io/waypoint-for".to_owned(), Value::from("service"));
    labels.insert(MANAGED_BY.0.to_owned(), Value::from(MANAGED_BY.1));
    if !revision.is_empty() {
        labels.insert(REVISION_LABEL.to_owned(), Value::from(revision));
    }
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "gatewayClassName": WAYPOINT_CLASS,
            "listeners": [{ "name": "mesh", "port": 15008, "protocol": "HBONE" }],
        },
    })
}

/// Whether an object is the Gateway of a new waypoint.
pub(crate) fn is_new_waypoint(object: &Value) -> bool {
    let ObjectName {
        namespace, name, ..
    } = ObjectName::of(object);
    *object == new_waypoint(&namespace, &name, label(object, REVISION_LABEL))
}

/// Whether a namespace has something that only a waypoint does for workloads in ambient mode.
fn needs_waypoint(objects: &Objects, namespace: &str, settings: &MeshSettings) -> bool {
    let has_requests = of_workloads(objects, AUTHORIZATION, namespace)
        .any(|(_, policy)| is_about_requests(policy));
    let has_others = [AUTHENTICATION, WASM_PLUGIN, TRAFFIC_EXTENSION]
        .into_iter()
        .any(|kind| of_workloads(objects, kind, namespace).next().is_some());
    let has_routes = || {
        objects.within(SERVICE, namespace).any(|(_, service)| {
            let host = ServiceHost::of(service, settings.domain());
            needing_waypoint(objects, &host).next().is_some()
        })
    };
    has_requests || has_others || has_routes()
}

/// Whether there are gateways, which would go past a waypoint.
fn has_gateways(objects: &Objects) -> bool {
    objects
        .of(POD)
        .any(|(_, pod)| is_alive(pod) && DataPlane::of(pod) == DataPlane::Gateway)
}

/// The edit of labels of a namespace.
fn namespace_labels(name: &ObjectName, labels: &[(&str, &str)]) -> Edit {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    Edit::patch(name, json!({ "metadata": { "labels": labels } }))
}

/// Whether a pod template turns injection off.
fn is_without_injection(workload: &Value) -> bool {
    let labels = workload.pointer("/spec/template/metadata/labels");
    labels.and_then(|labels| labels.get(INJECT)?.as_str()) == Some("false")
}

/// The edit of a pod template that turns injection off, and restarts the pods.
fn without_injection(name: &ObjectName, workload: &Value) -> Edit {
    let mut annotations = Map::new();
    annotations.insert(RESTARTED.to_owned(), Value::from(RESTARTED_AT));
    let known = workload.pointer("/spec/template/metadata/annotations");
    if known.is_some_and(|known| known.get(INJECT).is_some()) {
        annotations.insert(INJECT.to_owned(), Value::Null);
    }
    let metadata = json!({ "labels": { INJECT: "false" }, "annotations": annotations });
    Edit::patch(
        name,
        json!({ "spec": { "template": { "metadata": metadata } } }),
    )
}

/// What a cluster has not finished of the steps that were done in a namespace.
#[must_use]
pub fn waiting(objects: &Objects, namespace: &str) -> Vec<String> {
    let mut waiting = Vec::new();
    for (name, gateway) in objects.within(GATEWAY, namespace) {
        let is_waypoint = text(gateway, "/spec/gatewayClassName") == WAYPOINT_CLASS;
        let has_pod = objects.within(POD, namespace).any(|(_, pod)| {
            label(pod, GATEWAY_NAME) == name.name && is_alive(pod) && is_ready(pod)
        });
        let has_address = gateway.pointer("/status/addresses/0").is_some();
        if is_waypoint && !(has_pod && has_address) {
            waiting.push(format!("waypoint {namespace}/{} is not ready", name.name));
        }
    }

    for (owner, pods) in by_owner(objects, namespace) {
        let is_restarted = owner
            .template(objects)
            .is_some_and(|(_, template)| is_without_injection(template));
        let with_sidecar = pods
            .iter()
            .filter_map(|pod| objects.get(pod))
            .filter(|pod| DataPlane::of(pod) == DataPlane::Sidecar)
            .count();
        if is_restarted && with_sidecar > 0 {
            waiting.push(format!("{owner} has {with_sidecar} pods with sidecars"));
        }
    }
    waiting
}

/// The workloads of a namespace whose restart was undone, and that have not got their sidecars back.
#[must_use]
pub fn returning(objects: &Objects, namespace: &str) -> Vec<String> {
    let injects = objects.namespace(namespace).is_some_and(|(_, object)| {
        let injection = label(object, INJECTION);
        injection == "enabled" || injection.is_empty() && !label(object, REVISION_LABEL).is_empty()
    });
    if !injects {
        return Vec::new();
    }

    let mut returning = Vec::new();
    for (owner, pods) in by_owner(objects, namespace) {
        let Some((_, template)) = owner.template(objects) else {
            continue;
        };
        let annotations = template.pointer("/spec/template/metadata/annotations");
        let is_left_out =
            annotations.and_then(|known| known.get(INJECT)?.as_str()) == Some("false");
        let has_ambient = pods
            .iter()
            .filter_map(|pod| objects.get(pod))
            .any(|pod| DataPlane::of(pod) == DataPlane::Ambient);
        if has_ambient && !is_left_out && !is_without_injection(template) {
            returning.push(format!("{owner} has pods without sidecars"));
        }
    }
    returning
}

fn is_ready(pod: &Value) -> bool {
    super::objects::items(pod, "/status/conditions").any(|condition| {
        text(condition, "/type") == "Ready" && text(condition, "/status") == "True"
    })
}

/// Whether the requests of a namespace depend on what an AuthorizationPolicy asks of others.
pub(crate) fn asks_others(policy: &Value) -> bool {
    policies::action(policy) == "CUSTOM"
}
