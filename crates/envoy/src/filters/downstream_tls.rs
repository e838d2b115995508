//! Downstream TLS: Istio's mutual TLS, and settings of Gateway servers and Sidecar ingress
//! listeners.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{
    DataSource, TransportSocket, data_source, transport_socket,
};
use navarch_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol as Version;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    TlsParameters,
};
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};

use super::{compliance, provider};
use crate::sds;
use navarch_api::istio::{ServerTlsMode, ServerTlsSettings, TlsProtocol};
use navarch_api::mesh::{MeshConfig, TlsProtocol as MeshTlsProtocol};
use navarch_api::validation::{is_alpn_protocol, is_cipher_suite};
use navarch_push::query::Query;
use navarch_push::view::View;

/// Default cipher suites of mutual TLS within the mesh.
const MESH_CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// ALPN protocols for HTTP.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];
/// ALPN protocols between proxies of the mesh for any protocol.
const PEER_ALPN: [&str; 3] = ["istio-peer-exchange", "h2", "http/1.1"];

/// The protocol inside TLS, as far as ALPN differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payload {
    /// HTTP, which is parsed.
    Http,
    /// Any protocol, which is forwarded; with the exchange of peer metadata between proxies of the
    /// mesh.
    Tcp,
    /// HTTP/3.
    Quic,
}

/// The TLS context of mutual TLS within the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeshTlsOf {
    /// The inner protocol.
    pub payload: Payload,
}

/// Certificate files of the proxy, which replace the certificates that the mesh issues.
#[derive(Debug, Default)]
struct Files {
    certificate: String,
    key: String,
    /// The roots that client certificates are validated by.
    roots: String,
}

impl Query for MeshTlsOf {
    type Value = DownstreamTlsContext;

    fn compute(&self, view: &View<'_>) -> DownstreamTlsContext {
        let mesh = &view.mesh().config;
        let limits = mesh.mesh_mtls.as_ref();
        let ciphers = limits
            .map(|limits| mesh_ciphers(&limits.cipher_suites))
            .filter(|ciphers| !ciphers.is_empty());
        note_unknown(view);
        let minimum = match limits.map(|limits| limits.min_protocol_version) {
            Some(MeshTlsProtocol::V1_3) => Version::TlSv13,
            Some(MeshTlsProtocol::Auto | MeshTlsProtocol::V1_2) | None => Version::TlSv12,
        };

        let mut common = CommonTlsContext {
            alpn_protocols: mesh_alpn(view, self.payload),
            tls_params: Some(TlsParameters {
                cipher_suites: ciphers.unwrap_or_else(|| MESH_CIPHERS.map(str::to_owned).to_vec()),
                tls_minimum_protocol_version: minimum.into(),
                tls_maximum_protocol_version: Version::TlSv13.into(),
                ..TlsParameters::default()
            }),
            ..CommonTlsContext::default()
        };

        let files = Files::of_proxy(view);
        let own_server = has_file_server(view);
        common.tls_certificate_sds_secret_configs = vec![files.certificate(own_server)];
        let trusted = if view.mesh().settings.skip_validate_trust_domain {
            Vec::new()
        } else {
            trust_domains(mesh)
        };

        let prefixes: Vec<StringMatcher> =
            trusted.iter().map(|domain| starts_with(domain)).collect();
        common.validation_context_type =
            Some(sds::trust(matching(prefixes), files.roots(own_server)));
        compliance::enforce(view.mesh().settings.compliance, &mut common);
        DownstreamTlsContext {
            common_tls_context: Some(common),
            require_client_certificate: Some(true),
            ..DownstreamTlsContext::default()
        }
    }
}

