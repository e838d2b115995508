//! The settings of the mesh and of the proxy that routes depend on.

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
    /// When outbound requests are tried again; `None` leaves it to Istio's default.
    pub(super) retry: Option<HttpRetry>,
    /// The same for inbound requests.
    pub(super) inbound_retry: Option<HttpRetry>,
    /// Whether mirrored requests keep their authority.
    pub(super) keep_mirrored_host: bool,
    /// Whether hosts with a dot at the end are known, too.
    pub(super) absolute_hosts: bool,
    /// The service labels that name the cookie and the header of sticky sessions, where there are such sessions at all.
    pub(super) session_labels: Option<SessionLabels>,
}

/// The service labels that ask for sticky sessions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SessionLabels {
    /// Names a cookie, and its path after a colon.
    pub(super) cookie: String,
    /// Names a header.
    pub(super) header: String,
}

impl Query for RouteSettings {
    type Value = MeshRoutes;

    fn compute(&self, view: &View<'_>) -> MeshRoutes {
        let (config, settings) = (&view.mesh().config, &view.mesh().settings);
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

/// What the proxy's settings say of the headers that routes write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteHeaders;

/// The value of [`RouteHeaders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeaderFlags {
    /// Whether requests say which attempt they are.
    pub(super) attempt_count: bool,
    /// Whether a changed authority leaves the old one in `X-Forwarded-Host`.
    pub(super) forwarded_host: bool,
}

impl Query for RouteHeaders {
    type Value = HeaderFlags;

    fn compute(&self, view: &View<'_>) -> HeaderFlags {
        // Gateways, too, write routes by the class of sidecars' outbound listeners.
        let settings = view.get(&HeaderSettingsOf { class: ListenerClass::SidecarOutbound });
        HeaderFlags { attempt_count: settings.attempt_count, forwarded_host: settings.x_forwarded_host }
    }
}

impl ProxyQuery for RouteHeaders {}
