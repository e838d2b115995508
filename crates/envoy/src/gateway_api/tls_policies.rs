//! BackendTLSPolicies (istiod's `BackendTLSPolicyCollection`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ancestors::GatewaysOfBackend;
use super::backend_policy::{BackendPolicy, PolicyPort, PolicyTargetObject, PortsOfTarget};
use super::certificates::RootsFault;
use super::condition::Conditions;
use super::settings::ApiSettings;
use crate::sds::{CONFIG_MAP_PREFIX, INVALID_PREFIX};
use navarch_api::gateway_api::{BackendTlsPolicy, BackendTlsValidation, PolicyTarget};
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings, ServiceEntry};
use navarch_api::kubernetes::{Secret, Service};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The annotation that disables a policy.
const IGNORED: &str = "istio.io/ignore-policy-attachment";

/// A translated BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TlsPolicyForms(pub(super) NamespacedName);

/// The result of a policy, and its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PolicyForms {
    /// The TLS settings.
    pub(super) policies: Vec<BackendPolicy>,
    /// The status of each of its targets, in order.
    pub(super) targets: Vec<(PolicyTarget, Conditions)>,
    /// The Gateways that route to its targets.
    pub(super) gateways: BTreeSet<NamespacedName>,
    /// The status for each Gateway.
    pub(super) conditions: Conditions,
}

/// The policies of each target, the one with precedence first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoliciesByTarget(Namespace);

impl Query for PoliciesByTarget {
    type Value = BTreeMap<PolicyTarget, NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut policies: Vec<_> = view
            .list::<BackendTlsPolicy>(&self.0)
            .filter(|policy| !is_ignored(policy))
            .collect();
        policies.sort_by(|a, b| {
            a.meta
                .created
                .cmp(&b.meta.created)
                .then_with(|| a.meta.key.name.cmp(&b.meta.key.name))
        });

        let mut first = Self::Value::new();

        for policy in policies {
            for target in &policy.spec.target_refs {
                first
                    .entry(target.clone())
                    .or_insert_with(|| policy.meta.key());
            }
        }

        first
    }
}

/// Whether a policy is disabled.
pub(super) fn is_ignored<T>(policy: &Object<T>) -> bool {
    policy
        .meta
        .annotations
        .get(IGNORED)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The status of a disabled policy.
pub(super) fn ignored<'a>(targets: impl Iterator<Item = &'a PolicyTarget>) -> PolicyForms {
    let mut conditions = Conditions::default();
    conditions.set_false(
        "Accepted",
        "IgnoredByIstio",
        format!("Ignored because of annotation {IGNORED}=true"),
    );
    PolicyForms {
        targets: targets
            .map(|target| (target.clone(), conditions.clone()))
            .collect(),
        ..PolicyForms::default()
    }
}

impl Query for TlsPolicyForms {
    type Value = Option<Arc<PolicyForms>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let policy = view.object::<BackendTlsPolicy>(&self.0)?;
        if is_ignored(policy) {
            return Some(Arc::new(ignored(policy.spec.target_refs.iter())));
        }

        let mut conditions = Conditions::default();
        conditions.set_true("Accepted", "Accepted", "Configuration is valid");
        conditions.set_true("ResolvedRefs", "ResolvedRefs", "Configuration is valid");
        let validation = &policy.spec.validation;
        let tls = client_tls(view, validation, &self.0.namespace, &mut conditions);
        let first = view.get(&PoliciesByTarget(self.0.namespace.clone()));
        let mut forms = PolicyForms::default();

        for target in &policy.spec.target_refs {
            match resolve(view, target, &self.0.namespace) {
                Err(message) => {
                    conditions.set_false(
                        "Accepted",
                        "TargetNotFound",
                        format!("targetRefs invalid: {message}"),
                    );
                }
                Ok((object, hosts)) => {
                    match first.get(target).filter(|first| **first != self.0) {
                        Some(other) => {
                            let message = format!(
                                "Conflicts with BackendTLSPolicy {:?} targeting the same backend",
                                &*other.name
                            );
                            conditions.set_false("Accepted", "Conflicted", message);
                        }
                        None => {
                            forms
                                .policies
                                .extend(hosts.into_iter().map(|host| BackendPolicy {
                                    source: ("BackendTLSPolicy", self.0.clone()),
                                    created: policy.meta.created,
                                    target: object.clone(),
                                    host,
                                    port: section(target).map_or(PolicyPort::All, |name| {
                                        PolicyPort::Named(name.to_owned())
                                    }),
                                    tls: Some(tls.clone()),
                                    traffic: None,
                                }))
                        }
                    }

                    forms
                        .gateways
                        .extend(view.get(&GatewaysOfBackend(object)).iter().cloned());
                }
            }

            // As in istiod, the fault of one target is also reported for the following ones.
            forms.targets.push((target.clone(), conditions.clone()));
        }

