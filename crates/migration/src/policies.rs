//! Policies of a namespace for its waypoint, and how those of its pods accept what has passed it.
//!
//! A policy with a selector stays in force at sidecars and ztunnel. It gets the waypoint's identity
//! as an exception: ALLOW has it as a further rule, DENY and CUSTOM except it in every rule. ztunnel
//! drops ALLOW rules about requests and reads DENY rules without what they say of requests, so that
//! for such policies it accepts the waypoint alone. The copy for the waypoint (`targetRefs`) has the
//! original rules.

mod ports;

use navarch_api::revision::REVISION_LABEL;
use serde_json::{Map, Value, json};

use super::edit::Edit;
use super::objects::{
    AUTHENTICATION, AUTHORIZATION, MANAGED_BY, ObjectKind, ObjectName, Objects, POD, SERVICE,
    items, members, selects, text, texts,
};
use super::pods::DataPlane;
use ports::ServicePorts;

/// The selector of a policy.
pub(crate) const SELECTOR: &str = "/spec/selector/matchLabels";
/// How the names of copies end.
const SUFFIX: &str = "-waypoint";
/// The annotation of policies that are only tried.
const DRY_RUN: &str = "istio.io/dry-run";
/// The maximum number of `targetRefs` of a policy.
const MAX_TARGETS: usize = 16;

/// What policies a waypoint needs, and what cannot be bound to it.
#[derive(Debug, Default)]
pub(crate) struct WaypointPolicies {
    pub(crate) edits: Vec<Edit>,
    /// Why a policy has no copy, by policy.
    pub(crate) problems: Vec<(ObjectName, String)>,
}

/// The services that a policy applies to.
#[derive(Debug, Default)]
struct Targets<'a> {
    /// Services all of whose pods it selects.
    whole: Vec<&'a Value>,
    /// The names of services some of whose pods it selects.
    partial: Vec<&'a str>,
}

/// Whether a policy is for pods: it has neither `targetRefs` nor `targetRef`.
pub(crate) fn is_for_pods(policy: &Value) -> bool {
    let spec = |field: &str| policy.pointer(field);
    spec("/spec/targetRef").is_none() && items(policy, "/spec/targetRefs").next().is_none()
}

/// The action of an AuthorizationPolicy.
pub(crate) fn action(policy: &Value) -> &str {
    match text(policy, "/spec/action") {
        "" => "ALLOW",
        action => action,
    }
}

/// Whether an AuthorizationPolicy is about requests, which ztunnel does not see.
pub(crate) fn is_about_requests(policy: &Value) -> bool {
    const OPERATION: [&str; 6] = [
        "hosts",
        "notHosts",
        "methods",
        "notMethods",
        "paths",
        "notPaths",
    ];
    const SOURCE: [&str; 4] = [
        "requestPrincipals",
        "notRequestPrincipals",
        "remoteIpBlocks",
        "notRemoteIpBlocks",
    ];
    let names = |object: &Value, parent: &str, fields: &[&str]| {
        object
            .get(parent)
            .is_some_and(|inner| fields.iter().any(|field| inner.get(field).is_some()))
    };

    matches!(action(policy), "CUSTOM" | "AUDIT")
        || items(policy, "/spec/rules").any(|rule| {
            items(rule, "/to").any(|to| names(to, "operation", &OPERATION))
                || items(rule, "/from").any(|from| names(from, "source", &SOURCE))
                || items(rule, "/when").any(|when| {
                    let key = text(when, "/key");
                    key.starts_with("request.") || key == "remote.ip"
                })
        })
}

/// The policies of a namespace that are for its workloads, by kind. Those that select only gateways
/// are left out.
pub(crate) fn of_workloads<'a>(
    objects: &'a Objects,
    kind: ObjectKind,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a ObjectName, &'a Value)> {
    objects
        .within(kind, namespace)
        .filter(|(_, policy)| is_for_pods(policy))
        .filter(move |(_, policy)| {
            let mut selected = objects
                .within(POD, namespace)
                .filter(|(_, pod)| selects(policy, SELECTOR, pod))
                .peekable();
            selected.peek().is_none()
                || selected.any(|(_, pod)| DataPlane::of(pod).is_of_workload())
        })
}

