//! Conflicts between listeners of a Gateway and its ListenerSets (istiod's `gatewaycommon`,
//! `listener_conflict.go`).

use std::collections::{BTreeMap, BTreeSet};

use super::classes::ControllerOfClass;
use super::listener_set_index::listener_sets_of;
use super::namespaces::takes_listener_sets_of;
use navarch_api::gateway_api::{KubernetesGateway, Listener, ListenerSet};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Why a listener is in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Conflict {
    /// The port has another protocol.
    Protocol,
    /// The host is in use.
    Hostname,
}

/// The owner of listeners.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ListenersOf {
    Gateway,
    ListenerSet(NamespacedName),
}

/// The conflicting listeners of a Gateway and its ListenerSets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllConflicts(NamespacedName);

/// The conflicting listeners of one object, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conflicts {
    pub(super) gateway: NamespacedName,
    pub(super) of: ListenersOf,
}

/// The accepted listeners of one port.
#[derive(Debug, Default)]
struct PortListeners {
    /// The first for TCP or UDP.
    l4: Option<String>,
    /// The first for HTTP, HTTPS or TLS.
    l7: Option<String>,
    /// The protocol of each host of HTTP, HTTPS and TLS.
    hosts: BTreeMap<String, String>,
    /// Other protocols.
    others: BTreeSet<String>,
}

impl Conflict {
    /// The reason in conditions.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Protocol => "ProtocolConflict",
            Self::Hostname => "HostnameConflict",
        }
    }
}

impl Query for AllConflicts {
    type Value = BTreeMap<ListenersOf, BTreeMap<String, Conflict>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut conflicts = Self::Value::new();
        let Some(gateway) = view.object::<KubernetesGateway>(&self.0) else {
            return conflicts;
        };

        let controller = view.get(&ControllerOfClass(gateway.spec.gateway_class_name.clone()));
        if !controller.is_some_and(|controller| controller.allows_listener_sets()) {
            return conflicts;
        }

        let mut ports: BTreeMap<i32, PortListeners> = BTreeMap::new();
        let mut add = |of: &ListenersOf, listener: &Listener, port: i32| {
            if let Some(conflict) = ports.entry(port).or_default().add(listener) {
                conflicts
                    .entry(of.clone())
                    .or_default()
                    .insert(listener.name.clone(), conflict);
            }
        };

        for listener in &gateway.spec.listeners {
            add(&ListenersOf::Gateway, listener, listener.port);
        }

        let names = listener_sets_of(view, &self.0);
        let mut sets: Vec<_> = names
            .iter()
            .filter_map(|name| view.object::<ListenerSet>(name))
            .collect();
        sets.retain(|set| takes_listener_sets_of(view, gateway, &set.meta.key.namespace));
        sets.sort_by(|a, b| {
            a.meta
                .created
                .cmp(&b.meta.created)
                .then_with(|| a.meta.key.cmp(&b.meta.key))
        });

        for set in sets {
            let of = ListenersOf::ListenerSet(set.meta.key());
            for listener in &set.spec.listeners {
                add(&of, listener, port_of(listener).unwrap_or_default());
            }
        }

        conflicts
    }
}

impl Query for Conflicts {
    type Value = BTreeMap<String, Conflict>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllConflicts(self.gateway.clone()))
            .get(&self.of)
            .cloned()
            .unwrap_or_default()
    }
}

/// The port of a listener of a ListenerSet; by default that of its protocol.
///
/// # Errors
/// If the protocol has no default.
pub(super) fn port_of(listener: &Listener) -> Result<i32, String> {
    match (listener.port, listener.protocol.as_str()) {
        (0, "HTTP") => Ok(80),
        (0, "HTTPS") => Ok(443),
        (0, protocol) => Err(format!("protocol {protocol} requires a port to be set")),
        (port, _) => Ok(port),
    }
}

impl PortListeners {
    /// Adds a listener, unless it conflicts with an accepted one.
    fn add(&mut self, listener: &Listener) -> Option<Conflict> {
        let protocol = listener.protocol.as_str();
        match protocol {
            "TCP" | "UDP" => {
                if self.l4.is_some() || self.l7.is_some() {
                    return Some(Conflict::Protocol);
                }
                self.l4 = Some(protocol.to_owned());
            }
            "HTTP" | "HTTPS" | "TLS" => {
                if self.l4.is_some() {
                    return Some(Conflict::Protocol);
                }

                let host = listener
                    .hostname
                    .as_deref()
                    .filter(|host| !host.is_empty())
                    .unwrap_or("*");

                if let Some(other) = self.hosts.get(host) {
                    return Some(if other == protocol {
                        Conflict::Hostname
                    } else {
                        Conflict::Protocol
                    });
                }

                self.hosts.insert(host.to_owned(), protocol.to_owned());
                self.l7.get_or_insert_with(|| protocol.to_owned());
            }
            _ => {
                if !self.others.insert(protocol.to_owned()) {
                    return Some(Conflict::Hostname);
                }
            }
        }

        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(protocol: &str, host: Option<&str>) -> Listener {
        let listener = serde_json::json!({ "name": "l", "protocol": protocol, "hostname": host });
        serde_json::from_value(listener).unwrap()
    }

    #[test]
    fn one_port_has_one_transport_and_each_host_once() {
        let mut port = PortListeners::default();
        assert_eq!(port.add(&listener("HTTP", Some("a.example"))), None);
        assert_eq!(
            port.add(&listener("HTTP", Some("a.example"))),
            Some(Conflict::Hostname)
        );
        assert_eq!(
            port.add(&listener("HTTPS", Some("a.example"))),
            Some(Conflict::Protocol)
        );

        assert_eq!(port.add(&listener("TLS", Some("b.example"))), None);
        assert_eq!(port.add(&listener("HTTP", None)), None);
        assert_eq!(
            port.add(&listener("HTTPS", Some(""))),
            Some(Conflict::Protocol),
            "no host is every host"
        );
        assert_eq!(port.add(&listener("TCP", None)), Some(Conflict::Protocol));

        assert_eq!(port.add(&listener("HBONE", None)), None);
        assert_eq!(port.add(&listener("HBONE", None)), Some(Conflict::Hostname));
        let mut port = PortListeners::default();
        assert_eq!(port.add(&listener("UDP", None)), None);
        assert_eq!(port.add(&listener("TCP", None)), Some(Conflict::Protocol));
        assert_eq!(port.add(&listener("HTTP", None)), Some(Conflict::Protocol));
    }
}
