//! The HTTP connection manager.
//!
//! The order of its filters: clusters on demand, peer metadata, custom authorization, authentication,
//! authorization, extensions, gRPC-Web, gRPC statistics, ALPN, faults, CORS, metrics, sessions, name
//! resolution, and the router last.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::http1_protocol_options::HeaderKeyFormat;
use navarch_proto::envoy::config::core::v3::http1_protocol_options::header_key_format::HeaderFormat;
use navarch_proto::envoy::config::core::v3::{CidrRange, HttpProtocolOptions, TypedExtensionConfig};
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier, UpgradeConfig,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, RequestIdExtension,
};
use navarch_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use navarch_proto::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;

use crate::authentication::AuthenticationOf;
use crate::authorization::{AuthorizationOf, Peers};
use crate::build::ads_source;
use crate::cidr;
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::connection_settings::{self, EffectiveConnectionSettings};
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::proxy_headers::{HeaderSettings, HeaderSettingsOf, forward_client_cert};
use crate::filters::tracing::HttpTracingOf;
use crate::filters::{
    alpn, dynamic_forward_proxy, ext_proc, http, on_demand, peer_headers, tunnel,
};
use crate::gateway::has_inference_pools;
use crate::node_annotations::{FORWARDS_CLIENT_IDENTITY, annotation};
use crate::policy::PolicyService;
use crate::proxy_settings::{accepts_http10, idle_timeout};
use crate::traffic_extension;
use navarch_api::mesh::NormalizationType;
use navarch_base::cidr::Cidr;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

/// The settings in which connection managers of a class differ.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of one message"
)]
pub(crate) struct HttpOptions<'a> {
    /// Selects the headers, metrics, access logs and tracing of the connection manager.
    pub(crate) class: ListenerClass,
    /// The stat prefix, without the delimiter.
    pub(crate) stat_prefix: &'a str,
    /// The source of its routes.
    pub(crate) routes: Routes,
    /// The declared protocol of the port.
    pub(crate) protocol: Protocol,
    /// Whether the peer's address is used as the client's.
    pub(crate) use_remote_address: bool,
    /// Whether the connection came through HBONE, which already transferred the peer's metadata.
    pub(crate) hbone: bool,
    /// Whether peer metadata may be withheld from destinations outside the mesh, if the proxy's
    /// settings say so.
    pub(crate) may_skip_external_metadata: bool,
    /// The service of the listener, if any.
    pub(crate) service: Option<&'a Service>,
    /// Whether hosts that no service declares are resolved by name.
    pub(crate) resolves_unknown_hosts: bool,
    /// Whether it is of a waypoint, for the service or for workloads.
    pub(crate) waypoint: bool,
    /// How peers are identified.
    pub(crate) peers: Peers,
    /// The port by which extensions are selected: inbound that of the workload, else that of the
    /// listener. 0 means none.
    pub(crate) port: u16,
}

impl HttpOptions<'_> {
    /// The minimal options; no feature is enabled.
    #[must_use]
    pub(crate) fn new(class: ListenerClass, routes: Routes, protocol: Protocol) -> Self {
        Self {
            class,
            stat_prefix: "",
            routes,
            protocol,
            use_remote_address: false,
            hbone: false,
            may_skip_external_metadata: false,
            service: None,
            resolves_unknown_hosts: false,
            waypoint: false,
            peers: Peers::Tls,
            port: 0,
        }
    }
}

/// The source of the routes of a connection manager.
#[derive(Clone, Debug)]
pub(crate) enum Routes {
    /// A resource of this name.
    Rds(String),
    /// Part of the connection manager, so that Envoy does not request them by RDS.
    Inline(Box<RouteConfiguration>),
}

/// The common part of all connection managers of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BaseOf {
    class: ListenerClass,
    /// The service, at its waypoint.
    service: Option<PolicyService>,
}

/// Whether a waypoint forwards client identities to applications (annotation
/// `ambient.istio.io/xfcc-include-client-identity`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ForwardsClientIdentity;

