//! Bindings of routes to parents, as VirtualServices without their rules.
//!
//! There may be tens of thousands of routes, so an added, changed or removed route updates a table,
//! and the table is read in parts: each part depends on the table, and readers depend on the part.
//!
//! ```text
//! BindingsOf ─▶ BoundIn (a part of all routes) ─▶ VirtualServiceHeads ─┬▶ HeadsIn ───▶ HeadOf (one VirtualService)
//!                                                                     └▶ HeadsNear ─▶ HeadsAt (those of one gateway)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;

use super::MARK;
use super::route_kinds::{RouteKind, RouteName};
use super::routes::{Binding, Bindings, BindingsOf};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::name_parts::{PARTS, part_of};
use navarch_push::query::Query;
use navarch_push::view::View;

/// All VirtualServices that are generated from routes, without their rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VirtualServiceHeads;

/// The value of [`VirtualServiceHeads`].
#[derive(Clone, Debug)]
pub(super) struct Heads {
    bound: Vec<Arc<BoundRoutes>>,
    /// Those that several routes may share, by their merge key.
    shared: OrdMap<Arc<str>, Arc<Head>>,
    by_name: Vec<Arc<HeadsByName>>,
    by_gateway: Vec<Arc<HeadsByGateway>>,
}

/// The heads of one part, by name; of several with one name the last is used.
type HeadsByName = OrdMap<(NamespacedName, Source), Arc<Head>>;
/// The heads of one part of all gateways, by gateway.
type HeadsByGateway = OrdMap<Arc<str>, Arc<HeadsOfGateway>>;
/// The VirtualServices of one gateway, in order of precedence.
pub(crate) type HeadsOfGateway = OrdMap<Precedence, Arc<Head>>;
/// The bindings of the routes of one part, sorted.
type BoundRoutes = Vec<(RouteName, Arc<Bindings>)>;

/// The order of VirtualServices: the oldest first, then by name, then by namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Precedence {
    created: Option<Timestamp>,
    name: Arc<str>,
    namespace: Namespace,
}

/// The source of a VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// One binding of one route.
    Alone(RouteKind, usize),
    /// All bindings with this key.
    Shared(Arc<str>),
}

/// A generated VirtualService without its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) name: NamespacedName,
    /// The creation time of the oldest of its routes.
    pub(crate) created: Option<Timestamp>,
    pub(crate) hosts: Arc<[Hostname]>,
    /// Its Gateway, as `namespace/name`, or `mesh`.
    pub(crate) gateway: Arc<str>,
    /// Its routes, the oldest first.
    pub(super) parts: Vec<RoutePart>,
}

/// A route that contributes to a VirtualService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoutePart {
    pub(super) route: RouteName,
    /// The creation time of the route.
    created: Option<Timestamp>,
    /// The index of the route's binding.
    number: usize,
    pub(super) binding: Arc<Binding>,
}

/// The routes of one part, with their bindings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BoundIn(u8);

/// The VirtualServices of one part of all names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeadsIn(u8);

/// The VirtualServices of one part of all gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeadsNear(u8);

/// One VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeadOf(pub(super) NamespacedName);

/// The VirtualServices of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeadsAt(Arc<str>);

/// The VirtualServices that are generated from routes for a gateway (`namespace/name`, or `mesh`).
pub(crate) fn heads_at(view: &View<'_>, gateway: &Arc<str>) -> Arc<HeadsOfGateway> {
    (*view.get(&HeadsAt(gateway.clone()))).clone()
}

/// The names of all VirtualServices that are generated from routes.
pub(crate) fn head_names(view: &View<'_>) -> BTreeSet<NamespacedName> {
    let heads = view.get(&VirtualServiceHeads);
    heads
        .by_name
        .iter()
        .flat_map(|part| part.values())
        .map(|head| head.name.clone())
        .collect()
}

impl Head {
    /// A head with these parts, of which there is at least one.
    fn new(name: NamespacedName, parts: Vec<RoutePart>) -> Self {
        let first = parts.first();
        let hosts = first
            .iter()
            .map(|part| Hostname::new(&part.binding.host))
            .collect();
        let gateway = first
            .map(|part| part.binding.gateway.clone())
            .unwrap_or_default();
        Self {
            name,
            created: first.and_then(|part| part.created),
            hosts,
            gateway,
            parts,
        }
    }

