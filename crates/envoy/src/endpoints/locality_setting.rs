//! The locality setting of a service: the DestinationRule's, the service's own, or the mesh's.

use navarch_api::istio::{
    LoadBalancerSettings, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
};
use navarch_api::mesh::MeshConfig;
use navarch_registry::model::{Service, TrafficDistribution};

/// The label of the network that a workload is in.
pub(super) const NETWORK: &str = "topology.istio.io/network";
/// The label of the cluster that a workload is in.
pub(super) const CLUSTER: &str = "topology.istio.io/cluster";
/// The label of a workload's region.
pub(super) const REGION: &str = "topology.kubernetes.io/region";
/// The label of a workload's zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a workload's sub-zone.
pub(super) const SUBZONE: &str = "topology.istio.io/subzone";
/// The label of a workload's node.
pub(super) const NODE: &str = "kubernetes.io/hostname";

/// How localities are preferred.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LocalitySetting {
    /// By weights or priorities that the control plane computes.
    Locality {
        setting: LocalityLoadBalancerSetting,
        /// Whether priorities apply even without outlier detection.
        forced: bool,
    },
    /// By Envoy's zone-aware routing.
    ZoneAware(ZoneAwareLoadBalancerSetting),
}

impl LocalitySetting {
    /// The setting that applies; `None` if localities are ignored.
    pub(crate) fn effective(
        mesh: &MeshConfig,
        rule: Option<&LoadBalancerSettings>,
        service: &Service,
    ) -> Option<Self> {
        if let Some(setting) = rule.and_then(|rule| rule.zone_aware_lb_setting.clone()) {
            return Some(Self::ZoneAware(setting));
        }

        if let Some(setting) = rule.and_then(|rule| rule.locality_lb_setting.clone()) {
            return Self::unless_off(setting);
        }

        let wish: &[&str] = match service.kubernetes.traffic_distribution {
            TrafficDistribution::Any => &[],
            TrafficDistribution::PreferSameZone => &[NETWORK, REGION, ZONE],
            TrafficDistribution::PreferSameNode => &[NETWORK, REGION, ZONE, SUBZONE, NODE],
        };

        if !wish.is_empty() {
            let setting = LocalityLoadBalancerSetting {
                enabled: Some(true),
                failover_priority: wish.iter().map(|&label| label.to_owned()).collect(),
                ..LocalityLoadBalancerSetting::default()
            };
            return Some(Self::Locality {
                setting,
                forced: true,
            });
        }

        if let Some(setting) = mesh.zone_aware_lb_setting.clone() {
            return Some(Self::ZoneAware(setting));
        }

        mesh.locality_lb_setting.clone().and_then(Self::unless_off)
    }

    /// A locality setting that is not disabled.
    fn unless_off(setting: LocalityLoadBalancerSetting) -> Option<Self> {
        (setting.enabled != Some(false)).then_some(Self::Locality {
            setting,
            forced: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_comes_before_the_mesh_and_may_turn_it_off() {
        let mesh = MeshConfig::istio_defaults();
        let service = crate::endpoints::tests::a_service();
        assert!(LocalitySetting::effective(&mesh, None, &service).is_some());
        let off = LocalityLoadBalancerSetting {
            enabled: Some(false),
            ..Default::default()
        };
        let rule = LoadBalancerSettings {
            locality_lb_setting: Some(off),
            ..Default::default()
        };
        assert_eq!(
            LocalitySetting::effective(&mesh, Some(&rule), &service),
            None
        );
    }

    #[test]
    fn a_service_that_prefers_its_zone_needs_no_outlier_detection() {
        let mut service = crate::endpoints::tests::a_service();
        service.kubernetes.traffic_distribution = TrafficDistribution::PreferSameZone;
        let setting = LocalitySetting::effective(&MeshConfig::default(), None, &service);
        assert!(matches!(
            setting,
            Some(LocalitySetting::Locality { forced: true, .. })
        ));
    }
}
