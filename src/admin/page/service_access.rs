//! The policies of one service: who may call it, and whether it accepts plain text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use navarch_ambient::is_redirected;
use navarch_api::istio::{
    AuthorizationAction, AuthorizationPolicy, AuthorizationRule, AuthorizationSource,
    PeerAuthentication,
};
use navarch_api::kubernetes::Pod;
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_envoy::mtls::{MtlsMode, NamespaceMtls};
use navarch_push::context::PushContext;
use navarch_registry::WorkloadLabels;
use navarch_registry::model::{Endpoint, Labels, Service, TlsMode};
use navarch_store::Stored as _;

/// Maximum number of named callers of one sort.
const MAX_NAMED_CALLERS: usize = 20;

/// Whether a service accepts plain text, according to its policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Demand {
    /// Mutual TLS only.
    Strict,
    /// Mutual TLS and plain text.
    Permissive,
    /// Plain text only.
    Disable,
    /// It differs among its workloads or ports.
    Mixed,
    /// It is outside of the mesh, so that policies do not apply.
    Outside,
}

/// Who may call a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Callers {
    /// There is no policy: everyone may.
    pub(super) anyone: bool,
    /// Policies deny everyone.
    pub(super) nobody: bool,
    /// Namespaces whose workloads may.
    pub(super) namespaces: BTreeSet<String>,
    /// Identities that may, without `spiffe://`, or `namespace/account`.
    pub(super) accounts: BTreeSet<String>,
    /// Sources that are none of these, in words.
    pub(super) others: BTreeSet<String>,
    /// Some are allowed for some requests only: by path, method, port or a condition.
    pub(super) with_conditions: bool,
    /// Policies that deny some, by name.
    pub(super) denied_by: BTreeSet<String>,
    /// Policies with an external authorizer, by name.
    pub(super) asked_by: BTreeSet<String>,
    /// The policies that allow, by name.
    pub(super) allowed_by: BTreeSet<String>,
}

/// The access of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Access {
    pub(super) mtls: Demand,
    /// Its workloads, and those with mutual TLS.
    pub(super) workloads: usize,
    pub(super) speaking: usize,
    /// Those whose mutual TLS a ztunnel terminates.
    pub(super) captured: usize,
    pub(super) callers: Callers,
}

/// The policies of one namespace, read once for all of its services.
pub(super) struct Policies<'a> {
    mtls: NamespaceMtls,
    authorization: Vec<&'a Arc<Object<AuthorizationPolicy>>>,
    /// The addresses of the namespace's pods whose traffic a ztunnel captures.
    captured: BTreeSet<String>,
}

impl<'a> Policies<'a> {
    /// The policies that apply to a namespace: its own and the root namespace's.
    pub(super) fn of(context: &'a PushContext, namespace: &Namespace) -> Self {
        let root = Namespace::new(&context.mesh.config.root_namespace);
        let is_root = *namespace == root;
        let peers = PeerAuthentication::table(&context.objects);
        let mtls = NamespaceMtls::of_policies(
            peers.in_namespace(&root),
            (!is_root).then(|| peers.in_namespace(namespace)),
        );
        let table = AuthorizationPolicy::table(&context.objects);
        let own = table.in_namespace(namespace).filter(|_| !is_root);

        let pods = Pod::table(&context.objects)
            .in_namespace(namespace)
            .filter(|_| context.mesh.settings.ambient);
        let captured = pods.filter(|pod| is_redirected(&pod.meta));
        let captured = captured
            .flat_map(|pod| pod.spec.pod_ips.iter())
            .map(ToString::to_string)
            .collect();

        Self {
            mtls,
            authorization: table.in_namespace(&root).chain(own).collect(),
            captured,
        }
    }

    /// The access of a service of the namespace.
    pub(super) fn access(&self, service: &Service, endpoints: &[Arc<Endpoint>]) -> Access {
        // Workloads of one deployment have the same labels: a service has few sets of them.
        let mut sets: BTreeMap<BTreeSet<(&str, &str)>, BTreeSet<u16>> = BTreeMap::new();
        let mut seen = BTreeMap::new();

        for endpoint in endpoints {
            let labels = pairs(endpoint.workload.labels());
            sets.entry(labels).or_default().insert(endpoint.port);
            seen.insert(
                endpoint.addresses.first(),
                endpoint.workload.tls_mode == TlsMode::Istio,
            );
        }

        if sets.is_empty() {
            sets.insert(pairs(&service.selector), BTreeSet::new());
        }

        let mtls = if service.mesh_external {
            Demand::Outside
        } else {
            self.demand(&sets)
        };

        let mut callers = Callers::default();

        for labels in sets.keys() {
            callers.add(
                self.authorization
                    .iter()
                    .filter(|policy| is_for(policy, service, labels)),
            );
        }

        let is_captured = |address: &Option<&Arc<str>>| {
            address.is_some_and(|address| self.captured.contains(&**address))
        };
        let captured = seen
            .iter()
            .filter(|(address, speaks)| !**speaks && is_captured(address))
            .count();
        let speaking = seen.values().filter(|speaks| **speaks).count();

        Access {
            mtls,
            workloads: seen.len(),
            speaking,
            captured,
            callers,
        }
    }

