//! The rules of one family, in the order of istio-iptables' `capture/run.go`.

use super::capture::{Capture, CaptureError, Mode};
use super::dns;
use super::families::IpFamily;
use super::ranges::{Ranges, list};
use super::rule::{Rule, Table};

/// The mark of Envoy's own packets to the pod itself under TPROXY; unmarked loopback packets skip
/// inbound capture.
pub(super) const OUTBOUND_MARK: &str = "1338";

/// Builds the rules of one family in order.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub(super) capture: &'a Capture,
    pub(super) family: IpFamily,
    /// The rules so far.
    rules: Vec<Rule>,
}

impl Builder<'_> {
    /// Appends a rule to a chain.
    pub(super) fn append(&mut self, table: Table, chain: &str, text: impl Into<String>) {
        self.rules.push(Rule {
            table,
            chain: chain.to_owned(),
            position: None,
            text: text.into(),
        });
    }

    /// Inserts a rule at a position of a chain.
    fn insert(&mut self, table: Table, chain: &str, position: u32, text: impl Into<String>) {
        self.rules.push(Rule {
            table,
            chain: chain.to_owned(),
            position: Some(position),
            text: text.into(),
        });
    }

    /// The range that is the application's own loopback.
    fn loopback(&self) -> &str {
        self.capture.loopback(self.family)
    }
}

/// Generates the capture rules of one family.
///
/// # Errors
/// When a range of addresses is invalid.
pub fn rules(capture: &Capture, family: IpFamily) -> Result<Vec<Rule>, CaptureError> {
    let included = capture.included()?;
    let excluded = capture.excluded()?;
    let mut builder = Builder {
        capture,
        family,
        rules: Vec::new(),
    };
    excluded_interfaces(&mut builder);

    for interface in list(&capture.virtual_interfaces) {
        builder.insert(
            Table::Nat,
            "PREROUTING",
            1,
            format!("-i {interface} -j RETURN"),
        );
    }

    redirections(&mut builder);
    inbound(&mut builder);
    before_proxy(&mut builder);
    for uid in list(&capture.proxy_uids) {
        own_traffic(&mut builder, &included, Owner::User(uid));
    }

    for gid in list(&capture.proxy_gids) {
        own_traffic(&mut builder, &included, Owner::Group(gid));
    }

    owner_groups(&mut builder);
    dns::redirect(&mut builder);
    outbound(&mut builder, &included, &excluded);
    if capture.mode == Mode::Tproxy {
        marks(&mut builder);
    }

    Ok(builder.rules)
}

/// Excludes the traffic of excluded interfaces from capture.
fn excluded_interfaces(builder: &mut Builder<'_>) {
    let tables: &[Table] = match builder.capture.mode {
        Mode::Redirect => &[Table::Nat],
        Mode::Tproxy => &[Table::Nat, Table::Mangle],
    };
    for table in tables {
        for interface in list(&builder.capture.excluded_interfaces) {
            builder.append(*table, "PREROUTING", format!("-i {interface} -j RETURN"));
            builder.append(*table, "OUTPUT", format!("-o {interface} -j RETURN"));
        }
    }
}

/// The chains that redirect to Envoy's ports.
fn redirections(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    if capture.drop_invalid {
        builder.append(
            Table::Mangle,
            "PREROUTING",
            "-m conntrack --ctstate INVALID -j ISTIO_DROP",
        );
        builder.append(Table::Mangle, "ISTIO_DROP", "-j DROP");
    }

    builder.append(
        Table::Nat,
        "ISTIO_INBOUND",
        format!("-p tcp --dport {} -j RETURN", capture.tunnel_port),
    );

    builder.append(
        Table::Nat,
        "ISTIO_REDIRECT",
        format!("-p tcp -j REDIRECT --to-ports {}", capture.proxy_port),
    );

    builder.append(
        Table::Nat,
        "ISTIO_IN_REDIRECT",
        format!("-p tcp -j REDIRECT --to-ports {}", capture.inbound_port),
    );
}

