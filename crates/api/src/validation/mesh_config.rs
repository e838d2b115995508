//! Rules for mesh config.

use super::connection_pool::{connection_pool, outlier_detection};
use super::extension_provider::extension_providers;
use super::http_action::retries;
use super::locality::{locality_setting, zone_aware_setting};
use super::name::{is_dns_label, port_number, wildcard_domain};
use super::path::Path;
use super::proxy_config::proxy_config;
use super::{Verdict, name};
use crate::duration::Duration;
use crate::istio::HttpRetry;
use crate::mesh::{DefaultTrafficPolicy, MeshConfig, ProxyConfig, ServiceSettings, TlsConfig};

/// The maximum connect timeout. The minimum is that of all durations, 1 ms.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The curves of Envoy's TLS library: those that istiod knows (`pkg/config/security`), and
/// MLKEM1024, of which istiod warns although it sends it to proxies.
const ECDH_CURVES: [&str; 8] = [
    "P-224",
    "P-256",
    "P-384",
    "P-521",
    "X25519",
    "X25519Kyber768Draft00",
    "X25519MLKEM768",
    "MLKEM1024",
];

/// The warning for a field that is parsed but has no effect.
pub(super) const NO_EFFECT: &str = "has no effect; remove it";

/// Validates mesh config after it was merged over the defaults.
///
/// Invalid providers cause only warnings, since they have no effect until an object uses them.
#[must_use]
pub fn validate_mesh_config(config: &MeshConfig) -> Verdict {
    let mut verdict = Verdict::default();
    let listen_port = u32::try_from(config.proxy_listen_port).unwrap_or_default();
    verdict.check(&Path::root("proxyListenPort"), port_number(listen_port));
    verdict.check(
        &Path::root("connectTimeout"),
        connect_timeout(config.connect_timeout),
    );
    verdict.check(
        &Path::root("protocolDetectionTimeout"),
        detection_timeout(config.protocol_detection_timeout),
    );

    proxy_config(
        &mut verdict,
        &Path::root("defaultConfig"),
        &config.default_config,
    );

    // Outlier detection is assumed to be set by the objects that configure clusters, so it is not
    // checked here.
    locality_setting(
        &mut verdict,
        &Path::root("localityLbSetting"),
        config.locality_lb_setting.as_ref(),
        true,
    );

    zone_aware_setting(
        &mut verdict,
        &Path::root("zoneAwareLbSetting"),
        config.zone_aware_lb_setting.as_ref(),
        true,
    );

    service_settings(
        &mut verdict,
        &Path::root("serviceSettings"),
        &config.service_settings,
    );
    trust_domains(&mut verdict, config);
    extension_providers(
        &mut verdict,
        &Path::root("extensionProviders"),
        &config.extension_providers,
    );

    mesh_tls(
        &mut verdict,
        &Path::root("meshMTLS"),
        config.mesh_mtls.as_ref(),
    );

    curves(
        &mut verdict,
        &Path::root("tlsDefaults"),
        config.tls_defaults.as_ref(),
    );
    default_traffic_policy(&mut verdict, config.default_traffic_policy.as_ref());
    let inbound = &Path::root("defaultInboundHttpRetryPolicy");
    inbound_retries(
        &mut verdict,
        inbound,
        config.default_inbound_http_retry_policy.as_ref(),
    );

    without_effect(&mut verdict, config);
    verdict
}

/// Warns of settings that have no effect.
fn without_effect(verdict: &mut Verdict, config: &MeshConfig) {
    let set = [
        (
            "verifyCertificateAtClient",
            config.verify_certificate_at_client.is_some(),
        ),
        ("ca", config.ca.is_some()),
        ("certificates", !config.certificates.is_empty()),
    ];
    for (field, _) in set.iter().filter(|(_, is_set)| *is_set) {
        verdict.warn(&Path::root(field), NO_EFFECT);
    }
}

/// Validates a proxy config after it was merged over the defaults, such as that of a pod's
/// annotation.
#[must_use]
pub fn validate_proxy_config(config: &ProxyConfig) -> Verdict {
    let mut verdict = Verdict::default();
    proxy_config(&mut verdict, &Path::root("defaultConfig"), config);
    for problem in verdict.errors.iter_mut().chain(&mut verdict.warnings) {
        problem.field = problem
            .field
            .trim_start_matches("defaultConfig.")
            .to_owned();
    }
    verdict
}

fn connect_timeout(timeout: Option<Duration>) -> Result<(), String> {
    let timeout = timeout.unwrap_or_default();
    name::duration(timeout)?;
    if timeout > MAX_CONNECT_TIMEOUT {
        return Err(format!("{timeout} is too long; write at most 1h"));
    }
    Ok(())
}