        forms.conditions = conditions;
        Some(Arc::new(forms))
    }
}

/// The port of a target.
fn section(target: &PolicyTarget) -> Option<&str> {
    target
        .section_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

/// The object of a target and its hosts.
fn resolve(
    view: &View<'_>,
    target: &PolicyTarget,
    namespace: &Namespace,
) -> Result<(PolicyTargetObject, Vec<String>), String> {
    let name = NamespacedName::new(namespace.as_str(), &target.name);
    let object = match (target.group.as_str(), target.kind.as_str()) {
        ("", "Service") => PolicyTargetObject::Service(name.clone()),
        ("networking.istio.io", "ServiceEntry") => PolicyTargetObject::ServiceEntry(name.clone()),
        (_, kind) => return Err(format!("unsupported kind {kind}")),
    };
    let ports = view.get(&PortsOfTarget(object.clone()));
    let Some(ports) = &*ports else {
        return Err(format!(
            "reference {name} (of kind {}) not found",
            target.kind
        ));
    };

    if let Some(section) = section(target).filter(|section| !ports.contains_key(*section)) {
        return Err(format!(
            "sectionName {section:?} does not exist in {} {name}",
            target.kind
        ));
    }

    let hosts = match &object {
        PolicyTargetObject::ServiceEntry(name) => view
            .object::<ServiceEntry>(name)
            .map(|entry| entry.spec.hosts.clone())
            .unwrap_or_default(),
        PolicyTargetObject::Service(_) | PolicyTargetObject::Backend(_) => {
            vec![
                view.get(&ApiSettings)
                    .host(&target.name, namespace.as_str()),
            ]
        }
    };

    Ok((object, hosts))
}

/// The TLS settings for a backend. Faults are reported in conditions.
pub(super) fn client_tls(
    view: &View<'_>,
    validation: &BackendTlsValidation,
    namespace: &Namespace,
    conditions: &mut Conditions,
) -> ClientTlsSettings {
    let names = validation
        .subject_alt_names
        .iter()
        .filter_map(|name| match name.kind.as_str() {
            "Hostname" => Some(name.hostname.clone()),
            "URI" => Some(name.uri.clone()),
            _ => None,
        });
    ClientTlsSettings {
        mode: ClientTlsMode::Simple,
        sni: validation.hostname.clone(),
        subject_alt_names: names.collect(),
        credential_name: credential(view, validation, namespace, conditions),
        ..ClientTlsSettings::default()
    }
}

/// The name of the CAs; empty means those of the proxy's system.
fn credential(
    view: &View<'_>,
    validation: &BackendTlsValidation,
    namespace: &Namespace,
    conditions: &mut Conditions,
) -> String {
    if let Some(known) = &validation.well_known_ca_certificates {
        if known != "System" {
            conditions.set_false(
                "Accepted",
                "Invalid",
                format!("Unknown wellKnownCACertificates: {known}"),
            );
        }
        return String::new();
    }

    let [reference, more @ ..] = validation.ca_certificate_refs.as_slice() else {
        return String::new();
    };

    if !more.is_empty() {
        conditions.append(
            "Accepted",
            "; warning: only the first caCertificateRefs will be used",
        );
    }

    let name = NamespacedName::new(namespace.as_str(), &reference.name);
    let (reason, message) = match (reference.group.as_str(), reference.kind.as_str()) {
        ("", "ConfigMap") => match &*view.get(&RootsFault::ConfigMap(name.clone())) {
            // As in istiod, unparsable CAs are sent, and proxies reject them.
            problem if problem.as_ref().is_none_or(|problem| problem.is_unreadable) => {
                return format!("{CONFIG_MAP_PREFIX}{namespace}/{}", reference.name);
            }
            problem => {
                let text = problem
                    .as_ref()
                    .map(|problem| problem.text.as_str())
                    .unwrap_or_default();
                (
                    "InvalidCACertificateRef",
                    format!("Certificate invalid: {text}"),
                )
            }
        },
        (group, kind) => {
            let is_missing = match (group, kind) {
                ("", "Secret") => view.object::<Secret>(&name).is_none(),
                ("", "Service") => view.object::<Service>(&name).is_none(),
                ("networking.istio.io", "ServiceEntry") => {
                    view.object::<ServiceEntry>(&name).is_none()
                }
                _ => false,
            };

            let reason = if is_missing {
                "InvalidCACertificateRef"
            } else {
                "InvalidKind"
            };

            (
                reason,
                format!(
                    "Certificate reference not supported: only ConfigMaps are, not {kind} {name}"
                ),
            )
        }
    };

    conditions.set_false("ResolvedRefs", reason, message.clone());
    conditions.set_false(
        "Accepted",
        "NoValidCACertificate",
        format!("Certificate reference invalid: {message}"),
    );

    // A name that no secret has: all connections fail.
    INVALID_PREFIX.to_owned()
}
