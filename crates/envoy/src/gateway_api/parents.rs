//! The parents of a route, and why it does not attach to some (istiod's
//! `extractParentReferenceInfo`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::classes::MESH_CONTROLLER;
use super::gateways::{OpenListener, ParentListeners, ParentObject};
use super::listeners::ParentListener;
use super::route_kinds::{CommonRoute, RouteName};
use super::settings::ApiSettings;
use navarch_api::gateway_api::{self, GatewayClass, KubernetesGateway, ParentReference};
use navarch_api::hostname;
use navarch_api::istio::{MESH_GATEWAY, ServiceEntry};
use navarch_api::kubernetes::Service;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_api::text_map::TextMap;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The label with the name of a waypoint.
const USE_WAYPOINT: &str = "istio.io/use-waypoint";
/// The label with the namespace of a waypoint.
const USE_WAYPOINT_NAMESPACE: &str = "istio.io/use-waypoint-namespace";

/// All attachments of a route, by reference; for a reference without any, the attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParentsOf(pub(super) RouteName);

/// The labels of a mesh parent; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ParentLabels(MeshParent);

/// A parent of routes of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MeshParent {
    Service(NamespacedName),
    ServiceEntry(NamespacedName),
}

/// The target of one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Listener {
        of: ParentObject,
        listener: Arc<ParentListener>,
        /// The hosts of all listeners of the port and protocol, among which the most specific takes
        /// a host; `None` if they cannot matter.
        beside: Option<Arc<BTreeSet<String>>>,
    },
    /// All clients in the mesh.
    Mesh(MeshParent),
}

/// One attempt to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// The index of the route's reference.
    pub(super) reference: usize,
    /// The port of the reference.
    pub(super) port: Option<i32>,
    pub(super) target: Target,
    /// Why it is denied, if it is.
    pub(super) denied: Option<Denial>,
    /// The fault of the waypoint, which is only used in an ambient mesh.
    pub(super) waypoint_fault: Option<&'static str>,
}

/// Why a route does not attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// The reason of the condition.
    pub(super) reason: DenialReason,
    pub(super) message: String,
}

/// Why a route does not attach, the most specific reason first: if listeners differ, that one is
/// reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DenialReason {
    /// The listener does not allow such routes.
    NotAllowedByListeners,
    /// No host matches the listener's.
    NoMatchingListenerHostname,
    /// The parent does not exist.
    NoMatchingParent,
}

impl DenialReason {
    /// The reason in conditions.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowedByListeners => "NotAllowedByListeners",
            Self::NoMatchingListenerHostname => "NoMatchingListenerHostname",
            Self::NoMatchingParent => "NoMatchingParent",
        }
    }
}

impl Target {
    /// The Gateway name in VirtualServices, or `mesh`.
    pub(super) fn gateway(&self) -> Arc<str> {
        match self {
            Self::Listener { listener, .. } => listener.gateway.clone(),
            Self::Mesh(_) => Arc::from(MESH_GATEWAY),
        }
    }

    /// Whether a host of a route matches the listener's, and not that of a more specific one.
    pub(super) fn matches_host(&self, host: &str) -> bool {
        let Self::Listener {
            listener, beside, ..
        } = self
        else {
            return true;
        };

        let own = listener.hostname.as_str();
        if !own.is_empty() {
            if !hostname::is_wildcard(own) {
                return true;
            }
            if !hostname::matches(host, own) {
                return false;
            }
        }

        let mut others = beside
            .iter()
            .flat_map(|hosts| hosts.iter())
            .filter(|other| *other != own);
        !others.any(|other| own.len() <= other.len() && hostname::is_subset_of(host, other))
    }
}

impl Query for ParentLabels {
    type Value = Option<TextMap>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        match &self.0 {
            MeshParent::Service(name) => view
                .object::<Service>(name)
                .map(|service| service.meta.labels.clone()),
            MeshParent::ServiceEntry(name) => view
                .object::<ServiceEntry>(name)
                .map(|entry| entry.meta.labels.clone()),
        }
    }
}

impl Query for ParentsOf {
    type Value = Vec<Attachment>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(route) = self.0.common(view) else {
            return Vec::new();
        };
        let own = &route.meta.key.namespace;
        let mut order: Vec<(String, usize)> = route
            .parents
            .iter()
            .enumerate()
            .map(|(index, parent)| (text_of(parent, own), index))
            .collect();
        order.sort();
        let found = order
            .into_iter()
            .filter_map(|(_, index)| Some((index, route.parents.get(index)?)));
        found
            .flat_map(|(index, parent)| attachments(view, &self.0, route, index, parent))
            .collect()
    }
}