/// How long to wait for the bytes that identify the protocol; zero is unlimited.
fn detection_timeout(timeout: Option<Duration>) -> Result<(), String> {
    let timeout = timeout.unwrap_or_default();
    if timeout.as_nanos() % 1_000_000 == 0 {
        return Ok(());
    }
    Err(format!("{timeout} is not a whole number of milliseconds"))
}

/// Validates the hosts of service settings.
fn service_settings(verdict: &mut Verdict, at: &Path<'_>, settings: &[ServiceSettings]) {
    for (index, ServiceSettings { settings: _, hosts }) in settings.iter().enumerate() {
        let at = &at.item(index);
        let at = &at.field("hosts");
        for (index, host) in hosts.iter().enumerate() {
            verdict.check(&at.item(index), wildcard_domain(host));
        }
    }
}

/// Validates the trust domain and its aliases.
fn trust_domains(verdict: &mut Verdict, config: &MeshConfig) {
    verdict.check(
        &Path::root("trustDomain"),
        trust_domain(&config.trust_domain),
    );
    let aliases = &Path::root("trustDomainAliases");
    for (index, alias) in config.trust_domain_aliases.iter().enumerate() {
        verdict.check(&aliases.item(index), trust_domain(alias));
    }
}

/// A trust domain: DNS labels separated by dots, the last of which may be empty.
fn trust_domain(domain: &str) -> Result<(), String> {
    if !domain.is_empty()
        && domain
            .strip_suffix('.')
            .unwrap_or(domain)
            .split('.')
            .all(is_dns_label)
    {
        return Ok(());
    }
    Err(format!(
        "{domain:?} is not a trust domain; write letters, digits and inner hyphens with dots between"
    ))
}

/// Validates TLS within the mesh.
fn mesh_tls(verdict: &mut Verdict, at: &Path<'_>, tls: Option<&TlsConfig>) {
    if tls.is_some_and(|tls| !tls.ecdh_curves.is_empty()) {
        verdict.error(
            &at.field("ecdhCurves"),
            "cannot be set for traffic within the mesh; set them in tlsDefaults",
        );
    }
}

/// Whether Envoy's TLS library has the curve. Proxies get no others of mesh config.
#[must_use]
pub fn is_curve(text: &str) -> bool {
    ECDH_CURVES.contains(&text)
}

/// Warns of curves that proxies do not get, and of repeated ones.
fn curves(verdict: &mut Verdict, at: &Path<'_>, tls: Option<&TlsConfig>) {
    let at = &at.field("ecdhCurves");
    let curves = tls.map_or(&[][..], |tls| &tls.ecdh_curves);
    for (index, curve) in curves.iter().enumerate() {
        if !curve.is_empty() && !is_curve(curve) {
            verdict.warn(
                &at.item(index),
                format!(
                    "{curve:?} is ignored: it is not one of {}",
                    ECDH_CURVES.join(", ")
                ),
            );
        } else if curves.iter().take(index).any(|other| other == curve) {
            verdict.warn(&at.item(index), format!("{curve:?} is listed twice"));
        }
    }
}

/// Validates the defaults of DestinationRules.
fn default_traffic_policy(verdict: &mut Verdict, policy: Option<&DefaultTrafficPolicy>) {
    let Some(DefaultTrafficPolicy {
        connection_pool: pool,
        outlier_detection: outlier,
    }) = policy
    else {
        return;
    };
    let at = &Path::root("defaultTrafficPolicy");
    connection_pool(verdict, &at.field("connectionPool"), pool.as_ref());
    outlier_detection(verdict, &at.field("outlierDetection"), outlier.as_ref());
}

/// Validates retries of requests to a sidecar's own application, for which half of the settings do
/// not apply.
fn inbound_retries(verdict: &mut Verdict, at: &Path<'_>, policy: Option<&HttpRetry>) {
    let Some(policy) = policy else {
        return;
    };

    retries(verdict, at, Some(policy));

    if policy.attempts == 0 && policy.backoff.is_some() {
        verdict.error(
            &at.field("backoff"),
            "is set, but attempts is 0, which turns retries off",
        );
    }

    let ignored = [
        ("perTryTimeout", policy.per_try_timeout.is_some()),
        (
            "retryRemoteLocalities",
            policy.retry_remote_localities.is_some(),
        ),
        (
            "retryIgnorePreviousHosts",
            policy.retry_ignore_previous_hosts.is_some(),
        ),
    ];

    for (field, _) in ignored.into_iter().filter(|(_, set)| *set) {
        verdict.warn(
            &at.field(field),
            "has no effect because there is only one application to retry",
        );
    }
}

#[cfg(test)]
mod tests;
