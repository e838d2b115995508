//! The policy of one port: merges port-level settings, subsets and the mesh defaults.

use navarch_api::istio::{PortTrafficPolicy, TrafficPolicy};
use navarch_api::mesh::MeshConfig;

/// The policy of a port. Settings for the port replace the whole policy; fields that they leave
/// unset are not inherited.
#[must_use]
pub fn port_policy(policy: Option<&TrafficPolicy>, port: u16) -> Option<TrafficPolicy> {
    let policy = policy?;
    Some(match for_port(policy, port) {
        Some(own) => of_port(own),
        None => without_ports(policy),
    })
}

/// The policy of a port of a subset: the subset's settings override those of `host` (already that
/// of the port).
#[must_use]
pub fn subset_policy(
    host: Option<&TrafficPolicy>,
    subset: Option<&TrafficPolicy>,
    port: u16,
) -> Option<TrafficPolicy> {
    let Some(subset) = subset else {
        return host.cloned();
    };

    let own = for_port(subset, port);
    let Some(host) = host else {
        return port_policy(Some(subset), port);
    };

    let mut merged = without_ports(host);

    match own {
        Some(own) => {
            merged.connection_pool.clone_from(&own.connection_pool);
            merged.outlier_detection.clone_from(&own.outlier_detection);
            merged.load_balancer.clone_from(&own.load_balancer);
            merged.tls.clone_from(&own.tls);
        }
        None => merge_policy(&mut merged, subset),
    }

    Some(merged)
}

/// The policy with unset fields from the mesh's `defaultTrafficPolicy`.
#[must_use]
pub fn with_mesh_defaults(
    policy: Option<TrafficPolicy>,
    mesh: &MeshConfig,
) -> Option<TrafficPolicy> {
    let Some(defaults) = &mesh.default_traffic_policy else {
        return policy;
    };
    if defaults.connection_pool.is_none() && defaults.outlier_detection.is_none() {
        return policy;
    }
    let mut policy = policy.unwrap_or_default();
    if policy.connection_pool.is_none() {
        policy.connection_pool = defaults.connection_pool.clone().map(Box::new);
    }
    if policy.outlier_detection.is_none() {
        policy.outlier_detection = defaults.outlier_detection.clone().map(Box::new);
    }
    Some(policy)
}

/// A user's policy with unset fields from one that was generated from a policy of the Gateway API.
pub(super) fn with_backend_policy(
    user: Option<&TrafficPolicy>,
    backend: Option<&TrafficPolicy>,
) -> Option<TrafficPolicy> {
    let (Some(user), Some(backend)) = (user, backend) else {
        return user.or(backend).cloned();
    };

    let mut merged = without_ports(backend);
    merge_policy(&mut merged, user);
    merged.port_level_settings = user.port_level_settings.clone();

    for theirs in &backend.port_level_settings {
        match merged
            .port_level_settings
            .iter_mut()
            .find(|ours| ours.port == theirs.port)
        {
            Some(ours) => {
                fill_if_unset(&mut ours.load_balancer, &theirs.load_balancer);
                fill_if_unset(&mut ours.connection_pool, &theirs.connection_pool);
                fill_if_unset(&mut ours.outlier_detection, &theirs.outlier_detection);
                fill_if_unset(&mut ours.tls, &theirs.tls);
            }
            None => merged.port_level_settings.push(theirs.clone()),
        }
    }

    Some(merged)
}

/// Copies all set fields of a policy except settings for single ports.
fn merge_policy(merged: &mut TrafficPolicy, over: &TrafficPolicy) {
    replace_if_set(&mut merged.connection_pool, &over.connection_pool);
    replace_if_set(&mut merged.outlier_detection, &over.outlier_detection);
    replace_if_set(&mut merged.load_balancer, &over.load_balancer);
    replace_if_set(&mut merged.tls, &over.tls);
    replace_if_set(&mut merged.tunnel, &over.tunnel);
    replace_if_set(&mut merged.proxy_protocol, &over.proxy_protocol);
    replace_if_set(&mut merged.retry_budget, &over.retry_budget);
}

/// The settings for a port, if any.
fn for_port(policy: &TrafficPolicy, port: u16) -> Option<&PortTrafficPolicy> {
    let speaks_of = |own: &&PortTrafficPolicy| {
        own.port
            .as_ref()
            .is_some_and(|selector| selector.number == u32::from(port))
    };
    policy.port_level_settings.iter().find(speaks_of)
}