/// The TLS context of a Gateway server or a Sidecar ingress listener.
#[must_use]
pub fn of_server(
    view: &View<'_>,
    settings: &ServerTlsSettings,
    payload: Payload,
) -> DownstreamTlsContext {
    // Over QUIC, Envoy cannot request a client certificate.
    let requires_client = matches!(
        settings.mode,
        ServerTlsMode::Mutual | ServerTlsMode::IstioMutual
    ) && payload != Payload::Quic;
    let validates = requires_client || settings.mode == ServerTlsMode::OptionalMutual;
    let mut common = CommonTlsContext {
        alpn_protocols: server_alpn(view, settings, payload),
        ..CommonTlsContext::default()
    };

    if settings.mode == ServerTlsMode::IstioMutual {
        let files = Files::of_proxy(view);
        let own_server = has_file_server(view);
        common.tls_certificate_sds_secret_configs = vec![files.certificate(own_server)];
        apply_roots(settings, validates, files.roots(own_server), &mut common);
    } else if settings.credential_name.is_empty() && settings.credential_names.is_empty() {
        apply_files(view, settings, validates, &mut common);
    } else {
        apply_credentials(view, settings, &mut common);
    }

    if matches!(
        settings.mode,
        ServerTlsMode::Simple | ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual
    ) {
        apply_limits(&view.mesh().config, settings, &mut common);
    }

    compliance::enforce(view.mesh().settings.compliance, &mut common);
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(requires_client),
        ..DownstreamTlsContext::default()
    }
}

/// `envoy.transport_sockets.tls`, for filter chains of listeners on TCP.
#[must_use]
pub fn transport_socket(context: &DownstreamTlsContext) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack(context))),
    }
}

/// `envoy.transport_sockets.quic`, for filter chains of listeners on UDP, which serve HTTP/3.
#[must_use]
pub fn quic_transport_socket(context: DownstreamTlsContext) -> TransportSocket {
    let quic = QuicDownstreamTransport {
        downstream_tls_context: Some(context),
        ..QuicDownstreamTransport::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.quic".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack(&quic))),
    }
}

/// The ALPN protocols of a server: those of its settings, but for HTTP/3, which has one alone.
fn server_alpn(view: &View<'_>, settings: &ServerTlsSettings, payload: Payload) -> Vec<String> {
    if payload == Payload::Quic {
        return vec!["h3".to_owned()];
    }

    let (valid, others): (Vec<&String>, Vec<&String>) = settings
        .alpn_protocols
        .iter()
        .partition(|protocol| is_alpn_protocol(protocol));
    if !others.is_empty() {
        view.remark(format!(
            "alpnProtocols {others:?} are ignored, since Envoy rejects them: write 1 to 255 bytes without a comma"
        ));
    }

    if !valid.is_empty() {
        return valid.into_iter().cloned().collect();
    }
    if settings.mode == ServerTlsMode::IstioMutual {
        mesh_alpn(view, payload)
    } else {
        HTTP_ALPN.map(str::to_owned).to_vec()
    }
}

/// The ALPN protocols between proxies of the mesh.
fn mesh_alpn(view: &View<'_>, payload: Payload) -> Vec<String> {
    let settings = &view.mesh().settings;
    if payload == Payload::Tcp
        && settings.metadata_exchange
        && !settings.disable_metadata_exchange_alpn
    {
        PEER_ALPN.map(str::to_owned).to_vec()
    } else {
        HTTP_ALPN.map(str::to_owned).to_vec()
    }
}

