//! Which policies apply to a proxy: by selector, by the Gateway that it serves, by namespace.
//!
//! Shared by all kinds that are attached in the same way. Agrees with Istio's
//! `pilot/pkg/model/policyattachment.go`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use navarch_api::istio::{
    AuthorizationPolicy, PolicyTargetReference, PolicyWorkloadSelector, RequestAuthentication,
    Telemetry, TrafficExtension, WasmPlugin,
};
use navarch_api::names::Namespace;
use navarch_api::object::{Object, ObjectMeta};
use navarch_push::Stored;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::{Labels, Registry, Service};

use crate::root_and_own::{InhabitedNamespaces, root_namespace};

/// The label of workloads that serve a Gateway of the Gateway API.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The GatewayClass of waypoints.
const WAYPOINT_CLASS: &str = "istio-waypoint";

/// A kind that is attached to workloads by selector or by name.
pub trait Policy: Stored {
    /// Labels of workloads; `None` means all workloads of the namespace, or of the mesh in the root
    /// namespace.
    fn selector(&self) -> Option<&PolicyWorkloadSelector>;

    /// Its target references; empty if the selector is used.
    fn targets(&self) -> &[PolicyTargetReference];
}

/// Implements [`Policy`] for specs with the common fields.
macro_rules! policies {
    ($($kind:ident),*) => {$(
        impl Policy for $kind {
            fn selector(&self) -> Option<&PolicyWorkloadSelector> {
                self.selector.as_ref()
            }

            fn targets(&self) -> &[PolicyTargetReference] {
                match &self.target_ref {
                    Some(target) if self.target_refs.is_empty() => std::slice::from_ref(target),
                    Some(_) | None => &self.target_refs,
                }
            }
        }
    )*};
}

policies!(
    AuthorizationPolicy,
    RequestAuthentication,
    Telemetry,
    WasmPlugin
);

impl Policy for TrafficExtension {
    fn selector(&self) -> Option<&PolicyWorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> &[PolicyTargetReference] {
        &self.target_refs
    }
}

/// A service as the target of policies, at its waypoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyService {
    /// The namespace of the object that declares it.
    pub namespace: Namespace,
    /// The name of that object.
    name: Arc<str>,
    /// Whether the object is a Service or a ServiceEntry.
    registry: Registry,
}

impl PolicyService {
    /// The target for a service.
    #[must_use]
    pub fn new(service: &Service) -> Self {
        let origin = &service.origin.name;
        Self {
            namespace: service.key.namespace.clone(),
            name: origin.name.clone(),
            registry: service.registry,
        }
    }

    /// Whether a reference of a policy of `namespace` is to this service.
    fn matches_target(&self, target: &PolicyTargetReference, namespace: &Namespace) -> bool {
        let is_kind = match self.registry {
            Registry::Kubernetes => {
                matches!(target.group.as_str(), "" | "core") && target.kind == "Service"
            }
            Registry::External => {
                target.group == "networking.istio.io" && target.kind == "ServiceEntry"
            }
        };
        is_kind && *target.name == *self.name && *namespace == self.namespace
    }
}

/// The Gateway of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServedGateway;

impl Query for ServedGateway {
    type Value = Option<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.proxy().labels().get(GATEWAY_NAME).cloned()
    }
}

impl ProxyQuery for ServedGateway {}

/// The namespaces with objects of a kind. One query type for each kind.
struct NamespacesWith<T>(PhantomData<fn() -> T>);

impl<T: Policy> Query for NamespacesWith<T> {
    type Value = InhabitedNamespaces;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let all = view.list_all::<T>();
        InhabitedNamespaces::of(view, all.map(|object| object.meta.key.namespace.clone()))
    }
}

impl<T> Clone for NamespacesWith<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> PartialEq for NamespacesWith<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for NamespacesWith<T> {}

impl<T> Hash for NamespacesWith<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T: Policy> fmt::Debug for NamespacesWith<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "namespaces with {}", T::KIND)
    }
}

/// The policies that apply to the view's proxy: those of the root namespace first, then those of
/// its own, each the oldest first.
#[must_use]
pub fn attached<T: Policy>(view: &View<'_>) -> Vec<Arc<Object<T>>> {
    attached_in::<T>(view, &namespaces::<T>(view), None)
}

