//! HTTP protocol options of a cluster: versions, idle timeouts, outlier matching. Packed under
//! [`OPTIONS_KEY`].

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::ClusterProtocolSelection;
use navarch_proto::envoy::config::core::v3::http1_protocol_options::{
    HeaderKeyFormat, header_key_format,
};
use navarch_proto::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions,
    TypedExtensionConfig, UpstreamHttpProtocolOptions,
};
use navarch_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use navarch_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use navarch_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, OutlierDetection, UpstreamProtocolOptions, UseDownstreamHttpConfig,
    explicit_http_config,
};
use prost::Message;
use prost_types::Any;

use crate::filters::alpn::UpstreamVersion;
use crate::proxy_settings::EffectiveProxyConfig;
use navarch_api::duration::Duration;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The key of these options in Envoy.
pub(crate) const OPTIONS_KEY: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Idle timeout of connections to unknown destinations.
const PASSTHROUGH_IDLE: Duration = Duration::from_secs(300);

/// HTTP protocol options. The default sets none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HttpOptions {
    pub(super) version: HttpVersion,
    /// Settings of all versions.
    pub(super) common: Option<CommonOptions>,
    /// Upstream-only settings.
    pub(super) upstream: Option<UpstreamHttpProtocolOptions>,
    /// Which responses count as failures.
    pub(super) outlier: Option<OutlierDetection>,
}

/// The HTTP version to the upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum HttpVersion {
    /// HTTP/1.1, the default.
    #[default]
    Unsaid,
    /// HTTP/1.1 with the original case of headers.
    Http1AsSpelt,
    Http2(Box<Http2ProtocolOptions>),
    /// The client's own version.
    OfClient {
        /// Whether the case of HTTP/1.1 headers is preserved.
        as_spelt: bool,
    },
}

/// Whether the proxy preserves the case of HTTP/1.1 headers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PreservesHeaderCase;

impl HttpOptions {
    /// Whether any option is set other than SNI and SAN validation from the request's host.
    pub(super) fn leaves_names_unchecked(&self) -> bool {
        let checks = |upstream: &UpstreamHttpProtocolOptions| {
            upstream.auto_sni && upstream.auto_san_validation
        };
        *self != Self::default() && !self.upstream.as_ref().is_some_and(checks)
    }

    /// For traffic between the proxy's own listeners.
    pub(crate) fn passthrough_plain() -> Self {
        Self {
            version: HttpVersion::OfClient { as_spelt: false },
            common: Some(CommonOptions {
                idle_timeout: Some(PASSTHROUGH_IDLE.to_proto()),
                ..CommonOptions::default()
            }),
            ..Self::default()
        }
    }

    /// For traffic to unknown destinations.
    pub(super) fn passthrough(view: &View<'_>) -> Self {
        Self {
            version: HttpVersion::OfClient {
                as_spelt: preserves_header_case(view),
            },
            common: Some(CommonOptions {
                idle_timeout: Some(PASSTHROUGH_IDLE.to_proto()),
                ..CommonOptions::default()
            }),
            ..Self::default()
        }
    }

    /// The version for the protocol of a service port.
    pub(super) fn for_protocol(view: &View<'_>, protocol: Protocol) -> Self {
        let version = if protocol.is_http2() {
            HttpVersion::Http2(Box::default())
        } else if protocol.is_unsupported() && view.proxy().kind() != ProxyKind::Router {
            // The detected version is used upstream. Gateways do not detect it, and would
            // offer HTTP/2 to all by ALPN.
            HttpVersion::OfClient {
                as_spelt: preserves_header_case(view),
            }
        } else if (protocol.is_http() || protocol.is_unsupported()) && preserves_header_case(view) {
            HttpVersion::Http1AsSpelt
        } else {
            HttpVersion::Unsaid
        };
        Self {
            version,
            ..Self::default()
        }
    }

    /// Sets HTTP/2 unless a version was set before.
    pub(super) fn upgrade(&mut self) {
        if self.version == HttpVersion::Unsaid {
            self.version = HttpVersion::Http2(Box::default());
        }
    }

    /// Uses the version of the downstream connection.
    pub(super) fn follow_client(&mut self) {
        let as_spelt = matches!(self.version, HttpVersion::Http1AsSpelt);
        self.version = HttpVersion::OfClient { as_spelt };
    }