/// Copies of the policies of a namespace that are bound to its waypoint. Copies that exist are left
/// out.
pub(crate) fn for_waypoint(
    objects: &Objects,
    namespace: &str,
    waypoint: &str,
    principal: &str,
) -> WaypointPolicies {
    let mut found = WaypointPolicies::default();
    let kinds = [AUTHORIZATION, AUTHENTICATION];
    let policies = kinds
        .into_iter()
        .flat_map(|kind| of_workloads(objects, kind, namespace));

    for (name, policy) in policies {
        let targets = Targets::of(objects, policy, namespace);
        if !targets.partial.is_empty() {
            found.problems.push((
                name.clone(),
                format!(
                    "it selects only some pods of {}: a waypoint applies a policy to whole services",
                    targets.partial.join(", ")
                ),
            ));
        }
        // The waypoint judges by what the policy said before it accepted the waypoint.
        let original = without_trust(policy, principal);
        for copy in copies(objects, &original, &targets, waypoint) {
            found.add(objects, name, copy);
        }
    }
    found
}

impl WaypointPolicies {
    /// Adds a copy, unless it exists.
    fn add(&mut self, objects: &Objects, original: &ObjectName, copy: Value) {
        let edit = Edit::create(copy);
        let existing = objects.get(&edit.object);
        if existing.is_none() {
            self.edits.push(edit);
        } else if !edit.holds(existing) {
            let problem = format!(
                "its copy {} exists with other rules: delete the copy",
                edit.object
            );
            self.problems.push((original.clone(), problem));
        }
    }
}

impl<'a> Targets<'a> {
    fn of(objects: &'a Objects, policy: &Value, namespace: &'a str) -> Self {
        let mut targets = Self::default();
        for (name, service) in objects.within(SERVICE, namespace) {
            let selector = || members(service, "/spec/selector");
            if selector().next().is_none() {
                continue;
            }

            let pods: Vec<&Value> = objects
                .within(POD, namespace)
                .filter(|(_, pod)| selects(service, "/spec/selector", pod))
                .map(|(_, pod)| pod)
                .collect();
            if pods.iter().any(|pod| !DataPlane::of(pod).is_of_workload()) {
                continue;
            }

            let is_narrower = members(policy, SELECTOR)
                .all(|wanted| selector().any(|selected| selected == wanted));
            let is_disjoint = members(policy, SELECTOR).any(|(key, value)| {
                selector().any(|(known, other)| known == key && other != value)
            });
            let selected = pods
                .iter()
                .filter(|pod| selects(policy, SELECTOR, pod))
                .count();
            let selects_all = selected == pods.len() && !pods.is_empty();
            if is_narrower || selects_all {
                targets.whole.push(service);
            } else if selected > 0 || pods.is_empty() && !is_disjoint {
                targets.partial.push(&name.name);
            }
        }
        targets
    }
}

/// The copies of a policy for a waypoint. A policy about ports has one for each service: a waypoint
/// sees the ports of services, pods see their own.
fn copies(objects: &Objects, policy: &Value, targets: &Targets<'_>, waypoint: &str) -> Vec<Value> {
    let name = super::objects::name(policy);
    if ports::are_named(policy) {
        return targets
            .whole
            .iter()
            .filter_map(|service| {
                let ports = ServicePorts::of(objects, service);
                let rules = ports.translate(policy)?;
                let service = super::objects::name(service);
                let copy_name = format!("{name}{SUFFIX}-{service}");
                let targets = vec![target("", "Service", service)];
                Some(copy(policy, &copy_name, targets, Some(rules)))
            })
            .collect();
    }

    let copy_name = format!("{name}{SUFFIX}");
    if members(policy, SELECTOR).next().is_none() {
        let of_waypoint = target("gateway.networking.k8s.io", "Gateway", waypoint);
        return vec![copy(policy, &copy_name, vec![of_waypoint], None)];
    }

    let of_services: Vec<Value> = targets
        .whole
        .iter()
        .map(|service| target("", "Service", super::objects::name(service)))
        .collect();
    of_services
        .chunks(MAX_TARGETS)
        .enumerate()
        .map(|(index, targets)| {
            let copy_name = match index {
                0 => copy_name.clone(),
                index => format!("{copy_name}-{index}"),
            };
            copy(policy, &copy_name, targets.to_vec(), None)
        })
        .collect()
}