    fn precedence(&self) -> Precedence {
        Precedence {
            created: self.created,
            name: self.name.name.clone(),
            namespace: self.name.namespace.clone(),
        }
    }
}

impl RoutePart {
    /// The order of the parts of one VirtualService: the oldest first, then by the names that
    /// istiod gives the VirtualServices that it merges. `~` is greater than all characters of
    /// names, so `web-admin` comes before `web`.
    fn precedence(&self) -> impl Ord + use<> {
        let name = &self.route.name;
        (
            self.created,
            name.namespace.clone(),
            format!("{}~{}~", name.name, self.number),
            self.route.kind,
        )
    }
}

/// The name and source of the VirtualService of a single binding; `None` if routes share one.
fn alone(route: &RouteName, number: usize) -> Option<(NamespacedName, Source)> {
    let middle = match route.kind {
        RouteKind::Http | RouteKind::Grpc => return None,
        RouteKind::Tls => "tls",
        RouteKind::Tcp => "tcp",
    };
    let name = format!("{}~{middle}~{number}~{MARK}", route.name.name);
    let name = NamespacedName::of(route.name.namespace.clone(), name.into());
    Some((name, Source::Alone(route.kind, number)))
}

impl Heads {
    fn empty() -> Self {
        let parts = usize::from(PARTS);
        Self {
            bound: vec![Arc::default(); parts],
            shared: OrdMap::new(),
            by_name: vec![Arc::default(); parts],
            by_gateway: vec![Arc::default(); parts],
        }
    }

    /// The table with the current bindings of routes. The cost is proportional to the differences.
    fn updated(&self, view: &View<'_>) -> Self {
        let mut new = self.clone();
        let bound: Vec<Arc<BoundRoutes>> = (0..PARTS)
            .map(|part| (*view.get(&BoundIn(part))).clone())
            .collect();
        let mut changed: BTreeMap<&RouteName, [Option<&Arc<Bindings>>; 2]> = BTreeMap::new();
        let differ = self
            .bound
            .iter()
            .zip(&bound)
            .filter(|(before, now)| !Arc::ptr_eq(before, now));

        for (before, now) in differ {
            before
                .iter()
                .for_each(|(route, bound)| changed.entry(route).or_default()[0] = Some(bound));
            now.iter()
                .for_each(|(route, bound)| changed.entry(route).or_default()[1] = Some(bound));
        }

        changed.retain(|_, [before, now]| before != now);
        let mut shared: BTreeMap<Arc<str>, (BTreeSet<&RouteName>, Vec<RoutePart>)> =
            BTreeMap::new();

        for (route, [before, now]) in changed {
            for (number, binding) in before
                .iter()
                .flat_map(|bound| bound.bindings.iter().enumerate())
            {
                match alone(route, number) {
                    Some(key) => new.put(key, None),
                    None => {
                        _ = shared
                            .entry(binding.key.clone())
                            .or_default()
                            .0
                            .insert(route)
                    }
                }
            }

            let Some(now) = now else { continue };
            for (number, binding) in now.bindings.iter().enumerate() {
                let part = RoutePart {
                    route: route.clone(),
                    created: now.created,
                    number,
                    binding: binding.clone(),
                };
                match alone(route, number) {
                    Some(key) => {
                        let head = Arc::new(Head::new(key.0.clone(), vec![part]));
                        new.put(key, Some(head));
                    }
                    None => shared.entry(binding.key.clone()).or_default().1.push(part),
                }
            }
        }

        for (key, (gone, come)) in shared {
            new.replace_parts(key, &gone, come);
        }

        new.bound = bound;
        new
    }

    /// Removes the parts of routes from a shared VirtualService, and adds others.
    fn replace_parts(&mut self, key: Arc<str>, gone: &BTreeSet<&RouteName>, come: Vec<RoutePart>) {
        let before = self.shared.get(&key).cloned();
        let stay = before
            .iter()
            .flat_map(|head| &head.parts)
            .filter(|part| !gone.contains(&part.route))
            .cloned();
        let mut parts: Vec<RoutePart> = stay.chain(come).collect();
        parts.sort_by_cached_key(RoutePart::precedence);

        let name = parts.first().map(|first| {
            NamespacedName::of(
                first.route.name.namespace.clone(),
                key.replace('/', "~").into(),
            )
        });

        if let Some(before) = before.filter(|before| Some(&before.name) != name.as_ref()) {
            self.put((before.name.clone(), Source::Shared(key.clone())), None);
        }

        match name {
            Some(name) => {
                let head = Arc::new(Head::new(name.clone(), parts));
                self.shared.insert(key.clone(), head.clone());
                self.put((name, Source::Shared(key)), Some(head));
            }
            None => _ = self.shared.remove(&key),
        }
    }

