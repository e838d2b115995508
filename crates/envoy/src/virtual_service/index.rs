//! VirtualServices by gateway and visibility, without their routes. Those that are generated from
//! Gateway API routes for a gateway are only indexed by gateway, since there are many: an added or
//! removed route costs in proportion to its gateway's routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::RouteSemantics;
use super::names::{Domain, NameContext};
use super::semantics::semantics_of;
use crate::config_objects;
use crate::export_to::{parse_export_to, resolve_export_to};
use crate::gateway_api::{self, Head};
use navarch_api::istio::{MESH_GATEWAY, VirtualService};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::namespace_list::NamespaceList;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ExportTo;

/// All VirtualServices other than delegates, except those of the Gateway API for gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualServiceIndex;

/// All VirtualServices of one gateway other than delegates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualServicesOfGateway {
    /// The gateway, as `namespace/name`, or `mesh`.
    pub gateway: Arc<str>,
}

/// The names of objects that are also names of generated VirtualServices, over which the objects
/// take precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamedAsMade;

/// The value of [`VirtualServiceIndex`] and of [`VirtualServicesOfGateway`].
#[derive(Debug, Default, PartialEq)]
pub struct VirtualServices {
    /// Oldest first; equally old ones by name and namespace.
    pub entries: Vec<IndexedVirtualService>,
    /// Namespaces that see other VirtualServices than the rest, or in another order.
    pub mattering: NamespaceList,
}

/// The properties of a VirtualService that selection depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedVirtualService {
    /// Of the object, or the name that was generated for a route of the Gateway API.
    pub name: NamespacedName,
    /// Its hosts, completed.
    pub hosts: Arc<[Hostname]>,
    /// The gateways that it is bound to (`namespace/name`, or `mesh`); never empty.
    pub gateways: Arc<[Arc<str>]>,
    /// Its effective `exportTo`, with the mesh default.
    pub export_to: ExportTo,
    /// Whether it is generated from a route of the Gateway API.
    pub is_gateway_route: bool,
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
        let mut entries: Vec<_> = roots
            .map(|object| indexed(object, &default, &domain))
            .collect();

        // A user's object takes precedence over a generated one of the same name.
        let mesh = Arc::from(MESH_GATEWAY);
        let made = made(view, &mesh, &default);
        entries.extend(
            made.into_iter()
                .filter(|entry| !all.contains_key(&entry.name)),
        );
        VirtualServices::new(entries)
    }
}

impl Query for NamedAsMade {
    type Value = BTreeSet<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        // Names of API objects cannot contain this character, and all generated names do.
        config_objects::virtual_services(view)
            .into_keys()
            .filter(|name| name.name.contains('~'))
            .collect()
    }
}

impl Query for VirtualServicesOfGateway {
    type Value = VirtualServices;

    fn compute(&self, view: &View<'_>) -> VirtualServices {
        let index = view.get(&VirtualServiceIndex);
        let bound = |entry: &&IndexedVirtualService| entry.gateways.contains(&self.gateway);
        let mut entries: Vec<_> = index.entries.iter().filter(bound).cloned().collect();

        if *self.gateway != *MESH_GATEWAY {
            let written = view.get(&NamedAsMade);
            let made = made(view, &self.gateway, &view.get(&DefaultExport));
            entries.extend(
                made.into_iter()
                    .filter(|entry| !written.contains(&entry.name)),
            );
        }

        let own = VirtualServices::new(entries);
        let mattering = own.mattering.iter().chain(index.mattering.iter());
        VirtualServices {
            mattering: mattering.cloned().collect(),
            ..own
        }
    }
}

/// The VirtualServices that are generated from routes for a gateway, in order.
fn made(view: &View<'_>, gateway: &Arc<str>, default: &[String]) -> Vec<IndexedVirtualService> {
    let gateways: Arc<[Arc<str>]> = Arc::from([gateway.clone()]);
    let heads = gateway_api::heads_at(view, gateway);
    let mut known: Option<(&Namespace, ExportTo)> = None;
    let mut made = Vec::with_capacity(heads.len());
    for head in heads.values() {
        let own = &head.name.namespace;
        let export_to = match known.take().filter(|(namespace, _)| *namespace == own) {
            Some((_, export_to)) => export_to,
            None => resolve_export_to(&parse_export_to(&[], own), default, own),
        };
        made.push(of_routes(head, &gateways, export_to.clone()));
        known = Some((own, export_to));
    }
    made
}

/// Extracts the properties that selection depends on.
fn indexed(
    object: &Object<VirtualService>,
    default: &[String],
    domain: &str,
) -> IndexedVirtualService {
    let own = &object.meta.key.namespace;
    let is_gateway_route = semantics_of(object) == RouteSemantics::Gateway;
    let mut names = VirtualService {
        hosts: object.spec.hosts.clone(),
        gateways: object.spec.gateways.clone(),
        ..VirtualService::default()
    };

    if !is_gateway_route {
        NameContext {
            namespace: own,
            domain,
        }
        .complete(&mut names);
    }

    let gateways: Arc<[Arc<str>]> = match names.gateways.as_slice() {
        [] => Arc::from([Arc::from(MESH_GATEWAY)]),
        gateways => gateways
            .iter()
            .map(|gateway| Arc::from(gateway.as_str()))
            .collect(),
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

/// Extracts these properties from a generated VirtualService.
fn of_routes(
    head: &Head,
    gateways: &Arc<[Arc<str>]>,
    export_to: ExportTo,
) -> IndexedVirtualService {
    IndexedVirtualService {
        name: head.name.clone(),
        hosts: head.hosts.clone(),
        gateways: gateways.clone(),
        export_to,
        is_gateway_route: true,
        created: head.created,
    }
}

impl IndexedVirtualService {
    /// Whether it is generated from a route of the Gateway API in this namespace.
    #[must_use]
    pub fn is_own_gateway_route(&self, namespace: Option<&Namespace>) -> bool {
        self.is_gateway_route && namespace == Some(&self.name.namespace)
    }
}

impl VirtualServices {
    /// An index of these entries, in any order.
    fn new(mut entries: Vec<IndexedVirtualService>) -> Self {
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
            if entry.is_gateway_route && !mattering.contains(&entry.name.namespace) {
                mattering.insert(entry.name.namespace.clone());
            }
        }

        Self {
            entries,
            mattering: mattering.into_iter().collect(),
        }
    }

    /// The VirtualServices of a gateway that a namespace sees, in Istio's three tiers: its private
    /// ones, those that others export to it by name, and the public ones. `None` is any namespace
    /// that is not listed.
    #[must_use]
    pub fn tiers(
        &self,
        gateway: &str,
        namespace: Option<&Namespace>,
    ) -> [Vec<&IndexedVirtualService>; 3] {
        let mut tiers: [Vec<&IndexedVirtualService>; 3] = Default::default();
        let [private, exported, public] = &mut tiers;
        let bound =
            |entry: &&IndexedVirtualService| entry.gateways.iter().any(|own| &**own == gateway);
        for entry in self.entries.iter().filter(bound) {
            match &entry.export_to {
                ExportTo::Public | ExportTo::Unset => public.push(entry),
                ExportTo::Nobody => {}
                ExportTo::Namespaces(named) => match namespace {
                    Some(namespace) if named.binary_search(namespace).is_ok() => {
                        let tier = if entry.name.namespace == *namespace {
                            &mut *private
                        } else {
                            &mut *exported
                        };
                        tier.push(entry);
                    }
                    Some(_) | None => {}
                },
            }
        }

        tiers
    }
}