/// The policies of these namespaces, which can apply, that apply to the view's proxy, the oldest of
/// each namespace first. Those for `service` are included: a waypoint reads them by service. The
/// namespace of the service comes last.
#[must_use]
pub fn attached_in<T: Policy>(
    view: &View<'_>,
    namespaces: &[Namespace],
    service: Option<&PolicyService>,
) -> Vec<Arc<Object<T>>> {
    let further = service
        .map(|service| &service.namespace)
        .filter(|further| !namespaces.contains(further));
    let mut found = Vec::new();
    for namespace in namespaces.iter().chain(further) {
        let objects = oldest_first::<T>(view, namespace).into_iter();
        found.extend(
            objects
                .filter(|object| attaches(view, object, service))
                .cloned(),
        );
    }
    found
}

/// The namespaces whose policies of a kind can apply to the view's proxy: the root namespace, then
/// its own.
pub fn namespaces<T: Policy>(view: &View<'_>) -> Vec<Namespace> {
    let inhabited = view.get(&NamespacesWith::<T>(PhantomData));
    inhabited.root_and_own(view)
}

/// The policies of `namespace` by creation time, then by name. Proxies do not matter here: see
/// [`attaches`].
pub fn oldest_first<'a, T: Policy>(
    view: &'a View<'_>,
    namespace: &Namespace,
) -> Vec<&'a Arc<Object<T>>> {
    let mut objects: Vec<_> = view.list::<T>(namespace).collect();
    objects.sort_by(|a, b| by_age(&a.meta, &b.meta));
    objects
}

/// Orders by age; equally old ones by name.
fn by_age(a: &ObjectMeta, b: &ObjectMeta) -> std::cmp::Ordering {
    (a.created, &a.key.name).cmp(&(b.created, &b.key.name))
}

/// Whether a policy of a relevant namespace applies to the view's proxy, or to the given service.
#[must_use]
pub fn attaches<T: Policy>(
    view: &View<'_>,
    policy: &Object<T>,
    service: Option<&PolicyService>,
) -> bool {
    let proxy = view.proxy();
    let targets = policy.spec.targets();
    let selected = || selector_matches(view, policy);

    let gateway = view.derived(&ServedGateway);
    let Some(gateway) = &*gateway else {
        return targets.is_empty() && selected();
    };

    let is_waypoint = proxy.kind() == ProxyKind::Waypoint;
    if targets.is_empty() {
        return !is_waypoint && view.mesh().settings.selector_based_gateway_policy && selected();
    }

    let namespace = &policy.meta.key.namespace;
    targets.iter().any(|target| {
        if is_waypoint && service.is_some_and(|service| service.matches_target(target, namespace)) {
            return true;
        }
        let is_class = target.group == "gateway.networking.k8s.io" && target.kind == "GatewayClass";
        (is_class
            && is_waypoint
            && target.name == WAYPOINT_CLASS
            && *namespace == root_namespace(view))
            || is_gateway(view, target, namespace, gateway)
    })
}

/// Whether the selector of a policy matches the view's proxy; one without a selector does.
fn selector_matches<T: Policy>(view: &View<'_>, policy: &Object<T>) -> bool {
    let Some(selector) = policy.spec.selector() else {
        return true;
    };
    let labels: Labels = selector
        .match_labels
        .iter()
        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
        .collect();
    view.proxy().selected_by(&labels)
}

/// Whether a policy selects the pods of the view's proxy by its selector; waypoints are treated as
/// gateways here.
#[must_use]
pub fn selects<T: Policy>(view: &View<'_>, policy: &Object<T>) -> bool {
    let selected = || selector_matches(view, policy);
    let gateway = view.derived(&ServedGateway);
    let Some(gateway) = &*gateway else {
        return policy.spec.targets().is_empty() && selected();
    };

    let targets = policy.spec.targets();
    if targets.is_empty() {
        return view.mesh().settings.selector_based_gateway_policy && selected();
    }

    targets
        .iter()
        .any(|target| is_gateway(view, target, &policy.meta.key.namespace, gateway))
}

/// Whether a reference of a policy of `namespace` is to the Gateway of the view's proxy.
fn is_gateway(
    view: &View<'_>,
    target: &PolicyTargetReference,
    namespace: &Namespace,
    gateway: &str,
) -> bool {
    let PolicyTargetReference {
        group,
        kind,
        name,
        namespace: elsewhere,
    } = target;
    group == "gateway.networking.k8s.io"
        && kind == "Gateway"
        && **name == *gateway
        && (elsewhere.is_empty() || elsewhere == namespace.as_str())
        && view.proxy().namespace_among([namespace.clone()]).is_some()
}
