//! References to keys, certificates and roots for proxies. The secrets themselves are never in
//! other resources.
//!
//! Shared by clusters and listeners. Names agree with Istio's `pkg/model/sds.go` and
//! `pilot/pkg/model/credentials`.

use navarch_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, GrpcService,
    api_config_source, config_source, grpc_service,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, SdsSecretConfig,
};
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};

/// The workload's own key and certificate.
pub const WORKLOAD: &str = "default";
/// The roots of the mesh.
pub const ROOT: &str = "ROOTCA";
/// Suffix of the resource name of a secret's CA part.
pub const CA_SUFFIX: &str = "-cacert";

/// The cluster of the proxy's agent.
const AGENT_CLUSTER: &str = "sds-grpc";
/// The cluster of a user's server that serves files.
const FILES_CLUSTER: &str = "sds-files-grpc";
/// The cluster of a user's server that serves credentials.
pub const EXTERNAL_CLUSTER: &str = "sds-external";
/// Prefix of the names of credentials from such a server.
const EXTERNAL_PREFIX: &str = "sds://";
/// Prefix of credential names that mean the workload's own certificate.
pub const BUILTIN_PREFIX: &str = "builtin://";
/// Prefix of credential names that must never resolve.
pub const INVALID_PREFIX: &str = "invalid://";
/// Prefix of credential names that mean a ConfigMap.
pub const CONFIG_MAP_PREFIX: &str = "configmap://";
/// Prefix of the names of Kubernetes Secrets.
pub const SECRET_PREFIX: &str = "kubernetes://";
/// Prefix of the names of Secrets that the Gateway API references.
pub const GATEWAY_SECRET_PREFIX: &str = "kubernetes-gateway://";

/// The SDS cluster of credentials with names that start with `sds://`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalServer {
    /// None: these credentials are Kubernetes Secrets.
    #[default]
    None,
    /// A server on a socket of the proxy's pod.
    Socket,
    /// A service of the mesh.
    Service {
        /// The cluster of the service.
        cluster: String,
        /// The host of the service, which Envoy sends as `:authority` of the gRPC stream.
        host: String,
    },
}

/// A secret that the agent serves. The workload's own certificate and the mesh roots have no
/// initial fetch timeout.
#[must_use]
pub fn secret(name: &str) -> SdsSecretConfig {
    let mut config = from_server(name, AGENT_CLUSTER, "");
    if matches!(name, WORKLOAD | ROOT)
        && let Some(source) = &mut config.sds_config
    {
        source.initial_fetch_timeout = Some(prost_types::Duration::default());
    }
    config
}

/// A secret from files, served by the agent, or by the user's own server if the proxy has one
/// (`own_server`).
#[must_use]
pub fn file_secret(name: &str, own_server: bool) -> SdsSecretConfig {
    if own_server && !matches!(name, WORKLOAD | ROOT) {
        from_server(name, FILES_CLUSTER, "")
    } else {
        secret(name)
    }
}

/// The secret of a `credentialName`: `builtin://` means the workload's own or the mesh roots,
/// `sds://` those of `external` if it is a server, and any other name a secret that the control
/// plane serves.
#[must_use]
pub fn credential(name: &str, external: &ExternalServer) -> SdsSecretConfig {
    let builtin_root = name.strip_prefix(BUILTIN_PREFIX) == Some(CA_SUFFIX);
    if builtin_root {
        return secret(ROOT);
    }
    if name == BUILTIN_PREFIX {
        return secret(WORKLOAD);
    }
    let plain = name.strip_prefix(EXTERNAL_PREFIX);
    match (plain, external) {
        // Servers on sockets always get the whole name.
        (Some(_), ExternalServer::Socket) => from_server(name, EXTERNAL_CLUSTER, ""),
        (Some(plain), ExternalServer::Service { cluster, host }) => {
            from_server(plain, cluster, host)
        }
        (Some(plain), ExternalServer::None) => from_control_plane(plain),
        (None, _) => from_control_plane(name),
    }
}

/// The secret of a client's `caCertCredentialName`, whose CA certificates alone are used. The
/// control plane serves those of a Kubernetes Secret under its name with [`CA_SUFFIX`], which names
/// of users may have already; of a ConfigMap, and of a user's own server, the name is enough.
#[must_use]
pub fn ca_credential(name: &str, external: &ExternalServer) -> SdsSecretConfig {
    let is_external = name.starts_with(EXTERNAL_PREFIX) && *external != ExternalServer::None;
    if is_external || name.starts_with(CONFIG_MAP_PREFIX) || name.ends_with(CA_SUFFIX) {
        credential(name, external)
    } else {
        credential(&format!("{name}{CA_SUFFIX}"), external)
    }
}