    /// Inserts or removes a VirtualService.
    fn put(&mut self, key: (NamespacedName, Source), head: Option<Arc<Head>>) {
        let name = key.0.clone();
        let Some(part) = self.by_name.get_mut(usize::from(part_of(&name))) else {
            return;
        };

        let before = last_of(part, &name);
        let heads = Arc::make_mut(part);

        match head {
            Some(head) => heads.insert(key, head),
            None => heads.remove(&key),
        };

        let now = last_of(part, &name);
        if before == now {
            return;
        }

        if let Some(before) = before {
            self.change_gateway(&before.gateway, |heads| {
                _ = heads.remove(&before.precedence())
            });
        }

        if let Some(now) = now {
            self.change_gateway(&now.gateway, |heads| {
                _ = heads.insert(now.precedence(), now.clone())
            });
        }
    }

    /// Changes the VirtualServices of a gateway.
    fn change_gateway(&mut self, gateway: &Arc<str>, change: impl FnOnce(&mut HeadsOfGateway)) {
        let Some(part) = self.by_gateway.get_mut(usize::from(part_of(gateway))) else {
            return;
        };
        let gateways = Arc::make_mut(part);
        let heads = gateways.entry(gateway.clone()).or_default();
        change(Arc::make_mut(heads));
        if heads.is_empty() {
            gateways.remove(gateway);
        }
    }
}

/// The last one with a name, which takes effect.
fn last_of(part: &HeadsByName, name: &NamespacedName) -> Option<Arc<Head>> {
    let from = (name.clone(), Source::Alone(RouteKind::Http, 0));
    let range = part.range((Bound::Included(from), Bound::Unbounded));
    range
        .take_while(|((own, _), _)| own == name)
        .last()
        .map(|(_, head)| head.clone())
}

impl PartialEq for Heads {
    fn eq(&self, other: &Self) -> bool {
        // All other fields follow from these.
        self.by_name == other.by_name
    }
}

impl Query for BoundIn {
    type Value = Arc<BoundRoutes>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let routes = RouteKind::ALL
            .into_iter()
            .flat_map(|kind| kind.names_in(view, self.0));
        let bound = routes.map(|route| {
            let bindings = (*view.get(&BindingsOf(route.clone()))).clone();
            (route, bindings)
        });
        Arc::new(
            bound
                .filter(|(_, bound)| !bound.bindings.is_empty())
                .collect(),
        )
    }
}

impl Query for VirtualServiceHeads {
    type Value = Heads;

    fn compute(&self, view: &View<'_>) -> Heads {
        Heads::empty().updated(view)
    }

    fn renew(&self, previous: &Heads, view: &View<'_>) -> Heads {
        previous.updated(view)
    }
}

impl Query for HeadsIn {
    type Value = Arc<HeadsByName>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let heads = view.get(&VirtualServiceHeads);
        heads
            .by_name
            .get(usize::from(self.0))
            .expect("there are as many parts as `part_of` returns")
            .clone()
    }
}

impl Query for HeadsNear {
    type Value = Arc<HeadsByGateway>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let heads = view.get(&VirtualServiceHeads);
        heads
            .by_gateway
            .get(usize::from(self.0))
            .expect("there are as many parts as `part_of` returns")
            .clone()
    }
}

impl Query for HeadOf {
    type Value = Option<Arc<Head>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        last_of(&view.get(&HeadsIn(part_of(&self.0))), &self.0)
    }
}

impl Query for HeadsAt {
    type Value = Arc<HeadsOfGateway>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&HeadsNear(part_of(&self.0)))
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

/// The names of all VirtualServices that are generated from routes.
#[cfg(test)]
pub(super) fn names(heads: &Heads) -> Vec<NamespacedName> {
    let mut names: Vec<NamespacedName> = heads
        .by_name
        .iter()
        .flat_map(|part| part.keys().map(|(name, _)| name.clone()))
        .collect();
    names.sort();
    names
}
