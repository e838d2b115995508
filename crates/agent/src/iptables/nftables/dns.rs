//! Rules that redirect DNS queries to the agent.

use std::net::IpAddr;

use super::rules::{Owner, TCP, ip, owners};
use super::ruleset::{Ruleset, Table};
use crate::iptables::capture::{Capture, DnsCapture};
use crate::iptables::families::IpFamily;

/// The statement that redirects to the agent's DNS port.
const TO_AGENT: &str = "counter redirect to :15053";

/// The captured servers, IPv4 first; empty if all servers are captured.
fn servers(capture: &Capture) -> Vec<(IpFamily, IpAddr)> {
    let DnsCapture::Servers(servers) = &capture.dns else {
        return Vec::new();
    };
    let of = |family: IpFamily| {
        servers
            .iter()
            .filter(move |server| family.has(**server))
            .map(move |server| (family, *server))
    };
    capture.families().flat_map(of).collect()
}

/// Redirects queries to the agent, over TCP and UDP.
pub(super) fn redirect(rules: &mut Ruleset, capture: &Capture) {
    rules.append(Table::Raw, "output", "counter jump istio-output-dns");
    rules.append(Table::Nat, "istio-output", "counter jump istio-output-dns");

    for protocol in ["tcp", "udp"] {
        if capture.dns == DnsCapture::All {
            let tcp = if protocol == "tcp" {
                format!("{TCP} ")
            } else {
                String::new()
            };
            rules.append(
                Table::Nat,
                "istio-output-dns",
                format!("{tcp}{protocol} dport 53 {TO_AGENT}"),
            );
        }

        for (family, server) in servers(capture) {
            let to = format!(
                "{} daddr {server}/{} {protocol} dport 53 {TO_AGENT}",
                ip(family),
                family.full_length()
            );
            rules.append(Table::Nat, "istio-output-dns", to);
        }
    }

    zones(rules, capture);
}

/// Puts the application's queries to the agent and the agent's queries to the resolver into
/// separate conntrack zones. In one zone both would be the same connection to the kernel, and the
/// race between them would lose packets.
fn zones(rules: &mut Ruleset, capture: &Capture) {
    for Owner { key, id } in owners(capture) {
        let to = "udp dport 53";
        let from = "udp sport 15053";
        rules.append(
            Table::Raw,
            "istio-output-dns",
            format!("{to} meta {key} {id} counter ct zone set 1"),
        );
        rules.append(
            Table::Raw,
            "istio-output-dns",
            format!("{from} meta {key} {id} counter ct zone set 2"),
        );
    }

    rules.append(Table::Raw, "prerouting", "counter jump istio-inbound");
    let mut pair = |to: &str, from: &str| {
        rules.append(
            Table::Raw,
            "istio-output-dns",
            format!("udp dport 53{to} counter ct zone set 2"),
        );
        rules.append(
            Table::Raw,
            "istio-inbound",
            format!("udp sport 53{from} counter ct zone set 1"),
        );
    };

    if capture.dns == DnsCapture::All {
        pair("", "");
    }

    for (family, server) in servers(capture) {
        let ip = ip(family);
        let length = family.full_length();
        pair(
            &format!(" {ip} daddr {server}/{length}"),
            &format!(" {ip} saddr {server}/{length}"),
        );
    }
}