fn target(group: &str, kind: &str, name: &str) -> Value {
    json!({ "group": group, "kind": kind, "name": name })
}

/// A policy with `targetRefs` in place of its selector, and with other rules, if given.
fn copy(policy: &Value, name: &str, targets: Vec<Value>, rules: Option<Vec<Value>>) -> Value {
    let mut spec = policy
        .pointer("/spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    spec.remove("selector");
    spec.insert("targetRefs".to_owned(), Value::Array(targets));
    if let Some(rules) = rules {
        spec.insert("rules".to_owned(), Value::Array(rules));
    }
    if spec.get("rules").is_some_and(|rules| *rules == json!([])) {
        spec.remove("rules");
    }

    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), Value::from(name));
    metadata.insert(
        "namespace".to_owned(),
        Value::from(super::objects::namespace(policy)),
    );
    metadata.insert("labels".to_owned(), copied_labels(policy));
    let dry_run = super::objects::annotation(policy, DRY_RUN);
    if !dry_run.is_empty() {
        metadata.insert("annotations".to_owned(), json!({ DRY_RUN: dry_run }));
    }
    json!({
        "apiVersion": text(policy, "/apiVersion"),
        "kind": text(policy, "/kind"),
        "metadata": metadata,
        "spec": spec,
    })
}

/// The labels of the copy of a policy, which is of the same revision.
fn copied_labels(policy: &Value) -> Value {
    let mut labels = json!({ MANAGED_BY.0: MANAGED_BY.1 });
    let revision = policy
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(REVISION_LABEL));
    if let (Some(labels), Some(revision)) = (labels.as_object_mut(), revision) {
        labels.insert(REVISION_LABEL.to_owned(), revision.clone());
    }
    labels
}

/// The edits by which the policies of a namespace accept what has passed a waypoint of this
/// identity.
pub(crate) fn trusting(objects: &Objects, namespace: &str, principal: &str) -> Vec<Edit> {
    let policies = of_workloads(objects, AUTHORIZATION, namespace);
    policies
        .filter_map(|(name, policy)| {
            let rules: Vec<Value> = items(policy, "/spec/rules").cloned().collect();
            let changed = trusted(&rules, action(policy), principal);
            let patch = json!({ "spec": { "rules": changed } });
            (changed != rules).then(|| Edit::patch(name, patch))
        })
        .collect()
}

/// The rules of a policy with this action that accept what has passed a waypoint of this identity.
fn trusted(rules: &[Value], action: &str, principal: &str) -> Vec<Value> {
    match action {
        "ALLOW" => with_rule_for(rules.to_vec(), principal),
        "DENY" | "CUSTOM" => rules.iter().map(|rule| except(rule, principal)).collect(),
        _ => rules.to_vec(),
    }
}

/// Whether rules of a policy with this action differ from others only by accepting what has passed
/// a waypoint of the namespace.
pub(crate) fn is_trusting(
    before: &[Value],
    after: &[Value],
    action: &str,
    namespace: &str,
) -> bool {
    let of_namespace = format!("/ns/{namespace}/sa/");
    let sources = after.iter().flat_map(|rule| items(rule, "/from"));
    let mut principals = sources.flat_map(|from| {
        texts(from, "/source/principals").chain(texts(from, "/source/notPrincipals"))
    });
    principals.any(|principal| {
        let is_identity = principal.contains(&of_namespace) && !principal.contains('*');
        is_identity && trusted(before, action, principal) == after
    })
}

/// Whether an object is a copy of a policy, as steps create it.
pub(crate) fn is_copy(object: &Value) -> bool {
    let has_only = |pointer: &str, keys: &[&str]| {
        members(object, pointer).all(|(key, _)| keys.contains(&key.as_str()))
    };
    super::objects::label(object, MANAGED_BY.0) == MANAGED_BY.1
        && super::objects::name(object).contains(SUFFIX)
        && has_only("", &["apiVersion", "kind", "metadata", "spec"])
        && has_only("/metadata", &["name", "namespace", "labels", "annotations"])
        && has_only("/metadata/labels", &[MANAGED_BY.0, REVISION_LABEL])
        && has_only("/metadata/annotations", &[DRY_RUN])
        && items(object, "/spec/targetRefs").next().is_some()
        && object.pointer("/spec/selector").is_none()
}

