//! Rules for DestinationRule.

use std::collections::BTreeSet;

use super::client_tls::client_tls;
use super::connection_pool::{connection_pool, outlier_detection};
use super::load_balancer::load_balancer;
use super::name::{fqdn, ip_address, labels, port_number, wildcard_domain};
use super::path::Path;
use super::scope::{ExportRule, export_to, policy_selector};
use super::virtual_service::subset_name;
use super::{Validate, Verdict};
use crate::istio::{DestinationRule, PortTrafficPolicy, Subset, TrafficPolicy, TunnelSettings};
use crate::object::ObjectMeta;

impl Validate for DestinationRule {
    fn validate(&self, meta: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            host,
            traffic_policy: policy,
            subsets,
            export_to: entries,
            workload_selector,
        } = self;

        let namespace = meta.key.namespace.as_str();
        let spec = Path::root("spec");
        verdict.check(&spec.field("host"), wildcard_domain(host));
        traffic_policy(
            &mut verdict,
            &spec.field("trafficPolicy"),
            policy.as_deref(),
            namespace,
        );

        let mut names = BTreeSet::new();
        let list = spec.field("subsets");

        for (index, part) in subsets.iter().enumerate() {
            let at = &list.item(index);
            if !names.insert(part.name.as_str()) {
                verdict.error(
                    &at.field("name"),
                    format!(
                        "{:?} is the name of another subset; names must be unique",
                        part.name
                    ),
                );
            }
            subset(&mut verdict, at, part, namespace);
        }

        let rule = if workload_selector.is_some() {
            ExportRule::OwnNamespace
        } else {
            ExportRule::Config
        };

        export_to(
            &mut verdict,
            &spec.field("exportTo"),
            entries,
            namespace,
            rule,
        );

        policy_selector(
            &mut verdict,
            &spec.field("workloadSelector"),
            workload_selector.as_ref(),
        );

        verdict
    }
}

/// Validates a subset.
fn subset(verdict: &mut Verdict, at: &Path<'_>, subset: &Subset, namespace: &str) {
    let Subset {
        name,
        labels: own_labels,
        traffic_policy: policy,
    } = subset;
    verdict.check(&at.field("name"), subset_name(name));
    labels(verdict, &at.field("labels"), own_labels);
    let mut inner = Verdict::default();
    traffic_policy(
        &mut inner,
        &at.field("trafficPolicy"),
        policy.as_deref(),
        namespace,
    );
    verdict.extend_errors(inner);
}

/// Validates the traffic policy of a host.
fn traffic_policy(
    verdict: &mut Verdict,
    at: &Path<'_>,
    policy: Option<&TrafficPolicy>,
    namespace: &str,
) {
    let Some(policy) = policy else {
        return;
    };

    let TrafficPolicy {
        load_balancer: balancer,
        connection_pool: pool,
        outlier_detection: outlier,
        tls,
        port_level_settings,
        tunnel: tunnel_settings,
        proxy_protocol,
        retry_budget: _,
    } = policy;

    if *policy == TrafficPolicy::default() {
        verdict.error(
            at,
            "is empty; set loadBalancer, connectionPool, outlierDetection, tls, portLevelSettings, tunnel, \
             proxyProtocol or retryBudget, or leave it out",
        );
    }

    if tunnel_settings.is_some() && proxy_protocol.is_some() {
        verdict.error(
            &at.field("proxyProtocol"),
            "is set together with tunnel; keep one of them",
        );
    }

    outlier_detection(verdict, &at.field("outlierDetection"), outlier.as_deref());
    connection_pool(verdict, &at.field("connectionPool"), pool.as_deref());
    load_balancer(
        verdict,
        &at.field("loadBalancer"),
        balancer.as_deref(),
        outlier.as_deref(),
    );

    client_tls(verdict, &at.field("tls"), tls.as_deref(), namespace);
    let ports = at.field("portLevelSettings");

    for (index, port) in port_level_settings.iter().enumerate() {
        let mut inner = Verdict::default();
        port_policy(&mut inner, &ports.item(index), port, namespace);
        verdict.extend_errors(inner);
    }

    if let Some(settings) = tunnel_settings {
        tunnel(verdict, &at.field("tunnel"), settings);
    }
}

/// Validates the traffic policy of a port.
fn port_policy(verdict: &mut Verdict, at: &Path<'_>, policy: &PortTrafficPolicy, namespace: &str) {
    let PortTrafficPolicy {
        port,
        load_balancer: balancer,
        connection_pool: pool,
        outlier_detection: outlier,
        tls,
    } = policy;

    if port.is_none() {
        verdict.error(
            &at.field("port"),
            "is missing; write the number of a port of the service",
        );
    }

    if balancer.is_none() && pool.is_none() && outlier.is_none() && tls.is_none() {
        verdict.error(at, "has no settings for its port; set loadBalancer, connectionPool, outlierDetection or tls");
    }

    outlier_detection(verdict, &at.field("outlierDetection"), outlier.as_deref());
    connection_pool(verdict, &at.field("connectionPool"), pool.as_deref());
    load_balancer(
        verdict,
        &at.field("loadBalancer"),
        balancer.as_deref(),
        outlier.as_deref(),
    );

    client_tls(verdict, &at.field("tls"), tls.as_deref(), namespace);
}

/// Validates a tunnel.
fn tunnel(verdict: &mut Verdict, at: &Path<'_>, tunnel: &TunnelSettings) {
    let TunnelSettings {
        protocol,
        target_host,
        target_port,
    } = tunnel;

    if !matches!(protocol.as_str(), "" | "CONNECT" | "POST") {
        verdict.error(
            &at.field("protocol"),
            format!("{protocol:?} does not support tunnels; use CONNECT or POST"),
        );
    }

    if let (Err(reason), Err(_)) = (fqdn(target_host), ip_address(target_host)) {
        verdict.error(
            &at.field("targetHost"),
            format!("{target_host:?} is neither a domain name nor an IP address ({reason})"),
        );
    }

    verdict.check(&at.field("targetPort"), port_number(*target_port));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::typed::Typed;
    use crate::validation::Problem;

    /// As istiod's `validateSubset` and `validatePortTrafficPolicies`: their errors count, their
    /// warnings are dropped.
    #[test]
    fn only_the_policy_of_the_host_has_warnings() {
        let policy =
            json!({ "outlierDetection": { "consecutiveErrors": 5, "minHealthPercent": 101 } });
        let mut of_port = policy.clone();
        of_port["port"] = json!({ "number": 80 });
        let mut of_host = policy.clone();
        of_host["portLevelSettings"] = json!([of_port]);
        let spec = json!({
            "host": "reviews.shop.svc.cluster.local",
            "trafficPolicy": of_host,
            "subsets": [{ "name": "v1", "trafficPolicy": policy }],
        });

        let rule = Typed::<DestinationRule>::from_proto_json(&spec)
            .unwrap()
            .value;
        let Verdict { errors, warnings } = rule.validate(&ObjectMeta::default());

        let fields = |problems: Vec<Problem>| -> Vec<String> {
            problems.into_iter().map(|problem| problem.field).collect()
        };
        assert_eq!(
            fields(warnings),
            ["spec.trafficPolicy.outlierDetection.consecutiveErrors"]
        );
        assert_eq!(
            fields(errors),
            [
                "spec.trafficPolicy.outlierDetection.minHealthPercent",
                "spec.trafficPolicy.portLevelSettings[0].outlierDetection.minHealthPercent",
                "spec.subsets[0].trafficPolicy.outlierDetection.minHealthPercent",
            ]
        );
    }
}
