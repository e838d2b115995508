//! TLS settings of gRPC: certificates are referenced by a certificate provider of the client's
//! bootstrap (grpc/proposal A29).

#![expect(
    deprecated,
    reason = "gRPC before 1.66 reads only the deprecated fields"
)]

use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
};
use navarch_proto::envoy::r#type::matcher::v3::StringMatcher;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

/// The name of transport sockets that gRPC requires.
pub(super) const SOCKET: &str = "envoy.transport_sockets.tls";

/// The certificate provider in the agent's bootstrap.
const PROVIDER: &str = "default";

/// Its name of the workload's own certificate.
const OWN: &str = "default";

/// Its name of the CA certificates.
const ROOTS: &str = "ROOTCA";

/// The common part of TLS of clients and servers. The peer must have one of `names`; if empty, any
/// name is accepted.
pub(super) fn context(names: &[String]) -> CommonTlsContext {
    let instance = |certificate: &str| CertificateProviderPluginInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: certificate.to_owned(),
    };
    let old_instance = |certificate: &str| CertificateProviderInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: certificate.to_owned(),
    };

    let exact = |name: &String| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.clone())),
        ..StringMatcher::default()
    };
    let validation = CertificateValidationContext {
        match_subject_alt_names: names.iter().map(exact).collect(),
        ca_certificate_provider_instance: Some(instance(ROOTS)),
        ..CertificateValidationContext::default()
    };

    let combined = CombinedCertificateValidationContext {
        default_validation_context: Some(validation),
        validation_context_certificate_provider_instance: Some(old_instance(ROOTS)),
        ..CombinedCertificateValidationContext::default()
    };

    CommonTlsContext {
        tls_certificate_provider_instance: Some(instance(OWN)),
        tls_certificate_certificate_provider_instance: Some(old_instance(OWN)),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(combined)),
        ..CommonTlsContext::default()
    }
}
