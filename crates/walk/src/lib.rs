//! Evaluates a request against the resources of one proxy, as the proxy itself would.
//!
//! ```text
//! connection ─▶ listener ─▶ filter chain ─▶ virtual host ─▶ route ─▶ cluster ─▶ endpoints
//! ```
//!
//! Depends only on Envoy's messages, not on their source. Filters on the path are assumed to let
//! the request pass ([`policy`], [`token`] and [`ztunnel`] evaluate those that depend on the
//! client), weighted clusters are all listed rather than one drawn, and all hosts are taken to be
//! healthy. A walk reports what it cannot evaluate.

mod chain;
mod http;
mod listener;
mod matcher;
mod pattern;
pub mod policy;
mod routes;
pub mod token;
mod upstream;
pub mod ztunnel;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use prost::Message;

use token::Claims;

pub use routes::Routes;

/// The resources of one proxy.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Those of LDS, internal listeners such as `main_internal` included.
    pub listeners: Vec<Arc<Listener>>,
    /// Its route configurations by name.
    pub routes: BTreeMap<String, Arc<Routes>>,
    /// Its clusters by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// The endpoints of its clusters by name.
    pub endpoints: BTreeMap<String, ClusterLoadAssignment>,
}

/// How a connection gets into the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The workload opened it, and it was redirected to the proxy.
    Outbound,
    /// A client opened it to the workload, and it was redirected to the proxy.
    Inbound,
    /// It was opened to the proxy itself.
    Direct,
    /// It came out of a tunnel (HBONE) that ends at the proxy.
    Tunnel,
}

/// A connection and its content.
#[derive(Clone, Debug)]
pub struct Connection {
    /// How it enters the proxy.
    pub entry: Entry,
    /// The original destination.
    pub destination: SocketAddr,
    /// The client's address, if known.
    pub source: Option<IpAddr>,
    /// The TLS around it.
    pub tls: Option<Tls>,
    /// The request, for HTTP without TLS or after its termination.
    pub http: Option<HttpRequest>,
}

/// The TLS client hello.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// SNI; empty if absent.
    pub sni: String,
    /// The protocols that the client offers.
    pub alpn: Vec<String>,
}

/// The parts of a request that routes, policies and token checks use.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// `:method`, such as `GET`.
    pub method: String,
    /// The host, with the port where the client names it.
    pub host: String,
    /// The path with its query.
    pub path: String,
    /// Further headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The claims of the token (JWT) that it carries; `None` without one.
    pub claims: Option<Claims>,
}

/// The path of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// The listener that took the connection.
    pub listener: String,
    /// The filter chain, by its name, which may be empty.
    pub chain: String,
    /// The route, by its name, which may be empty; for HTTP that found one.
    pub route: Option<String>,
    /// What the proxy does with the request, or with the connection if it is not HTTP.
    pub outcome: Outcome,
}

/// The outcome of a walk.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The connection is closed, or the walk cannot continue, with the reason.
    Closed(String),
    /// No route matches the request: 404.
    NotFound,
    /// The proxy redirects to this location, with this status.
    Redirected {
        /// 301, 302, 303, 307 or 308.
        status: u32,
        /// `Location` of the response, such as `https://shop.example/cart`.
        location: String,
    },
    /// The proxy answers itself with this status.
    Answered(u32),
    /// It is forwarded to upstreams, each with its share.
    Forwarded(Vec<Share>),
}

/// A cluster's share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// As the route names it, such as `outbound|80||web.shop.svc.cluster.local`. It may not exist.
    pub cluster: String,
    /// Its weight among the shares.
    pub weight: u32,
    /// The upstream of the cluster.
    pub upstream: Upstream,
    /// The transport, if it does not depend on the endpoint.
    pub transport: Transport,
}

/// The transport to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Plain text.
    #[default]
    Plain,
    /// TLS without a mesh identity of the client.
    Tls,
    /// Mutual TLS of the mesh.
    Mutual,
    /// An HBONE tunnel over mutual TLS of the mesh.
    Tunnel,
}

/// The upstream of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Upstream {
    /// The cluster does not exist.
    NoCluster,
    /// Load-balanced over these endpoints.
    Endpoints(Vec<Endpoint>),
    /// The original destination, possibly with another port.
    Original(SocketAddr),
    /// To the host that the request names.
    Named(String),
}

/// A host of the cluster's `ClusterLoadAssignment`.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its address and port, behind the tunnel if it is reached by one; a path for a Unix socket.
    pub address: String,
    /// The end of the tunnel, if it differs: a waypoint.
    pub waypoint: Option<String>,
    /// Lower values are preferred.
    pub priority: u32,
    /// Its weight within its locality.
    pub weight: u32,
    /// Chosen by the endpoint's metadata `envoy.transport_socket_match`, else that of the cluster.
    pub transport: Transport,
}

impl Walk {
    /// The addresses of the lowest priority of each cluster with a share, sorted.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let Outcome::Forwarded(shares) = &self.outcome else {
            return Vec::new();
        };
        let mut addresses: Vec<String> = shares
            .iter()
            .filter(|share| share.weight > 0)
            .flat_map(Share::first_addresses)
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The clusters with a share, and their weights.
    #[must_use]
    pub fn clusters(&self) -> Vec<(&str, u32)> {
        let Outcome::Forwarded(shares) = &self.outcome else {
            return Vec::new();
        };
        shares
            .iter()
            .map(|share| (share.cluster.as_str(), share.weight))
            .collect()
    }
}