/// The sort key of a reference.
pub(super) fn text_of(parent: &ParentReference, own: &Namespace) -> String {
    let ParentReference {
        group,
        kind,
        namespace,
        name,
        section_name,
        port,
    } = parent;
    let section = section_name.as_deref().unwrap_or_default();
    let namespace = namespace.as_deref().unwrap_or(own.as_str());
    format!(
        "{group}/{kind}/{name}/{section}/{}.{namespace}",
        port.unwrap_or_default()
    )
}

/// The result for one reference.
fn attachments(
    view: &View<'_>,
    name: &RouteName,
    route: CommonRoute<'_>,
    index: usize,
    parent: &ParentReference,
) -> Vec<Attachment> {
    let own = &route.meta.key.namespace;
    let object = NamespacedName::new(
        parent.namespace.as_deref().unwrap_or(own.as_str()),
        &parent.name,
    );
    let (of, mesh) = match (parent.group.as_str(), parent.kind.as_str()) {
        (gateway_api::GROUP, "Gateway") => (Some(ParentObject::Gateway(object)), None),
        (gateway_api::GROUP, "ListenerSet") => (Some(ParentObject::ListenerSet(object)), None),
        ("", "Service") => (None, Some(MeshParent::Service(object))),
        ("networking.istio.io", "ServiceEntry") => (None, Some(MeshParent::ServiceEntry(object))),
        // It may be for another controller.
        _ => return Vec::new(),
    };

    if let Some(mesh) = mesh {
        if is_of_other_controller(view, &mesh) {
            return Vec::new();
        }
        let (denied, waypoint_fault) = mesh_faults(view, &mesh);
        let target = Target::Mesh(mesh);
        return vec![Attachment {
            reference: index,
            port: parent.port,
            target,
            denied,
            waypoint_fault,
        }];
    }

    let Some(of) = of else { return Vec::new() };
    let listeners = view.get(&ParentListeners(of.clone()));
    let attach = |OpenListener { listener, beside }: &OpenListener, denied: Option<Denial>| {
        let is_open = denied.is_none()
            && (listener.hostname.is_empty() || hostname::is_wildcard(&listener.hostname));
        let beside = is_open.then(|| beside.clone());
        let target = Target::Listener {
            of: of.clone(),
            listener: listener.clone(),
            beside,
        };

        Attachment {
            reference: index,
            port: parent.port,
            target,
            denied,
            waypoint_fault: None,
        }
    };

    let selected = listeners
        .iter()
        .filter(|open| selects(parent, &open.listener));
    let tried: Vec<_> = selected
        .map(|open| (open, denial(name, route, &open.listener)))
        .collect();

    if tried.is_empty() {
        return listeners
            .iter()
            .take(1)
            .map(|first| attach(first, Some(mismatch(parent, &listeners))))
            .collect();
    }

    // There may be many listeners and many routes: denials are reported only if no listener accepts
    // the route, and then only the most specific reason. `None` is less than any reason.
    let best = tried
        .iter()
        .map(|(_, denied)| denied.as_ref().map(|denied| denied.reason))
        .min()
        .flatten();
    let tried = tried
        .into_iter()
        .filter(|(_, denied)| denied.as_ref().map(|denied| denied.reason) == best);

    tried.map(|(open, denied)| attach(open, denied)).collect()
}

fn selects(parent: &ParentReference, listener: &ParentListener) -> bool {
    let section = parent
        .section_name
        .as_deref()
        .filter(|section| !section.is_empty());
    has_port(parent, listener) && section.is_none_or(|section| section == listener.section)
}

/// Whether a listener has the port of a reference, if it has one.
fn has_port(parent: &ParentReference, listener: &ParentListener) -> bool {
    parent
        .port
        .is_none_or(|port| port == 0 || port == listener.port)
}

/// Why a reference selects none of these listeners.
fn mismatch(parent: &ParentReference, listeners: &[OpenListener]) -> Denial {
    let message = match listeners
        .iter()
        .any(|open| has_port(parent, &open.listener))
    {
        true => format!(
            "sectionName {:?} not found",
            parent.section_name.as_deref().unwrap_or_default()
        ),
        false => format!("port {} not found", parent.port.unwrap_or_default()),
    };
    Denial {
        reason: DenialReason::NoMatchingParent,
        message,
    }
}

