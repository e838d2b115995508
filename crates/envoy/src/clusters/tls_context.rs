//! A TLS decision as Envoy's upstream TLS context.

use std::borrow::Cow;

use navarch_proto::envoy::config::core::v3::{
    DataSource, UpstreamHttpProtocolOptions, data_source,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, TlsParameters, UpstreamTlsContext,
};

use super::builder::{ClusterBuilder, Discovery};
use crate::filters::compliance;
use crate::filters::downstream_tls::{mesh_ciphers, mesh_curves};
use crate::sds;
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings};
use navarch_api::mesh::TlsConfig;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// The roots of the proxy's operating system.
const SYSTEM_ROOTS: &str = "system";
/// The ALPN protocol of peer metadata exchange.
const EXCHANGE_ALPN: &str = "istio-peer-exchange";
/// The ALPN protocol between proxies of the mesh.
const MESH_ALPN: &str = "istio";
const HTTP2_ALPN: &str = "h2";

/// Inputs of a context besides the settings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client<'a> {
    /// Names of a declared service that servers must have if the settings require none.
    pub(super) declared_names: &'a [String],
    /// Whether the rule selects workloads, and so may give them credentials.
    pub(super) rule_has_selector: bool,
}

/// The context; `None` for plain text. HTTP settings for it are stored in the builder.
pub(super) fn build(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    settings: &ClientTlsSettings,
    client: Client<'_>,
) -> Option<UpstreamTlsContext> {
    let originates = matches!(settings.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual);
    let may_fetch = |credential: &str| {
        credential.is_empty()
            || credential.starts_with(sds::CONFIG_MAP_PREFIX)
            || client.rule_has_selector
            || view.proxy().kind() != ProxyKind::Sidecar
    };

    // The rule would reference the secret for every client, and those that may not read it would
    // never start.
    if originates && !may_fetch(&settings.credential_name) {
        return None;
    }
    let settings = if may_fetch(&settings.ca_cert_credential_name) {
        Cow::Borrowed(settings)
    } else {
        Cow::Owned(ClientTlsSettings {
            ca_cert_credential_name: String::new(),
            ..settings.clone()
        })
    };

    let mut context = of_mode(view, builder, &settings, client)?;
    if let Some(common) = &mut context.common_tls_context {
        compliance::enforce(view.mesh().settings.compliance, common);
    }
    Some(context)
}

/// Whether settings contain all fields that their mode requires.
pub(super) fn is_complete(settings: &ClientTlsSettings) -> bool {
    settings.mode != ClientTlsMode::Mutual
        || !settings.credential_name.is_empty()
        || !(settings.client_certificate.is_empty() || settings.private_key.is_empty())
}

/// The context for a TLS mode.
fn of_mode(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    settings: &ClientTlsSettings,
    client: Client<'_>,
) -> Option<UpstreamTlsContext> {
    match settings.mode {
        ClientTlsMode::Disable => None,
        ClientTlsMode::IstioMutual => Some(istio_mutual(view, builder, settings)),
        ClientTlsMode::Simple => originate(view, builder, settings, client.declared_names),
        ClientTlsMode::Mutual => {
            if is_complete(settings) {
                originate(view, builder, settings, client.declared_names)
            } else {
                note_names(builder, settings);
                None
            }
        }
    }
}

/// Istio's own mutual TLS.
fn istio_mutual(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    settings: &ClientTlsSettings,
) -> UpstreamTlsContext {
    let sni = match settings.sni.as_str() {
        "" if !builder.is_dynamic() => builder.cluster.name.clone(),
        sni => valid_server_name(view, &builder.cluster.name, sni),
    };
    let exchange = super::exchange_filter(view).is_some()
        && !view.mesh().settings.disable_metadata_exchange_alpn;
    let alpn = [
        (EXCHANGE_ALPN, exchange),
        (MESH_ALPN, true),
        (HTTP2_ALPN, builder.http.is_http2()),
    ];

    let common = CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![sds::secret(sds::WORKLOAD)],
        validation_context_type: Some(sds::trust(
            sds::names(&settings.subject_alt_names),
            sds::secret(sds::ROOT),
        )),
        alpn_protocols: alpn
            .iter()
            .filter(|(_, used)| *used)
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        ..versions()
    };

    if builder.is_dynamic() {
        note_names(builder, settings);
    }

    UpstreamTlsContext {
        common_tls_context: Some(common),
        sni,
        ..UpstreamTlsContext::default()
    }
}

