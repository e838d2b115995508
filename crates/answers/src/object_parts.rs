//! The parts of an object's spec, and the object without each part.

use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::istio::{DestinationRule, TrafficPolicy};
use navarch_api::object::Object;

/// A field or list item of an object.
#[derive(Clone, Debug)]
pub(super) struct ObjectPart {
    /// Its field, such as `spec.http[1]` or `spec.subsets[v2]`.
    pub(super) field: String,
    pub(super) without: AnyObject,
}

/// The parts of an object, in the order of its fields. Empty for kinds without removable parts.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others have no lists, or are not read individually"
)]
pub(super) fn parts(object: &AnyObject) -> Vec<ObjectPart> {
    match object {
        AnyObject::VirtualService(one) => {
            PartList::of(one)
                .list("hosts", |spec| &mut spec.hosts, unnamed)
                .list("gateways", |spec| &mut spec.gateways, unnamed)
                .list("http", |spec| &mut spec.http, |route| &route.name)
                .list("tls", |spec| &mut spec.tls, unnamed)
                .list("tcp", |spec| &mut spec.tcp, unnamed)
                .list("exportTo", |spec| &mut spec.export_to, unnamed)
                .all
        }

        AnyObject::DestinationRule(one) => destination_rule(one),

        AnyObject::ServiceEntry(one) => {
            PartList::of(one)
                .list("hosts", |spec| &mut spec.hosts, unnamed)
                .list("addresses", |spec| &mut spec.addresses, unnamed)
                .list("ports", |spec| &mut spec.ports, |port| &port.name)
                .list("endpoints", |spec| &mut spec.endpoints, unnamed)
                .list("exportTo", |spec| &mut spec.export_to, unnamed)
                .list(
                    "subjectAltNames",
                    |spec| &mut spec.subject_alt_names,
                    unnamed,
                )
                .member("workloadSelector", |spec| {
                    spec.workload_selector.take().is_some()
                })
                .all
        }

        AnyObject::Service(one) => service(one),

        AnyObject::Gateway(one) => {
            PartList::of(one)
                .list("servers", |spec| &mut spec.servers, |server| &server.name)
                .all
        }

        AnyObject::Sidecar(one) => {
            PartList::of(one)
                .list("ingress", |spec| &mut spec.ingress, unnamed)
                .list("egress", |spec| &mut spec.egress, unnamed)
                .member("inboundConnectionPool", |spec| {
                    spec.inbound_connection_pool.take().is_some()
                })
                .member("outboundTrafficPolicy", |spec| {
                    spec.outbound_traffic_policy.take().is_some()
                })
                .all
        }

        AnyObject::EnvoyFilter(one) => {
            PartList::of(one)
                .list("configPatches", |spec| &mut spec.config_patches, unnamed)
                .all
        }

        other => policy(other),
    }
}

/// The parts of a policy, a Telemetry or an extension.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others have no lists, or are not read individually"
)]
fn policy(object: &AnyObject) -> Vec<ObjectPart> {
    match object {
        AnyObject::AuthorizationPolicy(one) => {
            PartList::of(one)
                .list("rules", |spec| &mut spec.rules, unnamed)
                .all
        }

        AnyObject::PeerAuthentication(one) => {
            PartList::of(one)
                .member("mtls", |spec| spec.mtls.take().is_some())
                .member("portLevelMtls", |spec| {
                    spec.port_level_mtls.take().is_some()
                })
                .all
        }

        AnyObject::RequestAuthentication(one) => {
            PartList::of(one)
                .list("jwtRules", |spec| &mut spec.jwt_rules, |rule| &rule.issuer)
                .all
        }

        AnyObject::Telemetry(one) => {
            PartList::of(one)
                .list("tracing", |spec| &mut spec.tracing, unnamed)
                .list("metrics", |spec| &mut spec.metrics, unnamed)
                .list("accessLogging", |spec| &mut spec.access_logging, unnamed)
                .all
        }

        AnyObject::WasmPlugin(one) => {
            PartList::of(one)
                .list("match", |spec| &mut spec.matches, unnamed)
                .member("pluginConfig", |spec| spec.plugin_config.take().is_some())
                .member("vmConfig", |spec| spec.vm_config.take().is_some())
                .all
        }

        AnyObject::TrafficExtension(one) => {
            PartList::of(one)
                .list("match", |spec| &mut spec.matches, unnamed)
                .member("wasm", |spec| spec.wasm.take().is_some())
                .member("lua", |spec| spec.lua.take().is_some())
                .all
        }

        other => gateway_api(other),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others have no lists, or are not read individually"
)]
fn gateway_api(object: &AnyObject) -> Vec<ObjectPart> {
    match object {
        AnyObject::KubernetesGateway(one) => {
            PartList::of(one)
                .list(
                    "listeners",
                    |spec| &mut spec.listeners,
                    |listener| &listener.name,
                )
                .list("addresses", |spec| &mut spec.addresses, unnamed)
                .all
        }

        AnyObject::HttpRoute(one) => {
            PartList::of(one)
                .list("parentRefs", |spec| &mut spec.parent_refs, unnamed)
                .list("hostnames", |spec| &mut spec.hostnames, unnamed)
                .list(
                    "rules",
                    |spec| &mut spec.rules,
                    |rule| rule.name.as_deref().unwrap_or_default(),
                )
                .all
        }

        AnyObject::GrpcRoute(one) => {
            PartList::of(one)
                .list("parentRefs", |spec| &mut spec.parent_refs, unnamed)
                .list("hostnames", |spec| &mut spec.hostnames, unnamed)
                .list(
                    "rules",
                    |spec| &mut spec.rules,
                    |rule| rule.name.as_deref().unwrap_or_default(),
                )
                .all
        }

        AnyObject::TlsRoute(one) => {
            PartList::of(one)
                .list("parentRefs", |spec| &mut spec.parent_refs, unnamed)
                .list("hostnames", |spec| &mut spec.hostnames, unnamed)
                .list(
                    "rules",
                    |spec| &mut spec.rules,
                    |rule| rule.name.as_deref().unwrap_or_default(),
                )
                .all
        }

        AnyObject::BackendTlsPolicy(one) => {
            PartList::of(one)
                .list("targetRefs", |spec| &mut spec.target_refs, unnamed)
                .all
        }

        _ => Vec::new(),
    }
}

