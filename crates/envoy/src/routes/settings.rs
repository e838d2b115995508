//! Settings of the mesh and the proxy that routes depend on.

use crate::filters::class::ListenerClass;
use crate::filters::proxy_headers::HeaderSettingsOf;
use navarch_api::istio::HttpRetry;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// Mesh-wide settings of routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteSettings;

/// The value of [`RouteSettings`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeshRoutes {
    /// The retry policy of outbound requests; `None` means Istio's default.
    pub(super) retry: Option<HttpRetry>,
    /// The same for inbound requests.
    pub(super) inbound_retry: Option<HttpRetry>,
    /// Whether mirrored requests keep their authority.
    pub(super) keep_mirrored_host: bool,
    /// Whether hosts with a trailing dot are also domains.
    pub(super) absolute_hosts: bool,
    /// The service labels with the cookie and the header of persistent sessions, if these are
    /// enabled.
    pub(super) session_labels: Option<SessionLabels>,
}

/// The service labels that enable persistent sessions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SessionLabels {
    /// The label with the cookie, and its path after a colon.
    pub(super) cookie: String,
    pub(super) header: String,
}

impl Query for RouteSettings {
    type Value = MeshRoutes;

    fn compute(&self, view: &View<'_>) -> MeshRoutes {
        let config = &view.mesh().config;
        let settings = &view.mesh().settings;
        MeshRoutes {
            retry: config.default_http_retry_policy.clone(),
            inbound_retry: config.default_inbound_http_retry_policy.clone(),
            keep_mirrored_host: settings.disable_shadow_host_suffix,
            absolute_hosts: settings.absolute_fqdn_domains,
            session_labels: settings.persistent_session_filter.then(|| SessionLabels {
                cookie: settings.persistent_session_label.clone(),
                header: settings.persistent_session_header_label.clone(),
            }),
        }
    }
}

/// The proxy's settings for headers of routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteHeaders;

/// The value of [`RouteHeaders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeaderFlags {
    /// Whether requests get the attempt count header.
    pub(super) attempt_count: bool,
    /// Whether a rewritten authority is kept in `X-Forwarded-Host`.
    pub(super) forwarded_host: bool,
}

impl Query for RouteHeaders {
    type Value = HeaderFlags;

    fn compute(&self, view: &View<'_>) -> HeaderFlags {
        // As in Istio, gateways also use the class of sidecars' outbound listeners for routes.
        let settings = view.get(&HeaderSettingsOf {
            class: ListenerClass::SidecarOutbound,
        });
        HeaderFlags {
            attempt_count: settings.attempt_count,
            forwarded_host: settings.x_forwarded_host,
        }
    }
}

impl ProxyQuery for RouteHeaders {}