/// Redirects inbound connections to Envoy.
fn inbound(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    if capture.inbound_ports.is_empty() {
        return;
    }

    let table = match capture.mode {
        Mode::Redirect => Table::Nat,
        Mode::Tproxy => {
            tproxy_chains(builder);
            Table::Mangle
        }
    };

    builder.append(table, "PREROUTING", "-p tcp -j ISTIO_INBOUND");

    if capture.inbound_ports == "*" {
        for port in list(&capture.inbound_ports_excluded) {
            builder.append(
                table,
                "ISTIO_INBOUND",
                format!("-p tcp --dport {port} -j RETURN"),
            );
        }
        to_envoy(builder, "-p tcp");
    } else {
        for port in list(&capture.inbound_ports) {
            to_envoy(builder, &format!("-p tcp --dport {port}"));
        }
    }
}

/// The chains that mark packets for TPROXY.
fn tproxy_chains(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    builder.append(
        Table::Mangle,
        "ISTIO_DIVERT",
        format!("-j MARK --set-mark {}", capture.tproxy_mark),
    );
    builder.append(Table::Mangle, "ISTIO_DIVERT", "-j ACCEPT");
    let text = format!(
        "! -d {} -p tcp -j TPROXY --tproxy-mark {}/0xffffffff --on-port {}",
        builder.loopback(),
        capture.tproxy_mark,
        capture.inbound_port
    );
    builder.append(Table::Mangle, "ISTIO_TPROXY", text);
}

/// Redirects matching inbound packets to Envoy.
fn to_envoy(builder: &mut Builder<'_>, matching: &str) {
    match builder.capture.mode {
        Mode::Redirect => builder.append(
            Table::Nat,
            "ISTIO_INBOUND",
            format!("{matching} -j ISTIO_IN_REDIRECT"),
        ),
        Mode::Tproxy => {
            let known =
                format!("{matching} -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT");
            builder.append(Table::Mangle, "ISTIO_INBOUND", known);
            builder.append(
                Table::Mangle,
                "ISTIO_INBOUND",
                format!("{matching} -j ISTIO_TPROXY"),
            );
        }
    }
}

/// The rules before those for Envoy's own traffic: excluded ports, and Envoy's connections to the
/// application.
fn before_proxy(builder: &mut Builder<'_>) {
    builder.append(Table::Nat, "OUTPUT", "-j ISTIO_OUTPUT");
    for port in list(&builder.capture.outbound_ports_excluded) {
        for protocol in ["tcp", "udp"] {
            builder.append(
                Table::Nat,
                "ISTIO_OUTPUT",
                format!("-p {protocol} --dport {port} -j RETURN"),
            );
        }
    }
    let source = builder.family.inbound_source();
    builder.append(
        Table::Nat,
        "ISTIO_OUTPUT",
        format!("-o lo -s {source} -j RETURN"),
    );
}

