//! Downstream TLS: Istio's mutual TLS, and settings of Gateway servers and Sidecar ingress
//! listeners.

mod certificates;
mod limits;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{TransportSocket, transport_socket};
use navarch_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol as Version;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, TlsParameters,
};
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};

use super::compliance;
use crate::sds;
use certificates::{Files, apply_credentials, apply_files, apply_roots, has_file_server};
use limits::{apply_limits, note_unknown};
pub(crate) use limits::{mesh_ciphers, mesh_curves};
use navarch_api::istio::{ServerTlsMode, ServerTlsSettings};
use navarch_api::mesh::{MeshConfig, TlsProtocol as MeshTlsProtocol};
use navarch_api::validation::is_alpn_protocol;
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
}