    /// Whether only HTTP/2 is used.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self.version, HttpVersion::Http2(_))
    }

    /// The settings of all versions.
    pub(super) fn common(&mut self) -> &mut CommonOptions {
        self.common.get_or_insert_default()
    }

    /// The Envoy message; `None` if nothing is set.
    pub(crate) fn into_wire(self) -> Option<Any> {
        let Self {
            version,
            common,
            upstream,
            outlier,
        } = self;

        if version == HttpVersion::Unsaid
            && common.is_none()
            && upstream.is_none()
            && outlier.is_none()
        {
            return None;
        }
        let options = HttpProtocolOptions {
            common_http_protocol_options: common,
            upstream_http_protocol_options: upstream,
            outlier_detection: outlier,
            upstream_protocol_options: Some(version.into_wire()),
            ..HttpProtocolOptions::default()
        };

        Some(any::pack(&options))
    }
}

/// The HTTP version of a finished cluster, as Envoy reads it: from the deprecated fields of the
/// cluster, which EnvoyFilters still set, if it has no options of the extension.
pub(super) fn upstream_version(cluster: &Cluster) -> UpstreamVersion {
    let Some(packed) = cluster.typed_extension_protocol_options.get(OPTIONS_KEY) else {
        return version_of_deprecated_fields(cluster);
    };
    let options = HttpProtocolOptions::decode(packed.value.as_slice()).ok();
    match options.and_then(|options| options.upstream_protocol_options) {
        Some(UpstreamProtocolOptions::UseDownstreamProtocolConfig(_)) => UpstreamVersion::OfClient,
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(explicit_http_config::ProtocolConfig::Http2ProtocolOptions(_)),
        }))
        | Some(UpstreamProtocolOptions::AutoConfig(_)) => UpstreamVersion::Http2,
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(_)) | None => UpstreamVersion::Http1,
    }
}

/// The HTTP version by the fields that the extension has replaced.
#[expect(deprecated, reason = "Envoy still reads these fields")]
fn version_of_deprecated_fields(cluster: &Cluster) -> UpstreamVersion {
    if cluster.protocol_selection() == ClusterProtocolSelection::UseDownstreamProtocol {
        UpstreamVersion::OfClient
    } else if cluster.http2_protocol_options.is_some() {
        UpstreamVersion::Http2
    } else {
        UpstreamVersion::Http1
    }
}

impl HttpVersion {
    /// The version for ALPN protocols.
    pub(super) fn upstream(&self) -> UpstreamVersion {
        match self {
            Self::Unsaid | Self::Http1AsSpelt => UpstreamVersion::Http1,
            Self::Http2(_) => UpstreamVersion::Http2,
            Self::OfClient { .. } => UpstreamVersion::OfClient,
        }
    }

    /// The Envoy message.
    fn into_wire(self) -> UpstreamProtocolOptions {
        let explicit = |config: explicit_http_config::ProtocolConfig| {
            UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(config),
            })
        };

        match self {
            Self::Unsaid => explicit(explicit_http_config::ProtocolConfig::HttpProtocolOptions(
                http1(false),
            )),
            Self::Http1AsSpelt => explicit(
                explicit_http_config::ProtocolConfig::HttpProtocolOptions(http1(true)),
            ),
            Self::Http2(options) => explicit(
                explicit_http_config::ProtocolConfig::Http2ProtocolOptions(*options),
            ),
            Self::OfClient { as_spelt } => {
                UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
                    http_protocol_options: Some(http1(as_spelt)),
                    http2_protocol_options: Some(Http2ProtocolOptions::default()),
                    ..UseDownstreamHttpConfig::default()
                })
            }
        }
    }
}

/// Settings of HTTP/1.1.
fn http1(as_spelt: bool) -> Http1ProtocolOptions {
    let formatter = || TypedExtensionConfig {
        name: "preserve_case".to_owned(),
        typed_config: Some(any::pack(&PreserveCaseFormatterConfig::default())),
    };
    Http1ProtocolOptions {
        header_key_format: as_spelt.then(|| HeaderKeyFormat {
            header_format: Some(header_key_format::HeaderFormat::StatefulFormatter(
                formatter(),
            )),
        }),
        ..Http1ProtocolOptions::default()
    }
}

/// Whether the proxy preserves the case of HTTP/1.1 headers: by its own configuration, else by the
/// mesh's.
pub(super) fn preserves_header_case(view: &View<'_>) -> bool {
    *view.derived(&PreservesHeaderCase)
}

impl Query for PreservesHeaderCase {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let config = view.get(&EffectiveProxyConfig);
        config
            .proxy_headers
            .as_ref()
            .and_then(|headers| headers.preserve_http1_header_case)
            == Some(true)
    }
}

impl ProxyQuery for PreservesHeaderCase {}