impl Share {
    /// The addresses of the lowest priority.
    fn first_addresses(&self) -> Vec<String> {
        match &self.upstream {
            Upstream::NoCluster => Vec::new(),
            Upstream::Original(address) => vec![address.to_string()],
            Upstream::Named(host) => vec![host.clone()],
            Upstream::Endpoints(endpoints) => {
                let first = endpoints.iter().map(|endpoint| endpoint.priority).min();
                let used = endpoints
                    .iter()
                    .filter(|endpoint| Some(endpoint.priority) == first);
                used.map(|endpoint| endpoint.address.clone()).collect()
            }
        }
    }
}

impl Resources {
    /// The listener that takes a connection.
    #[must_use]
    pub fn listener(&self, connection: &Connection) -> Option<&Listener> {
        listener::find(&self.listeners, connection)
    }

    /// The filter chain that takes a connection.
    #[must_use]
    pub fn chain(&self, connection: &Connection) -> Option<&FilterChain> {
        chain::find(listener::find(&self.listeners, connection)?, connection)
    }

    /// Walks a connection, and the request that it carries.
    #[must_use]
    pub fn walk(&self, connection: &Connection) -> Walk {
        let closed = |listener: &str, chain: &str, reason: &str| Walk {
            listener: listener.to_owned(),
            chain: chain.to_owned(),
            route: None,
            outcome: Outcome::Closed(reason.to_owned()),
        };

        let Some(listener) = listener::find(&self.listeners, connection) else {
            return closed("", "", "no listener matches the connection");
        };

        let Some(chain) = chain::find(listener, connection) else {
            return closed(&listener.name, "", "no filter chain matches the connection");
        };

        let (route, outcome) = self.through_filters(&chain.filters, connection);
        Walk {
            listener: listener.name.clone(),
            chain: chain.name.clone(),
            route,
            outcome,
        }
    }

    /// Evaluates network filters up to the terminal one.
    fn through_filters(
        &self,
        filters: &[Filter],
        connection: &Connection,
    ) -> (Option<String>, Outcome) {
        for filter in filters {
            let Some(filter::ConfigType::TypedConfig(config)) = &filter.config_type else {
                continue;
            };

            if config.type_url.ends_with(".HttpConnectionManager") {
                return match HttpConnectionManager::decode(config.value.as_slice()) {
                    Ok(manager) => self.through_manager(&manager, connection),
                    Err(error) => (None, Outcome::Closed(error.to_string())),
                };
            }

            if config.type_url.ends_with(".tcp_proxy.v3.TcpProxy") {
                let outcome = match TcpProxy::decode(config.value.as_slice()) {
                    Ok(proxy) => self.through_tcp(&proxy, connection),
                    Err(error) => Outcome::Closed(error.to_string()),
                };
                return (None, outcome);
            }
        }

        (
            None,
            Outcome::Closed("the filter chain has no supported terminal filter".to_owned()),
        )
    }

    /// Evaluates an HTTP connection manager.
    fn through_manager(
        &self,
        manager: &HttpConnectionManager,
        connection: &Connection,
    ) -> (Option<String>, Outcome) {
        let Some(request) = &connection.http else {
            return (None, Outcome::Closed("the protocol is not HTTP".to_owned()));
        };

        let routes = match &manager.route_specifier {
            Some(RouteSpecifier::RouteConfig(routes)) => Some(Arc::new(Routes::from(routes))),
            Some(RouteSpecifier::Rds(rds)) => self.routes.get(&rds.route_config_name).cloned(),
            Some(RouteSpecifier::ScopedRoutes(_)) | None => None,
        };

        let Some(routes) = routes else {
            return (
                None,
                Outcome::Closed("the route configuration is missing".to_owned()),
            );
        };

        let Some(host) = routes.of_host(&request.host) else {
            return (None, Outcome::NotFound);
        };

        if connection.tls.is_none() && http::requires_tls(host) {
            let location = format!("https://{}{}", request.host, request.path);
            return (
                None,
                Outcome::Redirected {
                    status: 301,
                    location,
                },
            );
        }

        let claims = token::claims_at(manager, request);
        let Some(route) = http::find(host, request, claims.as_ref()) else {
            return (None, Outcome::NotFound);
        };

        let outcome = http::act(route, request, |cluster, weight| {
            self.share(cluster, weight, connection)
        });
        (Some(route.name.clone()), outcome)
    }

    /// Evaluates a TCP proxy.
    fn through_tcp(&self, proxy: &TcpProxy, connection: &Connection) -> Outcome {
        match &proxy.cluster_specifier {
            Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)) => {
                Outcome::Forwarded(vec![self.share(cluster, 1, connection)])
            }
            Some(tcp_proxy::ClusterSpecifier::WeightedClusters(all)) => {
                let shares = all
                    .clusters
                    .iter()
                    .map(|part| self.share(&part.name, part.weight, connection));
                Outcome::Forwarded(shares.collect())
            }
            None => Outcome::Closed("the TCP proxy has no cluster".to_owned()),
        }
    }

    fn share(&self, cluster: &str, weight: u32, connection: &Connection) -> Share {
        let upstream = upstream::of(self, cluster, connection);
        let transport = self
            .clusters
            .get(cluster)
            .map(upstream::transport_of)
            .unwrap_or_default();
        Share {
            cluster: cluster.to_owned(),
            weight,
            upstream,
            transport,
        }
    }
}

/// The connection manager of a filter chain, if it has one.
fn manager_of(chain: &FilterChain) -> Option<HttpConnectionManager> {
    chain
        .filters
        .iter()
        .find_map(|filter| match &filter.config_type {
            Some(filter::ConfigType::TypedConfig(config))
                if config.type_url.ends_with(".HttpConnectionManager") =>
            {
                HttpConnectionManager::decode(config.value.as_slice()).ok()
            }
            Some(filter::ConfigType::TypedConfig(_) | filter::ConfigType::ConfigDiscovery(_))
            | None => None,
        })
}
