//! The ports of its workload that a sidecar serves, and their addresses: from its services or its
//! Sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::address::{Interception, UsedPorts, interception, wildcard, wildcards};
use crate::mtls::{self, MtlsMode};
use crate::sidecar_scope;
use crate::stat_prefix::{self, ShortNames};
use navarch_api::istio::{CaptureMode, IstioIngressListener, ServerTlsSettings};
use navarch_api::object::NamespacedName;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The served ports of the view's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InboundPlan;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServedPort {
    /// The port of the workload; 0 means all ports without their own entry.
    pub(super) target: u16,
    /// The port of the service, which clients and metrics use.
    pub(super) service_port: u16,
    pub(super) port_name: String,
    /// The declared protocol.
    pub(super) protocol: Protocol,
    /// The addresses to listen on, the primary one first.
    pub(super) binds: Vec<String>,
    /// Whether the listener binds to the port; otherwise it is part of the one that iptables
    /// redirects to.
    pub(super) binds_to_port: bool,
    /// The host of the service, for metrics and traces.
    pub(super) host: String,
    /// The short names of the service.
    pub(super) short: ShortNames,
    /// TLS settings of the Sidecar for clients outside the mesh.
    pub(super) tls: Option<ServerTlsSettings>,
    /// The Sidecar that declares the port.
    pub(super) sidecar: Option<NamespacedName>,
    /// The mutual TLS mode of the port.
    pub(super) mtls: MtlsMode,
}

/// An address of the proxy to listen on, if a Sidecar sets none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GlobalUnicastAddress;

impl Query for InboundPlan {
    type Value = Vec<ServedPort>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let ingress = sidecar_scope::ingress_listeners(view);
        let mut ports: BTreeMap<u16, ServedPort> = BTreeMap::new();

        if ingress.is_empty() {
            // Without redirection, proxy and workload would listen on the same port.
            if interception(view) != Interception::None {
                add_services(view, &BTreeSet::new(), &mut ports);
            }
            return ports.into_values().collect();
        }

        if view.mesh().settings.merge_sidecar_ingress {
            let declared = ingress.iter().map(number).collect();
            add_services(view, &declared, &mut ports);
        }

        // A Sidecar of the root namespace is treated as one of the proxy's namespace.
        let own = |name: &str| NamespacedName::new(view.proxy().namespace().as_str(), name);
        let sidecar = sidecar_scope::sidecar(view).map(|sidecar| own(&sidecar.meta.key.name));

        for listener in ingress {
            if let (Some(sidecar), Some(port)) = (&sidecar, declared_port(view, listener)) {
                let host = format!("{}.{}", sidecar.name, sidecar.namespace);
                let short = ShortNames {
                    qualified: host.clone(),
                    name: host.clone(),
                };
                let port = ServedPort {
                    host,
                    short,
                    sidecar: Some(sidecar.clone()),
                    ..port
                };
                ports.entry(port.target).or_insert(port);
            }
        }

        ports.into_values().collect()
    }
}

/// Adds the ports of services that select the workload. The first one wins in conflicts.
fn add_services(view: &View<'_>, declared: &BTreeSet<u16>, ports: &mut BTreeMap<u16, ServedPort>) {
    let families = view.proxy().families();
    let taken = UsedPorts::new(view);
    let binds_to_port = interception(view) == Interception::None;
    let demanded = mtls::of_proxy(view);

    for target in view.proxy().targets().iter() {
        let number = target.target_port;
        let is_http = target.port.protocol.is_http();
        if declared.contains(&number)
            || !taken.allow(wildcard(families), number, binds_to_port, is_http)
        {
            continue;
        }
        let service = &target.service;
        let host = service.key.hostname.as_str();

        if ports
            .get(&number)
            .is_some_and(|first| first.protocol != target.port.protocol && first.host != host)
        {
            view.count(
                "pilot_conflict_inbound_listener",
                format!("{host}:{number}"),
            );
        }

        ports.entry(number).or_insert_with(|| ServedPort {
            target: number,
            service_port: target.port.port,
            port_name: target.port.name.to_string(),
            protocol: target.port.protocol,
            binds: wildcards(families)
                .iter()
                .map(|&bind| bind.to_owned())
                .collect(),
            binds_to_port,
            host: host.to_owned(),
            short: stat_prefix::short_names(service, host),
            tls: None,
            sidecar: None,
            mtls: demanded.on_port(number),
        });
    }
}

/// A port that a Sidecar declares, if the proxy can listen on it.
fn declared_port(view: &View<'_>, listener: &IstioIngressListener) -> Option<ServedPort> {
    let target = number(listener);
    let declared = listener.port.as_ref()?;
    let protocol = Protocol::parse(&declared.protocol);
    let binds_to_port = match listener.capture_mode {
        CaptureMode::Default => interception(view) == Interception::None,
        CaptureMode::Iptables => false,
        CaptureMode::None => true,
    };

    // A Sidecar may declare the ports that iptables redirects to.
    let taken = UsedPorts::new(view).without_redirected();
    if !taken.allow(&listener.bind, target, binds_to_port, protocol.is_http()) {
        return None;
    }

    let binds = if listener.bind.is_empty() {
        own_binds(view)
    } else {
        vec![listener.bind.clone()]
    };

    let tls = listener
        .tls
        .clone()
        .filter(|_| view.mesh().settings.tls_on_sidecar_ingress);

    Some(ServedPort {
        target,
        service_port: target,
        port_name: declared.name.clone(),
        protocol: if tls.is_some() {
            protocol.after_tls_termination()
        } else {
            protocol
        },
        binds,
        binds_to_port,
        host: String::new(),
        short: ShortNames::default(),
        tls,
        sidecar: None,
        mtls: mtls::of_proxy(view).on_port(target),
    })
}

/// The number of a declared port.
fn number(listener: &IstioIngressListener) -> u16 {
    listener
        .port
        .as_ref()
        .and_then(|port| u16::try_from(port.number).ok())
        .unwrap_or_default()
}

/// The addresses if a Sidecar sets none: those of the workload.
fn own_binds(view: &View<'_>) -> Vec<String> {
    match &*view.derived(&GlobalUnicastAddress) {
        Some(address) => vec![address.clone()],
        None => wildcards(view.proxy().families())
            .iter()
            .map(|&bind| bind.to_owned())
            .collect(),
    }
}

impl Query for GlobalUnicastAddress {
    type Value = Option<String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.proxy()
            .ips()
            .iter()
            .find(|address| is_global_unicast(**address))
            .map(ToString::to_string)
    }
}

impl ProxyQuery for GlobalUnicastAddress {}

/// Whether other hosts can reach the address: not loopback, multicast, link-local, unspecified or
/// broadcast. Private addresses are included, as in Go's `IsGlobalUnicast`.
fn is_global_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_multicast()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_multicast()
                || address.is_unicast_link_local()
                || address.is_unspecified())
        }
    }
}

/// The served ports, in the order of the ports of the workload.
pub(super) fn served_ports(view: &View<'_>) -> std::sync::Arc<Vec<ServedPort>> {
    view.get(&InboundPlan)
}

#[cfg(test)]
mod tests {
    use super::is_global_unicast;

    #[test]
    fn private_addresses_can_be_reached_by_others() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("192.168.0.1", true),
            ("127.0.0.1", false),
            ("169.254.0.1", false),
            ("fd00::1", true),
            ("fe80::1", false),
            ("::1", false),
        ] {
            assert_eq!(
                is_global_unicast(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }
}