/// The rule that fits a principal.
fn rule_for(principal: &str) -> Value {
    json!({ "from": [{ "source": { "principals": [principal] } }] })
}

/// ALLOW rules with one for a principal.
fn with_rule_for(mut rules: Vec<Value>, principal: &str) -> Vec<Value> {
    let own = rule_for(principal);
    if !rules.contains(&own) {
        rules.push(own);
    }
    rules
}

/// A rule that does not apply to a principal.
fn except(rule: &Value, principal: &str) -> Value {
    let mut rule = rule.clone();
    let Some(fields) = rule.as_object_mut() else {
        return rule;
    };
    let sources = fields
        .entry("from")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(sources) = sources.as_array_mut() else {
        return rule;
    };
    if sources.is_empty() {
        sources.push(json!({ "source": {} }));
    }

    for from in sources {
        let mut names: Vec<Value> = texts(from, "/source/notPrincipals")
            .map(Value::from)
            .collect();
        if !names.iter().any(|name| name == principal) {
            names.push(Value::from(principal));
        }
        super::edit::merge(from, &json!({ "source": { "notPrincipals": names } }));
    }
    rule
}

/// A policy as it was before it accepted what has passed the waypoint of this identity.
fn without_trust(policy: &Value, principal: &str) -> Value {
    let mut policy = policy.clone();
    let is_allowing = action(&policy) == "ALLOW";
    let Some(rules) = policy
        .pointer_mut("/spec/rules")
        .and_then(Value::as_array_mut)
    else {
        return policy;
    };

    if is_allowing {
        let own = rule_for(principal);
        rules.retain(|rule| *rule != own);
    } else {
        rules.iter_mut().for_each(|rule| restore(rule, principal));
    }
    policy
}

