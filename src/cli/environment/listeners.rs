//! Reads the settings of listeners and their filters.

use super::reader::{Reader, VariableError};
use navarch_api::settings::{FINE_GRAINED_ROUTES_MIN_HOSTS, KeyFetching, Settings};
use navarch_base::go_text::parse_bool;

/// From how many virtual hosts on a route configuration is large.
const MIN_HOSTS: &str = "NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS";

/// Settings of listeners and their filters.
pub(super) fn read(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag("PILOT_ENVOY_FILTER_STATS", &mut settings.envoy_filter_stats)?;
    read.flag(
        "PILOT_ENABLE_METADATA_EXCHANGE",
        &mut settings.metadata_exchange,
    )?;
    read.flag(
        "PILOT_DISABLE_MX_ALPN",
        &mut settings.disable_metadata_exchange_alpn,
    )?;

    read.words(
        "PILOT_MX_ADDITIONAL_LABELS",
        &mut settings.metadata_exchange_labels,
    );
    read.flag("PILOT_ENABLE_ALPN_FILTER", &mut settings.alpn_filter)?;
    read.flag(
        "PILOT_ENABLE_PERSISTENT_SESSION_FILTER",
        &mut settings.persistent_session_filter,
    )?;

    read.flag("PILOT_ENABLE_MONGO_FILTER", &mut settings.mongo_filter)?;
    read.flag("PILOT_ENABLE_REDIS_FILTER", &mut settings.redis_filter)?;
    read.flag("PILOT_ENABLE_MYSQL_FILTER", &mut settings.mysql_filter)?;
    read.flag("PILOT_HTTP10", &mut settings.http10)?;
    read.flag(
        "PILOT_SIDECAR_USE_REMOTE_ADDRESS",
        &mut settings.sidecar_use_remote_address,
    )?;

    read.flag(
        "ENABLE_100_CONTINUE_HEADERS",
        &mut settings.proxy_100_continue,
    )?;
    read.flag(
        "ENABLE_HCM_INTERNAL_NETWORKS",
        &mut settings.hcm_internal_networks,
    )?;

    read.number(
        "MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP",
        &mut settings.max_connections_per_socket_event,
    )?;
    read.duration(
        "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT",
        &mut settings.transport_socket_connect_timeout,
    )?;

    read.flag(
        "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER",
        &mut settings.headless_filter_chain_listener,
    )?;
    read.flag(
        "ENABLE_TLS_ON_SIDECAR_INGRESS",
        &mut settings.tls_on_sidecar_ingress,
    )?;

    read.flag(
        "PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS",
        &mut settings.multiple_custom_authorization_providers,
    )?;
    read.flag(
        "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY",
        &mut settings.selector_based_gateway_policy,
    )?;

    // As in istiod, an unknown value is the default.
    read.set(
        "PILOT_JWT_ENABLE_REMOTE_JWKS",
        &mut settings.key_fetching,
        "JWKS fetch mode",
        |text| {
            Some(match text {
                "hybrid" | "true" => KeyFetching::Hybrid,
                "envoy" => KeyFetching::Proxy,
                _ => KeyFetching::ControlPlane,
            })
        },
    )?;

    read_fine_grained_routes(read, settings)?;
    read.flag(
        "PILOT_SKIP_VALIDATE_TRUST_DOMAIN",
        &mut settings.skip_validate_trust_domain,
    )?;

    read.flag(
        "PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE",
        &mut settings.merge_sidecar_ingress,
    )?;
    read.flag(
        "ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS",
        &mut settings.ipv4_for_ipv6_only,
    )?;

    // As in istiod, an invalid percentage is 1.
    read.set(
        "PILOT_TRACE_SAMPLING",
        &mut settings.trace_sampling,
        "percentage",
        |text| {
            text.parse().ok().map(|percent| {
                if (0.0..=100.0).contains(&percent) {
                    percent
                } else {
                    1.0
                }
            })
        },
    )
}

/// Which proxies get virtual hosts one by one.
fn read_fine_grained_routes(
    read: &Reader<'_>,
    settings: &mut Settings,
) -> Result<(), VariableError> {
    let mut min_hosts = FINE_GRAINED_ROUTES_MIN_HOSTS;
    read.set(
        MIN_HOSTS,
        &mut min_hosts,
        "number of virtual hosts, at least 1",
        |text| text.parse().ok().filter(|hosts| *hosts > 0),
    )?;

    // `None` is `auto`.
    let mut for_all = None;
    read.set(
        "NAVARCH_FINE_GRAINED_ROUTES",
        &mut for_all,
        "choice (auto, true or false)",
        |text| match text {
            "auto" => Some(None),
            text => parse_bool(text).map(Some),
        },
    )?;

    if for_all.is_some() && read.text(MIN_HOSTS).is_some() {
        tracing::warn!(
            variable = MIN_HOSTS,
            "has an effect with NAVARCH_FINE_GRAINED_ROUTES=auto alone"
        );
    }

    settings.fine_grained_routes = for_all == Some(true);
    settings.fine_grained_routes_min_hosts = for_all.is_none().then_some(min_hosts);
    Ok(())
}