/// TLS with user settings: files or a credential.
fn originate(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    settings: &ClientTlsSettings,
    declared_names: &[String],
) -> Option<UpstreamTlsContext> {
    note_names(builder, settings);
    let names = if settings.subject_alt_names.is_empty() {
        declared_names
    } else {
        &settings.subject_alt_names
    };

    let mut common = versions();

    if settings.credential_name.is_empty() {
        from_files(view, &mut common, settings, names);
    } else {
        from_credential(view, &mut common, settings, names);
    }

    apply_defaults(&mut common, view.mesh().config.tls_defaults.as_ref());
    if builder.http.is_http2() {
        common.alpn_protocols = vec![HTTP2_ALPN.to_owned()];
    }

    let sni = valid_server_name(view, &builder.cluster.name, &settings.sni);
    Some(UpstreamTlsContext {
        common_tls_context: Some(common),
        sni,
        ..UpstreamTlsContext::default()
    })
}

/// Maximum length of a server name in Envoy.
const MAX_SERVER_NAME: usize = 255;

/// The server name; empty if longer than Envoy's limit.
fn valid_server_name(view: &View<'_>, cluster: &str, name: &str) -> String {
    if name.len() <= MAX_SERVER_NAME {
        return name.to_owned();
    }
    view.remark(format!(
        "DestinationRule: the sni for cluster {cluster} has more than {MAX_SERVER_NAME} bytes and is ignored"
    ));
    String::new()
}

/// Certificate and roots from files, which the agent serves so that they can be rotated.
fn from_files(
    view: &View<'_>,
    common: &mut CommonTlsContext,
    settings: &ClientTlsSettings,
    names: &[String],
) {
    let own_server = view.proxy().meta_bool("file-credential");
    let ClientTlsSettings {
        client_certificate,
        private_key,
        ca_certificates,
        ca_cert_credential_name,
        ca_crl,
        ..
    } = settings;

    if settings.mode == ClientTlsMode::Mutual {
        let name = format!("file-cert:{client_certificate}~{private_key}");
        common
            .tls_certificate_sds_secret_configs
            .push(sds::file_secret(&name, own_server));
    }

    common.validation_context_type = Some(if settings.insecure_skip_verify == Some(true) {
        ValidationContextType::ValidationContext(CertificateValidationContext::default())
    } else {
        let roots = if ca_certificates.is_empty() {
            SYSTEM_ROOTS
        } else {
            ca_certificates
        };

        let mut context = sds::names(names);
        context.crl = (!ca_crl.is_empty()).then(|| DataSource {
            specifier: Some(data_source::Specifier::Filename(ca_crl.clone())),
            ..DataSource::default()
        });

        let roots = match ca_cert_credential_name.as_str() {
            "" => sds::file_secret(&format!("file-root:{roots}"), own_server),
            name => sds::ca_credential(name, &external_server(view)),
        };
        sds::trust(context, roots)
    });
}

/// Certificate and roots from a credential.
fn from_credential(
    view: &View<'_>,
    common: &mut CommonTlsContext,
    settings: &ClientTlsSettings,
    names: &[String],
) {
    let name = &settings.credential_name;
    let server = external_server(view);
    if settings.mode == ClientTlsMode::Mutual {
        common.tls_certificate_sds_secret_configs = vec![sds::credential(name, &server)];
    }
    if settings.insecure_skip_verify != Some(true) {
        let roots = match settings.ca_cert_credential_name.as_str() {
            "" => sds::credential(&format!("{name}{}", sds::CA_SUFFIX), &server),
            roots => sds::ca_credential(roots, &server),
        };
        common.validation_context_type = Some(sds::trust(sds::names(names), roots));
    }
}

/// The server of credentials with names that start with `sds://`.
fn external_server(view: &View<'_>) -> sds::ExternalServer {
    if view.proxy().meta_bool("credential") {
        sds::ExternalServer::Socket
    } else {
        sds::ExternalServer::None
    }
}

/// A context with the TLS versions of clients.
fn versions() -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..TlsParameters::default()
        }),
        ..CommonTlsContext::default()
    }
}

/// Curves and ciphers of mesh config.
fn apply_defaults(common: &mut CommonTlsContext, defaults: Option<&TlsConfig>) {
    let (Some(defaults), Some(params)) = (defaults, common.tls_params.as_mut()) else {
        return;
    };
    if !defaults.ecdh_curves.is_empty() {
        params.ecdh_curves = mesh_curves(&defaults.ecdh_curves);
    }
    if !defaults.cipher_suites.is_empty() {
        params.cipher_suites = mesh_ciphers(&defaults.cipher_suites);
    }
}

