//! DNS for the workload: names of the mesh from the control plane's table, everything else from the
//! machine's resolvers.
//!
//! ```text
//! UDP, TCP ─▶ server ─▶ table: hosts, short names, search domains, wildcards ─▶ answer
//!                  └──▶ forward: one resolver after the other, with time limits ─▶ their answer, unchanged
//! ```
//!
//! Answers from the table need no task and no lock; the number of forwarded queries is limited. The
//! agent's own addresses are not used as resolvers, and a query that loops back is not forwarded
//! again.

mod answer;
mod forward;
mod server;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use answer::{Carrier, DnsAnswer, answer};
pub use forward::Forwarding;
pub use server::{DnsServer, serve};
pub use table::{Lookup, NameTableSink, Table, TableConfig};

/// Configuration of the DNS server.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// The listen addresses, for UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The resolvers for names that are not in the table.
    pub resolvers: Vec<SocketAddr>,
    /// `DNS_FORWARD_PARALLEL`: whether all are queried concurrently.
    pub parallel: bool,
    /// `DNS_FORWARD_TIMEOUT`: timeout of each resolver. Default 5 s.
    pub timeout: Duration,
    /// Whether queries are forwarded rather than failed before the first name table. Needed if the
    /// agent is the machine's only resolver and must resolve the control plane itself.
    pub before_table: BeforeTable,
}

/// Behaviour before the first name table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeTable {
    /// Queries fail, so that no name of the mesh counts as unknown.
    #[default]
    Fail,
    /// Queries are forwarded.
    Forward,
}

impl DnsConfig {
    /// The listen addresses for `DNS_PROXY_ADDR`: `localhost` is the loopback address of each
    /// family that has a resolver.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn addresses(
        address: &str,
        resolvers: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, std::net::AddrParseError> {
        let Some(port) = address
            .strip_prefix("localhost:")
            .and_then(|port| port.parse().ok())
        else {
            return Ok(vec![address.parse()?]);
        };
        let v4 = resolvers.iter().any(SocketAddr::is_ipv4);
        let v6 = resolvers.iter().any(SocketAddr::is_ipv6);
        let loopback = |ip: IpAddr| SocketAddr::new(ip, port);
        let v4 = (v4 || !v6).then(|| loopback(Ipv4Addr::LOCALHOST.into()));
        Ok(v4
            .into_iter()
            .chain(v6.then(|| loopback(Ipv6Addr::LOCALHOST.into())))
            .collect())
    }

    /// The file with the resolvers. If the agent is the machine's resolver, on port 53, the
    /// original file may have been saved elsewhere.
    #[must_use]
    pub fn resolver_file(address: &str) -> PathBuf {
        let kept = PathBuf::from("/var/lib/istio/resolv.conf");
        if address.ends_with(":53") && kept.exists() {
            kept
        } else {
            PathBuf::from("/etc/resolv.conf")
        }
    }
}

#[cfg(test)]
mod tests;
