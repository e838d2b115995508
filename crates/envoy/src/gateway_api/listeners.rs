//! One listener of a Gateway or ListenerSet as a server, and its status (istiod's `buildListener`).

use std::sync::Arc;

use super::classes::Controller;
use super::condition::Conditions;
use super::conflicts::Conflict;
use super::fault::{INVALID_CA_CERTIFICATE_KIND, INVALID_CA_CERTIFICATE_REF, REF_NOT_PERMITTED};
use super::namespaces::hosts_of;
use super::tls::{self, Owner};
use super::{GATEWAY_SEMANTICS, MARK, PARENTS};
use navarch_api::gateway_api::{self, Listener, RouteGroupKind};
use navarch_api::istio::{Gateway, Port, Server, ServerTlsSettings};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_push::view::View;

/// The port of waypoints.
const HBONE_PORT: i32 = 15008;
/// The annotation with the services of the workloads of a Gateway.
const GATEWAY_SERVICE: &str = "internal.istio.io/gateway-service";
/// The annotation with the semantics of a Gateway.
const SEMANTICS: &str = "internal.istio.io/gateway-semantics";
/// The ServiceAccount of a Gateway's proxies.
const SERVICE_ACCOUNT: &str = "internal.istio.io/service-account-name";
/// The namespace of the Gateway of a ListenerSet.
const PARENT_NAMESPACE: &str = "internal.istio.io/parent-namespace";

/// A translated listener.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BuiltListener {
    pub(super) name: String,
    /// Its status conditions.
    pub(super) conditions: Conditions,
    /// The supported kinds of routes.
    pub(super) kinds: Vec<RouteGroupKind>,
    /// Whether it works.
    pub(super) is_valid: bool,
    /// The port of its server; `None` if it has no server.
    pub(super) port: Option<u32>,
    /// The part for routes; `None` if routes cannot attach.
    pub(super) served: Option<ServedListener>,
}

/// The part of a listener that routes attach to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServedListener {
    /// The parent of routes.
    pub(super) parent: Arc<ParentListener>,
    /// Its generated Gateway.
    pub(super) gateway: Arc<Object<Gateway>>,
}

/// A listener as a parent of routes (istiod's `parentInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParentListener {
    /// Its generated Gateway, as `namespace/name`.
    pub(super) gateway: Arc<str>,
    /// The supported kinds of routes.
    pub(super) kinds: Vec<RouteGroupKind>,
    /// Its hosts, as `namespace/host` by the namespaces of allowed routes.
    pub(super) hosts: Vec<String>,
    /// Its declared host; empty means every host.
    pub(super) hostname: String,
    pub(super) section: String,
    pub(super) port: i32,
    pub(super) protocol: String,
}

/// The common part of all listeners of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerOwner<'a> {
    pub(super) controller: Controller,
    /// The metadata of the object.
    pub(super) meta: &'a ObjectMeta,
    pub(super) tls: Owner<'a>,
    /// The hosts of the Services of the Gateway's proxies.
    pub(super) services: &'a [String],
    /// The ServiceAccount of these, if the control plane deploys them.
    pub(super) account: &'a str,
    /// The namespace of the Gateway, for listeners of a ListenerSet.
    pub(super) parent_namespace: Option<&'a str>,
}

/// The kinds of routes that a listener supports, and whether it lists only supported ones.
pub(super) fn kinds_of(listener: &Listener) -> (Vec<RouteGroupKind>, bool) {
    let ends_tls = listener
        .tls
        .as_ref()
        .is_some_and(|tls| tls.mode == "Terminate");
    let kinds: &[&str] = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => &["HTTPRoute", "GRPCRoute"],
        "TCP" => &["TCPRoute"],
        "TLS" if ends_tls => &["TLSRoute", "TCPRoute"],
        "TLS" => &["TLSRoute"],
        _ => &[],
    };

    let named = &listener.allowed_routes.kinds;
    let kind = |kind: &&str| RouteGroupKind {
        group: gateway_api::GROUP.to_owned(),
        kind: (*kind).to_owned(),
    };
    let kinds = kinds
        .iter()
        .map(kind)
        .filter(|kind| named.is_empty() || named.contains(kind));
    let kinds: Vec<_> = kinds.collect();
    let is_good = named.is_empty() || kinds.len() == named.len();

    (kinds, is_good)
}

