//! Destinations of routes (istiod's `buildDestination`).

use super::fault::{
    BACKEND_NOT_FOUND, Fault, INVALID_DESTINATION, INVALID_KIND, REF_NOT_PERMITTED,
};
use super::grants::{self, Reference, Referent};
use super::inference_pools::{self, EndpointPicker};
use super::route_kinds::RouteName;
use super::settings::ApiSettings;
use navarch_api::gateway_api::{BackendObject, InferencePool, XBackend, pool_service_name};
use navarch_api::istio::{Destination, PortSelector};
use navarch_api::kubernetes::Service;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The destination of a backend reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Backend {
    /// The destination; without a host, requests get a 500 response.
    pub(super) destination: Destination,
    pub(super) picker: Option<EndpointPicker>,
    /// Its fault, if any.
    pub(super) fault: Option<Fault>,
}

/// Whether a Service exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasService(NamespacedName);

/// Whether a namespace declares a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasHost(ServiceKey);

impl Query for HasService {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.object::<Service>(&self.0).is_some()
    }
}

impl Query for HasHost {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.service(&self.0).is_some()
    }
}

/// A backend that does not exist.
fn nowhere(reason: &'static str, message: String) -> Result<Backend, Fault> {
    Ok(Backend {
        fault: Some(Fault::new(reason, message)),
        ..Backend::default()
    })
}

fn destination(host: String, port: u32) -> Destination {
    Destination {
        host,
        port: Some(PortSelector { number: port }),
        ..Destination::default()
    }
}

/// The destination of a route's backend. `checks_grants` is whether references to other namespaces
/// require a grant.
///
/// # Errors
/// If the rule with the reference cannot be served at all.
pub(super) fn backend(
    view: &View<'_>,
    route: &RouteName,
    to: &BackendObject,
    checks_grants: bool,
) -> Result<Backend, Fault> {
    let own = route.name.namespace.as_str();

    if let Some(namespace) = to
        .namespace
        .as_deref()
        .filter(|namespace| checks_grants && *namespace != own)
        && !is_granted(view, route, to, namespace)
    {
        let message = format!(
            "backendRef {}/{namespace} not accessible to a {} in namespace {own:?} (missing a ReferenceGrant?)",
            to.name,
            route.kind.as_str()
        );
        return nowhere(REF_NOT_PERMITTED, message);
    }

    let namespace = to.namespace.as_deref().unwrap_or(own);
    let name = NamespacedName::new(namespace, &to.name);
    let values = view.get(&ApiSettings);
    let missing = |host: &str| Fault::new(BACKEND_NOT_FOUND, format!("backend({host}) not found"));
    let (host, exists) = match (to.group.as_str(), to.kind.as_str()) {
        ("", "Service") => {
            if to.name.contains('.') {
                let message =
                    "service name invalid; the name of the Service must be used, not the hostname.";
                return Err(Fault::new(INVALID_DESTINATION, message));
            }

            (
                values.host(&to.name, namespace),
                *view.get(&HasService(name)),
            )
        }
        ("networking.istio.io", "Hostname") => {
            if to.namespace.is_some() {
                let message = "namespace may not be set with Hostname type";
                return Err(Fault::new(INVALID_DESTINATION, message));
            }
            (
                to.name.clone(),
                *view.get(&HasHost(ServiceKey::new(namespace, &to.name))),
            )
        }
        (group, "ServiceImport") if group == values.api.mcs_group => {
            let host = match values.api.mcs_host {
                true => format!("{}.{namespace}.svc.clusterset.local", to.name),
                false => values.host(&to.name, namespace),
            };
            (host, *view.get(&HasService(name)))
        }
        (group, "XBackend") if Referent::parse(group, "XBackend").is_some() => {
            return external(view, to, &name);
        }
        (group, "InferencePool") if Referent::parse(group, "InferencePool").is_some() => {
            return pool(view, to, &name);
        }
        (group, kind) => {
            return nowhere(
                INVALID_KIND,
                format!("referencing unsupported backendRef: group {group:?} kind {kind:?}"),
            );
        }
    };

    let Some(port) = to.port else {
        return Err(Fault::new(
            INVALID_DESTINATION,
            "port is required in backendRef",
        ));
    };

    let fault = (!exists).then(|| missing(&host));
    Ok(Backend {
        destination: destination(host, u32::try_from(port).unwrap_or_default()),
        picker: None,
        fault,
    })
}