/// Settings for a port as a policy.
fn of_port(own: &PortTrafficPolicy) -> TrafficPolicy {
    TrafficPolicy {
        load_balancer: own.load_balancer.clone(),
        connection_pool: own.connection_pool.clone(),
        outlier_detection: own.outlier_detection.clone(),
        tls: own.tls.clone(),
        ..TrafficPolicy::default()
    }
}

/// The policy without its settings for single ports.
fn without_ports(policy: &TrafficPolicy) -> TrafficPolicy {
    TrafficPolicy {
        load_balancer: policy.load_balancer.clone(),
        connection_pool: policy.connection_pool.clone(),
        outlier_detection: policy.outlier_detection.clone(),
        tls: policy.tls.clone(),
        port_level_settings: Vec::new(),
        tunnel: policy.tunnel.clone(),
        proxy_protocol: policy.proxy_protocol.clone(),
        retry_budget: policy.retry_budget.clone(),
    }
}

/// Copies a set field.
fn replace_if_set<T: Clone>(target: &mut Option<T>, source: &Option<T>) {
    if source.is_some() {
        target.clone_from(source);
    }
}

/// Copies a field if the target is unset.
fn fill_if_unset<T: Clone>(target: &mut Option<T>, source: &Option<T>) {
    if target.is_none() {
        target.clone_from(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::istio::{
        ConnectionPoolSettings, OutlierDetection, PortSelector, ProxyProtocol,
    };
    use navarch_api::mesh::DefaultTrafficPolicy;

    /// A policy with outlier detection for the host and TLS for port 80.
    fn policy() -> TrafficPolicy {
        TrafficPolicy {
            outlier_detection: Some(Box::default()),
            proxy_protocol: Some(ProxyProtocol::default()),
            port_level_settings: vec![PortTrafficPolicy {
                port: Some(PortSelector { number: 80 }),
                tls: Some(Box::default()),
                ..PortTrafficPolicy::default()
            }],
            ..TrafficPolicy::default()
        }
    }

    #[test]
    fn settings_of_a_port_inherit_nothing() {
        let own = port_policy(Some(&policy()), 80).unwrap();
        assert!(
            own.tls.is_some() && own.outlier_detection.is_none() && own.proxy_protocol.is_none()
        );
        let other = port_policy(Some(&policy()), 81).unwrap();
        assert!(
            other.tls.is_none()
                && other.outlier_detection.is_some()
                && other.proxy_protocol.is_some()
        );
    }

    #[test]
    fn a_subset_replaces_block_by_block_but_its_ports_replace_all() {
        let host = TrafficPolicy {
            connection_pool: Some(Box::default()),
            ..TrafficPolicy::default()
        };
        let merged = subset_policy(Some(&host), Some(&policy()), 81).unwrap();
        assert!(merged.connection_pool.is_some() && merged.outlier_detection.is_some());
        let merged = subset_policy(Some(&host), Some(&policy()), 80).unwrap();
        assert!(merged.connection_pool.is_none() && merged.tls.is_some());
    }

    #[test]
    fn a_backend_policy_fills_the_gaps_of_a_users() {
        let user = policy();
        let backend = TrafficPolicy {
            tls: Some(Box::default()),
            outlier_detection: Some(Box::new(OutlierDetection {
                consecutive_errors: 3,
                ..OutlierDetection::default()
            })),
            port_level_settings: vec![PortTrafficPolicy {
                port: Some(PortSelector { number: 80 }),
                connection_pool: Some(Box::default()),
                ..PortTrafficPolicy::default()
            }],
            ..TrafficPolicy::default()
        };

        let merged = with_backend_policy(Some(&user), Some(&backend)).unwrap();
        assert_eq!(
            (&merged.tls, &merged.outlier_detection),
            (&backend.tls, &user.outlier_detection)
        );
        assert_eq!(merged.port_level_settings.len(), 1);
        assert!(
            merged.port_level_settings[0].connection_pool.is_some()
                && merged.port_level_settings[0].tls.is_some()
        );
    }

    #[test]
    fn mesh_defaults_fill_only_what_is_missing() {
        let mesh = MeshConfig {
            default_traffic_policy: Some(DefaultTrafficPolicy {
                connection_pool: Some(ConnectionPoolSettings::default()),
                outlier_detection: Some(OutlierDetection {
                    consecutive_errors: 3,
                    ..OutlierDetection::default()
                }),
            }),
            ..MeshConfig::default()
        };
        let filled = with_mesh_defaults(Some(policy()), &mesh).unwrap();
        assert_eq!(filled.outlier_detection, Some(Box::default()));
        assert!(filled.connection_pool.is_some());
        assert!(with_mesh_defaults(None, &mesh).is_some());
        assert!(with_mesh_defaults(None, &MeshConfig::default()).is_none());
    }
}
