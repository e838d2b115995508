//! The common part of routes of all kinds.

use super::grants::Referrer;
use navarch_api::gateway_api::{
    BackendRef, GrpcRoute, HttpRoute, ParentReference, TcpRoute, TlsRoute,
};
use navarch_api::object::{Kind, NamespacedName, ObjectMeta};
use navarch_push::view::View;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RouteKind {
    Http,
    Grpc,
    Tls,
    Tcp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RouteName {
    pub(super) kind: RouteKind,
    pub(super) name: NamespacedName,
}

/// The common fields of all kinds of routes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommonRoute<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) parents: &'a [ParentReference],
    /// Its hosts; empty for kinds without hosts.
    pub(super) hostnames: &'a [String],
}

impl RouteKind {
    pub(super) const ALL: [Self; 4] = [Self::Http, Self::Grpc, Self::Tls, Self::Tcp];

    /// The object kind.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Http => Kind::HttpRoute,
            Self::Grpc => Kind::GrpcRoute,
            Self::Tls => Kind::TlsRoute,
            Self::Tcp => Kind::TcpRoute,
        }
    }

    /// The name in `kind:`.
    pub(super) fn as_str(self) -> &'static str {
        self.kind().as_str()
    }

    /// The kind in grants.
    pub(super) fn referrer(self) -> Referrer {
        match self {
            Self::Http => Referrer::HttpRoute,
            Self::Grpc => Referrer::GrpcRoute,
            Self::Tls => Referrer::TlsRoute,
            Self::Tcp => Referrer::TcpRoute,
        }
    }

    pub(super) fn names_in(self, view: &View<'_>, part: u8) -> Vec<RouteName> {
        let names: Vec<NamespacedName> = match self {
            Self::Http => view.names_in::<HttpRoute>(part).cloned().collect(),
            Self::Grpc => view.names_in::<GrpcRoute>(part).cloned().collect(),
            Self::Tls => view.names_in::<TlsRoute>(part).cloned().collect(),
            Self::Tcp => view.names_in::<TcpRoute>(part).cloned().collect(),
        };
        names
            .into_iter()
            .map(|name| RouteName { kind: self, name })
            .collect()
    }
}

impl RouteName {
    /// The common fields of the route, if it exists.
    pub(super) fn common<'a>(&self, view: &'a View<'_>) -> Option<CommonRoute<'a>> {
        Some(match self.kind {
            RouteKind::Http => {
                let route = view.object::<HttpRoute>(&self.name)?;
                CommonRoute {
                    meta: &route.meta,
                    parents: &route.spec.parent_refs,
                    hostnames: &route.spec.hostnames,
                }
            }

            RouteKind::Grpc => {
                let route = view.object::<GrpcRoute>(&self.name)?;
                CommonRoute {
                    meta: &route.meta,
                    parents: &route.spec.parent_refs,
                    hostnames: &route.spec.hostnames,
                }
            }

            RouteKind::Tls => {
                let route = view.object::<TlsRoute>(&self.name)?;
                CommonRoute {
                    meta: &route.meta,
                    parents: &route.spec.parent_refs,
                    hostnames: &route.spec.hostnames,
                }
            }

            RouteKind::Tcp => {
                let route = view.object::<TcpRoute>(&self.name)?;
                CommonRoute {
                    meta: &route.meta,
                    parents: &route.spec.parent_refs,
                    hostnames: &[],
                }
            }
        })
    }

    /// All backend references of the route.
    pub(super) fn backends<'a>(&self, view: &'a View<'_>) -> Vec<&'a BackendRef> {
        let name = &self.name;

        match self.kind {
            RouteKind::Http => {
                let rules = view
                    .object::<HttpRoute>(name)
                    .map(|route| route.spec.rules.as_slice())
                    .unwrap_or_default();
                rules.iter().flat_map(|rule| &rule.backend_refs).collect()
            }
            RouteKind::Grpc => {
                let rules = view
                    .object::<GrpcRoute>(name)
                    .map(|route| route.spec.rules.as_slice())
                    .unwrap_or_default();
                rules.iter().flat_map(|rule| &rule.backend_refs).collect()
            }
            RouteKind::Tls => {
                let rules = view
                    .object::<TlsRoute>(name)
                    .map(|route| route.spec.rules.as_slice())
                    .unwrap_or_default();
                rules.iter().flat_map(|rule| &rule.backend_refs).collect()
            }
            RouteKind::Tcp => {
                let rules = view
                    .object::<TcpRoute>(name)
                    .map(|route| route.spec.rules.as_slice())
                    .unwrap_or_default();
                rules.iter().flat_map(|rule| &rule.backend_refs).collect()
            }
        }
    }
}
