//! What objects of the Gateway API are told of themselves: pure functions beside the translation. What a status already holds is
//! for its writer (`navarch_status`) to know.

pub(super) mod condition;
mod gateway;
mod policy;
mod pool;
mod route;

use std::fmt;

use bytes::Bytes;
use serde_json::{Value, json};

use super::classes::controller_of;
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use condition::Conditions;
use navarch_api::gateway_api::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, InferencePool, KubernetesGateway, ListenerSet, TcpRoute,
    TlsRoute, XBackend, XBackendTrafficPolicy,
};
use navarch_api::names::ResourceName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_push::Stored;
use navarch_push::query::Query;
use navarch_push::view::View;

/// An object that has a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusSubject(ObjectRef);

/// What the status of an object should say: its members as they are written, without the times of conditions, which the writer
/// keeps. `null` where nothing here has a say in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StatusOf(pub(super) StatusSubject);

impl StatusSubject {
    /// The kinds that have a status.
    const KINDS: [Kind; 11] = [
        Kind::GatewayClass,
        Kind::KubernetesGateway,
        Kind::HttpRoute,
        Kind::GrpcRoute,
        Kind::TlsRoute,
        Kind::TcpRoute,
        Kind::ListenerSet,
        Kind::BackendTlsPolicy,
        Kind::XBackendTrafficPolicy,
        Kind::XBackend,
        Kind::InferencePool,
    ];

    /// The object whose status it is.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        &self.0
    }

    /// Reads [`Display`](fmt::Display)'s form back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (name, namespace, object) = (parts.next()?, parts.next()?, parts.next()?);
        let kind = Self::KINDS.into_iter().find(|kind| variant(*kind) == name)?;
        Some(Self(ObjectRef { kind, name: NamespacedName::new(namespace, object) }))
    }
}

impl fmt::Display for StatusSubject {
    /// `kind/namespace/name`, the namespace being empty for kinds outside of namespaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", variant(self.0.kind), self.0.name.namespace, self.0.name.name)
    }
}

/// The name of a kind in the names of subjects.
fn variant(kind: Kind) -> &'static str {
    kind.as_str()
}

/// All objects that have a status.
fn subjects(view: &View<'_>) -> Vec<StatusSubject> {
    fn of<T: Stored>(view: &View<'_>, all: &mut Vec<StatusSubject>) {
        all.extend(view.names::<T>().map(|name| StatusSubject(ObjectRef { kind: T::KIND, name: name.clone() })));
    }
    let mut all = Vec::new();
    if !view.get(&ApiSettings).api.enabled {
        return all;
    }
    of::<GatewayClass>(view, &mut all);
    of::<KubernetesGateway>(view, &mut all);
    of::<HttpRoute>(view, &mut all);
    of::<GrpcRoute>(view, &mut all);
    of::<TlsRoute>(view, &mut all);
    of::<TcpRoute>(view, &mut all);
    of::<ListenerSet>(view, &mut all);
    of::<BackendTlsPolicy>(view, &mut all);
    of::<XBackendTrafficPolicy>(view, &mut all);
    of::<XBackend>(view, &mut all);
    of::<InferencePool>(view, &mut all);
    all
}

impl Query for StatusOf {
    type Value = Value;

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are no subjects")]
    fn compute(&self, view: &View<'_>) -> Value {
        let ObjectRef { kind, name } = &self.0.0;
        let route = |kind| route::status(view, &RouteName { kind, name: name.clone() });
        let status = match kind {
            Kind::GatewayClass => class(view, name),
            Kind::KubernetesGateway => gateway::gateway(view, name),
            Kind::ListenerSet => gateway::listener_set(view, name),
            Kind::HttpRoute => route(RouteKind::Http),
            Kind::GrpcRoute => route(RouteKind::Grpc),
            Kind::TlsRoute => route(RouteKind::Tls),
            Kind::TcpRoute => route(RouteKind::Tcp),
            Kind::BackendTlsPolicy => policy::tls(view, name),
            Kind::XBackendTrafficPolicy => policy::traffic(view, name),
            Kind::XBackend => policy::backend(view, name),
            Kind::InferencePool => pool::status(view, name),
            _ => None,
        };
        status.unwrap_or_default()
    }
}

/// The names of the statuses of all objects that have one.
pub(crate) fn status_names(view: &View<'_>) -> Vec<ResourceName> {
    subjects(view).iter().map(|subject| ResourceName::new(subject.to_string())).collect()
}

/// The status of this name, as JSON.
pub(crate) fn status_resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let subject = StatusSubject::parse(name.as_str())?;
    let status = view.get(&StatusOf(subject));
    (!status.is_null()).then(|| Bytes::from(status.to_string()))
}

/// What a GatewayClass of ours is told.
fn class(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let class = view.object::<GatewayClass>(name)?;
    let settings = view.get(&ApiSettings);
    controller_of(&settings.api, &name.name, Some(&class.spec.controller_name))?;
    let mut conditions = Conditions::default();
    conditions.good("Accepted", "Accepted", "Handled by Istio controller");
    Some(json!({ "conditions": conditions.to_json(class.meta.generation) }))
}
