//! The Secrets that the Gateways of a proxy may reference by `kubernetes-gateway://`.
//!
//! Such names contain a namespace, so the Gateway's author must be authorized there: the Secret is
//! in the namespace of the Gateway, and the Gateway is for this proxy. Agrees with `mergeGateways`
//! in `pilot/pkg/model/gateway.go`.

use std::collections::BTreeSet;

use super::selection::{PARENT_NAMESPACE, SERVICE_ACCOUNT, SelectedGateways};
use crate::config_objects;
use crate::sds::{CA_SUFFIX, GATEWAY_SECRET_PREFIX};
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

impl Query for VerifiedReferences {
    type Value = BTreeSet<String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut verified = BTreeSet::new();
        for selected in view.get(&SelectedGateways).iter() {
            if let Some(gateway) = config_objects::gateway(view, &selected.name)
                && let Some(namespace) = trusted_namespace(&gateway, view)
            {
                let servers = gateway
                    .spec
                    .servers
                    .iter()
                    .filter(|server| server.port.is_some());
                servers.for_each(|server| add_references(server, &namespace, &mut verified));
            }
        }
        verified
    }
}

/// The namespace whose Secrets the Gateway may reference for this proxy, if the Gateway is for it.
fn trusted_namespace(gateway: &Object<Gateway>, view: &View<'_>) -> Option<Namespace> {
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
    (by_listener_set || gateway.meta.key.namespace == own)
        .then(|| gateway.meta.key.namespace.clone())
}

fn add_references(server: &Server, namespace: &Namespace, verified: &mut BTreeSet<String>) {
    let Some(tls) = &server.tls else { return };
    let prefix = format!("{GATEWAY_SECRET_PREFIX}{namespace}/");
    let is_here = |name: &&String| name.starts_with(&prefix);
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

    for name in names.iter().filter(is_here) {
        verified.insert(name.clone());
        if checks_clients {
            verified.insert(format!("{name}{CA_SUFFIX}"));
        }
    }

    verified.extend(Some(&tls.ca_cert_credential_name).filter(is_here).cloned());
}
