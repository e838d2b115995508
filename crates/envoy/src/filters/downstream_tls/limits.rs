//! Versions of TLS, cipher suites and curves.

use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol as Version;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, TlsParameters,
};

use navarch_api::istio::{ServerTlsSettings, TlsProtocol};
use navarch_api::mesh::{MeshConfig, TlsProtocol as MeshTlsProtocol};
use navarch_api::validation::{is_cipher_suite, is_curve};
use navarch_push::view::View;

/// TLS limits: those of the mesh, overridden by those of the settings.
pub(super) fn apply_limits(
    mesh: &MeshConfig,
    settings: &ServerTlsSettings,
    common: &mut CommonTlsContext,
) {
    let mut limits = TlsParameters::default();

    if let Some(defaults) = &mesh.tls_defaults {
        limits.ecdh_curves = mesh_curves(&defaults.ecdh_curves);
        limits.cipher_suites = mesh_ciphers(&defaults.cipher_suites);
        limits.tls_minimum_protocol_version = match defaults.min_protocol_version {
            MeshTlsProtocol::Auto => Version::TlsAuto,
            MeshTlsProtocol::V1_2 => Version::TlSv12,
            MeshTlsProtocol::V1_3 => Version::TlSv13,
        }
        .into();
    }

    if settings.min_protocol_version != TlsProtocol::TlsAuto {
        limits.tls_minimum_protocol_version = version(settings.min_protocol_version).into();
    }

    if settings.max_protocol_version != TlsProtocol::TlsAuto {
        limits.tls_maximum_protocol_version = version(settings.max_protocol_version).into();
    }

    let ciphers = known_ciphers(&settings.cipher_suites);
    if !ciphers.is_empty() {
        limits.cipher_suites = ciphers;
    }

    if !settings.ecdh_curves.is_empty() {
        limits.ecdh_curves.clone_from(&settings.ecdh_curves);
    }

    if limits != TlsParameters::default() {
        common.tls_params = Some(limits);
    }
}

/// The cipher suites of mesh config that Envoy supports.
pub(crate) fn mesh_ciphers(suites: &[String]) -> Vec<String> {
    suites
        .iter()
        .filter(|suite| is_cipher_suite(suite))
        .cloned()
        .collect()
}

/// The curves of mesh config that Envoy supports.
pub(crate) fn mesh_curves(curves: &[String]) -> Vec<String> {
    curves
        .iter()
        .filter(|curve| is_curve(curve))
        .cloned()
        .collect()
}

/// Records a remark on skipped ciphers and curves of mesh config.
pub(super) fn note_unknown(view: &View<'_>) {
    let mesh = &view.mesh().config;

    for (field, config) in [
        ("tlsDefaults", &mesh.tls_defaults),
        ("meshMTLS", &mesh.mesh_mtls),
    ] {
        let Some(config) = config else { continue };
        for suite in config
            .cipher_suites
            .iter()
            .filter(|suite| !is_cipher_suite(suite))
        {
            view.remark(format!(
                "mesh config: {field}.cipherSuites: {suite:?} is ignored, since Envoy does not support it"
            ));
        }
        for curve in config.ecdh_curves.iter().filter(|curve| !is_curve(curve)) {
            view.remark(format!(
                "mesh config: {field}.ecdhCurves: {curve:?} is ignored, since Envoy does not support it"
            ));
        }
    }
}

/// The cipher suites that Envoy supports, each once: Envoy rejects the listener because of an
/// unsupported one.
fn known_ciphers(suites: &[String]) -> Vec<String> {
    let mut known: Vec<String> = Vec::with_capacity(suites.len());
    for suite in suites.iter().filter(|suite| is_cipher_suite(suite)) {
        if !known.contains(suite) {
            known.push(suite.clone());
        }
    }
    known
}

/// Envoy's value of a TLS version.
fn version(version: TlsProtocol) -> Version {
    match version {
        TlsProtocol::TlsAuto => Version::TlsAuto,
        TlsProtocol::Tlsv1_0 => Version::TlSv10,
        TlsProtocol::Tlsv1_1 => Version::TlSv11,
        TlsProtocol::Tlsv1_2 => Version::TlSv12,
        TlsProtocol::Tlsv1_3 => Version::TlSv13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_get_the_curves_that_validation_does_not_warn_of() {
        let curves = ["MLKEM1024", "P-257", "X25519"].map(str::to_owned);
        assert_eq!(mesh_curves(&curves), ["MLKEM1024", "X25519"]);
    }

    #[test]
    fn ciphers_that_envoy_does_not_know_are_left_out() {
        let suites =
            ["AES128-SHA", "RC4-MD5", "AES128-SHA", "-ALL", "AES256-SHA"].map(str::to_owned);
        assert_eq!(known_ciphers(&suites), ["AES128-SHA", "-ALL", "AES256-SHA"]);
    }
}