/// Validation by the roots of `secret`, restricted by `context`.
#[must_use]
pub fn trust(
    context: CertificateValidationContext,
    secret: SdsSecretConfig,
) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(context),
        validation_context_sds_secret_config: Some(secret),
        ..CombinedCertificateValidationContext::default()
    })
}

/// Requires one of these names of a certificate; without names nothing is required.
#[allow(
    deprecated,
    reason = "Envoy's newer field needs the kind of each name, which users do not write"
)]
#[must_use]
pub fn names<S: AsRef<str>>(names: &[S]) -> CertificateValidationContext {
    CertificateValidationContext {
        match_subject_alt_names: names.iter().map(|name| exactly(name.as_ref())).collect(),
        ..CertificateValidationContext::default()
    }
}

/// Matches a whole text.
#[must_use]
pub fn exactly(text: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Exact(text.to_owned())),
        ..StringMatcher::default()
    }
}

/// A secret from a gRPC server that is a cluster of the proxy.
fn from_server(name: &str, cluster: &str, authority: &str) -> SdsSecretConfig {
    let envoy_grpc = grpc_service::EnvoyGrpc {
        cluster_name: cluster.to_owned(),
        authority: authority.to_owned(),
        ..grpc_service::EnvoyGrpc::default()
    };

    let server = ApiConfigSource {
        api_type: api_config_source::ApiType::Grpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        set_node_on_first_message_only: true,
        grpc_services: vec![GrpcService {
            target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(envoy_grpc)),
            ..GrpcService::default()
        }],
        ..ApiConfigSource::default()
    };

    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(config_source::ConfigSourceSpecifier::ApiConfigSource(
                server,
            )),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    }
}

/// A secret that the control plane serves. It may not exist, so the proxy must not wait for it
/// indefinitely.
fn from_control_plane(name: &str) -> SdsSecretConfig {
    SdsSecretConfig {
        name: resource_name(name),
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(config_source::ConfigSourceSpecifier::Ads(
                AggregatedConfigSource {},
            )),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    }
}

/// The resource name of a credential.
fn resource_name(name: &str) -> String {
    if name.starts_with(BUILTIN_PREFIX) {
        WORKLOAD.to_owned()
    } else if name.starts_with(INVALID_PREFIX) {
        INVALID_PREFIX.to_owned()
    } else if [CONFIG_MAP_PREFIX, SECRET_PREFIX, GATEWAY_SECRET_PREFIX]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        name.to_owned()
    } else {
        format!("{SECRET_PREFIX}{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_named_by_where_they_are_kept() {
        for (name, resource) in [
            ("web", "kubernetes://web"),
            ("kubernetes://web", "kubernetes://web"),
            ("configmap://web", "configmap://web"),
            (
                "kubernetes-gateway://shop/web",
                "kubernetes-gateway://shop/web",
            ),
            ("builtin://", "default"),
            ("builtin://-cacert", "ROOTCA"),
            ("invalid://web", "invalid://"),
            ("sds://web", "kubernetes://web"),
        ] {
            assert_eq!(credential(name, &ExternalServer::None).name, resource);
        }

        assert_eq!(
            credential("sds://web", &ExternalServer::Socket).name,
            "sds://web"
        );
        let service = ExternalServer::Service {
            cluster: "c".to_owned(),
            host: "h".to_owned(),
        };
        assert_eq!(credential("sds://web", &service).name, "web");
        assert_eq!(ca_credential("sds://ca", &service).name, "ca");
    }

    #[test]
    fn ca_certificates_of_secrets_have_a_name_of_their_own() {
        for (name, resource) in [
            ("ca", "kubernetes://ca-cacert"),
            ("ca-cacert", "kubernetes://ca-cacert"),
            ("sds://ca", "kubernetes://ca-cacert"),
            ("configmap://shop/ca", "configmap://shop/ca"),
            ("builtin://", "ROOTCA"),
        ] {
            assert_eq!(ca_credential(name, &ExternalServer::None).name, resource);
        }
    }
}
