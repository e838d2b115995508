//! Transport sockets to internal listeners, and the TLS of tunnels.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{TransportSocket, transport_socket};
use navarch_proto::envoy::extensions::transport_sockets::internal_upstream::v3::InternalUpstreamTransport;
use navarch_proto::envoy::extensions::transport_sockets::internal_upstream::v3::internal_upstream_transport::MetadataValueSource;
use navarch_proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SubjectAltNameMatcher, TlsParameters,
    UpstreamTlsContext,
};
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use navarch_proto::envoy::r#type::metadata::v3::{MetadataKind, metadata_kind};
use prost::{Message, Name};

use crate::filters::compliance;
use crate::filters::downstream_tls::trust_domains;
use crate::hbone::ORIGINAL_DST;
use crate::sds;
use navarch_push::view::View;

/// The key of Istio's metadata.
const ISTIO: &str = "istio";
/// The key of peer metadata.
const PEER_METADATA: &str = "istio.peer_metadata";
/// Prefix of SPIFFE ids.
const SPIFFE: &str = "spiffe://";

/// The metadata that is passed to an internal listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedMetadata {
    Endpoint,
    EndpointAndCluster,
}

fn socket<M: Message + Name>(name: &str, config: &M) -> TransportSocket {
    TransportSocket {
        name: name.to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack(config))),
    }
}

/// Plain text.
pub(crate) fn raw() -> TransportSocket {
    socket("raw_buffer", &RawBuffer {})
}

/// A socket to an internal listener without metadata.
pub(crate) fn internal(name: &str, inner: TransportSocket) -> TransportSocket {
    let config = InternalUpstreamTransport {
        transport_socket: Some(inner),
        ..InternalUpstreamTransport::default()
    };
    socket(name, &config)
}

/// A socket to an internal listener with metadata of the endpoint and the cluster.
pub(crate) fn internal_socket_with_metadata(
    view: &View<'_>,
    metadata: PassedMetadata,
    inner: TransportSocket,
) -> TransportSocket {
    let of = |kind: metadata_kind::Kind, name: &str| MetadataValueSource {
        kind: Some(MetadataKind { kind: Some(kind) }),
        name: name.to_owned(),
    };
    let host = || metadata_kind::Kind::Host(metadata_kind::Host {});
    let cluster = || metadata_kind::Kind::Cluster(metadata_kind::Cluster {});

    let mut passthrough_metadata = vec![of(host(), ORIGINAL_DST)];
    let name = match metadata {
        PassedMetadata::Endpoint => "internal_upstream",
        PassedMetadata::EndpointAndCluster => {
            passthrough_metadata.push(of(cluster(), ISTIO));
            "envoy.transport_sockets.internal_upstream"
        }
    };

    passthrough_metadata.push(of(host(), ISTIO));
    if view.mesh().settings.hbone.baggage {
        passthrough_metadata.extend([of(cluster(), PEER_METADATA), of(host(), PEER_METADATA)]);
    }

    socket(
        name,
        &InternalUpstreamTransport {
            passthrough_metadata,
            transport_socket: Some(inner),
        },
    )
}

/// The TLS of both ends of tunnels: peers must have an id of the mesh's trust domains, or one with
/// the prefix `further`.
pub(crate) fn common_tls(view: &View<'_>, further: Option<String>) -> CommonTlsContext {
    let mesh = view.mesh();
    let domains = if mesh.settings.skip_validate_trust_domain {
        Vec::new()
    } else {
        trust_domains(&mesh.config)
    };

    let prefixes = domains
        .into_iter()
        .map(|domain| format!("{SPIFFE}{domain}/"))
        .chain(further);
    let context = CertificateValidationContext {
        match_typed_subject_alt_names: prefixes.map(starts_with).collect(),
        ..CertificateValidationContext::default()
    };

    let mut common = CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![sds::secret(sds::WORKLOAD)],
        validation_context_type: Some(sds::trust(context, sds::secret(sds::ROOT))),
        alpn_protocols: vec!["h2".to_owned()],
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv13.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..TlsParameters::default()
        }),
        ..CommonTlsContext::default()
    };

    compliance::enforce(mesh.settings.compliance, &mut common);
    common
}

/// Prefix of the ids in the namespace of the view's proxy.
pub(crate) fn own_namespace(view: &View<'_>) -> String {
    let namespace = view.proxy().meta("NAMESPACE").unwrap_or_default();
    format!(
        "{SPIFFE}{}/ns/{namespace}/sa/",
        view.mesh().config.trust_domain
    )
}

/// The TLS socket of clients.
pub(crate) fn client_tls(common: CommonTlsContext) -> TransportSocket {
    let context = UpstreamTlsContext {
        common_tls_context: Some(common),
        ..UpstreamTlsContext::default()
    };
    socket("tls", &context)
}

/// The TLS socket of servers.
pub(crate) fn server_tls(context: &DownstreamTlsContext) -> TransportSocket {
    socket("tls", context)
}

/// Matches ids with this prefix.
fn starts_with(prefix: String) -> SubjectAltNameMatcher {
    let matcher = StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Prefix(prefix)),
        ..StringMatcher::default()
    };
    SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(matcher),
        ..SubjectAltNameMatcher::default()
    }
}