    /// The mode of all workloads and ports.
    fn demand(&self, sets: &BTreeMap<BTreeSet<(&str, &str)>, BTreeSet<u16>>) -> Demand {
        let mut modes = BTreeSet::new();

        for (labels, ports) in sets {
            let selects = |selector: &Labels| {
                selector
                    .iter()
                    .all(|(key, value)| labels.contains(&(&**key, &**value)))
            };
            let of_workload = self.mtls.of(selects);
            if ports.is_empty() {
                modes.insert(of_workload.mode);
            }
            modes.extend(ports.iter().map(|port| of_workload.on_port(*port)));
        }

        match modes.into_iter().collect::<Vec<_>>().as_slice() {
            [MtlsMode::Strict] => Demand::Strict,
            [MtlsMode::Permissive] => Demand::Permissive,
            [MtlsMode::Disable] => Demand::Disable,
            _ => Demand::Mixed,
        }
    }
}

fn pairs<'a>(labels: impl Into<WorkloadLabels<'a>>) -> BTreeSet<(&'a str, &'a str)> {
    labels
        .into()
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect()
}

/// Whether a policy is for workloads with these labels, or for the service by its name (at a
/// waypoint).
fn is_for(
    policy: &Object<AuthorizationPolicy>,
    service: &Service,
    labels: &BTreeSet<(&str, &str)>,
) -> bool {
    let spec = &policy.spec;
    let mut targets = spec.target_refs.iter().chain(&spec.target_ref).peekable();
    if targets.peek().is_some() {
        return targets.any(|target| {
            let namespace = if target.namespace.is_empty() {
                policy.meta.key.namespace.as_str()
            } else {
                &target.namespace
            };
            target.kind == service.origin.kind.as_str()
                && target.name == *service.origin.name.name
                && namespace == service.origin.name.namespace.as_str()
        });
    }

    let wanted = spec
        .selector
        .as_ref()
        .map(|selector| &selector.match_labels);
    wanted.is_none_or(|wanted| {
        wanted
            .iter()
            .all(|(key, value)| labels.contains(&(key.as_str(), value.as_str())))
    })
}

impl Callers {
    /// Adds the policies of some workloads.
    fn add<'a>(
        &mut self,
        policies: impl Iterator<Item = &'a &'a Arc<Object<AuthorizationPolicy>>>,
    ) {
        let mut allows = false;
        let mut is_allowed = false;

        for policy in policies {
            let name = format!("{}/{}", policy.meta.key.namespace, policy.meta.key.name);

            match policy.spec.action {
                AuthorizationAction::Allow => {
                    allows = true;
                    self.allowed_by.insert(name);
                    for rule in &policy.spec.rules {
                        is_allowed = true;
                        self.rule(rule);
                    }
                }
                AuthorizationAction::Deny if policy.spec.rules.is_empty() => {}
                AuthorizationAction::Deny => _ = self.denied_by.insert(name),
                AuthorizationAction::Custom => _ = self.asked_by.insert(name),
                AuthorizationAction::Audit => {}
            }
        }

        self.anyone |= !allows;
        self.nobody = allows && !is_allowed && !self.anyone && self.is_empty();

        for all in [&mut self.namespaces, &mut self.accounts, &mut self.others] {
            while all.len() > MAX_NAMED_CALLERS {
                all.pop_last();
            }
        }
    }

    /// Whether there are no callers.
    fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.accounts.is_empty() && self.others.is_empty()
    }

    /// Adds the callers that a rule allows.
    fn rule(&mut self, rule: &AuthorizationRule) {
        self.with_conditions |= !rule.to.is_empty() || !rule.when.is_empty();
        if rule.from.is_empty() {
            self.others.insert("any caller".to_owned());
        }
        for source in rule.from.iter().filter_map(|from| from.source.as_ref()) {
            self.source(source);
        }
    }

    /// Adds one source. All of its conditions must match, so restrictions are shown with it.
    fn source(&mut self, source: &AuthorizationSource) {
        let named = [
            &source.principals,
            &source.namespaces,
            &source.service_accounts,
        ];

        let narrowing = [
            ("a token of", &source.request_principals),
            ("the address", &source.ip_blocks),
            ("the client address", &source.remote_ip_blocks),
            ("the trust domain", &source.trust_domains),
        ];

        let excluding = [
            ("not", &source.not_principals),
            ("not the namespace", &source.not_namespaces),
            ("not", &source.not_service_accounts),
            ("no token of", &source.not_request_principals),
            ("not the address", &source.not_ip_blocks),
            ("not the client address", &source.not_remote_ip_blocks),
            ("not the trust domain", &source.not_trust_domains),
        ];

        let words: Vec<String> = narrowing
            .iter()
            .chain(&excluding)
            .filter(|(_, values)| !values.is_empty())
            .map(|(word, values)| format!("{word} {}", values.join(" or ")))
            .collect();

        let lists = named.iter().filter(|values| !values.is_empty()).count();
        if lists == 1 && words.is_empty() {
            self.namespaces.extend(source.namespaces.iter().cloned());
            self.accounts.extend(
                source
                    .principals
                    .iter()
                    .chain(&source.service_accounts)
                    .cloned(),
            );
            return;
        }

        let named = named
            .iter()
            .filter(|values| !values.is_empty())
            .map(|values| values.join(" or "));
        let all: Vec<String> = named.chain(words).collect();
        self.others.insert(if all.is_empty() {
            "any caller".to_owned()
        } else {
            all.join(", with ")
        });
    }
}

#[cfg(test)]
mod tests;
