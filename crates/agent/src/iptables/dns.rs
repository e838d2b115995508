//! Rules that redirect DNS queries to the agent.

use super::capture::DnsCapture;
use super::ranges::list;
use super::rule::Table;
use super::rules::Builder;

/// The port on which the agent answers DNS queries.
const AGENT_PORT: &str = "15053";

impl Builder<'_> {
    /// Whether DNS queries of either family are captured. Without servers to capture, no rules are
    /// needed.
    pub(super) fn dns_is_captured(&self) -> bool {
        match &self.capture.dns {
            DnsCapture::Off => false,
            DnsCapture::All => true,
            DnsCapture::Servers(servers) => !servers.is_empty(),
        }
    }

    /// The `-d` or `-s` matches for queries to the captured servers: one text per server of the
    /// family, or one empty text for all servers.
    fn servers(&self, side: &str) -> Vec<String> {
        match &self.capture.dns {
            DnsCapture::Off => Vec::new(),
            DnsCapture::All => vec![String::new()],
            DnsCapture::Servers(servers) => {
                let length = self.family.full_length();
                let own = servers.iter().filter(|server| self.family.has(**server));
                own.map(|server| format!(" {side} {server}/{length}"))
                    .collect()
            }
        }
    }
}

/// Redirects queries to the agent, over TCP and UDP.
pub(super) fn redirect(builder: &mut Builder<'_>) {
    if !builder.dns_is_captured() {
        return;
    }
    builder.append(Table::Raw, "OUTPUT", "-j ISTIO_OUTPUT_DNS");
    let servers = builder.servers("-d");
    if !servers.is_empty() {
        builder.append(Table::Nat, "ISTIO_OUTPUT", "-j ISTIO_OUTPUT_DNS");
    }
    for (protocol, target) in [("tcp", "--to-ports"), ("udp", "--to-port")] {
        for server in &servers {
            let text =
                format!("-p {protocol} --dport 53{server} -j REDIRECT {target} {AGENT_PORT}");
            builder.append(Table::Nat, "ISTIO_OUTPUT_DNS", text);
        }
    }
    zones(builder);
}

/// Puts the application's queries to the agent and the agent's queries to the resolver into
/// separate conntrack zones. In one zone both would be the same connection to the kernel, and the
/// race between them would lose packets.
fn zones(builder: &mut Builder<'_>) {
    let capture = builder.capture;
    let uids = list(&capture.proxy_uids).map(|uid| format!("-m owner --uid-owner {uid}"));
    for owner in
        uids.chain(list(&capture.proxy_gids).map(|gid| format!("-m owner --gid-owner {gid}")))
    {
        builder.append(
            Table::Raw,
            "ISTIO_OUTPUT_DNS",
            format!("-p udp --dport 53 {owner} -j CT --zone 1"),
        );
        builder.append(
            Table::Raw,
            "ISTIO_OUTPUT_DNS",
            format!("-p udp --sport {AGENT_PORT} {owner} -j CT --zone 2"),
        );
    }

    let queried = builder.servers("-d");
    let answering = builder.servers("-s");
    if !queried.is_empty() {
        builder.append(Table::Raw, "PREROUTING", "-j ISTIO_INBOUND");
    }

    for (to, from) in queried.iter().zip(&answering) {
        builder.append(
            Table::Raw,
            "ISTIO_OUTPUT_DNS",
            format!("-p udp --dport 53{to} -j CT --zone 2"),
        );
        builder.append(
            Table::Raw,
            "ISTIO_INBOUND",
            format!("-p udp --sport 53{from} -j CT --zone 1"),
        );
    }
}
