//! The statuses of Gateway API objects: pure functions next to the translation. The existing
//! content of a status is merged by its writer (`navarch_status`).

mod gateway;
mod policy;
mod pool;
mod route;
mod subjects;

use std::fmt;

use bytes::Bytes;
use serde_json::{Value, json};

use super::classes::controller_of;
use super::condition::Conditions;
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use navarch_api::gateway_api::GatewayClass;
use navarch_api::names::ResourceName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_push::name_list::NameList;
use navarch_push::view::View;
use subjects::Subjects;

/// An object whose status is computed. Its text form is the name of a resource of type
/// `ObjectStatus`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusSubject(ObjectRef);

impl StatusSubject {
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

    /// Kind, namespace and name of the object to which the status is written.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        &self.0
    }

    /// Parses the format of [`Display`](fmt::Display).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let name = parts.next()?;
        let namespace = parts.next()?;
        let object = parts.next()?;
        let kind = Self::KINDS.into_iter().find(|kind| kind.as_str() == name)?;
        Some(Self(ObjectRef {
            kind,
            name: NamespacedName::new(namespace, object),
        }))
    }
}

impl fmt::Display for StatusSubject {
    /// `kind/namespace/name`, with an empty namespace for cluster-scoped kinds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.0.kind.as_str(),
            self.0.name.namespace,
            self.0.name.name
        )
    }
}

/// The desired status of an object: its fields as they are written, without the times of
/// conditions, which the writer keeps. `None` if this control plane does not write it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other kinds are not subjects"
)]
pub(super) fn status_of(
    view: &View<'_>,
    StatusSubject(ObjectRef { kind, name }): &StatusSubject,
) -> Option<Value> {
    let route = |kind| {
        route::status(
            view,
            &RouteName {
                kind,
                name: name.clone(),
            },
        )
    };

    match kind {
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
    }
}

/// The names of the statuses of all objects that have one.
pub(crate) fn status_names(view: &View<'_>) -> NameList {
    view.get(&Subjects).names.clone()
}

/// The status of this name, as JSON.
pub(crate) fn status_resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let subject = StatusSubject::parse(name.as_str())?;
    status_of(view, &subject).map(|status| Bytes::from(status.to_string()))
}

/// The status of a GatewayClass of this controller.
fn class(view: &View<'_>, name: &NamespacedName) -> Option<Value> {
    let class = view.object::<GatewayClass>(name)?;
    let settings = view.get(&ApiSettings);
    controller_of(&settings.api, &name.name, Some(&class.spec.controller_name))?;
    let mut conditions = Conditions::default();
    conditions.set_true("Accepted", "Accepted", "Handled by Istio controller");
    Some(json!({ "conditions": conditions.to_json(class.meta.generation) }))
}
