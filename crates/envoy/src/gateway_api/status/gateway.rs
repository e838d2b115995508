//! The status of Gateways and ListenerSets (istiod's `reportGatewayStatus` and
//! `ReportListenerSetStatus`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::gateway_api::addresses::{Instances, InstancesOf};
use crate::gateway_api::attached::attached;
use crate::gateway_api::classes::Controller;
use crate::gateway_api::condition::{Condition, ConditionStatus, Conditions};
use crate::gateway_api::fault::{Fault, INVALID_CLIENT_CERTIFICATE_REF, REF_NOT_PERMITTED};
use crate::gateway_api::gateways::{BuiltGateway, GatewayForms, ParentObject};
use crate::gateway_api::grants::{Referent, Referrer};
use crate::gateway_api::listener_set_index::listener_sets_of;
use crate::gateway_api::listener_sets::ListenerSetForms;
use crate::gateway_api::listeners::BuiltListener;
use crate::gateway_api::tls::{self, Owner};
use navarch_api::gateway_api::{KubernetesGateway, Listener, ListenerSet};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::view::View;

/// The annotation with the type of addresses to report.
const ADDRESS_TYPE: &str = "networking.istio.io/address-type";
/// The field in place of the listeners with those whose status is kept.
const KEPT_LISTENERS: &str = "keptListeners";
/// The condition for accepting clients without valid certificates.
const INSECURE: &str = "InsecureFrontendValidationMode";

/// The status of a Gateway.
pub(super) fn gateway(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let gateway = view.object::<KubernetesGateway>(name)?;
    let built = (*view.get(&GatewayForms(name.clone()))).clone()?;
    if built.controller == Controller::Remote {
        return Some(remote(gateway));
    }

    let (set_count, set_ports) = listener_set_ports(view, name);
    let own_ports = built.listeners.iter().filter_map(|listener| listener.port);
    let instances = view.get(&InstancesOf {
        namespace: name.namespace.clone(),
        services: built.services.clone(),
        ports: own_ports.chain(set_ports).collect(),
    });
    let mut conditions = Conditions::default();
    accept(&built, &mut conditions);

    match client_certificate_fault(view, gateway) {
        Some(fault) => conditions.fault("ResolvedRefs", &fault),
        None => conditions.set_true("ResolvedRefs", "ResolvedRefs", "All references resolved"),
    }

    let mut status = Map::new();

    if let Some(is_insecure) = is_insecure(gateway) {
        match is_insecure {
            true => {
                let message =
                    "Gateway is operating in AllowInsecureFallback mode for frontend validation";
                conditions.set_true(INSECURE, "ConfigurationChanged", message);
            }
            false => _ = status.insert("withoutConditions".to_owned(), json!([INSECURE])),
        }
    }

    conditions.set("Programmed", programmed(&built.services, &instances));
    let addresses = addresses(gateway, built.controller, &instances);
    if !addresses.is_empty() {
        status.insert("addresses".to_owned(), json!(addresses));
    }

    if set_count > 0 {
        status.insert("attachedListenerSets".to_owned(), json!(set_count));
    }

    let (member, value) = if is_unread(&built.services, built.fault.as_ref()) {
        (KEPT_LISTENERS, without_routes(&gateway.spec.listeners))
    } else {
        let counts = attached(view, ParentObject::Gateway(name.clone()));
        (
            "listeners",
            listeners(&built.listeners, &counts, gateway.meta.generation),
        )
    };

    status.insert(member.to_owned(), value);
    status.insert(
        "conditions".to_owned(),
        conditions.to_json(gateway.meta.generation),
    );

    Some(Value::Object(status))
}

/// The status of a Gateway of another network: it is always accepted.
fn remote(gateway: &Object<KubernetesGateway>) -> Value {
    let mut conditions = Conditions::default();
    conditions.set_true("Accepted", "Accepted", "Resource accepted");
    conditions.set_true(
        "Programmed",
        "Programmed",
        "This Gateway is remote; Istio will not program it",
    );

    let addresses: Vec<Value> = gateway
        .spec
        .addresses
        .iter()
        .map(|address| json!({ "type": address.kind, "value": address.value }))
        .collect();

    json!({
        "addresses": addresses,
        "listeners": [],
        "conditions": conditions.to_json(gateway.meta.generation),
    })
}