/// Why a route does not attach to a listener that its reference selects.
fn denial(name: &RouteName, route: CommonRoute<'_>, listener: &ParentListener) -> Option<Denial> {
    let own = route.meta.key.namespace.as_str();
    let every = ["*".to_owned()];
    let hostnames = if route.hostnames.is_empty() {
        &every[..]
    } else {
        route.hostnames
    };

    let host = listener
        .hosts
        .first()
        .map(|host| host.split_once('/').map_or(host.as_str(), |(_, host)| host));
    let is_met = host.is_some_and(|host| hostnames.iter().any(|own| hostname::matches(host, own)));
    let is_open = listener.hosts.iter().any(|host| {
        let namespace = host.split_once('/').map_or("*", |(namespace, _)| namespace);
        namespace == "*" || namespace == own
    });

    if !is_met {
        let message = format!(
            "no hostnames matched parent hostname {:?}",
            listener.hostname
        );
        return Some(Denial {
            reason: DenialReason::NoMatchingListenerHostname,
            message,
        });
    }

    if !is_open {
        let message = format!(
            "hostnames matched parent hostname {:?}, but namespace {own:?} is not allowed by the parent",
            listener.hostname
        );
        return Some(Denial {
            reason: DenialReason::NotAllowedByListeners,
            message,
        });
    }

    let kind = name.kind.as_str();

    if !listener
        .kinds
        .iter()
        .any(|allowed| allowed.kind == kind && allowed.group == gateway_api::GROUP)
    {
        let message = format!("kind {kind} is not allowed");
        return Some(Denial {
            reason: DenialReason::NotAllowedByListeners,
            message,
        });
    }

    None
}

/// The faults of a parent in the mesh, and of its waypoint.
fn mesh_faults(view: &View<'_>, parent: &MeshParent) -> (Option<Denial>, Option<&'static str>) {
    let labels = view.get(&ParentLabels(parent.clone()));
    let Some(labels) = &*labels else {
        let message = match parent {
            MeshParent::Service(name) => format!("parent service: {:?} not found", &*name.name),
            MeshParent::ServiceEntry(name) => {
                format!("parent service entry: {:?} not found", &*name.name)
            }
        };
        return (
            Some(Denial {
                reason: DenialReason::NoMatchingParent,
                message,
            }),
            Some("parent not found"),
        );
    };

    let named = |labels: &TextMap| {
        labels
            .get(USE_WAYPOINT)
            .is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"))
    };
    let is_missing = !named(labels)
        && view
            .namespace_labels(parent.namespace())
            .is_some_and(|labels| !named(labels));

    let fault = "istio.io/use-waypoint label missing from parent and parent namespace; in ambient mode, route will not be \
                 respected";
    (None, is_missing.then_some(fault))
}

/// Whether the waypoint of a parent belongs to another controller, which then reports the route's
/// status.
fn is_of_other_controller(view: &View<'_>, parent: &MeshParent) -> bool {
    let Some(own) = (*view.get(&ParentLabels(parent.clone()))).clone() else {
        return false;
    };

    let labels = match own.contains_key(USE_WAYPOINT) {
        true => Some(&own),
        false => view.namespace_labels(parent.namespace()),
    };
    let Some(labels) = labels else { return false };
    let Some(name) = labels.get(USE_WAYPOINT) else {
        return false;
    };

    if name.is_empty() || name.eq_ignore_ascii_case("none") {
        return false;
    }

    let namespace = labels
        .get(USE_WAYPOINT_NAMESPACE)
        .filter(|namespace| !namespace.is_empty());
    let namespace = namespace.map_or(parent.namespace().as_str(), |namespace| &**namespace);
    let Some(waypoint) = view.object::<KubernetesGateway>(&NamespacedName::new(namespace, name))
    else {
        return false;
    };

    let class =
        view.object::<GatewayClass>(&NamespacedName::new("", &waypoint.spec.gateway_class_name));
    let controller = class.map(|class| class.spec.controller_name.as_str());
    controller.is_some_and(|name| {
        name != MESH_CONTROLLER && name != view.get(&ApiSettings).api.controller
    })
}

impl MeshParent {
    pub(super) fn name(&self) -> &NamespacedName {
        match self {
            Self::Service(name) | Self::ServiceEntry(name) => name,
        }
    }

    fn namespace(&self) -> &Namespace {
        &self.name().namespace
    }
}
