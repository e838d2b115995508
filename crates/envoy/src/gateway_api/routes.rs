//! A route as VirtualServices: its rules once for gateways and once for the mesh, and its bindings.
//!
//! ```text
//! route ─▶ ParentsOf ───────────┐
//!   └────▶ RulesOf (gateways) ──┼─▶ BindingsOf: one for each parent and host
//!   └────▶ RulesOf (the mesh) ──┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::fault::Fault;
use super::grpc_rules;
use super::http_rules::{self, RuleContext, RuleForms};
use super::inference_pools::RulePickers;
use super::l4_rules;
use super::parents::{Attachment, MeshParent, ParentsOf, Target};
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use navarch_api::gateway_api::{GrpcRoute, HttpRoute, TcpRoute, TlsRoute};
use navarch_api::istio;
use navarch_api::istio::ServiceEntry;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The rules of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RulesOf {
    pub(super) route: RouteName,
    /// Whether they are for the mesh, where references to other namespaces require no grant.
    pub(super) mesh: bool,
}

/// The value of [`RulesOf`]. A route without rules is not served.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rules {
    /// Routes of HTTP, in order.
    pub(super) http: Vec<istio::HttpRoute>,
    /// Routes of TLS, in order.
    pub(super) tls: Vec<istio::TlsRoute>,
    /// Routes of TCP, in order.
    pub(super) tcp: Vec<istio::TcpRoute>,
    /// Endpoint pickers of rules with InferencePools, by name of the rule.
    pub(super) pickers: BTreeMap<String, RulePickers>,
    /// The fault, if any.
    pub(super) fault: Option<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BindingsOf(pub(super) RouteName);

/// The value of [`BindingsOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bindings {
    /// The creation time of the route.
    pub(super) created: Option<Timestamp>,
    /// One for each parent and host.
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// A route at one parent, for one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Binding {
    /// The key of routes that are merged: the Gateway, or the route's namespace and port, and the
    /// host.
    pub(super) key: Arc<str>,
    /// The Gateway, as `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
    pub(super) host: String,
    /// The port of a parent in the mesh.
    pub(super) port: Option<u32>,
    /// The host of the listener, which restricts TLS; empty means every host.
    pub(super) listener_host: String,
    /// The hosts of a parent in the mesh.
    pub(super) parent_hosts: Arc<Vec<String>>,
}

/// The hosts of a ServiceEntry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsOfEntry(NamespacedName);

impl Query for HostsOfEntry {
    type Value = Vec<String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.object::<ServiceEntry>(&self.0)
            .map(|entry| entry.spec.hosts.clone())
            .unwrap_or_default()
    }
}

impl Query for RulesOf {
    type Value = Arc<Rules>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let context = RuleContext {
            view,
            route: &self.route,
            checks_grants: !self.mesh,
        };
        // As in istiod, a rule that cannot be served makes the whole route fail.
        let rules = rules(context).unwrap_or_else(|fault| Rules {
            fault: Some(fault),
            ..Rules::default()
        });
        Arc::new(rules)
    }
}

/// The rules of a route.
fn rules(context: RuleContext<'_, '_>) -> Result<Rules, Fault> {
    let RuleContext { view, route, .. } = context;
    let mut rules = Rules::default();

    match route.kind {
        RouteKind::Http => {
            let Some(object) = view.object::<HttpRoute>(&route.name) else {
                return Ok(rules);
            };
            for (position, rule) in object.spec.rules.iter().enumerate() {
                rules.add(http_rules::convert(context, rule, position)?);
            }
        }
        RouteKind::Grpc => {
            let Some(object) = view.object::<GrpcRoute>(&route.name) else {
                return Ok(rules);
            };
            for (position, rule) in object.spec.rules.iter().enumerate() {
                rules.add(grpc_rules::convert(context, rule, position)?);
            }
        }
        RouteKind::Tls => {
            let Some(object) = view.object::<TlsRoute>(&route.name) else {
                return Ok(rules);
            };
            for rule in &object.spec.rules {
                let (converted, fault) = l4_rules::tls(context, rule, &object.spec.hostnames)?;
                rules.tls.push(converted);
                rules.fault = fault.or(rules.fault.take());
            }
        }
        RouteKind::Tcp => {
            let Some(object) = view.object::<TcpRoute>(&route.name) else {
                return Ok(rules);
            };
            for rule in &object.spec.rules {
                let (converted, fault) = l4_rules::tcp(context, rule)?;
                rules.tcp.push(converted);
                rules.fault = fault.or(rules.fault.take());
            }
        }
    }

    Ok(rules)
}

