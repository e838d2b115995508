//! The headers that a proxy sets, preserves and hides (`ProxyConfig.proxyHeaders`).

use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails as Forward, ServerHeaderTransformation, SetCurrentClientCertDetails,
};

use super::class::ListenerClass;
use crate::proxy_settings::EffectiveProxyConfig;
use navarch_api::mesh::{
    ForwardClientCertDetails, MetadataExchangeMode, ProxyHeaders,
    SetCurrentClientCertDetails as Details,
};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The header settings of the listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderSettingsOf {
    /// Decides the default of `server_name`: Envoy's own for `SidecarOutbound`, else `istio-envoy`.
    pub class: ListenerClass,
}

/// `ProxyConfig.proxyHeaders`, with Istio's defaults for unset fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate header with its own switch"
)]
pub struct HeaderSettings {
    /// The value of `Server`; empty means Envoy's default.
    pub server_name: String,
    /// Whether an application's own `Server` is kept.
    pub pass_server_through: bool,
    /// The handling of the client's certificate header.
    pub forwarded_client_cert: ForwardClientCertDetails,
    /// Which details of the client certificate are forwarded.
    pub client_cert: ClientCertParts,
    /// Whether routes add the attempt count header.
    pub attempt_count: bool,
    /// Whether `X-Request-Id` is generated if missing.
    pub generate_request_id: bool,
    /// Whether Envoy's other `X-Envoy-*` headers are suppressed.
    pub suppress_debug_headers: bool,
    /// Whether peer metadata is not sent to destinations outside the mesh.
    pub skip_external_metadata: bool,
    /// Whether the case of HTTP/1.1 headers is preserved.
    pub preserve_case: bool,
    /// Whether `X-Forwarded-Port` is appended.
    pub x_forwarded_port: bool,
    /// Whether `X-Forwarded-Host` is appended.
    pub x_forwarded_host: bool,
}

/// Which parts of the client certificate are forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the parts of Envoy's message"
)]
pub struct ClientCertParts {
    /// The subject of the certificate, `Subject=` in `X-Forwarded-Client-Cert`. Default true.
    pub subject: bool,
    /// The whole certificate.
    pub cert: bool,
    /// The whole chain.
    pub chain: bool,
    /// Its DNS names.
    pub dns: bool,
    /// The URI SAN, which is the SPIFFE identity of a workload, `URI=` in the header. Default true.
    pub uri: bool,
}

impl Query for HeaderSettingsOf {
    type Value = HeaderSettings;

    fn compute(&self, view: &View<'_>) -> HeaderSettings {
        HeaderSettings::new(
            view.get(&EffectiveProxyConfig).proxy_headers.as_ref(),
            self.class,
        )
    }
}

impl ProxyQuery for HeaderSettingsOf {}

impl HeaderSettings {
    /// The defaults of a class, with the settings of `headers`.
    #[must_use]
    pub fn new(headers: Option<&ProxyHeaders>, class: ListenerClass) -> Self {
        let default_server = match class {
            // Envoy's own default is `envoy`; Istio sets different names for inbound and gateway
            // servers for historical reasons.
            ListenerClass::SidecarOutbound => "",
            ListenerClass::SidecarInbound | ListenerClass::Gateway => "istio-envoy",
        };

        let empty = ProxyHeaders::default();
        let headers = headers.unwrap_or(&empty);
        let server = headers.server.as_ref();
        let pass_server_through = server.is_some_and(|server| server.disabled == Some(true));
        let server_name = match server {
            _ if pass_server_through => "",
            Some(server) if !server.value.is_empty() => &server.value,
            Some(_) | None => default_server,
        };

        Self {
            server_name: server_name.to_owned(),
            pass_server_through,
            forwarded_client_cert: Some(headers.forwarded_client_cert)
                .filter(|details| *details != ForwardClientCertDetails::Undefined)
                .unwrap_or(ForwardClientCertDetails::AppendForward),
            client_cert: ClientCertParts::new(headers.set_current_client_cert_details.as_ref()),
            attempt_count: headers
                .attempt_count
                .as_ref()
                .is_none_or(|count| count.disabled != Some(true)),
            generate_request_id: headers
                .request_id
                .as_ref()
                .is_none_or(|id| id.disabled != Some(true)),
            suppress_debug_headers: headers
                .envoy_debug_headers
                .as_ref()
                .is_some_and(|headers| headers.disabled == Some(true)),
            skip_external_metadata: headers
                .metadata_exchange_headers
                .as_ref()
                .is_some_and(|headers| headers.mode == MetadataExchangeMode::InMesh),
            preserve_case: headers.preserve_http1_header_case == Some(true),
            x_forwarded_port: headers
                .x_forwarded_port
                .as_ref()
                .is_some_and(|port| port.enabled == Some(true)),
            x_forwarded_host: headers
                .x_forwarded_host
                .as_ref()
                .is_some_and(|host| host.enabled == Some(true)),
        }
    }

