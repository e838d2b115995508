//! VHDS: virtual hosts as separate resources, so that a change of one host sends only that host.
//!
//! A route configuration in this form contains the virtual hosts that match any host and has a VHDS
//! config source for the others, which are resources named `<route configuration>/<virtual host>`.
//! They have this name inside as well: Envoy identifies them by one and removes them by the other.
//! Envoy searches all virtual hosts alike, so both forms have the same effect. VHDS is used for
//! proxies on delta streams that enable it (`FINE_GRAINED_ROUTES` in their metadata, which
//! `proxyMetadata.ISTIO_META_FINE_GRAINED_ROUTES` sets) or all of them
//! (`NAVARCH_FINE_GRAINED_ROUTES`).

use bytes::{Bytes, BytesMut};
use navarch_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use navarch_proto::envoy::config::core::v3::{AggregatedConfigSource, ApiVersion, ConfigSource};
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, Vhds, VirtualHost};
use prost::Message;
use prost_types::Duration;

use super::duplicate_domains::lost_domains;
use super::port_services::OutboundPort;
use super::settings::RouteHeaders;
use super::sidecar::{assemble, port_of_table};
use super::virtual_host::{DomainChoice, FIELD_NUMBER, VirtualHostBytes, as_field};
use super::virtual_host_set::{PlannedVirtualHost, VirtualHostSet};
use super::{default_route, gateway, patched, wire_field};
use crate::build::encode;
use crate::patches::{PatchClass, patches};
use crate::sidecar_scope;
use navarch_api::names::ResourceName;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The node metadata key with which a proxy enables or disables VHDS.
const METADATA: &str = "FINE_GRAINED_ROUTES";

/// Whether the proxy uses VHDS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VhdsEnabled;

/// One virtual host of a port of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamedVirtualHost {
    /// The port and listener.
    at: OutboundPort,
    name: String,
}

/// A patched route configuration, before it is split for VHDS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PatchedTable {
    name: String,
}

/// One virtual host of a patched route configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PatchedHost {
    /// The name of the route configuration.
    routes: String,
    name: String,
}

/// The source of a route configuration's virtual hosts.
enum Table {
    /// It has at most one, and is sent without VHDS.
    Whole,
    /// The virtual hosts of a sidecar's port.
    Port(OutboundPort),
    Gateway,
    /// EnvoyFilters patch routes: it is built as a whole first, as patches may match any part of
    /// it.
    Patched,
}

/// Whether the proxy uses VHDS.
pub(super) fn is_enabled(view: &View<'_>) -> bool {
    *view.derived(&VhdsEnabled)
}

impl Query for VhdsEnabled {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let proxy = view.proxy();
        match proxy.meta(METADATA) {
            Some(_) => proxy.meta_bool(METADATA) && proxy.uses_delta(),
            None => view.mesh().settings.fine_grained_routes && proxy.uses_delta(),
        }
    }
}

impl ProxyQuery for VhdsEnabled {}

/// The route configuration of this name, without the virtual hosts that [`names`] lists.
pub(super) fn configuration(view: &View<'_>, name: &str) -> Bytes {
    match table(view, name) {
        Table::Whole => whole(view, name),
        Table::Port(at) => {
            let table = view.get(&VirtualHostSet { at });
            let mut inline: Vec<Bytes> = table
                .virtual_hosts
                .iter()
                .filter(|virtual_host| matches_any_host(virtual_host))
                .map(|virtual_host| bytes(view, at, virtual_host))
                .collect();

            let catch_all = default_route::catch_all(
                &sidecar_scope::outbound_policy(view),
                *view.derived(&RouteHeaders),
            );
            inline.push(as_field(&catch_all));

            assemble(
                name,
                &inline,
                vhds(table.virtual_hosts.len() >= inline.len()),
            )
        }
        Table::Gateway => match gateway::inline(view, name) {
            Some((inline, are_others)) => assemble(name, &inline, vhds(are_others)),
            None => whole(view, name),
        },
        Table::Patched => {
            let mut routes = RouteConfiguration::clone(&view.get(&PatchedTable {
                name: name.to_owned(),
            }));
            let all = routes.virtual_hosts.len();
            routes
                .virtual_hosts
                .retain(|host| !is_separate_resource(host));
            routes.vhds = vhds(routes.virtual_hosts.len() < all);
            encode(&routes)
        }
    }
}

/// The names of the virtual hosts of a route configuration that are separate resources.
pub(super) fn names(view: &View<'_>, routes: &str) -> Vec<ResourceName> {
    let full = |host: &str| ResourceName::new(format!("{routes}/{host}"));

    match table(view, routes) {
        Table::Whole => Vec::new(),
        Table::Port(at) => {
            let table = view.get(&VirtualHostSet { at });
            table
                .virtual_hosts
                .iter()
                .filter(|virtual_host| !matches_any_host(virtual_host))
                .map(|virtual_host| full(&virtual_host.name))
                .collect()
        }
        Table::Gateway => gateway::names(view, routes)
            .iter()
            .map(|name| full(name))
            .collect(),
        Table::Patched => {
            let table = view.get(&PatchedTable {
                name: routes.to_owned(),
            });
            table
                .virtual_hosts
                .iter()
                .filter(|host| is_separate_resource(host))
                .map(|host| full(&host.name))
                .collect()
        }
    }
}

