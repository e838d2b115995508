//! TPROXY: the chains that divert packets, and the marks that identify the packets of a connection.

use super::rules::{Owner, TCP, ip, owners};
use super::ruleset::{Ruleset, Table};
use crate::iptables::capture::Capture;
use crate::iptables::rules::OUTBOUND_MARK;

/// The chains `istio-divert` and `istio-tproxy`, which send packets to Envoy's port.
pub(super) fn chains(rules: &mut Ruleset, capture: &Capture) {
    let mark = &capture.tproxy_mark;
    let port = &capture.inbound_port;
    rules.append(
        Table::Mangle,
        "istio-divert",
        format!("counter meta mark set {mark}"),
    );
    rules.append(Table::Mangle, "istio-divert", "counter accept");
    for family in capture.families() {
        let ip = ip(family);
        let loopback = capture.loopback(family);
        let text = format!(
            "{TCP} {ip} daddr != {loopback} tproxy {ip} to :{port} meta mark set {mark} counter accept"
        );
        rules.append(Table::Mangle, "istio-tproxy", text);
    }
}

pub(super) fn marks(rules: &mut Ruleset, capture: &Capture) {
    let mark = &capture.tproxy_mark;
    rules.append(
        Table::Mangle,
        "prerouting",
        format!("{TCP} mark {mark} counter ct mark set mark"),
    );

    rules.append(
        Table::Mangle,
        "output",
        format!("oifname lo {TCP} mark {mark} counter return"),
    );

    for Owner { key, id } in owners(capture) {
        for family in capture.families() {
            let to = format!("{} daddr != {}", ip(family), capture.loopback(family));
            let text =
                format!("oifname lo {TCP} {to} {key} {id} counter meta mark set {OUTBOUND_MARK}");
            rules.append(Table::Mangle, "output", text);
        }
    }

    rules.append(
        Table::Mangle,
        "output",
        format!("{TCP} ct mark {mark} counter meta mark set ct mark"),
    );

    rules.insert(
        Table::Mangle,
        "istio-inbound",
        0,
        format!("{TCP} mark {mark} counter return"),
    );

    for family in capture.families() {
        let from = format!("{} saddr {}", ip(family), family.inbound_source());
        rules.insert(
            Table::Mangle,
            "istio-inbound",
            1,
            format!("iifname lo {TCP} {from} counter return"),
        );
    }

    rules.insert(
        Table::Mangle,
        "istio-inbound",
        2,
        format!("iifname lo {TCP} mark != {OUTBOUND_MARK} counter return"),
    );
}
