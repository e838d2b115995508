//! AuthorizationPolicies that allow the clients that a workload has had.

use std::collections::BTreeMap;

use navarch_api::istio::AuthorizationPolicy;
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::context::PushContext;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::{Calls, Observed};
use super::selector::{Labels, selects};
use super::valid::valid;
use super::workload::WorkloadName;

/// The beginning of principals in metrics, which principals in policies do not have.
const SCHEME: &str = "spiffe://";

/// A policy for the clients of a workload, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySuggestion {
    /// The AuthorizationPolicy; `None` if there are reasons against it.
    pub policy: Option<Value>,
    /// Why there is none.
    pub against: Vec<String>,
    /// What follows from it that its reader may not expect.
    pub warnings: Vec<String>,
    /// The clients, by principal as in policies.
    pub clients: BTreeMap<String, Calls>,
}

impl PolicySuggestion {
    /// That of a workload, which `selector` selects.
    pub(crate) fn of(
        context: &PushContext,
        workload: &WorkloadName,
        labels: &Labels,
        selector: Option<&Labels>,
        observed: &Observed,
    ) -> Self {
        let mut suggestion = Self::default();
        suggestion.add_clients(observed);
        suggestion.add_policies_in_force(context, workload, labels);

        if observed.has_more_clients {
            let reason = "its proxies have counted more different clients than are kept";
            suggestion.against.push(reason.to_owned());
        }
        let Some(selector) = selector else {
            let reason = "no labels select this workload alone";
            suggestion.against.push(reason.to_owned());
            return suggestion;
        };

        if suggestion.against.is_empty() {
            let policy = suggestion.object(workload, selector);
            match valid(&policy) {
                Ok(_) => suggestion.policy = Some(policy),
                Err(error) => {
                    let reason = format!("it would be rejected: {error}");
                    suggestion.against.push(reason);
                }
            }
        }
        suggestion
    }

    /// Adds the clients, and those that no policy can name.
    fn add_clients(&mut self, observed: &Observed) {
        for (principal, calls) in &observed.clients {
            if calls.counts.total() == 0 {
                continue;
            }
            if calls.counts.denied >= calls.counts.total() {
                self.add_denied(principal);
                continue;
            }
            match in_policies(principal) {
                Some(name) => {
                    self.clients.insert(name.to_owned(), *calls);
                }
                None if principal.is_empty() => self.against.push(format!(
                    "{} requests and connections were without mutual TLS: a policy by principals \
                     would deny them",
                    calls.counts.total()
                )),
                None => self.against.push(format!(
                    "the principal {principal} is not that of a service account"
                )),
            }
        }

        if self.clients.is_empty() && self.against.is_empty() {
            self.against.push("it has had no clients".to_owned());
        }
    }

    /// Warns of a client that has only had denials: a policy must not admit whoever has tried.
    fn add_denied(&mut self, principal: &str) {
        let client = match principal {
            "" => "clients without mutual TLS",
            principal => principal,
        };
        self.warnings.push(format!(
            "all requests of {client} were denied (status 403): left out"
        ));
    }

    /// Names the policies that apply already, and the one that the suggestion would replace.
    fn add_policies_in_force(
        &mut self,
        context: &PushContext,
        workload: &WorkloadName,
        labels: &Labels,
    ) {
        let own = NamespacedName::new(&workload.namespace, &object_name(workload));
        let applies = |policy: &Object<AuthorizationPolicy>| {
            let is_attached = !policy.spec.target_refs.is_empty();
            let selector = policy.spec.selector.as_ref();
            !is_attached && selector.is_none_or(|selector| selects(&selector.match_labels, labels))
        };

        let same_name = context.objects.authorization_policies.get(&own);
        let selects_others = |policy: &Object<AuthorizationPolicy>| {
            policy.spec.selector.is_none() || !applies(policy)
        };
        if same_name.is_some_and(|policy| selects_others(policy)) {
            self.against.push(format!(
                "AuthorizationPolicy {}/{} exists, and selects others",
                own.namespace, own.name
            ));
        }

        for namespace in [&workload.namespace, &context.mesh.config.root_namespace] {
            let namespace = Namespace::new(namespace);
            let policies = context
                .objects
                .authorization_policies
                .in_namespace(&namespace);
            for policy in policies.filter(|policy| applies(policy)) {
                let key = &policy.meta.key;
                let name = format!("{}/{}", key.namespace, key.name);
                let warning = if *key == own {
                    format!("AuthorizationPolicy {name} exists; the suggestion replaces it")
                } else {
                    format!("AuthorizationPolicy {name} applies to it already")
                };
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
        }
    }

    fn object(&self, workload: &WorkloadName, selector: &Labels) -> Value {
        let principals: Vec<&String> = self.clients.keys().collect();
        json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "AuthorizationPolicy",
            "metadata": { "name": object_name(workload), "namespace": workload.namespace },
            "spec": {
                "selector": { "matchLabels": selector },
                "action": "ALLOW",
                "rules": [{ "from": [{ "source": { "principals": principals } }] }],
            },
        })
    }
}

/// The name of a suggested object.
pub(crate) fn object_name(workload: &WorkloadName) -> String {
    format!("scope-{}", workload.name)
}

/// A principal as policies name it: `trust domain/ns/namespace/sa/account`; `None` for others than
/// those of service accounts.
fn in_policies(principal: &str) -> Option<&str> {
    let name = principal.strip_prefix(SCHEME)?;
    let parts: Vec<&str> = name.split('/').collect();
    let is_plain = |part: &&str| {
        let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "-._".contains(sign);
        !part.is_empty() && part.chars().all(is_sign)
    };
    match parts.as_slice() {
        [_, "ns", _, "sa", _] if parts.iter().all(is_plain) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_service_accounts_are_named_in_policies() {
        let name = in_policies("spiffe://cluster.local/ns/shop/sa/web");
        assert_eq!(name, Some("cluster.local/ns/shop/sa/web"));
        for other in [
            "",
            "cluster.local/ns/shop/sa/web",
            "spiffe://cluster.local/ns/shop/sa/",
            "spiffe://cluster.local/ns/*/sa/web",
            "spiffe://cluster.local/workload/web",
            "spiffe://cluster.local/ns/shop/sa/web/more",
        ] {
            assert_eq!(in_policies(other), None, "{other}");
        }
    }
}
