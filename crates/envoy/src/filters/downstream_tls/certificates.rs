//! The certificates of servers, and what clients' certificates are validated by.

use navarch_proto::envoy::config::core::v3::{DataSource, data_source};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SdsSecretConfig,
};

use super::super::provider;
use crate::sds;
use navarch_api::istio::{ServerTlsMode, ServerTlsSettings};
use navarch_push::view::View;

/// Certificate files of the proxy, which replace the certificates that the mesh issues.
#[derive(Debug, Default)]
pub(super) struct Files {
    certificate: String,
    key: String,
    /// The roots that client certificates are validated by.
    roots: String,
}

impl Files {
    /// The files in the proxy's metadata.
    pub(super) fn of_proxy(view: &View<'_>) -> Self {
        let file = |key: &str| {
            view.proxy()
                .meta(key)
                .map(|file| file.to_string())
                .unwrap_or_default()
        };
        Self {
            certificate: file("TLS_SERVER_CERT_CHAIN"),
            key: file("TLS_SERVER_KEY"),
            roots: file("TLS_SERVER_ROOT_CERT"),
        }
    }

    /// The secret of certificate and key; the workload's own if either is missing.
    pub(super) fn certificate(&self, own_server: bool) -> SdsSecretConfig {
        if self.certificate.is_empty() || self.key.is_empty() {
            return sds::secret(sds::WORKLOAD);
        }
        sds::file_secret(
            &format!("file-cert:{}~{}", self.certificate, self.key),
            own_server,
        )
    }

    /// The secret of the roots; the mesh's if none are set.
    pub(super) fn roots(&self, own_server: bool) -> SdsSecretConfig {
        if self.roots.is_empty() {
            return sds::secret(sds::ROOT);
        }
        sds::file_secret(&format!("file-root:{}", self.roots), own_server)
    }
}

/// Whether a user's server serves files as secrets to the proxy.
pub(super) fn has_file_server(view: &View<'_>) -> bool {
    view.proxy().meta("file-credential").as_deref() == Some("true")
}

/// Certificates and roots from the files in the settings.
pub(super) fn apply_files(
    view: &View<'_>,
    settings: &ServerTlsSettings,
    validates: bool,
    common: &mut CommonTlsContext,
) {
    let own_server = has_file_server(view);
    let file = |certificate: &str, key: &str| Files {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        roots: settings.ca_certificates.clone(),
    };
    let own = file(&settings.server_certificate, &settings.private_key);
    common.tls_certificate_sds_secret_configs = if settings.tls_certificates.is_empty() {
        vec![own.certificate(own_server)]
    } else {
        let pairs = settings.tls_certificates.iter();
        pairs
            .map(|pair| file(&pair.server_certificate, &pair.private_key).certificate(own_server))
            .collect()
    };
    apply_roots(settings, validates, own.roots(own_server), common);
}

/// Validates client certificates by these roots and the settings.
pub(super) fn apply_roots(
    settings: &ServerTlsSettings,
    validates: bool,
    roots: SdsSecretConfig,
    common: &mut CommonTlsContext,
) {
    if !validates {
        return;
    }
    let mut context = sds::names(&settings.subject_alt_names);
    if !settings.ca_crl.is_empty() {
        context.crl = Some(DataSource {
            specifier: Some(data_source::Specifier::Filename(settings.ca_crl.clone())),
            ..DataSource::default()
        });
    }
    accept_untrusted(settings, &mut context);
    common.validation_context_type = Some(sds::trust(context, roots));
}

/// Certificates and roots from the secrets in the settings.
pub(super) fn apply_credentials(
    view: &View<'_>,
    settings: &ServerTlsSettings,
    common: &mut CommonTlsContext,
) {
    let external = external_server(view);
    let single = std::slice::from_ref(&settings.credential_name);
    let names = if settings.credential_names.is_empty() {
        single
    } else {
        &settings.credential_names
    };

    common.tls_certificate_sds_secret_configs = names
        .iter()
        .map(|name| sds::credential(name, &external))
        .collect();

    if matches!(
        settings.mode,
        ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual
    ) {
        let mut context = CertificateValidationContext {
            verify_certificate_spki: settings.verify_certificate_spki.clone(),
            verify_certificate_hash: settings.verify_certificate_hash.clone(),
            ..sds::names(&settings.subject_alt_names)
        };
        accept_untrusted(settings, &mut context);
        let roots = if settings.ca_cert_credential_name.is_empty() {
            format!(
                "{}{}",
                names.first().map_or("", String::as_str),
                sds::CA_SUFFIX
            )
        } else {
            settings.ca_cert_credential_name.clone()
        };

        common.validation_context_type =
            Some(sds::trust(context, sds::credential(&roots, &external)));
    } else if !settings.subject_alt_names.is_empty() {
        let context = sds::names(&settings.subject_alt_names);
        common.validation_context_type = Some(ValidationContextType::ValidationContext(context));
    }
}

/// The SDS cluster of credentials with names that start with `sds://`.
fn external_server(view: &View<'_>) -> sds::ExternalServer {
    if view.proxy().meta("credential").as_deref() == Some("true") {
        return sds::ExternalServer::Socket;
    }
    let server = view
        .mesh()
        .config
        .extension_providers
        .iter()
        .find_map(|provider| provider.sds.as_ref());
    let found = server
        .and_then(|server| provider::cluster(view, "externalSds", &server.service, server.port));
    found.map_or(sds::ExternalServer::None, |found| {
        sds::ExternalServer::Service {
            cluster: found.cluster,
            host: found.host,
        }
    })
}

/// Accepts untrusted client certificates, if configured.
fn accept_untrusted(settings: &ServerTlsSettings, context: &mut CertificateValidationContext) {
    if settings.insecure_skip_verify == Some(true) {
        context.trust_chain_verification = TrustChainVerification::AcceptUntrusted.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_its_key_is_the_workloads_own() {
        let files = Files {
            certificate: "/cert.pem".to_owned(),
            ..Files::default()
        };
        assert_eq!(files.certificate(false).name, "default");
        let files = Files {
            key: "/key.pem".to_owned(),
            ..files
        };
        assert_eq!(
            files.certificate(false).name,
            "file-cert:/cert.pem~/key.pem"
        );
    }
}
