//! The Secrets that the Gateways of a proxy may reference by `kubernetes-gateway://`.
//!
//! Such names contain a namespace, so the Gateway's author must be authorized there: the Gateway is
//! for this proxy, and the Secret is in the namespace of the Gateway, or a ReferenceGrant allows the
//! reference. The conditions of listeners depend on the same grants (`gateway_api::tls`). Agrees
//! with `mergeGateways` in `pilot/pkg/model/gateway.go`.

use std::collections::BTreeSet;

use super::selection::{PARENT_NAMESPACE, SERVICE_ACCOUNT, SelectedGateways};
use crate::config_objects;
use crate::credentials::reference::gateway_secret;
use crate::gateway_api::{self, Referrer};
use crate::sds::CA_SUFFIX;
use navarch_api::istio::{Gateway, Server, ServerTlsMode};
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The annotation with the source objects of a Gateway, as `Kind/name…`.
const PARENTS: &str = "internal.istio.io/parents";
/// Prefix of the source of a ListenerSet's listeners.
const LISTENER_SET: &str = "ListenerSet/";

/// The resource names of the Secrets that the proxy's Gateways may reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VerifiedReferences;

/// Whether a Gateway of the proxy references this Secret, and may do so.
pub(crate) fn refers_to_secret(view: &View<'_>, resource_name: &str) -> bool {
    view.get(&VerifiedReferences).contains(resource_name)
}

/// The object whose references are verified: the listeners of a Gateway or ListenerSet.
struct Author {
    kind: Referrer,
    namespace: Namespace,
}

impl Query for VerifiedReferences {
    type Value = BTreeSet<String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut verified = BTreeSet::new();
        for selected in view.get(&SelectedGateways).iter() {
            if let Some(gateway) = config_objects::gateway(view, &selected.name)
                && let Some(author) = Author::trusted(&gateway, view)
            {
                let servers = gateway
                    .spec
                    .servers
                    .iter()
                    .filter(|server| server.port.is_some());
                servers.for_each(|server| author.add_references(view, server, &mut verified));
            }
        }
        verified
    }
}

impl Author {
    /// The author of a Gateway, if the Gateway is for this proxy.
    fn trusted(gateway: &Object<Gateway>, view: &View<'_>) -> Option<Self> {
        let annotation = |name: &str| {
            gateway
                .meta
                .annotations
                .get(name)
                .map(|value| &**value)
                .filter(|text| !text.is_empty())
        };

        let own = view.proxy().verified_namespace()?;
        let expected = annotation(PARENT_NAMESPACE).unwrap_or(gateway.meta.key.namespace.as_str());
        if own.as_str() != expected {
            return None;
        }

        if let Some(account) = annotation(SERVICE_ACCOUNT)
            && view.proxy().identity()?.service_account.as_str() != account
        {
            return None;
        }

        // Listeners of a ListenerSet may be in another namespace: their Gateway allows it.
        let by_listener_set =
            annotation(PARENTS).is_some_and(|parents| parents.starts_with(LISTENER_SET));
        let kind = if by_listener_set {
            Referrer::ListenerSet
        } else {
            Referrer::Gateway
        };

        (by_listener_set || gateway.meta.key.namespace == own).then(|| Self {
            kind,
            namespace: gateway.meta.key.namespace.clone(),
        })
    }

    fn add_references(&self, view: &View<'_>, server: &Server, verified: &mut BTreeSet<String>) {
        let Some(tls) = &server.tls else { return };
        let is_allowed = |name: &&String| self.may_reference(view, name);
        let single = std::slice::from_ref(&tls.credential_name);
        let names = if tls.credential_names.is_empty() {
            single
        } else {
            &tls.credential_names
        };

        let checks_clients = matches!(
            tls.mode,
            ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual
        );

        for name in names.iter().filter(is_allowed) {
            verified.insert(name.clone());
            if checks_clients {
                verified.insert(format!("{name}{CA_SUFFIX}"));
            }
        }

        let roots = Some(&tls.ca_cert_credential_name);
        verified.extend(roots.filter(is_allowed).cloned());
    }

    /// Whether the author may reference the Secret of a resource name.
    fn may_reference(&self, view: &View<'_>, resource_name: &str) -> bool {
        gateway_secret(resource_name).is_some_and(|secret| {
            secret.namespace == self.namespace
                || gateway_api::allows_secret(view, self.kind, &self.namespace, &secret)
        })
    }
}