/// The virtual host of this name.
pub(super) fn host(view: &View<'_>, routes: &str, name: &str) -> Option<Bytes> {
    let host = match table(view, routes) {
        Table::Whole => None,
        Table::Port(at) => {
            let virtual_host = (*view.get(&NamedVirtualHost {
                at,
                name: name.to_owned(),
            }))
            .clone()?;
            wire_field::message(&bytes(view, at, &virtual_host))
        }
        Table::Gateway => wire_field::message(&gateway::host(view, routes, name)?),
        Table::Patched => {
            let named = PatchedHost {
                routes: routes.to_owned(),
                name: name.to_owned(),
            };
            (*view.get(&named)).as_ref().map(encode)
        }
    };

    wire_field::renamed(&host?, &format!("{routes}/{name}"))
}

/// A route configuration merged with its VHDS virtual hosts, as Envoy does.
pub fn with_hosts<'a>(
    name: &ResourceName,
    body: &Bytes,
    hosts: impl Iterator<Item = (&'a ResourceName, &'a Bytes)>,
) -> Bytes {
    let mut own = hosts.filter(|(host, _)| {
        host.as_str()
            .rsplit_once('/')
            .is_some_and(|(of, _)| of == name.as_str())
    });
    let Some(first) = own.next() else {
        return body.clone();
    };
    let fields = std::iter::once(first).chain(own).map(|(_, host)| {
        let mut field = wire_field::begin(FIELD_NUMBER, host.len());
        field.extend_from_slice(host);
        field
    });
    // Fields of a message may be in any order, and list items need not be adjacent.
    let mut whole = BytesMut::from(&**body);
    fields.for_each(|field| whole.extend_from_slice(&field));
    whole.freeze()
}

/// The source of a route configuration's virtual hosts.
fn table(view: &View<'_>, name: &str) -> Table {
    let found = match view.proxy().kind() {
        ProxyKind::Sidecar => port_of_table(view, name).map(Table::Port),
        ProxyKind::Router => Some(Table::Gateway),
        ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => None,
    };
    let Some(found) = found else {
        return Table::Whole;
    };
    if patches(view, PatchClass::Routes).is_some() {
        Table::Patched
    } else {
        found
    }
}

/// The route configuration with all of its virtual hosts.
fn whole(view: &View<'_>, name: &str) -> Bytes {
    match view.proxy().kind() {
        ProxyKind::Router => patched::gateway(view, name),
        ProxyKind::Sidecar | ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            patched::sidecar(view, name)
        }
    }
}

/// The VHDS config source, if there are such virtual hosts: the stream of the route configuration.
/// Envoy waits for them as long as for the route configuration; without any it would wait forever.
fn vhds(are_any: bool) -> Option<Vhds> {
    are_any.then(|| Vhds {
        config_source: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(
                AggregatedConfigSource::default(),
            )),
            initial_fetch_timeout: Some(Duration::default()),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    })
}

/// A virtual host of a sidecar, encoded as a list item.
fn bytes(view: &View<'_>, at: OutboundPort, virtual_host: &PlannedVirtualHost) -> Bytes {
    let domains = DomainChoice::Without(lost_domains(view, at, &virtual_host.name));
    (*view.get(&VirtualHostBytes {
        at,
        virtual_host: virtual_host.clone(),
        domains,
    }))
    .clone()
}

fn matches_any_host(virtual_host: &PlannedVirtualHost) -> bool {
    virtual_host.host.as_str() == "*"
}

/// Whether a virtual host can be a separate resource: its name must be the last part of the
/// resource's.
fn is_separate_resource(host: &VirtualHost) -> bool {
    !host.name.is_empty()
        && !host.name.contains('/')
        && !host.domains.iter().any(|domain| domain == "*")
}

impl Query for NamedVirtualHost {
    type Value = Option<PlannedVirtualHost>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&VirtualHostSet { at: self.at })
            .find(&self.name)
            .filter(|virtual_host| !matches_any_host(virtual_host))
            .cloned()
    }
}

impl Query for PatchedTable {
    type Value = RouteConfiguration;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        RouteConfiguration::decode(whole(view, &self.name))
            .expect("the bytes encode a route configuration")
    }
}

impl Query for PatchedHost {
    type Value = Option<VirtualHost>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let table = view.get(&PatchedTable {
            name: self.routes.clone(),
        });
        table
            .virtual_hosts
            .iter()
            .find(|host| host.name == self.name)
            .filter(|host| is_separate_resource(host))
            .cloned()
    }
}