impl Query for ForwardsClientIdentity {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        annotation(view.proxy(), FORWARDS_CLIENT_IDENTITY)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

impl ProxyQuery for ForwardsClientIdentity {}

/// The common part of connection managers.
#[derive(Clone, Debug, PartialEq)]
struct Base {
    /// All common fields, without filters.
    manager: HttpConnectionManager,
    /// Filters after gRPC-Web and before those for metrics.
    filters: Vec<HttpFilter>,
    metrics: Vec<HttpFilter>,
    /// The session filter, if any.
    session: Option<HttpFilter>,
    /// The last filter.
    router: HttpFilter,
}

/// Builds a connection manager.
#[must_use]
pub(crate) fn connection_manager(
    view: &View<'_>,
    options: HttpOptions<'_>,
) -> HttpConnectionManager {
    let service = options
        .service
        .filter(|_| options.waypoint)
        .map(PolicyService::new);
    let base = view.get(&BaseOf {
        class: options.class,
        service: service.clone(),
    });
    let filters = http_filters(view, &options, &base, service);

    let HttpOptions {
        stat_prefix,
        routes,
        use_remote_address,
        ..
    } = options;

    let mut manager = base.manager.clone();

    // The prefix ends with a semicolon: Envoy's own names continue with dots, which addresses also
    // contain.
    manager.stat_prefix = format!("{stat_prefix};");
    manager.use_remote_address = Some(use_remote_address);
    if use_remote_address || view.mesh().settings.hcm_internal_networks {
        manager.internal_address_config = internal_addresses(view);
    }

    manager.route_specifier = Some(match routes {
        Routes::Rds(name) => RouteSpecifier::Rds(Rds {
            config_source: Some(ads_source()),
            route_config_name: name,
        }),
        Routes::Inline(routes) => RouteSpecifier::RouteConfig(*routes),
    });

    if options.waypoint {
        // Traffic from a tunnel has no certificate.
        manager.set_current_client_cert_details = None;
        manager.forward_client_cert_details = match *view.derived(&ForwardsClientIdentity) {
            true => ForwardClientCertDetails::AlwaysForwardOnly.into(),
            false => ForwardClientCertDetails::Sanitize.into(),
        };
    }

    manager.http_filters = filters;
    manager
}

/// All filters, in order.
fn http_filters(
    view: &View<'_>,
    options: &HttpOptions<'_>,
    base: &Base,
    service: Option<PolicyService>,
) -> Vec<HttpFilter> {
    let class = options.class;
    let mut filters: Vec<HttpFilter> = Vec::with_capacity(base.filters.len() + 4);

    // Later filters read the cluster of a request, such as whether it is external.
    let on_demand = match class {
        ListenerClass::SidecarOutbound => on_demand::filter_of(view),
        ListenerClass::SidecarInbound | ListenerClass::Gateway => None,
    };
    filters.extend(on_demand.clone());

    if !options.hbone {
        let skip = options.may_skip_external_metadata
            && view
                .derived(&HeaderSettingsOf { class })
                .skip_external_metadata;
        let metadata_exchange = http::metadata_exchange(view, class, skip);
        filters.extend(metadata_exchange.or_else(|| peer_headers::filter_of(view, class, skip)));
    }

    if options.waypoint && *view.derived(&ForwardsClientIdentity) {
        filters.push(tunnel::client_identity());
    }

    let before = filters.len();
    let mut after = guard(view, options, service, &mut filters);
    let has_extensions = filters.len() > before || !after.is_empty();
    if !options.waypoint {
        filters.append(&mut after);
    }

    if class == ListenerClass::Gateway && has_inference_pools(view) {
        filters.push(ext_proc::filter());
    }

    if options.protocol == Protocol::GrpcWeb {
        filters.push(http::grpc_web());
    }

    filters.extend(base.filters.iter().cloned());
    if !options.waypoint {
        filters.extend(base.metrics.iter().cloned());
    }

    filters.extend(base.session.clone());
    let is_wildcard = |service: &&Service| match options.waypoint {
        true => service.key.hostname.is_wildcard(),
        false => dynamic_forward_proxy::resolves_by_name(service),
    };
    if class != ListenerClass::Gateway
        && let Some(service) = options.service.filter(is_wildcard)
    {
        filters.push(dynamic_forward_proxy::http_filter(view, service));
    }

    if options.resolves_unknown_hosts {
        filters.push(dynamic_forward_proxy::allow_any_filter(view));
    }

    if options.waypoint {
        filters.append(&mut after);
        filters.extend(tunnel::upstream_metadata(view));
        filters.extend(base.metrics.iter().cloned());
    }

    // Extensions may change the route, and thus the cluster.
    filters.extend(on_demand.filter(|_| has_extensions));
    filters.push(base.router.clone());
    filters
}

/// Adds the filters of policies, and the extensions among them; returns the extensions after these.
fn guard(
    view: &View<'_>,
    options: &HttpOptions<'_>,
    service: Option<PolicyService>,
    filters: &mut Vec<HttpFilter>,
) -> Vec<HttpFilter> {
    let extensions =
        traffic_extension::http_filters_for(view, options.class, options.port, service.clone());
    let authorization = AuthorizationOf {
        service: service.clone(),
        peers: options.peers,
    };
    let guard = (options.class != ListenerClass::SidecarOutbound).then(|| {
        (
            view.get(&authorization),
            view.get(&AuthenticationOf { service }),
        )
    });

    // CUSTOM identifies peers by mutual TLS only, except at waypoints.
    let custom = guard
        .as_ref()
        .map(|(authorization, _)| match options.waypoint {
            true => authorization.clone(),
            false => view.get(&AuthorizationOf::PROXY),
        });

    filters.extend(
        custom
            .iter()
            .flat_map(|custom| custom.custom_http.iter().cloned()),
    );
    filters.extend(extensions.authn);
    if let Some((_, authentication)) = &guard {
        filters.extend((**authentication).clone());
    }

    filters.extend(extensions.authz);
    if let Some((authorization, _)) = &guard {
        filters.extend(authorization.http.iter().cloned());
    }

    extensions.rest
}

impl Query for BaseOf {
    type Value = Base;

