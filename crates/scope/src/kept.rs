//! The hosts that a Sidecar must keep, and why: those that the workload calls, those that its
//! proxy's own extensions send to, and those whose VirtualServices route its requests.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::object::NamespacedName;
use navarch_push::context::PushContext;
use serde::{Deserialize, Serialize};

use super::evidence::{Calls, Observed};
use super::proxy_config::{ObjectPath, ProxyConfig, Routed};

/// Why a host is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The workload calls it.
    Called(Calls),
    /// Extensions of the proxy itself send to it, such as tracers: their names in Envoy.
    Extensions(BTreeSet<String>),
    /// This VirtualService routes calls of the workload.
    VirtualService(String),
}

/// A host of a Sidecar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptHost {
    /// As in `egress.hosts`: `namespace/host`, with `.` for the workload's own namespace.
    pub host: String,
    /// At least one.
    pub reasons: Vec<Reason>,
}

/// The hosts to keep for a workload.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    reasons: BTreeMap<String, Vec<Reason>>,
    /// The services that are called or sent to, by host.
    pub(crate) services: BTreeSet<String>,
    /// What routes calls to them now.
    pub(crate) routed: Vec<Routed>,
    /// What routes requests to ports that they do not have, and to no other called service. A client that
    /// uses DNS and the ports of Services sends no such requests, so none of it is kept.
    pub(crate) without_port: Vec<Routed>,
    /// Whether one of them is called.
    pub(crate) has_calls: bool,
    /// Hosts that were called, and that the proxy does not see now.
    pub(crate) invisible: Vec<String>,
    namespace: String,
}

impl Kept {
    /// Those of a workload in `namespace` with this configuration and these calls.
    pub(crate) fn of(
        context: &PushContext,
        namespace: &str,
        config: &ProxyConfig,
        observed: &Observed,
    ) -> Self {
        let mut kept = Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        };

        for (host, calls) in &observed.calls {
            if calls.counts.total() == 0 {
                continue;
            }
            match config.services.get(host) {
                Some(service_namespace) => {
                    kept.has_calls = true;
                    kept.add_service(host, service_namespace, Reason::Called(*calls));
                }
                None => kept.invisible.push(host.clone()),
            }
        }

        for (host, extensions) in &config.extensions {
            if let Some(service_namespace) = config.services.get(host) {
                kept.add_service(
                    host,
                    service_namespace,
                    Reason::Extensions(extensions.clone()),
                );
            }
        }

        for routed in config.routed() {
            if routed.hosts.is_disjoint(&kept.services) {
                continue;
            }
            if kept.has_only_own_calls(routed) && config.lacks_port(routed) {
                kept.without_port.push(routed.clone());
                continue;
            }

            for object in &routed.objects {
                kept.add_object(context, config, routed, object);
            }
            kept.routed.push(routed.clone());
        }

        kept
    }

    /// The hosts in the order of their names, those of the own namespace first.
    pub(crate) fn hosts(&self) -> Vec<KeptHost> {
        let host = |(host, reasons): (&String, &Vec<Reason>)| KeptHost {
            host: host.clone(),
            reasons: reasons.clone(),
        };
        self.reasons.iter().map(host).collect()
    }

    /// Whether what is routed is the host of a called service, and no calls of another service can have
    /// been made to it: these are counted as calls of the destination.
    fn has_only_own_calls(&self, routed: &Routed) -> bool {
        let mut called = routed.hosts.intersection(&self.services);
        self.services.contains(&routed.host) && called.all(|host| *host == routed.host)
    }

    fn add_service(&mut self, host: &str, namespace: &str, reason: Reason) {
        self.add(namespace, host, reason);
        self.services.insert(host.to_owned());
    }

    /// Adds the hosts by which an object is imported that routes calls.
    fn add_object(
        &mut self,
        context: &PushContext,
        config: &ProxyConfig,
        routed: &Routed,
        object: &ObjectPath,
    ) {
        let name = NamespacedName::new(&object.namespace, &object.name);
        let reason = Reason::VirtualService(format!("{}/{}", object.namespace, object.name));
        let Some(found) = context.objects.virtual_services.get(&name) else {
            // It is made from a route of the Gateway API, for its parent.
            if !routed.host.is_empty() && !self.services.contains(&routed.host) {
                self.add("*", &routed.host, reason);
            }
            return;
        };

        let domain = &context.mesh.settings.domain_suffix;
        let hosts = found.spec.hosts.iter().map(|host| {
            if host.contains('.') || host.contains('*') {
                host.clone()
            } else {
                format!("{host}.{}.svc.{domain}", object.namespace)
            }
        });
        let hosts: Vec<String> = hosts.collect();
        let own = hosts.iter().find(|host| **host == routed.host);
        let needed = own.map_or(hosts.as_slice(), std::slice::from_ref);
        for host in needed {
            self.add(&object.namespace, host, reason.clone());
            // Its ports have the listeners in which the VirtualService routes.
            if let Some(service_namespace) = config.services.get(host) {
                self.add(service_namespace, host, reason.clone());
            }
        }
    }

    fn add(&mut self, namespace: &str, host: &str, reason: Reason) {
        let namespace = match namespace {
            "" => "*",
            own if own == self.namespace => ".",
            other => other,
        };
        let reasons = self
            .reasons
            .entry(format!("{namespace}/{host}"))
            .or_default();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
}