/// Certificates and roots from the files in the settings.
fn apply_files(
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
fn apply_roots(
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
fn apply_credentials(view: &View<'_>, settings: &ServerTlsSettings, common: &mut CommonTlsContext) {
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

/// TLS limits: those of the mesh, overridden by those of the settings.
fn apply_limits(mesh: &MeshConfig, settings: &ServerTlsSettings, common: &mut CommonTlsContext) {
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

/// The curves that Envoy's TLS library supports.
const CURVES: [&str; 8] = [
    "P-224",
    "P-256",
    "P-384",
    "P-521",
    "X25519",
    "X25519Kyber768Draft00",
    "X25519MLKEM768",
    "MLKEM1024",
];

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
        .filter(|curve| CURVES.contains(&curve.as_str()))
        .cloned()
        .collect()
}

/// Records a remark on skipped ciphers and curves of mesh config.
fn note_unknown(view: &View<'_>) {
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
        for curve in config
            .ecdh_curves
            .iter()
            .filter(|curve| !CURVES.contains(&curve.as_str()))
        {
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

/// The trust domains whose workloads may connect: the mesh's own, its aliases, and those of further
/// roots; each once.
pub(crate) fn trust_domains(mesh: &MeshConfig) -> Vec<String> {
    let own = std::iter::once(&mesh.trust_domain).chain(&mesh.trust_domain_aliases);
    let of_roots = mesh
        .ca_certificates
        .iter()
        .flat_map(|root| &root.trust_domains);
    let mut domains: Vec<String> = Vec::new();
    for domain in own.chain(of_roots) {
        if !domain.is_empty() && !domains.contains(domain) {
            domains.push(domain.clone());
        }
    }
    domains
}

/// Matches the SPIFFE ids of a trust domain.
fn starts_with(trust_domain: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Prefix(format!(
            "spiffe://{trust_domain}/"
        ))),
        ..StringMatcher::default()
    }
}

/// Requires a name that one of these matches.
#[allow(
    deprecated,
    reason = "Envoy's newer field needs the kind of each name; these match names of any kind"
)]
fn matching(names: Vec<StringMatcher>) -> CertificateValidationContext {
    CertificateValidationContext {
        match_subject_alt_names: names,
        ..CertificateValidationContext::default()
    }
}

/// Whether a user's server serves files as secrets to the proxy.
fn has_file_server(view: &View<'_>) -> bool {
    view.proxy().meta("file-credential").as_deref() == Some("true")
}

impl Files {
    /// The files in the proxy's metadata.
    fn of_proxy(view: &View<'_>) -> Self {
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
    fn certificate(&self, own_server: bool) -> SdsSecretConfig {
        if self.certificate.is_empty() || self.key.is_empty() {
            return sds::secret(sds::WORKLOAD);
        }
        sds::file_secret(
            &format!("file-cert:{}~{}", self.certificate, self.key),
            own_server,
        )
    }

    /// The secret of the roots; the mesh's if none are set.
    fn roots(&self, own_server: bool) -> SdsSecretConfig {
        if self.roots.is_empty() {
            return sds::secret(sds::ROOT);
        }
        sds::file_secret(&format!("file-root:{}", self.roots), own_server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mesh::{TestMesh, service};
    use navarch_api::mesh::CertificateData;

    /// The ALPN protocols of a server with these in its settings.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct ServerAlpn {
        protocols: Vec<String>,
        payload: Payload,
    }

    impl Query for ServerAlpn {
        type Value = Vec<String>;

        fn compute(&self, view: &View<'_>) -> Self::Value {
            let settings = ServerTlsSettings {
                mode: ServerTlsMode::IstioMutual,
                alpn_protocols: self.protocols.clone(),
                ..ServerTlsSettings::default()
            };
            server_alpn(view, &settings, self.payload)
        }
    }

    #[test]
    fn servers_offer_the_protocols_of_their_settings_except_over_quic() {
        let mut mesh = TestMesh::new(&service("edge", "web", 80));
        let proxy = mesh.gateway("edge");
        let alpn = |protocols: &[&str], payload| {
            let protocols = protocols.iter().map(|&protocol| protocol.to_owned());
            let query = ServerAlpn {
                protocols: protocols.collect(),
                payload,
            };
            mesh.query(proxy, &query).join(" ")
        };

        assert_eq!(alpn(&[], Payload::Tcp), "istio-peer-exchange h2 http/1.1");
        assert_eq!(alpn(&[], Payload::Http), "h2 http/1.1");
        assert_eq!(alpn(&["http/1.1"], Payload::Http), "http/1.1");
        assert_eq!(alpn(&["db", "h2"], Payload::Tcp), "db h2");
        assert_eq!(alpn(&["http/1.1"], Payload::Quic), "h3");
        assert_eq!(alpn(&["", "a,b", "h2"], Payload::Http), "h2");
        assert_eq!(alpn(&[""], Payload::Http), "h2 http/1.1");
    }

    #[test]
    fn each_trust_domain_is_trusted_once() {
        let root = CertificateData {
            trust_domains: vec!["td2".to_owned(), "td3".to_owned()],
            ..Default::default()
        };
        let mesh = MeshConfig {
            trust_domain: "td1".to_owned(),
            trust_domain_aliases: vec!["td2".to_owned(), String::new(), "td1".to_owned()],
            ca_certificates: vec![root],
            ..MeshConfig::default()
        };
        assert_eq!(trust_domains(&mesh), ["td1", "td2", "td3"]);
    }

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

    #[test]
    fn ciphers_that_envoy_does_not_know_are_left_out() {
        let suites =
            ["AES128-SHA", "RC4-MD5", "AES128-SHA", "-ALL", "AES256-SHA"].map(str::to_owned);
        assert_eq!(known_ciphers(&suites), ["AES128-SHA", "-ALL", "AES256-SHA"]);
    }
}
