//! One virtual host of a sidecar's outbound routes, as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use navarch_api::istio::MESH_GATEWAY;
use navarch_proto::envoy::config::route::v3::{Route, VirtualHost};
use prost::Message;

use super::context::RouteContext;
use super::domains::with_port;
use super::duplicate_domains::DomainsOf;
use super::http_route::http_routes;
use super::port_services::{self, OutboundPort};
use super::settings::{RouteHeaders, RouteSettings};
use super::virtual_host_set::PlannedVirtualHost;
use super::{default_route, hash, stateful_session, wire_field};
use navarch_api::names::Hostname;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// One virtual host, encoded as an item of a route configuration: key and length of the field
/// `virtual_hosts`, then the message. Empty if it has no domains left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VirtualHostBytes {
    /// The port and listener.
    pub(super) at: OutboundPort,
    pub(super) virtual_host: PlannedVirtualHost,
    pub(super) domains: DomainChoice,
}

/// The selection from a virtual host's wanted domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DomainChoice {
    /// `*`, if it is the only virtual host.
    Any,
    /// Its wanted domains except these (sorted).
    Without(Vec<String>),
}

/// The number of the field `virtual_hosts` of a route configuration.
pub(super) const FIELD_NUMBER: u32 = 2;

impl Query for VirtualHostBytes {
    type Value = Bytes;

    fn compute(&self, view: &View<'_>) -> Bytes {
        self.build(view)
            .map_or_else(Bytes::new, |host| as_field(&host))
    }
}

/// A virtual host as an item of the field `virtual_hosts`.
pub(super) fn as_field(host: &VirtualHost) -> Bytes {
    let mut bytes = wire_field::begin(FIELD_NUMBER, host.encoded_len());
    host.encode_raw(&mut bytes);
    bytes.freeze()
}

impl VirtualHostBytes {
    /// The virtual host; `None` if it has no domains left.
    fn build(&self, view: &View<'_>) -> Option<VirtualHost> {
        let domains = self.domains(view);
        if domains.is_empty() {
            return None;
        }

        let service = self
            .virtual_host
            .service
            .as_ref()
            .and_then(|service| port_services::cut(view, self.at, service));
        let settings = view.get(&RouteSettings);
        let session = service
            .as_ref()
            .and_then(|service| {
                stateful_session::per_route(service, settings.session_labels.as_ref())
            })
            .map(|session| (stateful_session::FILTER.to_owned(), session));

        Some(VirtualHost {
            name: self.virtual_host.name.clone(),
            domains,
            routes: self.routes(view, service.as_deref()),
            include_request_attempt_count: view.derived(&RouteHeaders).attempt_count,
            typed_per_filter_config: session.into_iter().collect::<BTreeMap<_, _>>(),
            ..VirtualHost::default()
        })
    }

    /// Its domains. Requests to an HTTP proxy for another port than 80 contain the port.
    fn domains(&self, view: &View<'_>) -> Vec<String> {
        let lost = match &self.domains {
            DomainChoice::Any => return vec!["*".to_owned()],
            DomainChoice::Without(lost) => lost,
        };
        let needs_port = self.at.port == 0 && self.virtual_host.port != 80;
        let mut domains: Vec<String> = Vec::new();

        for domain in view
            .get(&DomainsOf {
                at: self.at,
                virtual_host: self.virtual_host.clone(),
            })
            .iter()
        {
            let text = &domain.text;
            if lost.binary_search(text).is_err()
                && (!needs_port || text.contains(':'))
                && domain.is_known(view)
            {
                domains.push(text.clone());
            }
        }

        domains
    }

    fn routes(&self, view: &View<'_>, service: Option<&Service>) -> Vec<Route> {
        let Some(owner) = &self.virtual_host.owner else {
            return service
                .map(|service| self.plain_route(view, service))
                .into_iter()
                .collect();
        };

        let context = RouteContext {
            view,
            listen_port: self.at.port,
            gateways: &[MESH_GATEWAY.to_owned()].into(),
            client: self.at.client,
            is_tls: false,
            advertises_http3: false,
            service: &|host: &Hostname| -> Option<Arc<Service>> {
                port_services::service_on(view, self.at, host)
            },
        };

        http_routes(&context, owner)
    }

    /// The route to a service without a VirtualService.
    fn plain_route(&self, view: &View<'_>, service: &Service) -> Route {
        let host = &service.key.hostname;
        let port = self.virtual_host.port;
        let hash = hash::of_service(view, host, port);
        let operation = format!("{}/*", with_port(host.as_str(), port));
        let settings = view.get(&RouteSettings);
        default_route::outbound(
            format!("outbound|{port}||{host}"),
            operation,
            hash.as_ref(),
            &settings,
        )
    }
}