/// Undoes [`except`].
fn restore(rule: &mut Value, principal: &str) {
    let sources = rule.get_mut("from").and_then(Value::as_array_mut);
    for from in sources.into_iter().flatten() {
        let names: Vec<Value> = texts(from, "/source/notPrincipals")
            .filter(|name| *name != principal)
            .map(Value::from)
            .collect();
        let names = if names.is_empty() {
            Value::Null
        } else {
            Value::Array(names)
        };
        super::edit::merge(from, &json!({ "source": { "notPrincipals": names } }));
    }
    if rule.get("from") == Some(&json!([{ "source": {} }]))
        && let Some(fields) = rule.as_object_mut()
    {
        fields.remove("from");
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::Change;
    use super::*;

    const WAYPOINT: &str = "cluster.local/ns/shop/sa/waypoint";

    fn policy(spec: Value) -> Value {
        json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "AuthorizationPolicy",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": spec,
        })
    }

    /// Two versions of `web` behind one service, whose port 80 leads to 8080.
    fn objects(policy: &Value) -> Objects {
        let mut objects = Objects::default();
        for version in ["v1", "v2"] {
            objects.add(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": version, "namespace": "shop", "labels": { "app": "web", "version": version } },
            }));
        }
        objects.add(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
        }));
        objects.add(policy.clone());
        objects
    }

    fn copies_of(spec: Value) -> WaypointPolicies {
        for_waypoint(&objects(&policy(spec)), "shop", "waypoint", WAYPOINT)
    }

    fn created(found: &WaypointPolicies) -> Vec<&Value> {
        found
            .edits
            .iter()
            .map(|edit| {
                let Change::Create { content } = &edit.change else {
                    panic!("{edit:?}")
                };
                content
            })
            .collect()
    }

    #[test]
    fn a_selector_becomes_the_services_whose_pods_it_selects() {
        let rules = json!([{ "to": [{ "operation": { "methods": ["GET"] } }] }]);
        let found = copies_of(json!({
            "selector": { "matchLabels": { "app": "web" } }, "action": "DENY", "rules": rules,
        }));
        let copies = created(&found);
        assert_eq!(copies.len(), 1, "{found:?}");
        assert_eq!(
            copies[0]["spec"],
            json!({
                "action": "DENY",
                "rules": rules,
                "targetRefs": [{ "group": "", "kind": "Service", "name": "web" }],
            })
        );
        assert!(found.problems.is_empty());

        let found = copies_of(json!({ "rules": rules }));
        assert_eq!(
            created(&found)[0]["spec"]["targetRefs"][0]["kind"],
            "Gateway"
        );
    }

    #[test]
    fn a_policy_for_some_pods_of_a_service_has_no_copy() {
        let found = copies_of(json!({ "selector": { "matchLabels": { "version": "v1" } } }));
        assert!(found.edits.is_empty(), "{found:?}");
        assert!(found.problems[0].1.contains("some pods of web"));
    }

    #[test]
    fn ports_of_pods_become_those_of_the_service() {
        let rule = |ports: Value| json!([{ "to": [{ "operation": { "ports": ports } }] }]);
        let found = copies_of(json!({ "rules": rule(json!(["8080"])) }));
        let copies = created(&found);
        assert_eq!(copies[0]["metadata"]["name"], "web-waypoint-web");
        assert_eq!(copies[0]["spec"]["rules"], rule(json!(["80"])));

        // A port that is not of the service is never requested there.
        let found = copies_of(json!({ "rules": rule(json!(["9090"])) }));
        assert_eq!(created(&found)[0]["spec"].get("rules"), None);
        let found = copies_of(json!({ "action": "DENY", "rules": rule(json!(["9090"])) }));
        assert!(found.edits.is_empty());
    }

    #[test]
    fn copies_stay_the_same_after_the_originals_accept_the_waypoint() {
        for spec in [
            json!({}),
            json!({ "rules": [{ "to": [{ "operation": { "methods": ["GET"] } }] }] }),
            json!({ "action": "DENY", "rules": [
                { "to": [{ "operation": { "methods": ["GET"] } }] },
                { "from": [{ "source": { "namespaces": ["x"], "notPrincipals": ["p"] } }] },
            ] }),
        ] {
            let mut objects = objects(&policy(spec.clone()));
            let first = for_waypoint(&objects, "shop", "waypoint", WAYPOINT);
            for edit in first
                .edits
                .iter()
                .chain(&trusting(&objects, "shop", WAYPOINT))
            {
                edit.apply(&mut objects);
            }
            let second = for_waypoint(&objects, "shop", "waypoint", WAYPOINT);
            assert!(!first.edits.is_empty());
            assert!(
                second.edits.is_empty() && second.problems.is_empty(),
                "{spec}: {second:?}"
            );
        }
    }

    #[test]
    fn policies_of_pods_accept_the_waypoint_and_judge_all_others_as_before() {
        let rules_of = |spec: Value| {
            let edits = trusting(&objects(&policy(spec)), "shop", WAYPOINT);
            let Some(Change::Patch { patch }) = edits.first().map(|edit| &edit.change) else {
                panic!("{edits:?}")
            };
            patch["spec"]["rules"].clone()
        };
        let of_waypoint = json!({ "from": [{ "source": { "principals": [WAYPOINT] } }] });
        let get = json!({ "to": [{ "operation": { "methods": ["GET"] } }] });
        assert_eq!(rules_of(json!({})), json!([of_waypoint]));
        assert_eq!(
            rules_of(json!({ "rules": [get] })),
            json!([get, of_waypoint])
        );

        let denied = rules_of(json!({ "action": "DENY", "rules": [
            get, { "from": [{ "source": { "namespaces": ["x"], "notPrincipals": ["p"] } }] },
        ] }));
        assert_eq!(
            denied[0]["from"],
            json!([{ "source": { "notPrincipals": [WAYPOINT] } }])
        );
        assert_eq!(
            denied[1]["from"],
            json!([{ "source": { "namespaces": ["x"], "notPrincipals": ["p", WAYPOINT] } }])
        );

        // Once is enough.
        let spec = json!({ "rules": [get, of_waypoint] });
        assert!(trusting(&objects(&policy(spec)), "shop", WAYPOINT).is_empty());
        let spec = json!({ "action": "DENY", "rules": denied });
        assert!(trusting(&objects(&policy(spec)), "shop", WAYPOINT).is_empty());
    }
}