/// Takes SNI and required names from the request if the settings contain none.
fn note_names(builder: &mut ClusterBuilder, settings: &ClientTlsSettings) {
    let unchecked = settings.insecure_skip_verify == Some(true);
    let auto_sni = settings.sni.is_empty();
    let names_from_host =
        builder.is_dynamic() || (auto_sni && settings.subject_alt_names.is_empty());
    let auto_san_validation = names_from_host && !unchecked;
    if let Discovery::Dynamic(config) = &mut builder.discovery
        && (unchecked || !auto_sni || !auto_san_validation)
    {
        config.allow_insecure_cluster_options = true;
    }
    if auto_sni || auto_san_validation {
        let upstream = builder
            .http
            .upstream
            .get_or_insert_with(UpstreamHttpProtocolOptions::default);
        upstream.auto_sni |= auto_sni;
        upstream.auto_san_validation |= auto_san_validation;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use navarch_proto::envoy::config::cluster::v3::Cluster;
    use navarch_proto::envoy::config::core::v3::transport_socket::ConfigType;
    use navarch_push::engine::ProxyId;
    use navarch_push::resource::ResourceType;
    use prost::Message;

    use super::*;
    use crate::test_mesh::{TestMesh, networking};

    const CLUSTER: &str = "outbound|443||out.example";

    /// A host outside the mesh, to which a rule with these TLS settings, and more, applies.
    fn mesh(tls: &str, more: &str) -> TestMesh {
        let host = "{hosts: [out.example], location: MESH_EXTERNAL, resolution: DNS, \
                    ports: [{number: 443, name: http, protocol: HTTP}]}";
        let rule = format!("{{host: out.example, trafficPolicy: {{tls: {{{tls}}}}}{more}}}");
        TestMesh::new(
            &(networking("ServiceEntry", "shop", "out", host)
                + &networking("DestinationRule", "shop", "out", &rule)),
        )
    }

    /// The names of the secrets of a proxy's connections: own certificates, and the roots.
    fn secrets(mesh: &mut TestMesh, proxy: ProxyId) -> (Vec<String>, String) {
        let clusters: BTreeMap<String, Cluster> =
            mesh.named(proxy, ResourceType::Cluster, &[CLUSTER]);
        let socket = clusters[CLUSTER].transport_socket.as_ref().unwrap();
        let Some(ConfigType::TypedConfig(config)) = &socket.config_type else {
            panic!("no configuration")
        };
        let context = UpstreamTlsContext::decode(config.value.as_slice()).unwrap();
        let common = context.common_tls_context.unwrap();
        let own = common
            .tls_certificate_sds_secret_configs
            .into_iter()
            .map(|secret| secret.name)
            .collect();
        let Some(ValidationContextType::CombinedValidationContext(combined)) =
            common.validation_context_type
        else {
            panic!("no roots")
        };
        let roots = combined.validation_context_sds_secret_config.unwrap();
        (own, roots.name)
    }

    #[test]
    fn gateways_get_ca_certificates_of_a_credential_of_their_own() {
        for (tls, own, roots) in [
            (
                "mode: SIMPLE, caCertCredentialName: ca",
                vec![],
                "kubernetes://ca-cacert",
            ),
            (
                "mode: MUTUAL, credentialName: web, caCertCredentialName: ca",
                vec!["kubernetes://web"],
                "kubernetes://ca-cacert",
            ),
            (
                "mode: MUTUAL, credentialName: web, caCertCredentialName: 'configmap://shop/ca'",
                vec!["kubernetes://web"],
                "configmap://shop/ca",
            ),
            (
                "mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /r, \
                 caCertCredentialName: ca",
                vec!["file-cert:/c~/k"],
                "kubernetes://ca-cacert",
            ),
            (
                "mode: MUTUAL, credentialName: web",
                vec!["kubernetes://web"],
                "kubernetes://web-cacert",
            ),
        ] {
            let mut mesh = mesh(tls, "");
            let gateway = mesh.gateway("shop");

            let own: Vec<String> = own.into_iter().map(str::to_owned).collect();
            assert_eq!(
                secrets(&mut mesh, gateway),
                (own, roots.to_owned()),
                "{tls}"
            );
        }
    }

    #[test]
    fn sidecars_get_ca_certificates_of_a_secret_only_if_the_rule_selects_workloads() {
        let tls = "mode: SIMPLE, caCertificates: /r, caCertCredentialName: ca";
        let mut for_all = mesh(tls, "");
        let sidecar = for_all.sidecar("shop", "web");
        let (_, roots) = secrets(&mut for_all, sidecar);
        assert_eq!(roots, "file-root:/r");

        let selector = ", workloadSelector: {matchLabels: {app: web}}";
        let mut selected = mesh(tls, selector);
        let sidecar = selected.sidecar("shop", "web");
        let (_, roots) = secrets(&mut selected, sidecar);
        assert_eq!(roots, "kubernetes://ca-cacert");

        let tls = "mode: SIMPLE, caCertCredentialName: 'configmap://shop/ca'";
        let mut public = mesh(tls, "");
        let sidecar = public.sidecar("shop", "web");
        let (_, roots) = secrets(&mut public, sidecar);
        assert_eq!(roots, "configmap://shop/ca");
    }
}
