//! Rules for the proxy config within mesh config.

use super::Verdict;
use super::client_tls::client_tls;
use super::mesh_config::NO_EFFECT;
use super::name::{self, fqdn, port_number};
use super::path::Path;
use crate::duration::Duration;
use crate::mesh::{
    AuthenticationPolicy, ConnectionSettings, PrivateKeyProvider, ProxyConfig, RemoteService,
    Tracing,
};

/// The minimum flow-control window that HTTP/2 allows here.
const MIN_WINDOW: i32 = 65535;

/// The placeholder for the host's own address.
const HOST_IP: &str = "$(HOST_IP)";

/// Validates a proxy config.
pub(super) fn proxy_config(verdict: &mut Verdict, at: &Path<'_>, config: &ProxyConfig) {
    for (field, text) in [
        ("configPath", &config.config_path),
        ("binaryPath", &config.binary_path),
    ] {
        if text.is_empty() {
            verdict.error(&at.field(field), "is empty; write a path");
        }
    }

    service_name(verdict, at, config);
    verdict.check(
        &at.field("drainDuration"),
        drain_duration(config.drain_duration),
    );
    verdict.check(
        &at.field("discoveryAddress"),
        address(&config.discovery_address),
    );

    for (field, text) in [
        ("statsdUdpAddress", config.statsd_udp_address.as_str()),
        (
            "envoyMetricsServiceAddress",
            &config.envoy_metrics_service_address,
        ),
    ] {
        optional_address(verdict, &at.field(field), text);
    }

    remote_service(
        verdict,
        &at.field("envoyMetricsService"),
        config.envoy_metrics_service.as_ref(),
    );

    remote_service(
        verdict,
        &at.field("envoyAccessLogService"),
        config.envoy_access_log_service.as_ref(),
    );
    if let Some(tracing) = &config.tracing {
        tracer(verdict, &at.field("tracing"), tracing);
    }

    for (field, port) in [
        ("proxyAdminPort", config.proxy_admin_port),
        ("statusPort", config.status_port),
    ] {
        verdict.check(
            &at.field(field),
            port_number(u32::try_from(port).unwrap_or_default()),
        );
    }

    if config.control_plane_auth_policy == AuthenticationPolicy::Inherit {
        verdict.error(
            &at.field("controlPlaneAuthPolicy"),
            "has nothing to inherit from; write NONE or MUTUAL_TLS",
        );
    }

    if let Some(provider) = &config.private_key_provider {
        private_key_provider(verdict, &at.field("privateKeyProvider"), provider);
    }

    if let Some(settings) = &config.connection_settings {
        connection_settings(verdict, &at.field("connectionSettings"), settings);
    }

    // Istio 1.32 does not read these fields either.
    let set = [
        (
            "discoveryRefreshDelay",
            config.discovery_refresh_delay.is_some(),
        ),
        ("zipkinAddress", !config.zipkin_address.is_empty()),
    ];

    for (field, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        verdict.warn(&at.field(field), NO_EFFECT);
    }

    if config
        .proxy_metadata
        .contains_key("ISTIO_META_DNS_AUTO_ALLOCATE")
    {
        let at = &at.field("proxyMetadata");
        verdict.warn(
            &at.field("ISTIO_META_DNS_AUTO_ALLOCATE"),
            "is superseded: the control plane allocates addresses",
        );
    }
}

/// Validates the name of the proxy's service.
fn service_name(verdict: &mut Verdict, at: &Path<'_>, config: &ProxyConfig) {
    match (&config.service_cluster, config.tracing_service_name) {
        (Some(_), Some(_)) => {
            verdict.error(
                &at.field("serviceCluster"),
                "is set together with tracingServiceName; keep one of them",
            );
        }
        (Some(name), None) if name.is_empty() => {
            verdict.error(&at.field("serviceCluster"), "is empty; write a name")
        }
        (None, None) => verdict.error(
            &at.field("serviceCluster"),
            "is missing, and so is tracingServiceName",
        ),
        (Some(_), None) | (None, Some(_)) => {}
    }
}

/// The drain duration, in whole seconds.
fn drain_duration(duration: Option<Duration>) -> Result<(), String> {
    let duration = duration.unwrap_or_default();
    name::duration(duration)?;
    if duration == Duration::from_secs(duration.as_secs()) {
        return Ok(());
    }
    Err(format!("{duration} is not a whole number of seconds"))
}

/// A host and a port.
fn address(text: &str) -> Result<(), String> {
    let form =
        || format!("{text:?} is not an address; write host:port, and an IPv6 address in [ ]");
    let (host, port) = text.rsplit_once(':').ok_or_else(form)?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if bracketed.is_none() && host.contains(':') {
        return Err(form());
    }
    port_number(port.parse().map_err(|_| form())?)?;
    let host = bracketed.unwrap_or(host);
    fqdn(host)
        .or_else(|_| name::ip_address(host))
        .map_err(|_| form())
}

