//! XBackendTrafficPolicies and XBackends (istiod's `BackendTrafficPolicyCollection` and
//! `BackendResourcePolicyCollection`).

use std::sync::Arc;

use super::ancestors::GatewaysOfBackend;
use super::backend_policy::{BackendPolicy, PolicyPort, PolicyTargetObject, PortsOfTarget};
use super::condition::Conditions;
use super::settings::ApiSettings;
use super::tls_policies::{PolicyForms, client_tls, ignored, is_ignored};
use navarch_api::duration::Duration;
use navarch_api::gateway_api::{
    self, ExternalHostname, PolicyTarget, RetryConstraint, XBackend, XBackendTrafficPolicy,
};
use navarch_api::istio::{ClientTlsSettings, RetryBudget};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Default number of concurrent retries that are always allowed.
const MIN_RETRIES: i32 = 10;
/// Default interval over which the percentage of retries is counted.
const DEFAULT_BUDGET_INTERVAL: Duration = Duration::from_secs(10);

/// A translated XBackendTrafficPolicy; `None` if the kind is disabled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TrafficPolicyForms(pub(super) NamespacedName);

/// A translated XBackend; `None` if the kind is disabled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BackendForms(pub(super) NamespacedName);

impl Query for TrafficPolicyForms {
    type Value = Option<Arc<PolicyForms>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let values = view.get(&ApiSettings);
        let policy = view
            .object::<XBackendTrafficPolicy>(&self.0)
            .filter(|_| values.api.alpha)?;
        if is_ignored(policy) {
            return Some(Arc::new(ignored(policy.spec.target_refs.iter())));
        }

        let mut conditions = Conditions::default();
        conditions.set_true("Accepted", "Accepted", "Configuration is valid");

        if policy.spec.session_persistence.is_some() {
            conditions.append(
                "Accepted",
                ", but Istio does not support the following fields: sessionPersistence",
            );
        }

        let budget = policy.spec.retry_constraint.as_ref().map(retry_budget);
        let mut forms = PolicyForms::default();

        for target in &policy.spec.target_refs {
            let name = NamespacedName::new(self.0.namespace.as_str(), &target.name);
            let object = PolicyTargetObject::Service(name.clone());
            let fault = match (target.group.as_str(), target.kind.as_str()) {
                ("", "Service") if view.get(&PortsOfTarget(object.clone())).is_some() => None,
                ("", "Service") => Some(format!("reference {name} (of kind Service) not found")),
                (_, kind) => Some(format!("unsupported kind {kind}")),
            };

            match fault {
                Some(fault) => {
                    conditions.set_false(
                        "Accepted",
                        "TargetNotFound",
                        format!("targetRefs invalid: {fault}"),
                    );
                }
                None => forms.policies.push(BackendPolicy {
                    source: ("XBackendTrafficPolicy", self.0.clone()),
                    created: policy.meta.created,
                    target: object,
                    host: values.host(&target.name, self.0.namespace.as_str()),
                    port: PolicyPort::All,
                    tls: None,
                    traffic: Some(budget.clone()),
                }),
            }

            forms.targets.push((target.clone(), conditions.clone()));
        }

        forms.conditions = conditions;
        Some(Arc::new(forms))
    }
}

fn retry_budget(declared: &RetryConstraint) -> RetryBudget {
    let count = declared.min_retry_rate.count.unwrap_or(MIN_RETRIES);
    RetryBudget {
        percent: Some(f64::from(declared.budget.percent)),
        min_retry_concurrency: u32::try_from(count).unwrap_or_default(),
        budget_interval: Some(
            Duration::parse(&declared.budget.interval).unwrap_or(DEFAULT_BUDGET_INTERVAL),
        ),
    }
}

impl Query for BackendForms {
    type Value = Option<Arc<PolicyForms>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let values = view.get(&ApiSettings);
        let backend = view
            .object::<XBackend>(&self.0)
            .filter(|_| values.api.alpha)?;
        let mut conditions = Conditions::default();
        conditions.set_true("Accepted", "Accepted", "Configuration is valid");
        conditions.set_true("ResolvedRefs", "ResolvedRefs", "Configuration is valid");
        let own = PolicyTargetObject::Backend(self.0.clone());

        let mut forms = PolicyForms::default();

        match &backend.spec.external_hostname {
            Some(host) if backend.spec.kind == "ExternalHostname" => {
                let tls = backend_tls(view, &backend.spec, host, &self.0, &mut conditions);
                forms.policies.extend(tls.map(|tls| BackendPolicy {
                    source: ("XBackend", self.0.clone()),
                    created: backend.meta.created,
                    target: own.clone(),
                    host: host.hostname.clone(),
                    port: PolicyPort::Number(
                        u32::try_from(backend.spec.port.port).unwrap_or_default(),
                    ),
                    tls: Some(tls),
                    traffic: None,
                }));
            }
            _ => {
                let message = format!("unsupported backend type: {}", backend.spec.kind);
                conditions.set_false("Accepted", "Invalid", message);
            }
        }

        forms.gateways = (*view.get(&GatewaysOfBackend(own))).clone();
        let target = PolicyTarget {
            group: gateway_api::EXPERIMENTAL_GROUP.to_owned(),
            kind: "XBackend".to_owned(),
            name: self.0.name.to_string(),
            section_name: None,
        };

        forms.targets.push((target, conditions.clone()));
        forms.conditions = conditions;
        Some(Arc::new(forms))
    }
}

/// The TLS settings of an XBackend, if any.
fn backend_tls(
    view: &View<'_>,
    backend: &XBackend,
    host: &ExternalHostname,
    name: &NamespacedName,
    conditions: &mut Conditions,
) -> Option<ClientTlsSettings> {
    let declared = backend.tls.as_ref()?;
    let fault = match declared.mode.as_str() {
        "ServerOnly" => {
            let mut tls = client_tls(view, &declared.validation, &name.namespace, conditions);
            if tls.sni.is_empty() {
                tls.sni.clone_from(&host.hostname);
            }
            return Some(tls);
        }
        "None" => return None,
        "ClientAndServer" => {
            "unsupported ClientAndServer TLS mode: client certificates for a backend are not supported".to_owned()
        }
        mode => format!("unsupported TLS mode: {mode:?}"),
    };
    conditions.set_false("Accepted", "Invalid", fault);
    None
}