/// A listener in conflict with another.
pub(super) fn conflicted(listener: &Listener, conflict: Conflict) -> BuiltListener {
    let message = "Listener has a conflict with another listener attached to the same Gateway";
    let mut conditions = Conditions::default();
    conditions.set_false("Accepted", conflict.reason(), message);
    conditions.set_false("Programmed", conflict.reason(), message);
    conditions.set_true("Conflicted", conflict.reason(), message);
    let kinds = with_kinds(listener, &mut conditions);
    BuiltListener {
        name: listener.name.clone(),
        conditions,
        kinds,
        is_valid: false,
        port: None,
        served: None,
    }
}

/// The kinds of routes that a listener supports; unsupported ones are reported in its conditions.
fn with_kinds(listener: &Listener, conditions: &mut Conditions) -> Vec<RouteGroupKind> {
    let (kinds, is_good) = kinds_of(listener);
    if !is_good {
        conditions.set_false("ResolvedRefs", "InvalidRouteKinds", "Invalid route kinds");
    }
    kinds
}

/// Translates a listener. `port_fault` is the reason if it has no port.
pub(super) fn build(
    view: &View<'_>,
    owner: ListenerOwner<'_>,
    listener: &Listener,
    port_fault: Option<&str>,
) -> BuiltListener {
    let mut conditions = Conditions::default();
    conditions.set_true("Accepted", "Accepted", "No errors found");
    conditions.set_true("Programmed", "Programmed", "No errors found");
    conditions.set_false("Conflicted", "NoConflicts", "No errors found");
    conditions.set_true("ResolvedRefs", "ResolvedRefs", "No errors found");
    let mut is_valid = true;
    let (settings, fault) = tls::of_listener(view, owner.tls, listener);

    if let Some(fault) = &fault {
        conditions.fault("ResolvedRefs", fault);
        conditions.set_false("Programmed", "Invalid", "Bad TLS configuration");
        if matches!(
            fault.reason,
            INVALID_CA_CERTIFICATE_REF | INVALID_CA_CERTIFICATE_KIND | REF_NOT_PERMITTED
        ) {
            conditions.set_false("Accepted", "NoValidCACertificate", fault.message.clone());
        }
        is_valid = false;
    }

    let protocol = protocol_fault(owner.controller, &listener.protocol);
    for fault in port_fault.map(str::to_owned).iter().chain(&protocol) {
        conditions.set_false("Accepted", "UnsupportedProtocol", fault.clone());
        is_valid = false;
    }

    if let Some(fault) = shape_fault(owner.controller, listener) {
        conditions.set_false("Accepted", "UnsupportedProtocol", fault);
    }

    let mut has_server = true;

    if settings.is_none() && matches!(listener.protocol.as_str(), "HTTPS" | "TLS") {
        has_server = false;
        // A Gateway may have listeners only for ListenerSets.
        if owner.parent_namespace.is_some() {
            let message = format!(
                "protocol is {} but no TLS section is defined",
                listener.protocol
            );
            conditions.set_false("Accepted", "UnsupportedProtocol", message);
            conditions.set_false("Programmed", "Invalid", "Bad TLS configuration");
            is_valid = false;
        }
    }

    let kinds = with_kinds(listener, &mut conditions);
    let is_known = protocol.is_none();
    let server = has_server.then(|| server(view, owner, listener, settings, is_known));
    let is_tunnel = match owner.controller {
        Controller::Waypoint => true,
        Controller::EastWest => listener.port == HBONE_PORT,
        Controller::Gateway | Controller::Remote => false,
    };

    let port = server
        .as_ref()
        .and_then(|server| server.port.as_ref())
        .map(|port| port.number);
    let served = server
        .filter(|_| !is_tunnel)
        .map(|server| served(owner, listener, server, &kinds));
    BuiltListener {
        name: listener.name.clone(),
        conditions,
        kinds,
        is_valid,
        port,
        served,
    }
}