/// Whether a grant allows the route to reference a backend of another namespace.
fn is_granted(view: &View<'_>, route: &RouteName, to: &BackendObject, namespace: &str) -> bool {
    let Some(referent) = Referent::parse(&to.group, &to.kind) else {
        return false;
    };
    let reference = Reference {
        from: route.kind.referrer(),
        from_namespace: route.name.namespace.clone(),
        to: referent,
        to_namespace: Namespace::new(namespace),
    };
    grants::allows(view, reference, &to.name)
}

/// The destination of an XBackend.
fn external(view: &View<'_>, to: &BackendObject, name: &NamespacedName) -> Result<Backend, Fault> {
    if !view.get(&ApiSettings).api.alpha {
        let message = "XBackend is not enabled; set PILOT_ENABLE_ALPHA_GATEWAY_API to true";
        return nowhere(INVALID_KIND, message.to_owned());
    }

    let Some(object) = view.object::<XBackend>(name) else {
        return nowhere(BACKEND_NOT_FOUND, format!("backend({}) not found", to.name));
    };

    let host = match &object.spec.external_hostname {
        Some(host) if object.spec.kind == "ExternalHostname" => host.hostname.clone(),
        _ => {
            let message = format!(
                "backend({}) type: expected ExternalHostname, got {}",
                to.name, object.spec.kind
            );
            return nowhere(INVALID_KIND, message);
        }
    };

    let own = object.spec.port.port;
    if let Some(port) = to.port.filter(|port| *port != own) {
        let message = format!(
            "backend({}) does not expose port {port}, expected {own}",
            to.name
        );
        return nowhere(BACKEND_NOT_FOUND, message);
    }

    let exists = *view.get(&HasHost(ServiceKey::new(name.namespace.as_str(), &host)));
    let fault =
        (!exists).then(|| Fault::new(BACKEND_NOT_FOUND, format!("backend({host}) not found")));
    Ok(Backend {
        destination: destination(host, u32::try_from(own).unwrap_or_default()),
        picker: None,
        fault,
    })
}

/// The destination of an InferencePool: its generated Service, with its endpoint picker.
fn pool(view: &View<'_>, to: &BackendObject, name: &NamespacedName) -> Result<Backend, Fault> {
    let values = view.get(&ApiSettings);
    if !values.api.inference {
        let message =
            "InferencePool is not enabled; set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to true";
        return nowhere(INVALID_KIND, message.to_owned());
    }

    if to.name.contains('.') {
        let message = "InferencePool.Name invalid; the name of the InferencePool must be used, not the hostname.";
        return Err(Fault::new(INVALID_DESTINATION, message));
    }

    if view.object::<InferencePool>(name).is_none() {
        return nowhere(BACKEND_NOT_FOUND, format!("backend({}) not found", to.name));
    }

    let namespace = name.namespace.as_str();
    let host = values.host(&pool_service_name(&to.name), namespace);
    let key = ServiceKey::new(namespace, &host);
    let Some(service) = (*view.get(&inference_pools::PoolService(key))).clone() else {
        return nowhere(BACKEND_NOT_FOUND, format!("backend({host}) not found"));
    };

    let Some(picker) = service.picker else {
        let message = "InferencePool service invalid, extensionRef labels not found";
        return Err(Fault::new(INVALID_DESTINATION, message));
    };

    Ok(Backend {
        destination: destination(host, service.port),
        picker: Some(picker),
        fault: None,
    })
}
