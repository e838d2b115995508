//! Ports of pods in policies, as those of a service.

use serde_json::{Value, json};

use crate::objects::{Objects, POD, items, namespace, selects, text, texts};

/// The attribute of conditions about ports.
const DESTINATION_PORT: &str = "destination.port";

/// The ports of a service, and the ports of its pods that they lead to.
#[derive(Debug)]
pub(super) struct ServicePorts {
    ports: Vec<ServicePort>,
}

#[derive(Debug)]
struct ServicePort {
    port: String,
    /// The ports of pods; several if pods give the same name to different ports.
    targets: Vec<String>,
}

/// Whether a policy is about ports.
pub(super) fn are_named(policy: &Value) -> bool {
    items(policy, "/spec/rules").any(|rule| {
        let in_operations = items(rule, "/to").any(|to| {
            ["/operation/ports", "/operation/notPorts"]
                .iter()
                .any(|field| texts(to, field).next().is_some())
        });
        in_operations || items(rule, "/when").any(|when| text(when, "/key") == DESTINATION_PORT)
    })
}

impl ServicePorts {
    pub(super) fn of(objects: &Objects, service: &Value) -> Self {
        let number = |value: &Value| value.as_u64().map(|number| number.to_string());
        let ports = items(service, "/spec/ports").filter_map(|one| {
            let port = number(one.get("port")?)?;
            let targets = match one.get("targetPort") {
                None => vec![port.clone()],
                Some(target) => match target.as_str() {
                    Some(name) => named(objects, service, name),
                    None => number(target).into_iter().collect(),
                },
            };
            Some(ServicePort { port, targets })
        });
        Self {
            ports: ports.collect(),
        }
    }

    /// The rules of a policy with the ports of the service; `None` if it is a DENY policy without
    /// one that can apply.
    pub(super) fn translate(&self, policy: &Value) -> Option<Vec<Value>> {
        let rules: Vec<Value> = items(policy, "/spec/rules")
            .filter_map(|rule| self.rule(rule))
            .collect();
        let is_needed = super::action(policy) == "ALLOW" || !rules.is_empty();
        is_needed.then_some(rules)
    }

    /// A rule; `None` if it is only about ports that the service does not have.
    fn rule(&self, rule: &Value) -> Option<Value> {
        let mut translated = rule.clone();
        let operations: Vec<Value> = items(rule, "/to")
            .filter_map(|to| self.matched(to, "/operation/ports", "/operation/notPorts"))
            .collect();
        if items(rule, "/to").next().is_some() {
            if operations.is_empty() {
                return None;
            }
            crate::edit::merge(&mut translated, &json!({ "to": operations }));
        }

        if items(rule, "/when").next().is_some() {
            // All conditions must hold.
            let conditions: Option<Vec<Value>> = items(rule, "/when")
                .map(|when| {
                    if text(when, "/key") == DESTINATION_PORT {
                        self.matched(when, "/values", "/notValues")
                    } else {
                        Some(when.clone())
                    }
                })
                .collect();
            crate::edit::merge(&mut translated, &json!({ "when": conditions? }));
        }
        Some(translated)
    }

    /// Something that matches ports; `None` if it matches none of the service.
    fn matched(&self, value: &Value, wanted: &str, unwanted: &str) -> Option<Value> {
        let mut translated = value.clone();
        for (field, is_wanted) in [(wanted, true), (unwanted, false)] {
            if texts(value, field).next().is_none() {
                continue;
            }
            let ports: Vec<&str> = texts(value, field)
                .flat_map(|target| self.leading_to(target))
                .collect();
            if ports.is_empty() && is_wanted {
                return None;
            }
            if let Some(list) = translated.pointer_mut(field) {
                *list = json!(ports);
            }
        }
        Some(translated)
    }

    /// The ports of the service that lead to a port of its pods.
    fn leading_to<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a str> {
        self.ports
            .iter()
            .filter(move |port| port.targets.iter().any(|known| known == target))
            .map(|port| port.port.as_str())
    }
}

/// The numbers of a named port in the pods of a service.
fn named(objects: &Objects, service: &Value, name: &str) -> Vec<String> {
    let mut numbers: Vec<String> = objects
        .within(POD, namespace(service))
        .filter(|(_, pod)| selects(service, "/spec/selector", pod))
        .flat_map(|(_, pod)| items(pod, "/spec/containers"))
        .flat_map(|container| items(container, "/ports"))
        .filter(|port| text(port, "/name") == name)
        .filter_map(|port| port.get("containerPort")?.as_u64())
        .map(|number| number.to_string())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
