//! Which clusters wait for others than the control plane before Envoy uses them.

use super::builder::Discovery;
use super::outbound::declared_discovery;
use crate::destination_rule;
use crate::sidecar_scope;
use crate::sidecar_waypoint;
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings, TrafficPolicy};
use navarch_api::names::Hostname;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Whether clusters of a host wait for others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WaitsForOthers {
    host: Hostname,
}

/// Whether clusters of a host become warm only when DNS or files and secrets of their own are there:
/// by a DNS server that does not respond, or a secret that does not exist, Envoy is held up for up to
/// 20 seconds. Meanwhile it does not request any further cluster, as it pauses CDS until all clusters
/// are warm.
pub(crate) fn waits_for_others(view: &View<'_>, host: &Hostname) -> bool {
    *view.get(&WaitsForOthers { host: host.clone() })
}

impl Query for WaitsForOthers {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let Some(service) = sidecar_scope::host_service(view, &self.host) else {
            return false;
        };
        // The endpoints of a waypoint are sent, and no rule applies.
        if sidecar_waypoint::is_in_front(view, &service.key) {
            return false;
        }

        let discovery = declared_discovery(view, &service);
        let is_resolved = matches!(discovery, Discovery::StrictDns | Discovery::LogicalDns);
        is_resolved
            || destination_rule::for_service(view, &service).is_some_and(|rule| {
                let of_subsets = rule.subsets.iter();
                let of_subsets = of_subsets.filter_map(|subset| subset.traffic_policy.as_deref());
                let mut policies = rule.policy.as_deref().into_iter().chain(of_subsets);
                policies.any(names_credentials)
            })
    }
}

/// Whether a policy names files or secrets for TLS.
fn names_credentials(policy: &TrafficPolicy) -> bool {
    let of_ports = policy.port_level_settings.iter();
    let of_ports = of_ports.filter_map(|port| port.tls.as_deref());
    let mut all = policy.tls.as_deref().into_iter().chain(of_ports);

    all.any(|tls: &ClientTlsSettings| {
        let originates = matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual);
        let names = [
            &tls.credential_name,
            &tls.ca_cert_credential_name,
            &tls.client_certificate,
            &tls.ca_certificates,
        ];
        originates && names.iter().any(|name| !name.is_empty())
    })
}
