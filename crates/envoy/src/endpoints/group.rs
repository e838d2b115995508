//! The endpoints of a service port by locality, before and after conversion to Envoy messages.

use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::Locality as WireLocality;
use navarch_proto::envoy::config::endpoint::v3::{LbEndpoint, LocalityLbEndpoints};

use super::locality_setting::{CLUSTER, NETWORK, NODE, REGION, SUBZONE, ZONE};
use navarch_push::proxy::Locality;
use navarch_registry::directory::NetworkGateway;
use navarch_registry::model::Workload;

/// Endpoints of one locality and priority.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(super) locality: Locality,
    /// The priority; 0 is used first.
    pub(super) priority: u32,
    /// The weight of the group; `None` if all of its endpoints were removed.
    pub(super) weight: Option<u32>,
    pub(super) members: Vec<Member>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    /// The Envoy message.
    pub(super) wire: LbEndpoint,
    pub(super) behind: EndpointWorkload,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum EndpointWorkload {
    Workload(Arc<Workload>),
    /// A gateway to workloads of another network.
    Gateway(NetworkGateway),
}

impl Group {
    /// Sets the weight to the sum of the endpoints' weights, `None` without endpoints.
    pub(super) fn set_weight(&mut self) {
        let weights = self.members.iter().map(Member::weight);
        self.weight = weights.fold(None, |sum, weight| {
            Some(sum.unwrap_or(0_u32).saturating_add(weight))
        });
    }

    /// The Envoy message.
    pub(crate) fn into_wire(self) -> LocalityLbEndpoints {
        let Locality {
            region,
            zone,
            sub_zone,
        } = self.locality;
        LocalityLbEndpoints {
            locality: Some(WireLocality {
                region: region.to_string(),
                zone: zone.to_string(),
                sub_zone: sub_zone.to_string(),
            }),
            lb_endpoints: self.members.into_iter().map(|member| member.wire).collect(),
            load_balancing_weight: self.weight,
            priority: self.priority,
            ..LocalityLbEndpoints::default()
        }
    }
}

impl Member {
    /// Its weight within the group.
    pub(super) fn weight(&self) -> u32 {
        self.wire.load_balancing_weight.unwrap_or(0)
    }
}

impl EndpointWorkload {
    /// A label, including those of the locality; empty if missing.
    pub(super) fn label(&self, key: &str) -> &str {
        match self {
            Self::Workload(workload) => workload_label(workload, key),
            Self::Gateway(gateway) => match key {
                CLUSTER => gateway.cluster.as_str(),
                NETWORK => gateway.network.as_str(),
                _ => "",
            },
        }
    }
}

/// A label of a workload, including those of its locality; empty if missing.
pub(crate) fn workload_label<'a>(workload: &'a Workload, key: &str) -> &'a str {
    let mut place = workload.location.locality.splitn(3, '/');
    let placed = match key {
        REGION => place.next().unwrap_or(""),
        ZONE => place.nth(1).unwrap_or(""),
        SUBZONE => place.nth(2).unwrap_or(""),
        CLUSTER => workload.location.cluster.as_str(),
        NODE => &workload.location.node,
        _ => "",
    };
    if !placed.is_empty() {
        return placed;
    }
    match workload.own_labels.get(key) {
        Some(own) if !own.is_empty() => own,
        Some(_) | None if key == NETWORK => workload.location.network.as_str(),
        Some(_) | None => "",
    }
}

/// Whether a workload has a label with this value; an empty value counts.
pub(super) fn carries_label(workload: &Workload, key: &str, value: &str) -> bool {
    match workload_label(workload, key) {
        "" => value.is_empty() && workload.labels().contains_key(key),
        own => own == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_registry::Location;

    #[test]
    fn labels_of_the_place_come_before_those_of_the_workload() {
        let workload = Workload {
            own_labels: [("app", "web"), (ZONE, "old"), ("empty", "")]
                .map(|(k, v)| (Arc::from(k), Arc::from(v)))
                .into(),
            location: Arc::new(Location {
                locality: Arc::from("r1/z1"),
                network: navarch_api::names::NetworkId::new("n1"),
                ..Location::default()
            }),
            ..Workload::default()
        };

        for (key, value) in [
            ("app", "web"),
            (REGION, "r1"),
            (ZONE, "z1"),
            (SUBZONE, ""),
            (NETWORK, "n1"),
            ("x", ""),
        ] {
            assert_eq!(workload_label(&workload, key), value, "{key}");
        }

        assert!(carries_label(&workload, "empty", ""));
        assert!(!carries_label(&workload, "absent", ""));
    }
}