impl Rules {
    fn add(&mut self, forms: RuleForms) {
        let has_pools = forms.pickers.iter().any(Option::is_some);
        if has_pools && let Some(first) = forms.routes.first() {
            self.pickers.insert(first.name.clone(), forms.pickers);
        }
        self.http.extend(forms.routes);
        // As in istiod, the last of several faults is reported.
        self.fault = forms.fault.or(self.fault.take());
    }

    /// Whether there are no rules.
    fn is_empty(&self) -> bool {
        self.http.is_empty() && self.tls.is_empty() && self.tcp.is_empty()
    }
}

/// Whether a route has rules, in the mesh or at gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasRules(RulesOf);

impl Query for HasRules {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        !view.get(&self.0).is_empty()
    }
}

impl Query for BindingsOf {
    type Value = Arc<Bindings>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let name = &self.0;
        let Some(route) = name.common(view) else {
            return Arc::default();
        };

        let attachments = view.get(&ParentsOf(name.clone()));
        let mut taken: Vec<&Attachment> = attachments
            .iter()
            .filter(|parent| parent.denied.is_none())
            .collect();
        taken.sort_by_key(|parent| parent.target.gateway());
        let every = ["*".to_owned()];
        let hostnames = if route.hostnames.is_empty() {
            &every[..]
        } else {
            route.hostnames
        };

        let mut bindings = Vec::new();

        for attachment in taken {
            let mesh = matches!(attachment.target, Target::Mesh(_));
            if *view.get(&HasRules(RulesOf {
                route: name.clone(),
                mesh,
            })) {
                bind(view, name, attachment, hostnames, &mut bindings);
            }
        }

        Arc::new(Bindings {
            created: route.meta.created,
            bindings,
        })
    }
}

/// Where a parent serves the hosts of a route.
struct ServedBy {
    /// What the keys of bindings begin with: equal hosts of one scope are merged.
    scope: String,
    hosts: Vec<String>,
    /// The port of the mesh; `None` for all ports, and for listeners.
    port: Option<u32>,
    /// Empty if it has none, and in the mesh.
    listener_host: String,
}

fn served_by(
    view: &View<'_>,
    route: &RouteName,
    attachment: &Attachment,
    hostnames: &[String],
) -> ServedBy {
    match &attachment.target {
        Target::Listener { listener, .. } => {
            let own = listener.hostname.clone();
            let hosts = match route.kind {
                RouteKind::Tls if !own.is_empty() => l4_rules::shared_hosts(hostnames, &own),
                RouteKind::Http | RouteKind::Grpc | RouteKind::Tls | RouteKind::Tcp => {
                    hostnames.to_vec()
                }
            };

            ServedBy {
                scope: attachment.target.gateway().to_string(),
                hosts,
                port: None,
                listener_host: own,
            }
        }

        Target::Mesh(parent) => {
            let hosts = match parent {
                MeshParent::ServiceEntry(name) => (*view.get(&HostsOfEntry(name.clone()))).clone(),
                MeshParent::Service(name) => {
                    vec![
                        view.get(&ApiSettings)
                            .host(&name.name, name.namespace.as_str()),
                    ]
                }
            };

            let port = attachment.port.and_then(|port| u32::try_from(port).ok());
            let namespace = &route.name.namespace;
            let scope = port.map_or_else(
                || namespace.to_string(),
                |port| format!("{namespace}/{port}"),
            );

            ServedBy {
                scope,
                hosts,
                port,
                listener_host: String::new(),
            }
        }
    }
}

/// Binds a route to one parent.
fn bind(
    view: &View<'_>,
    route: &RouteName,
    attachment: &Attachment,
    hostnames: &[String],
    bindings: &mut Vec<Arc<Binding>>,
) {
    let gateway = attachment.target.gateway();
    let ServedBy {
        scope,
        hosts,
        port,
        listener_host,
    } = served_by(view, route, attachment, hostnames);
    let parent_hosts = match (&attachment.target, route.kind) {
        (Target::Mesh(_), RouteKind::Tls) => Arc::new(hosts.clone()),
        _ => Arc::default(),
    };
    let is_l4 = matches!(route.kind, RouteKind::Tls | RouteKind::Tcp);

    for host in hosts {
        if is_l4 || attachment.target.matches_host(&host) {
            bindings.push(Arc::new(Binding {
                key: format!("{scope}/{host}").into(),
                gateway: gateway.clone(),
                host,
                port,
                listener_host: listener_host.clone(),
                parent_hosts: parent_hosts.clone(),
            }));
        }
    }
}