/// The server of a listener. As in istiod, an unsupported protocol has no name in it.
fn server(
    view: &View<'_>,
    owner: ListenerOwner<'_>,
    listener: &Listener,
    tls: Option<ServerTlsSettings>,
    is_known: bool,
) -> Server {
    let protocol = if is_known {
        listener.protocol.clone()
    } else {
        String::new()
    };
    let number = u32::try_from(listener.port).unwrap_or_default();
    Server {
        port: Some(Port {
            number,
            protocol,
            name: "default".to_owned(),
            ..Port::default()
        }),
        hosts: hosts_of(view, &owner.meta.key.namespace, listener),
        tls,
        ..Server::default()
    }
}

/// The part for routes.
fn served(
    owner: ListenerOwner<'_>,
    listener: &Listener,
    server: Server,
    kinds: &[RouteGroupKind],
) -> ServedListener {
    let own = &owner.meta.key;
    let name = NamespacedName::of(
        own.namespace.clone(),
        format!("{}~{MARK}~{}", own.name, listener.name).into(),
    );
    let kind = if owner.parent_namespace.is_some() {
        "ListenerSet"
    } else {
        "Gateway"
    };

    let parent = ParentListener {
        gateway: name.to_string().into(),
        kinds: kinds.to_vec(),
        hosts: server.hosts.clone(),
        hostname: listener.hostname.clone().unwrap_or_default(),
        section: listener.name.clone(),
        port: listener.port,
        protocol: listener.protocol.clone(),
    };

    let mut annotations = vec![
        (
            PARENTS,
            format!("{kind}/{}/{}.{}", own.name, listener.name, own.namespace),
        ),
        (SEMANTICS, GATEWAY_SEMANTICS.to_owned()),
        (GATEWAY_SERVICE, owner.services.join(",")),
        (SERVICE_ACCOUNT, owner.account.to_owned()),
    ];

    annotations.extend(
        owner
            .parent_namespace
            .map(|namespace| (PARENT_NAMESPACE, namespace.to_owned())),
    );
    let annotations = annotations
        .into_iter()
        .map(|(key, value)| (Arc::from(key), Arc::from(value)));

    let meta = ObjectMeta {
        key: name,
        created: owner.meta.created,
        annotations: annotations.collect(),
        ..ObjectMeta::default()
    };

    let gateway = Gateway {
        servers: vec![server],
        ..Gateway::default()
    };
    ServedListener {
        parent: Arc::new(parent),
        gateway: Arc::new(Object {
            meta,
            spec: gateway,
        }),
    }
}

/// Why a protocol is not supported.
fn protocol_fault(controller: Controller, protocol: &str) -> Option<String> {
    match protocol {
        "HTTP" | "HTTPS" | "TLS" | "TCP" => None,
        "HBONE" => {
            let is_tunnel = matches!(controller, Controller::Waypoint | Controller::EastWest);
            (!is_tunnel)
                .then(|| format!("protocol {protocol:?} is only supported for waypoint proxies"))
        }
        _ => {
            let upper = protocol.to_uppercase();
            match upper.as_str() {
                "HTTP" | "HTTPS" | "TLS" | "TCP" | "HBONE" => Some(format!(
                    "protocol {protocol:?} is unsupported. hint: {upper:?} (uppercase) may be supported"
                )),
                _ => Some(format!("protocol {protocol:?} is unsupported")),
            }
        }
    }
}

/// Why a listener is not valid for tunnels of an ambient mesh.
fn shape_fault(controller: Controller, listener: &Listener) -> Option<&'static str> {
    let mode = listener.tls.as_ref().map(|tls| tls.mode.as_str());
    match controller {
        Controller::Waypoint => (listener.port != HBONE_PORT || listener.protocol != "HBONE")
            .then_some("Expected a single listener on port 15008 with protocol \"HBONE\""),
        Controller::EastWest => {
            let is_good = match listener.port {
                HBONE_PORT => listener.protocol == "HBONE" && mode == Some("Terminate"),
                _ => listener.protocol == "TLS" && mode == Some("Passthrough"),
            };
            (!is_good).then_some(
                "East-west gateway listeners must be either port 15008 with protocol \"HBONE\" and TLS.Mode == Terminate, \
                 or TLS with TLS.Mode == Passthrough",
            )
        }
        Controller::Gateway | Controller::Remote => None,
    }
}