    fn compute(&self, view: &View<'_>) -> Base {
        let class = self.class;
        let settings = &view.mesh().settings;
        let headers = view.derived(&HeaderSettingsOf { class });
        let service = &self.service;
        let tracing = view.get(&HttpTracingOf {
            class,
            service: service.clone(),
        });

        let mut manager = HttpConnectionManager {
            upgrade_configs: vec![UpgradeConfig {
                upgrade_type: "websocket".to_owned(),
                ..UpgradeConfig::default()
            }],
            // Streams have no idle timeout, since only applications can choose one.
            stream_idle_timeout: Some(prost_types::Duration::default()),
            common_http_protocol_options: idle_timeout(view).map(|timeout| HttpProtocolOptions {
                idle_timeout: Some(timeout),
                ..HttpProtocolOptions::default()
            }),
            access_log: view
                .get(&AccessLogsOf {
                    class,
                    service: service.clone(),
                })
                .http
                .clone(),
            tracing: tracing.config.clone(),
            request_id_extension: Some(request_id(tracing.use_request_id)),
            proxy_100_continue: settings.proxy_100_continue,
            ..HttpConnectionManager::default()
        };

        if accepts_http10(view) {
            manager
                .http_protocol_options
                .get_or_insert_default()
                .accept_http_10 = true;
        }

        normalize_paths(view, &mut manager);
        apply_headers(&headers, class, &mut manager);
        if let Some(connections) = &*view.get(&EffectiveConnectionSettings) {
            connection_settings::apply(connections, &mut manager);
        }

        let mut filters = vec![http::grpc_stats()];
        if class != ListenerClass::SidecarInbound {
            filters.extend(alpn::offered(view));
        }

        filters.extend([http::fault(), http::cors()]);
        let has_sessions =
            settings.persistent_session_filter && class != ListenerClass::SidecarInbound;
        Base {
            manager,
            filters,
            metrics: view
                .get(&MetricsFiltersOf {
                    class,
                    service: service.clone(),
                })
                .http
                .clone(),
            session: has_sessions.then(http::empty_stateful_session),
            router: http::router(headers.suppress_debug_headers),
        }
    }
}

/// Header settings of the proxy. Gateways handle the client's certificate by their topology.
fn apply_headers(
    headers: &HeaderSettings,
    class: ListenerClass,
    manager: &mut HttpConnectionManager,
) {
    manager.server_name.clone_from(&headers.server_name);
    manager.server_header_transformation = headers.server_transformation().into();
    manager.generate_request_id = (!headers.generate_request_id).then_some(false);
    manager.append_x_forwarded_port = headers.x_forwarded_port;
    if headers.preserve_case {
        manager
            .http_protocol_options
            .get_or_insert_default()
            .header_key_format = Some(preserved_case());
    }
    if class == ListenerClass::SidecarInbound {
        manager.forward_client_cert_details =
            forward_client_cert(headers.forwarded_client_cert).into();
        manager.set_current_client_cert_details = Some(headers.client_cert.to_proto());
    }
}

/// Path normalization from mesh config.
fn normalize_paths(view: &View<'_>, manager: &mut HttpConnectionManager) {
    let normalization = view
        .mesh()
        .config
        .path_normalization
        .as_ref()
        .map(|paths| paths.normalization);

    let (normalize, merge, escaped) = match normalization.unwrap_or_default() {
        NormalizationType::None => (false, false, PathWithEscapedSlashesAction::KeepUnchanged),
        NormalizationType::Default | NormalizationType::Base => {
            (true, false, PathWithEscapedSlashesAction::KeepUnchanged)
        }
        NormalizationType::MergeSlashes => {
            (true, true, PathWithEscapedSlashesAction::KeepUnchanged)
        }
        NormalizationType::DecodeAndMergeSlashes => {
            (true, true, PathWithEscapedSlashesAction::UnescapeAndForward)
        }
    };

    manager.normalize_path = Some(normalize);
    manager.merge_slashes = merge;
    manager.path_with_escaped_slashes_action = escaped.into();
}

/// Random request ids; they may determine whether a request is traced.
fn request_id(decides_tracing: bool) -> RequestIdExtension {
    let config = UuidRequestIdConfig {
        use_request_id_for_trace_sampling: Some(decides_tracing),
        ..UuidRequestIdConfig::default()
    };
    RequestIdExtension {
        typed_config: Some(pack(&config)),
    }
}

/// Preserves the case of HTTP/1.1 headers.
fn preserved_case() -> HeaderKeyFormat {
    let formatter = TypedExtensionConfig {
        name: "preserve_case".to_owned(),
        typed_config: Some(pack(&PreserveCaseFormatterConfig::default())),
    };
    HeaderKeyFormat {
        header_format: Some(HeaderFormat::StatefulFormatter(formatter)),
    }
}

/// The address ranges of the mesh networks, whose clients are internal.
fn internal_addresses(view: &View<'_>) -> Option<InternalAddressConfig> {
    let networks = view
        .networks()
        .networks
        .values()
        .flat_map(|network| &network.endpoints);
    let mut ranges: Vec<Cidr> = networks
        .filter_map(|endpoints| Cidr::parse_range_or_address(endpoints.from_cidr.as_deref()?))
        .collect();
    ranges.sort_unstable();
    let cidr_ranges: Vec<CidrRange> = ranges.into_iter().map(cidr::to_proto).collect();
    (!cidr_ranges.is_empty()).then(|| InternalAddressConfig {
        cidr_ranges,
        ..InternalAddressConfig::default()
    })
}
