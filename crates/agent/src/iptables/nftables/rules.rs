//! The rules of both families, in the order of istio-nftables' `capture/run.go`.

use super::ruleset::{Ruleset, Table};
use super::{dns, marks};
use crate::iptables::capture::{Capture, CaptureError, DnsCapture, Mode};
use crate::iptables::families::IpFamily;
use crate::iptables::ranges::{Ranges, list};

/// Matches TCP of both families.
pub(super) const TCP: &str = "meta l4proto tcp";

/// The nftables keyword for addresses of a family.
pub(super) fn ip(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    }
}

/// A match of packets by the owner of their socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    /// The nftables keyword: `skuid` or `skgid`.
    pub(super) key: &'static str,
    /// A uid or gid.
    pub(super) id: &'a str,
}

/// The matches for users and groups whose traffic is Envoy's own, users first.
pub(super) fn owners(capture: &Capture) -> impl Iterator<Item = Owner<'_>> {
    let users = list(&capture.proxy_uids).map(|id| Owner { key: "skuid", id });
    let groups = list(&capture.proxy_gids).map(|id| Owner { key: "skgid", id });
    users.chain(groups)
}

/// Whether DNS queries of either family are captured.
fn dns_is_captured(capture: &Capture) -> bool {
    match &capture.dns {
        DnsCapture::Off => false,
        DnsCapture::All => true,
        DnsCapture::Servers(servers) => !servers.is_empty(),
    }
}

/// Generates the capture rules.
///
/// # Errors
/// When a range of addresses is invalid.
pub(super) fn rules(capture: &Capture) -> Result<Ruleset, CaptureError> {
    let included = capture.included()?;
    let excluded = capture.excluded()?;
    let mut rules = Ruleset::default();
    let dns = dns_is_captured(capture);
    interfaces(&mut rules, capture);
    redirections(&mut rules, capture);
    inbound(&mut rules, capture);
    before_proxy(&mut rules, capture);

    for owner in owners(capture) {
        own_traffic(&mut rules, capture, &included, owner, dns);
    }

    owner_groups(&mut rules, capture);
    if dns {
        dns::redirect(&mut rules, capture);
    }

    outbound(&mut rules, capture, &included, &excluded);
    if capture.mode == Mode::Tproxy {
        marks::marks(&mut rules, capture);
    }

    Ok(rules)
}

/// Excludes interfaces from capture. `outbound` inserts the redirects of virtual machines before
/// their `return`.
fn interfaces(rules: &mut Ruleset, capture: &Capture) {
    let tables: &[Table] = match capture.mode {
        Mode::Redirect => &[Table::Nat],
        Mode::Tproxy => &[Table::Nat, Table::Mangle],
    };
    for table in tables {
        for interface in list(&capture.excluded_interfaces) {
            rules.append(
                *table,
                "prerouting",
                format!("iifname {interface} counter return"),
            );
            rules.append(
                *table,
                "output",
                format!("oifname {interface} counter return"),
            );
        }
    }

    for interface in list(&capture.virtual_interfaces) {
        rules.insert(
            Table::Nat,
            "prerouting",
            0,
            format!("iifname {interface} counter return"),
        );
    }
}

/// The chains that redirect to Envoy's ports.
fn redirections(rules: &mut Ruleset, capture: &Capture) {
    if capture.drop_invalid {
        rules.append(
            Table::Mangle,
            "prerouting",
            format!("{TCP} ct state invalid counter jump istio-drop"),
        );
        rules.append(Table::Mangle, "istio-drop", "counter drop");
    }

    let Capture {
        tunnel_port,
        proxy_port,
        inbound_port,
        ..
    } = capture;

    rules.append(
        Table::Nat,
        "istio-inbound",
        format!("{TCP} tcp dport {tunnel_port} counter return"),
    );

    rules.append(
        Table::Nat,
        "istio-redirect",
        format!("{TCP} counter redirect to :{proxy_port}"),
    );

    rules.append(
        Table::Nat,
        "istio-in-redirect",
        format!("{TCP} counter redirect to :{inbound_port}"),
    );
}

/// Redirects inbound connections to Envoy.
fn inbound(rules: &mut Ruleset, capture: &Capture) {
    if capture.inbound_ports.is_empty() {
        return;
    }

    let table = match capture.mode {
        Mode::Redirect => Table::Nat,
        Mode::Tproxy => {
            marks::chains(rules, capture);
            Table::Mangle
        }
    };

    rules.append(
        table,
        "prerouting",
        format!("{TCP} counter jump istio-inbound"),
    );

    if capture.inbound_ports == "*" {
        for port in list(&capture.inbound_ports_excluded) {
            rules.append(
                table,
                "istio-inbound",
                format!("{TCP} tcp dport {port} counter return"),
            );
        }
        to_envoy(rules, capture.mode, "");
    } else {
        for port in list(&capture.inbound_ports) {
            to_envoy(rules, capture.mode, &format!(" tcp dport {port}"));
        }
    }
}