/// Validates an address, if set.
fn optional_address(verdict: &mut Verdict, at: &Path<'_>, text: &str) {
    if !text.is_empty() {
        verdict.check(at, address(text));
    }
}

/// Validates the address of a service.
fn remote_service(verdict: &mut Verdict, at: &Path<'_>, service: Option<&RemoteService>) {
    if let Some(service) = service {
        optional_address(verdict, &at.field("address"), &service.address);
    }
}

/// Validates the tracer.
fn tracer(verdict: &mut Verdict, at: &Path<'_>, tracing: &Tracing) {
    if let Some(lightstep) = &tracing.lightstep {
        let at = &at.field("lightstep");
        verdict.check(&at.field("address"), address(&lightstep.address));
        if lightstep.access_token.is_empty() {
            verdict.error(&at.field("accessToken"), "is missing");
        }
    }

    let zipkin = tracing
        .zipkin
        .as_ref()
        .map(|tracer| ("zipkin", &tracer.address));
    let datadog = tracing
        .datadog
        .as_ref()
        .map(|tracer| ("datadog", &tracer.address));

    for (field, text) in zipkin.into_iter().chain(datadog) {
        let at = &at.field(field);
        verdict.check(
            &at.field("address"),
            address(&text.replacen(HOST_IP, "127.0.0.1", 1)),
        );
    }

    let tls = tracing.tls_settings.as_ref();
    let at = &at.field("tlsSettings");
    client_tls(verdict, at, tls, "");
    if tls.is_some_and(|tls| !tls.ca_cert_credential_name.is_empty()) {
        verdict.warn(
            &at.field("caCertCredentialName"),
            "has no effect: the agent reads files alone; use caCertificates",
        );
    }
}

/// Validates the hardware for private keys.
fn private_key_provider(verdict: &mut Verdict, at: &Path<'_>, provider: &PrivateKeyProvider) {
    let (field, poll_delay) = match (&provider.cryptomb, &provider.qat) {
        (Some(cryptomb), None) => ("cryptomb", cryptomb.poll_delay),
        (None, Some(qat)) => ("qat", qat.poll_delay),
        (Some(_), Some(_)) => {
            return verdict.error(at, "has both cryptomb and qat; keep one of them");
        }
        (None, None) => return verdict.error(at, "is empty; set cryptomb or qat"),
    };
    if poll_delay.is_none_or(Duration::is_zero) {
        let at = &at.field(field);
        verdict.error(
            &at.field("pollDelay"),
            "is missing or zero; write a duration",
        );
    }
}

/// Validates limits on connections and requests.
fn connection_settings(verdict: &mut Verdict, at: &Path<'_>, settings: &ConnectionSettings) {
    for (field, duration) in [
        ("httpIdleTimeout", settings.http_idle_timeout),
        (
            "httpMaxConnectionDuration",
            settings.http_max_connection_duration,
        ),
        ("httpDrainTimeout", settings.http_drain_timeout),
        ("httpRequestTimeout", settings.http_request_timeout),
        (
            "httpRequestHeadersTimeout",
            settings.http_request_headers_timeout,
        ),
        ("httpStreamIdleTimeout", settings.http_stream_idle_timeout),
        ("httpMaxStreamDuration", settings.http_max_stream_duration),
    ] {
        if duration.is_some_and(Duration::is_negative) {
            verdict.error(&at.field(field), "is negative; write 0s or more");
        }
    }

    for (field, value, least) in [
        (
            "listenerPerConnectionBufferLimitBytes",
            settings.listener_per_connection_buffer_limit_bytes,
            0,
        ),
        (
            "clusterPerConnectionBufferLimitBytes",
            settings.cluster_per_connection_buffer_limit_bytes,
            0,
        ),
        (
            "httpMaxConcurrentStreams",
            settings.http_max_concurrent_streams,
            1,
        ),
        (
            "http2InitialStreamWindowSize",
            settings.http2_initial_stream_window_size,
            MIN_WINDOW,
        ),
        (
            "http2InitialConnectionWindowSize",
            settings.http2_initial_connection_window_size,
            MIN_WINDOW,
        ),
        (
            "listenerConnectionLimit",
            settings.listener_connection_limit,
            1,
        ),
        (
            "globalDownstreamConnectionLimit",
            settings.global_downstream_connection_limit,
            1,
        ),
    ] {
        if let Some(value) = value.filter(|value| *value < least) {
            verdict.error(
                &at.field(field),
                format!("{value} is too small; write {least} or more"),
            );
        }
    }
}