/// The owner of Envoy's own traffic.
#[derive(Clone, Copy, Debug)]
enum Owner<'a> {
    User(&'a str),
    Group(&'a str),
}

/// Excludes Envoy's own traffic. Envoy's traffic to the pod itself is inbound traffic again and
/// stays captured.
fn own_traffic(builder: &mut Builder<'_>, included: &Ranges, owner: Owner<'_>) {
    let capture = builder.capture;
    let dns = builder.dns_is_captured();
    let owned = match owner {
        Owner::User(uid) => format!("--uid-owner {uid}"),
        Owner::Group(gid) => format!("--gid-owner {gid}"),
    };

    // The agent's own queries to a DNS server in the pod must not be redirected to Envoy's inbound
    // port.
    let ports = match owner {
        Owner::User(_) if dns => format!("-m multiport ! --dports 53,{}", capture.tunnel_port),
        Owner::User(_) | Owner::Group(_) => format!("! --dport {}", capture.tunnel_port),
    };
    let to_itself = format!(
        "-o lo ! -d {} -p tcp {ports} -m owner {owned} -j ISTIO_IN_REDIRECT",
        builder.loopback()
    );
    builder.append(Table::Nat, "ISTIO_OUTPUT", to_itself);

    if !included.name_loopback() {
        // The application's TCP queries to a DNS server on loopback must still be captured.
        let but_dns = if dns { "-p tcp ! --dport 53 " } else { "" };
        builder.append(
            Table::Nat,
            "ISTIO_OUTPUT",
            format!("-o lo {but_dns}-m owner ! {owned} -j RETURN"),
        );
    }

    builder.append(
        Table::Nat,
        "ISTIO_OUTPUT",
        format!("-m owner {owned} -j RETURN"),
    );
}

/// Captures the traffic of the included groups, or of all groups except the excluded ones.
fn owner_groups(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    if capture.owner_groups == "*" {
        for group in list(&capture.owner_groups_excluded) {
            builder.append(
                Table::Nat,
                "ISTIO_OUTPUT",
                format!("-m owner --gid-owner {group} -j RETURN"),
            );
        }
        return;
    }
    let none_of: String = list(&capture.owner_groups)
        .map(|group| format!("-m owner ! --gid-owner {group} "))
        .collect();
    builder.append(Table::Nat, "ISTIO_OUTPUT", format!("{none_of}-j RETURN"));
}

/// Redirects outbound connections to Envoy.
fn outbound(builder: &mut Builder<'_>, included: &Ranges, excluded: &Ranges) {
    let capture = builder.capture;
    let loopback = format!("-d {} -j RETURN", builder.loopback());
    builder.append(Table::Nat, "ISTIO_OUTPUT", loopback);
    for range in excluded.of(builder.family) {
        builder.append(Table::Nat, "ISTIO_OUTPUT", format!("-d {range} -j RETURN"));
    }

    for port in list(&capture.outbound_ports) {
        builder.append(
            Table::Nat,
            "ISTIO_OUTPUT",
            format!("-p tcp --dport {port} -j ISTIO_REDIRECT"),
        );
    }

    if included.all {
        builder.append(Table::Nat, "ISTIO_OUTPUT", "-j ISTIO_REDIRECT");
        for interface in list(&capture.virtual_interfaces) {
            builder.insert(
                Table::Nat,
                "PREROUTING",
                1,
                format!("-i {interface} -j ISTIO_REDIRECT"),
            );
        }
    }

    for range in included.of(builder.family) {
        for interface in list(&capture.virtual_interfaces) {
            builder.insert(
                Table::Nat,
                "PREROUTING",
                1,
                format!("-i {interface} -d {range} -j ISTIO_REDIRECT"),
            );
        }
        builder.append(
            Table::Nat,
            "ISTIO_OUTPUT",
            format!("-d {range} -j ISTIO_REDIRECT"),
        );
    }
}

/// The marks that identify the packets of a connection under TPROXY.
fn marks(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    let mark = &capture.tproxy_mark;
    builder.append(
        Table::Mangle,
        "PREROUTING",
        format!("-p tcp -m mark --mark {mark} -j CONNMARK --save-mark"),
    );

    builder.append(
        Table::Mangle,
        "OUTPUT",
        format!("-p tcp -o lo -m mark --mark {mark} -j RETURN"),
    );
    let uids = list(&capture.proxy_uids).map(|uid| format!("--uid-owner {uid}"));

    for owner in uids.chain(list(&capture.proxy_gids).map(|gid| format!("--gid-owner {gid}"))) {
        let loopback = capture.loopback(builder.family);
        let text = format!(
            "! -d {loopback} -p tcp -o lo -m owner {owner} -j MARK --set-mark {OUTBOUND_MARK}"
        );
        builder.append(Table::Mangle, "OUTPUT", text);
    }

    builder.append(
        Table::Mangle,
        "OUTPUT",
        format!("-p tcp -m connmark --mark {mark} -j CONNMARK --restore-mark"),
    );

    builder.insert(
        Table::Mangle,
        "ISTIO_INBOUND",
        1,
        format!("-p tcp -m mark --mark {mark} -j RETURN"),
    );

    let source = builder.family.inbound_source();
    builder.insert(
        Table::Mangle,
        "ISTIO_INBOUND",
        2,
        format!("-p tcp -s {source} -i lo -j RETURN"),
    );

    builder.insert(
        Table::Mangle,
        "ISTIO_INBOUND",
        3,
        format!("-p tcp -i lo -m mark ! --mark {OUTBOUND_MARK} -j RETURN"),
    );
}