/// Redirects matching inbound packets to Envoy.
fn to_envoy(rules: &mut Ruleset, mode: Mode, matching: &str) {
    match mode {
        Mode::Redirect => {
            rules.append(
                Table::Nat,
                "istio-inbound",
                format!("{TCP}{matching} counter jump istio-in-redirect"),
            );
        }
        Mode::Tproxy => {
            let known =
                format!("{TCP} ct state related,established{matching} counter jump istio-divert");
            rules.append(Table::Mangle, "istio-inbound", known);
            rules.append(
                Table::Mangle,
                "istio-inbound",
                format!("{TCP}{matching} counter jump istio-tproxy"),
            );
        }
    }
}

/// The rules before those for Envoy's own traffic: excluded ports, and Envoy's connections to the
/// application.
fn before_proxy(rules: &mut Ruleset, capture: &Capture) {
    rules.append(Table::Nat, "output", "counter jump istio-output");

    for port in list(&capture.outbound_ports_excluded) {
        for protocol in ["tcp", "udp"] {
            rules.append(
                Table::Nat,
                "istio-output",
                format!("{protocol} dport {port} counter return"),
            );
        }
    }

    for family in capture.families() {
        let text = format!(
            "oifname lo {} saddr {} counter return",
            ip(family),
            family.inbound_source()
        );
        rules.append(Table::Nat, "istio-output", text);
    }
}

/// Excludes Envoy's own traffic. Envoy's traffic to the pod itself is inbound traffic again and
/// stays captured.
fn own_traffic(
    rules: &mut Ruleset,
    capture: &Capture,
    included: &Ranges,
    owner: Owner<'_>,
    dns: bool,
) {
    let Owner { key, id } = owner;
    let tunnel = &capture.tunnel_port;

    // The agent's own queries to a DNS server in the pod must not be redirected to Envoy's inbound
    // port.
    let ports = if dns && key == "skuid" {
        format!("{{ 53, {tunnel} }}")
    } else {
        tunnel.clone()
    };

    for family in capture.families() {
        let ip = ip(family);
        let loopback = capture.loopback(family);
        let text = format!(
            "oifname lo {TCP} {ip} daddr != {loopback} tcp dport != {ports} {key} {id} counter jump istio-in-redirect"
        );
        rules.append(Table::Nat, "istio-output", text);
    }

    if !included.name_loopback() {
        // The application's TCP queries to a DNS server on loopback must still be captured.
        let but_dns = if dns {
            format!("{TCP} tcp dport != 53 ")
        } else {
            String::new()
        };
        rules.append(
            Table::Nat,
            "istio-output",
            format!("oifname lo {but_dns}{key} != {id} counter return"),
        );
    }

    rules.append(
        Table::Nat,
        "istio-output",
        format!("{key} {id} counter return"),
    );
}

/// Captures the traffic of the included groups, or of all groups except the excluded ones.
fn owner_groups(rules: &mut Ruleset, capture: &Capture) {
    if capture.owner_groups == "*" {
        for group in list(&capture.owner_groups_excluded) {
            rules.append(
                Table::Nat,
                "istio-output",
                format!("skgid {group} counter return"),
            );
        }
        return;
    }

    let none_of: String = list(&capture.owner_groups)
        .map(|group| format!("skgid != {group} "))
        .collect();
    rules.append(
        Table::Nat,
        "istio-output",
        format!("{none_of}counter return"),
    );
}

/// Redirects outbound connections to Envoy.
fn outbound(rules: &mut Ruleset, capture: &Capture, included: &Ranges, excluded: &Ranges) {
    for family in capture.families() {
        let text = format!(
            "{} daddr {} counter return",
            ip(family),
            capture.loopback(family)
        );
        rules.append(Table::Nat, "istio-output", text);
    }

    for family in capture.families() {
        for range in excluded.of(family) {
            rules.append(
                Table::Nat,
                "istio-output",
                format!("{} daddr {range} counter return", ip(family)),
            );
        }
    }

    for port in list(&capture.outbound_ports) {
        rules.append(
            Table::Nat,
            "istio-output",
            format!("tcp dport {port} counter jump istio-redirect"),
        );
    }

    if included.all {
        rules.append(Table::Nat, "istio-output", "counter jump istio-redirect");
        for interface in list(&capture.virtual_interfaces) {
            rules.insert(
                Table::Nat,
                "prerouting",
                0,
                format!("iifname {interface} counter jump istio-redirect"),
            );
        }
    }

    for family in capture.families() {
        for range in included.of(family) {
            let to = format!("{} daddr {range} counter jump istio-redirect", ip(family));
            for interface in list(&capture.virtual_interfaces) {
                rules.insert(
                    Table::Nat,
                    "prerouting",
                    0,
                    format!("iifname {interface} {to}"),
                );
            }
            rules.append(Table::Nat, "istio-output", to);
        }
    }
}
