//! Addresses of a sidecar's listeners.

use std::collections::BTreeSet;

use navarch_proto::envoy::config::core::v3::{Address, Pipe, address};
use navarch_proto::envoy::config::listener::v3::AdditionalAddress;
use navarch_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use navarch_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};

use crate::build::socket_address;
use navarch_push::proxy::IpFamilies;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The listener that iptables redirects inbound connections to.
pub(super) const VIRTUAL_INBOUND: &str = "virtualInbound";

/// Prefix of Unix socket addresses.
const UNIX: &str = "unix://";

/// How traffic is redirected to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interception {
    /// By `REDIRECT` of iptables.
    Redirect,
    /// By `TPROXY` of iptables.
    Tproxy,
    /// Not redirected: the application connects to the proxy.
    None,
}

/// How traffic is redirected to the view's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InterceptionOfProxy;

/// The ports of listeners in the proxy's bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StaticPorts;

/// Ports that are in use, for listeners on all addresses.
#[derive(Clone, Debug)]
pub(crate) struct UsedPorts {
    /// Those of the proxy's bootstrap.
    bootstrap: BTreeSet<u16>,
    /// Those of the listeners that iptables redirects to.
    redirected: BTreeSet<u16>,
    /// Whether the proxy may not bind to ports below 1024.
    unprivileged: bool,
    /// The wildcard address in the proxy's family.
    wildcard: &'static str,
}

impl Query for InterceptionOfProxy {
    type Value = Interception;

    fn compute(&self, view: &View<'_>) -> Interception {
        match view.proxy().meta("INTERCEPTION_MODE").as_deref() {
            Some("TPROXY") => Interception::Tproxy,
            Some("NONE") => Interception::None,
            Some(_) | None => Interception::Redirect,
        }
    }
}

impl ProxyQuery for InterceptionOfProxy {}

impl Query for StaticPorts {
    type Value = BTreeSet<u16>;

    fn compute(&self, view: &View<'_>) -> BTreeSet<u16> {
        let keys = [
            "ENVOY_STATUS_PORT",
            "ENVOY_PROMETHEUS_PORT",
            "ENVOY_SECURE_METRICS_PORT",
            "ENVOY_SECURE_MERGED_METRICS_PORT",
        ];
        keys.iter()
            .filter_map(|key| view.proxy().meta(key)?.parse().ok())
            .collect()
    }
}

impl ProxyQuery for StaticPorts {}

/// How traffic is redirected to the proxy.
pub(crate) fn interception(view: &View<'_>) -> Interception {
    *view.derived(&InterceptionOfProxy)
}

/// The wildcard addresses in the families of the proxy.
pub(crate) fn wildcards(families: IpFamilies) -> &'static [&'static str] {
    match families {
        IpFamilies::V4 => &["0.0.0.0"],
        IpFamilies::V6 => &["::"],
        IpFamilies::DualV4First | IpFamilies::DualV6First => &["0.0.0.0", "::"],
    }
}

/// The loopback addresses in the families of the proxy.
pub(crate) fn localhosts(families: IpFamilies) -> &'static [&'static str] {
    match families {
        IpFamilies::V4 => &["127.0.0.1"],
        IpFamilies::V6 => &["::1"],
        IpFamilies::DualV4First | IpFamilies::DualV6First => &["127.0.0.1", "::1"],
    }
}

/// The first wildcard address, which is part of listener names.
pub(crate) fn wildcard(families: IpFamilies) -> &'static str {
    if families.has_v4() { "0.0.0.0" } else { "::" }
}

/// An address and port, or a Unix socket if the port is 0.
pub(crate) fn listen_address(bind: &str, port: u16) -> Address {
    if port != 0 {
        return socket_address(bind, u32::from(port));
    }
    let path = bind.strip_prefix(UNIX).unwrap_or(bind).to_owned();
    Address {
        address: Some(address::Address::Pipe(Pipe {
            path,
            ..Pipe::default()
        })),
    }
}

/// Additional addresses of a listener.
pub(crate) fn additional_addresses<S: AsRef<str>>(
    binds: &[S],
    port: u16,
) -> Vec<AdditionalAddress> {
    let binds = binds
        .iter()
        .map(AsRef::as_ref)
        .filter(|bind| !bind.is_empty());
    let address = |bind| AdditionalAddress {
        address: Some(listen_address(bind, port)),
        ..AdditionalAddress::default()
    };
    binds.map(address).collect()
}

/// Whether a bind is a Unix socket.
pub(crate) fn is_unix(bind: &str) -> bool {
    bind.starts_with(UNIX)
}

pub(crate) fn listener_name(bind: &str, port: u16) -> String {
    format!("{bind}_{port}")
}

/// Maximum number of connections accepted per event; `None` means unlimited.
pub(crate) fn accepts_per_event(view: &View<'_>) -> Option<u32> {
    Some(view.mesh().settings.max_connections_per_socket_event).filter(|most| *most > 0)
}

/// Exact balancing of connections over worker threads, if the proxy's metadata enables it under
/// `key`.
pub(crate) fn balance(view: &View<'_>, key: &str) -> Option<ConnectionBalanceConfig> {
    view.proxy()
        .meta_bool(key)
        .then_some(ConnectionBalanceConfig {
            balance_type: Some(BalanceType::ExactBalance(ExactBalance {})),
        })
}

impl UsedPorts {
    /// The ports in use of the view's proxy.
    pub(crate) fn new(view: &View<'_>) -> Self {
        let mesh = &view.mesh().config;
        let redirected = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
        Self {
            bootstrap: (*view.derived(&StaticPorts)).clone(),
            redirected: redirected
                .iter()
                .filter_map(|port| u16::try_from(*port).ok())
                .collect(),
            unprivileged: view.proxy().meta_bool("UNPRIVILEGED_POD"),
            wildcard: wildcard(view.proxy().families()),
        }
    }

    /// The same, for listeners without redirection: the ports that iptables redirects to are
    /// available to them.
    pub(crate) fn without_redirected(mut self) -> Self {
        self.redirected.clear();
        self
    }

    /// Whether a listener may bind here. `bind` is empty for outbound listeners whose address
    /// depends on the service: HTTP ones then use the wildcard address.
    pub(crate) fn allow(&self, bind: &str, port: u16, binds_to_port: bool, is_http: bool) -> bool {
        if binds_to_port && self.unprivileged && (1..1024).contains(&port) {
            return false;
        }
        let on_all_addresses = if bind.is_empty() {
            is_http
        } else {
            bind == self.wildcard
        };
        !on_all_addresses || !(self.bootstrap.contains(&port) || self.redirected.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> UsedPorts {
        UsedPorts {
            bootstrap: BTreeSet::from([15021]),
            redirected: BTreeSet::from([15001, 15006]),
            unprivileged: true,
            wildcard: "0.0.0.0",
        }
    }

    #[test]
    fn reserved_ports_are_reserved_only_for_wildcard_addresses() {
        assert!(!taken().allow("0.0.0.0", 15021, false, false));
        assert!(
            !taken().allow("", 15001, false, true),
            "HTTP without a bind is on all addresses"
        );
        assert!(taken().allow("", 15001, false, false));
        assert!(taken().allow("10.0.0.1", 15021, false, true));
        assert!(
            taken()
                .without_redirected()
                .allow("0.0.0.0", 15001, false, false)
        );
    }

    #[test]
    fn unprivileged_pods_bind_to_no_low_port() {
        assert!(!taken().allow("127.0.0.1", 80, true, true));
        assert!(taken().allow("127.0.0.1", 80, false, true));
        assert!(taken().allow("unix:///tmp/socket", 0, true, true));
    }
}