    /// Envoy's value of the `Server` handling.
    #[must_use]
    pub fn server_transformation(&self) -> ServerHeaderTransformation {
        if self.pass_server_through {
            ServerHeaderTransformation::PassThrough
        } else {
            ServerHeaderTransformation::Overwrite
        }
    }
}

impl ClientCertParts {
    /// The defaults with the settings of `details`.
    fn new(details: Option<&Details>) -> Self {
        let setting = |part: fn(&Details) -> Option<bool>, default: bool| {
            details.and_then(part).unwrap_or(default)
        };
        Self {
            subject: setting(|details| details.subject, true),
            cert: setting(|details| details.cert, false),
            chain: setting(|details| details.chain, false),
            dns: setting(|details| details.dns, true),
            uri: setting(|details| details.uri, true),
        }
    }

    /// The Envoy message.
    #[must_use]
    pub fn to_proto(&self) -> SetCurrentClientCertDetails {
        let Self {
            subject,
            cert,
            chain,
            dns,
            uri,
        } = *self;
        SetCurrentClientCertDetails {
            subject: Some(subject),
            cert,
            chain,
            dns,
            uri,
            ..Default::default()
        }
    }
}

/// Envoy's value of the client certificate handling.
#[must_use]
pub fn forward_client_cert(details: ForwardClientCertDetails) -> Forward {
    match details {
        ForwardClientCertDetails::Undefined | ForwardClientCertDetails::Sanitize => {
            Forward::Sanitize
        }
        ForwardClientCertDetails::ForwardOnly => Forward::ForwardOnly,
        ForwardClientCertDetails::AppendForward => Forward::AppendForward,
        ForwardClientCertDetails::SanitizeSet => Forward::SanitizeSet,
        ForwardClientCertDetails::AlwaysForwardOnly => Forward::AlwaysForwardOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::mesh::ServerHeader;

    #[test]
    fn outbound_leaves_the_server_name_to_envoy_unless_one_is_set() {
        assert_eq!(
            HeaderSettings::new(None, ListenerClass::SidecarOutbound).server_name,
            ""
        );
        assert_eq!(
            HeaderSettings::new(None, ListenerClass::SidecarInbound).server_name,
            "istio-envoy"
        );

        let set = ProxyHeaders {
            server: Some(ServerHeader {
                value: "shop".to_owned(),
                ..ServerHeader::default()
            }),
            ..ProxyHeaders::default()
        };

        assert_eq!(
            HeaderSettings::new(Some(&set), ListenerClass::SidecarOutbound).server_name,
            "shop"
        );
    }

    #[test]
    fn a_disabled_server_header_passes_through() {
        let disabled = ProxyHeaders {
            server: Some(ServerHeader {
                disabled: Some(true),
                value: "shop".to_owned(),
            }),
            ..ProxyHeaders::default()
        };
        let settings = HeaderSettings::new(Some(&disabled), ListenerClass::SidecarInbound);
        assert_eq!(settings.server_name, "");
        assert_eq!(
            settings.server_transformation(),
            ServerHeaderTransformation::PassThrough
        );
    }
}