/// The number of valid ListenerSets of a Gateway, and the ports of their valid listeners.
fn listener_set_ports(view: &View<'_>, gateway: &NamespacedName) -> (usize, BTreeSet<u32>) {
    let mut count = 0;
    let mut ports = BTreeSet::new();
    for set in listener_sets_of(view, gateway).iter() {
        let built = view.get(&ListenerSetForms(set.clone()));
        let listeners = (*built)
            .as_ref()
            .map(|built| built.listeners.as_slice())
            .unwrap_or_default();
        let mut valid = listeners
            .iter()
            .filter(|listener| listener.is_valid && listener.served.is_some())
            .peekable();
        count += usize::from(valid.peek().is_some());
        ports.extend(valid.filter_map(|listener| listener.port));
    }
    (count, ports)
}

/// Whether none of a Gateway's addresses is usable: then listeners are not checked.
fn is_unread(services: &[String], fault: Option<&Fault>) -> bool {
    services.is_empty() && fault.is_some()
}

/// The status of listeners without attached routes and without conditions.
fn without_routes(listeners: &[Listener]) -> Value {
    listeners
        .iter()
        .map(|listener| json!({ "name": listener.name, "attachedRoutes": 0 }))
        .collect()
}

/// Sets whether a Gateway is accepted.
fn accept(built: &BuiltGateway, conditions: &mut Conditions) {
    let valid = built
        .listeners
        .iter()
        .filter(|listener| listener.is_valid)
        .count();

    match (&built.fault, valid) {
        (Some(fault), _) => conditions.fault("Accepted", fault),
        (None, 0) if !built.listeners.is_empty() => {
            conditions.set_false(
                "Accepted",
                "ListenersNotValid",
                "None of the Gateway's listeners are valid",
            );
        }
        (None, valid) if valid < built.listeners.len() => {
            conditions.set_true(
                "Accepted",
                "ListenersNotValid",
                "One or more of the Gateway's listeners are invalid",
            );
        }
        (None, _) => conditions.set_true("Accepted", "Accepted", "Resource accepted"),
    }
}

/// Whether clients without valid certificates are accepted; `None` without frontend validation.
fn is_insecure(gateway: &Object<KubernetesGateway>) -> Option<bool> {
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    let all = frontend
        .per_port
        .iter()
        .map(|port| &port.tls)
        .chain([&frontend.default]);
    let mut modes = all
        .filter_map(|tls| tls.validation.as_ref())
        .map(|validation| validation.mode.as_str());
    Some(modes.any(|mode| mode == "AllowInsecureFallback"))
}

/// The fault of the client certificate for backends.
fn client_certificate_fault(view: &View<'_>, gateway: &Object<KubernetesGateway>) -> Option<Fault> {
    let reference = gateway
        .spec
        .tls
        .as_ref()?
        .backend
        .as_ref()?
        .client_certificate_ref
        .as_ref()?;

    let own = &gateway.meta.key.namespace;
    let namespace = reference
        .namespace
        .as_deref()
        .map_or_else(|| own.clone(), Namespace::new);
    let owner = Owner {
        kind: Referrer::Gateway,
        namespace: own,
        labels: &gateway.meta.labels,
        tls: None,
    };

    // The existence of an object of another namespace must not be disclosed without a grant.
    if namespace != *own
        && !tls::may_read(view, owner, Referent::Secret, &namespace, &reference.name)
    {
        let message = format!(
            "clientCertificateRef {}/{namespace} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            reference.name,
            own.as_str()
        );
        return Some(Fault::new(REF_NOT_PERMITTED, message));
    }

    tls::check_secret(view, reference, &namespace, "clientCertificateRef")
        .err()
        .map(|message| Fault::new(INVALID_CLIENT_CERTIFICATE_REF, message))
}

/// Sets whether proxies exist.
fn programmed(services: &[String], instances: &Instances) -> Condition {
    if services.is_empty() {
        let message = "Failed to assign to any requested addresses";
        return Condition::new(ConditionStatus::False, "UnsupportedAddress", message);
    }

    let internal = joined(&instances.internal);

    if !instances.warnings.is_empty() {
        let warnings = instances.warnings.join("; ");
        let message = match internal.is_empty() {
            true => format!("Failed to assign to any requested addresses: {warnings}"),
            false => {
                format!(
                    "Assigned to service(s) {internal}, but failed to assign to all requested addresses: {warnings}"
                )
            }
        };

        let reason = if instances.is_unusable {
            "AddressNotUsable"
        } else {
            "AddressNotAssigned"
        };

        return Condition::new(ConditionStatus::False, reason, message);
    }

    let message = match internal.is_empty() {
        true => "Resource programmed".to_owned(),
        false => format!("Resource programmed, assigned to service(s) {internal}"),
    };
    Condition::new(ConditionStatus::True, "Programmed", message)
}

