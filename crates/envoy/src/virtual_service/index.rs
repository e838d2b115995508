//! All VirtualServices by gateway and visibility, without their routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::delegate::{Domain, semantics_of};
use super::names::NameContext;
use super::{MESH_GATEWAY, RouteSemantics};
use crate::config_objects;
use crate::gateway_api::{Head, VirtualServiceHeads};
use crate::scope::{parse_export_to, resolve_export_to};
use navarch_api::istio::VirtualService;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ExportTo;

/// All VirtualServices that are no delegates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualServiceIndex;

/// The value of [`VirtualServiceIndex`].
#[derive(Debug, Default, PartialEq)]
pub struct VirtualServices {
    /// Oldest first; equally old ones by name and namespace.
    pub entries: Vec<IndexedVirtualService>,
    /// Namespaces that see other VirtualServices than the rest, or order them otherwise: sorted.
    pub mattering: Vec<Namespace>,
}

/// What selection asks of a VirtualService.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedVirtualService {
    /// Its name.
    pub name: NamespacedName,
    /// Its hosts, completed.
    pub hosts: Vec<Hostname>,
    /// The gateways that it is bound to (`namespace/name`, or `mesh`); never empty.
    pub gateways: Vec<Arc<str>>,
    /// Who may see it, the mesh default filled in.
    pub export_to: ExportTo,
    /// Whether it was made from a route of the Gateway API.
    pub is_gateway_route: bool,
    /// When it was made.
    created: Option<Timestamp>,
}

/// The mesh-wide default of `exportTo` for VirtualServices, as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DefaultExport;

impl Query for DefaultExport {
    type Value = Vec<String>;

    fn compute(&self, view: &View<'_>) -> Vec<String> {
        view.mesh().config.default_virtual_service_export_to.clone()
    }
}

impl Query for VirtualServiceIndex {
    type Value = VirtualServices;

    fn compute(&self, view: &View<'_>) -> VirtualServices {
        let default = view.get(&DefaultExport);
        let domain = view.get(&Domain);
        let all = config_objects::virtual_services(view);
        let roots = all.values().filter(|object| !object.spec.hosts.is_empty());
        let mut entries: Vec<_> = roots.map(|object| indexed(object, &default, &domain)).collect();
        let made = view.get(&VirtualServiceHeads);
        // A user's object wins over a made one of its name.
        let made = made.iter().filter(|(name, _)| !all.contains_key(*name));
        entries.extend(made.map(|(name, head)| of_route(name, head, &default)));
        entries.sort_by(|a, b| {
            a.created
                .cmp(&b.created)
                .then_with(|| a.name.name.cmp(&b.name.name))
                .then_with(|| a.name.namespace.cmp(&b.name.namespace))
        });
        let mut mattering: BTreeSet<Namespace> = BTreeSet::new();
        for entry in &entries {
            match &entry.export_to {
                ExportTo::Namespaces(named) => mattering.extend(named.iter().cloned()),
                ExportTo::Unset | ExportTo::Public | ExportTo::Nobody => {}
            }
            if entry.is_gateway_route {
                mattering.insert(entry.name.namespace.clone());
            }
        }
        VirtualServices { entries, mattering: mattering.into_iter().collect() }
    }
}

/// Takes from a VirtualService what selection asks.
fn indexed(object: &Object<VirtualService>, default: &[String], domain: &str) -> IndexedVirtualService {
    let own = &object.meta.key.namespace;
    let is_gateway_route = semantics_of(object) == RouteSemantics::Gateway;
    let mut names = VirtualService {
        hosts: object.spec.hosts.clone(),
        gateways: object.spec.gateways.clone(),
        ..VirtualService::default()
    };
    if !is_gateway_route {
        NameContext { namespace: own, domain }.complete(&mut names);
    }
    let gateways: Vec<Arc<str>> = match names.gateways.as_slice() {
        [] => vec![Arc::from(MESH_GATEWAY)],
        gateways => gateways.iter().map(|gateway| Arc::from(gateway.as_str())).collect(),
    };
    IndexedVirtualService {
        name: object.meta.key(),
        hosts: names.hosts.iter().map(Hostname::new).collect(),
        gateways,
        export_to: resolve_export_to(&parse_export_to(&object.spec.export_to, own), default, own),
        is_gateway_route,
        created: object.meta.created,
    }
}

/// Takes from a VirtualService that is made of routes what selection asks.
fn of_route(name: &NamespacedName, head: &Head, default: &[String]) -> IndexedVirtualService {
    let own = &name.namespace;
    IndexedVirtualService {
        name: name.clone(),
        hosts: vec![Hostname::new(&head.host)],
        gateways: vec![head.gateway.clone()],
        export_to: resolve_export_to(&parse_export_to(&[], own), default, own),
        is_gateway_route: true,
        created: head.created,
    }
}

impl IndexedVirtualService {
    /// Whether it was made from a route of the Gateway API in this very namespace.
    #[must_use]
    pub fn is_own_gateway_route(&self, namespace: Option<&Namespace>) -> bool {
        self.is_gateway_route && namespace == Some(&self.name.namespace)
    }
}

impl VirtualServices {
    /// The VirtualServices of a gateway that a namespace sees, in Istio's three tiers: its private ones, those that others
    /// export to it by name, and the public ones. `None` is a namespace that nothing names.
    #[must_use]
    pub fn tiers(&self, gateway: &str, namespace: Option<&Namespace>) -> [Vec<&IndexedVirtualService>; 3] {
        let mut tiers: [Vec<&IndexedVirtualService>; 3] = Default::default();
        let [private, exported, public] = &mut tiers;
        let bound = |entry: &&IndexedVirtualService| entry.gateways.iter().any(|own| &**own == gateway);
        for entry in self.entries.iter().filter(bound) {
            match &entry.export_to {
                ExportTo::Public | ExportTo::Unset => public.push(entry),
                ExportTo::Nobody => {}
                ExportTo::Namespaces(named) => match namespace {
                    Some(namespace) if named.binary_search(namespace).is_ok() => {
                        let tier = if entry.name.namespace == *namespace { &mut *private } else { &mut *exported };
                        tier.push(entry);
                    }
                    Some(_) | None => {}
                },
            }
        }
        tiers
    }
}