/// An element without a name is identified by its index.
fn unnamed<E>(_: &E) -> &str {
    ""
}

/// A policy is split into its members, since each applies by itself.
fn destination_rule(one: &Arc<Object<DestinationRule>>) -> Vec<ObjectPart> {
    let policy = |spec: &mut DestinationRule, take: fn(&mut TrafficPolicy) -> bool| {
        spec.traffic_policy.as_deref_mut().is_some_and(take)
    };

    PartList::of(one)
        .member("trafficPolicy.loadBalancer", |spec| {
            policy(spec, |policy| policy.load_balancer.take().is_some())
        })
        .member("trafficPolicy.connectionPool", |spec| {
            policy(spec, |policy| policy.connection_pool.take().is_some())
        })
        .member("trafficPolicy.outlierDetection", |spec| {
            policy(spec, |policy| policy.outlier_detection.take().is_some())
        })
        .member("trafficPolicy.tls", |spec| {
            policy(spec, |policy| policy.tls.take().is_some())
        })
        .member("trafficPolicy.portLevelSettings", |spec| {
            policy(spec, |policy| {
                !std::mem::take(&mut policy.port_level_settings).is_empty()
            })
        })
        .member("trafficPolicy.tunnel", |spec| {
            policy(spec, |policy| policy.tunnel.take().is_some())
        })
        .member("trafficPolicy.proxyProtocol", |spec| {
            policy(spec, |policy| policy.proxy_protocol.take().is_some())
        })
        .member("trafficPolicy.retryBudget", |spec| {
            policy(spec, |policy| policy.retry_budget.take().is_some())
        })
        .list("subsets", |spec| &mut spec.subsets, |subset| &subset.name)
        .list("exportTo", |spec| &mut spec.export_to, unnamed)
        .member("workloadSelector", |spec| {
            spec.workload_selector.take().is_some()
        })
        .all
}

/// The ports of a Kubernetes Service.
fn service(one: &Arc<Object<navarch_api::kubernetes::Service>>) -> Vec<ObjectPart> {
    let ports = &one.spec.ports;
    let without = |at: usize| {
        let mut copy = Object::clone(one);
        let kept = ports.iter().enumerate().filter(|(other, _)| *other != at);
        copy.spec.ports = kept.map(|(_, port)| port.clone()).collect();
        copy
    };
    let names: Vec<String> = ports.iter().map(|port| port.name.to_string()).collect();
    let part = |at| ObjectPart {
        field: format!("spec.ports[{}]", place(&names, at)),
        without: without(at).into(),
    };
    (0..ports.len()).map(part).collect()
}

/// Collects the parts of an object.
struct PartList<'a, T> {
    object: &'a Arc<Object<T>>,
    all: Vec<ObjectPart>,
}

impl<'a, T: Clone> PartList<'a, T>
where
    AnyObject: From<Object<T>>,
{
    /// An empty list.
    fn of(object: &'a Arc<Object<T>>) -> Self {
        Self {
            object,
            all: Vec::new(),
        }
    }

    /// Adds the elements of a list, each with its name if that is unique.
    fn list<E>(
        mut self,
        field: &str,
        of: impl Fn(&mut T) -> &mut Vec<E>,
        name: impl Fn(&E) -> &str,
    ) -> Self {
        let mut whole = Object::clone(self.object);
        let names: Vec<String> = of(&mut whole.spec)
            .iter()
            .map(|element| name(element).to_owned())
            .collect();
        for at in 0..names.len() {
            let mut without = Object::clone(self.object);
            _ = of(&mut without.spec).remove(at);
            self.all.push(ObjectPart {
                field: format!("spec.{field}[{}]", place(&names, at)),
                without: without.into(),
            });
        }
        self
    }

    /// Adds a member; `take` removes it and returns whether it was set.
    fn member(mut self, field: &str, take: impl Fn(&mut T) -> bool) -> Self {
        let mut without = Object::clone(self.object);
        if take(&mut without.spec) {
            self.all.push(ObjectPart {
                field: format!("spec.{field}"),
                without: without.into(),
            });
        }
        self
    }
}

/// The key of a list element: its name if unique, else its index.
fn place(names: &[String], at: usize) -> String {
    let name = names
        .get(at)
        .expect("every element has an entry, empty if it has no name")
        .as_str();
    let is_own = !name.is_empty() && names.iter().filter(|other| **other == name).count() == 1;
    if is_own {
        name.to_owned()
    } else {
        at.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_elements_are_identified_by_unique_names() {
        let names = ["a", "", "b", "b"].map(str::to_owned);
        assert_eq!(
            [0, 1, 2, 3].map(|at| place(&names, at)),
            ["a", "1", "2", "3"]
        );
    }
}