/// Joins texts as an English list.
fn joined(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [only] => only.clone(),
        [first, second] => format!("{first} and {second}"),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}

/// The addresses of a Gateway: external ones, else in-cluster ones. While none is known, the
/// previous ones are kept.
fn addresses(
    gateway: &Object<KubernetesGateway>,
    controller: Controller,
    instances: &Instances,
) -> Vec<Value> {
    let mut addresses: Vec<String> = instances.external.iter().cloned().collect();
    if addresses.is_empty() {
        let wanted = gateway
            .meta
            .annotations
            .get(ADDRESS_TYPE)
            .map(|wanted| &**wanted);
        let wanted = wanted
            .or_else(|| controller.address_type())
            .filter(|wanted| !wanted.is_empty());
        if wanted != Some("Hostname") {
            addresses.extend(instances.internal_ips.iter().cloned());
        }

        if wanted != Some("IPAddress") {
            for host in instances
                .internal
                .iter()
                .filter_map(|internal| internal.rsplit_once(':'))
                .map(|(host, _)| host)
            {
                if !instances.pending.contains(host) && !addresses.iter().any(|known| known == host)
                {
                    addresses.push(host.to_owned());
                }
            }
        }
    }

    let kind = |address: &str| {
        if address.parse::<IpAddr>().is_ok() {
            "IPAddress"
        } else {
            "Hostname"
        }
    };

    addresses
        .iter()
        .map(|address| json!({ "type": kind(address), "value": address }))
        .collect()
}

/// The statuses of listeners, in their order.
fn listeners(
    listeners: &[BuiltListener],
    counts: &BTreeMap<String, i32>,
    generation: i64,
) -> Value {
    let mut seen = BTreeSet::new();
    let write = |listener: &BuiltListener| {
        let kinds: Vec<Value> = listener
            .kinds
            .iter()
            .map(|kind| json!({ "group": kind.group, "kind": kind.kind }))
            .collect();
        json!({
            "name": listener.name,
            "supportedKinds": kinds,
            "attachedRoutes": counts.get(&listener.name).copied().unwrap_or_default(),
            "conditions": listener.conditions.to_json(generation),
        })
    };

    listeners
        .iter()
        .filter(|listener| seen.insert(&listener.name))
        .map(write)
        .collect()
}

/// The status of a ListenerSet.
pub(super) fn listener_set(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let set = view.object::<ListenerSet>(name)?;
    let built = (*view.get(&ListenerSetForms(name.clone()))).clone()?;
    let generation = set.meta.generation;
    let mut conditions = Conditions::default();

    if let Some(rejection) = &built.rejection {
        conditions.set_false("Accepted", "NotAllowed", rejection.clone());
        conditions.set_false("Programmed", "NotAllowed", rejection.clone());
        return Some(json!({ "listeners": [], "conditions": conditions.to_json(generation) }));
    }

    let has_valid = built
        .listeners
        .iter()
        .any(|listener| listener.is_valid && listener.port.is_some());
    let is_unread = is_unread(&built.services, built.fault.as_ref());
    let is_good = has_valid || is_unread;
    let instances = view.get(&InstancesOf {
        namespace: built.gateway.namespace.clone(),
        services: built.services.clone(),
        ports: built
            .listeners
            .iter()
            .filter_map(|listener| listener.port)
            .collect(),
    });

    let not_valid = "None of the ListenerSet's listeners are valid";

    match &built.fault {
        Some(fault) => conditions.set_false(
            "Accepted",
            fault.reason,
            format!("Parent not accepted: {}", fault.message),
        ),
        None if is_good => conditions.set_true("Accepted", "Accepted", "Resource accepted"),
        None => conditions.set_false("Accepted", "ListenersNotValid", not_valid),
    }

    match is_good {
        true => conditions.set("Programmed", programmed(&built.services, &instances)),
        false => conditions.set_false("Programmed", "ListenersNotValid", not_valid),
    }

    let conditions = conditions.to_json(generation);

    if is_unread {
        return Some(
            json!({ KEPT_LISTENERS: without_routes(&set.spec.listeners), "conditions": conditions }),
        );
    }

    let counts = attached(view, ParentObject::ListenerSet(name.clone()));
    let mut listeners = listeners(&built.listeners, &counts, generation);

    // The Gateway API's types write an empty list of a Gateway's listener, but not that of a
    // ListenerSet's.
    for listener in listeners
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        listener.retain(|field, value| field != "supportedKinds" || *value != json!([]));
    }
    Some(json!({ "listeners": listeners, "conditions": conditions }))
}
