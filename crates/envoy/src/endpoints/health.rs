//! Whether endpoints of a service are sent, depending on their health.

use navarch_api::istio::OutlierDetection;
use navarch_api::settings::Settings;
use navarch_registry::model::{Endpoint, Health, Service, TrafficDistribution};

/// Whether unhealthy endpoints of the service are sent, whatever its policy.
///
/// A service that prefers near endpoints must also send unhealthy endpoints, otherwise traffic
/// would never fail over.
pub(crate) fn sends_unhealthy_always(settings: &Settings, service: &Service) -> bool {
    settings.send_unhealthy_endpoints
        || service.kubernetes.traffic_distribution != TrafficDistribution::Any
}

/// Whether unhealthy endpoints of the service are sent unless its policy forbids it.
pub(crate) fn sends_unhealthy(settings: &Settings, service: &Service) -> bool {
    settings.auto_send_unhealthy_endpoints || sends_unhealthy_always(settings, service)
}

/// Whether unhealthy endpoints are sent under this policy. With a panic threshold Envoy would use
/// them, so they are not sent.
pub(super) fn sends_unhealthy_under(
    settings: &Settings,
    service: &Service,
    outlier: Option<&OutlierDetection>,
) -> bool {
    let panics = outlier.is_some_and(|outlier| outlier.min_health_percent > 0);
    sends_unhealthy_always(settings, service) || (settings.auto_send_unhealthy_endpoints && !panics)
}

/// Whether the service has persistent sessions, for which draining endpoints must be sent until
/// they are removed.
pub(crate) fn keeps_draining(settings: &Settings, service: &Service) -> bool {
    has_label(service, &settings.persistent_session_label)
        || has_label(service, &settings.persistent_session_header_label)
}

/// The health of an endpoint, which a label may override.
pub(super) fn effective(settings: &Settings, endpoint: &Endpoint) -> Health {
    let labelled = !settings.draining_label.is_empty()
        && endpoint
            .workload
            .labels()
            .get(settings.draining_label.as_str())
            .is_some_and(|value| !value.is_empty());
    if labelled {
        Health::Draining
    } else {
        endpoint.health
    }
}

/// Whether an endpoint is sent, as far as health decides.
pub(super) fn is_sent(
    settings: &Settings,
    service: &Service,
    endpoint: &Endpoint,
    unhealthy: bool,
) -> bool {
    match endpoint.health {
        Health::Unhealthy if !unhealthy => return false,
        Health::Terminating => return false,
        Health::Unknown | Health::Healthy | Health::Unhealthy | Health::Draining => {}
    }
    // As in Istio, the header form of persistent sessions does not keep draining endpoints.
    effective(settings, endpoint) != Health::Draining
        || has_label(service, &settings.persistent_session_label)
}

/// Whether the service has a label with a non-empty value.
fn has_label(service: &Service, label: &str) -> bool {
    !label.is_empty()
        && service
            .labels
            .get(label)
            .is_some_and(|value| !value.is_empty())
}
