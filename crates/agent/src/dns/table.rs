//! The name table that the agent answers from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::istio::networking::nds::v1::name_table::NameInfo;

use navarch_tables::hash::KeyedMap;

/// The registry whose hosts have short names.
const KUBERNETES: &str = "Kubernetes";

/// The location of the workload, which determines the meaning of short names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableConfig {
    /// The workload's namespace.
    pub namespace: String,
    /// The proxy's DNS domain, such as `shop.svc.cluster.local`.
    pub domain: String,
    /// The search domains of the resolver configuration, in order.
    pub search: Vec<String>,
}

/// Addresses of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 addresses.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub v6: Vec<Ipv6Addr>,
}

/// A table prepared for lookups.
#[derive(Debug, Default)]
pub struct Table {
    /// By host in lower case without a trailing dot; wildcards start with `*.`.
    hosts: KeyedMap<Box<str>, Arc<Addresses>>,
    /// The first search domain with a leading dot; resolvers with several search domains try it
    /// first.
    search: Option<String>,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The name is a host.
    Host(&'a Addresses),
    /// The name is a host followed by the search domain: an alias of the first bytes, whose number
    /// is given.
    Alias(usize, &'a Addresses),
    /// The name is not in the table.
    Unknown,
}

/// Holds the current table. Clones share it.
#[derive(Clone, Debug)]
pub struct NameTableSink(Arc<Sink>);

/// The shared state of clones.
#[derive(Debug)]
struct Sink {
    /// The location of the workload.
    config: TableConfig,
    table: ArcSwapOption<Table>,
    /// The current table as received, for the debug page.
    wire: ArcSwapOption<NameTable>,
}

impl NameTableSink {
    /// A sink without a table.
    #[must_use]
    pub fn new(config: TableConfig) -> Self {
        Self(Arc::new(Sink {
            config,
            table: ArcSwapOption::empty(),
            wire: ArcSwapOption::empty(),
        }))
    }

    /// Replaces the current table.
    pub fn replace(&self, table: NameTable) {
        let made = Table::new(&table, &self.0.config);
        tracing::debug!(hosts = made.hosts.len(), "name table updated");
        self.0.table.store(Some(Arc::new(made)));
        self.0.wire.store(Some(Arc::new(table)));
    }

    /// The current table.
    #[must_use]
    pub fn table(&self) -> Option<Arc<Table>> {
        self.0.table.load_full()
    }

    /// The current table as the control plane sent it, together with the derived short names: the
    /// content of `/debug/ndsz`.
    #[must_use]
    pub fn wire(&self) -> Option<NameTable> {
        let mut wire = NameTable::clone(&*self.0.wire.load_full()?);
        let more: Vec<(String, NameInfo)> = wire
            .table
            .iter()
            .flat_map(|(host, info)| {
                let short = NameInfo {
                    ips: info.ips.clone(),
                    registry: KUBERNETES.to_owned(),
                    ..NameInfo::default()
                };
                let names = names(host, info, &self.0.config)
                    .into_iter()
                    .filter(|name| name != host);
                names
                    .map(move |name| (format!("{name}."), short.clone()))
                    .collect::<Vec<_>>()
            })
            .collect();

        for (name, info) in more {
            wire.table.entry(name).or_insert(info);
        }

        Some(wire)
    }
}

impl Table {
    /// Prepares a table.
    #[must_use]
    pub fn new(wire: &NameTable, config: &TableConfig) -> Self {
        let mut hosts = KeyedMap::default();

        for (host, info) in &wire.table {
            let mut addresses = Addresses::default();

            for ip in info.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
                match ip {
                    IpAddr::V4(ip) => addresses.v4.push(ip),
                    IpAddr::V6(ip) => addresses.v6.push(ip),
                }
            }

            if addresses == Addresses::default() {
                continue;
            }

            let addresses = Arc::new(addresses);

            for name in names(host, info, config) {
                let name = name.to_ascii_lowercase().into_boxed_str();
                // A host's own name takes precedence over a short name of another host.
                if name.len() == host.len() {
                    hosts.insert(name, addresses.clone());
                } else {
                    hosts.entry(name).or_insert_with(|| addresses.clone());
                }
            }
        }

        Self {
            hosts,
            search: config.search.first().map(|domain| format!(".{domain}")),
        }
    }

    /// Looks up a name in lower case without a trailing dot. Costs a few hashes; for wildcards one
    /// or two per label.
    #[must_use]
    pub fn find(&self, name: &str) -> Lookup<'_> {
        if let Some(found) = self.exact(name) {
            return found;
        }

        let mut wildcard = String::with_capacity(name.len() + 2);
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            wildcard.clear();
            wildcard.push_str("*.");
            wildcard.push_str(parent);
            if let Some(addresses) = self.hosts.get(wildcard.as_str()) {
                return Lookup::Host(addresses);
            }

            if let Some(host) = self
                .search
                .as_deref()
                .and_then(|search| wildcard.strip_suffix(search))
                && let Some(addresses) = self.hosts.get(host)
            {
                return Lookup::Alias(
                    name.len() - self.search.as_deref().map_or(0, str::len),
                    addresses,
                );
            }

            rest = parent;
        }

        Lookup::Unknown
    }

    /// Looks up a name without wildcards.
    fn exact(&self, name: &str) -> Option<Lookup<'_>> {
        if let Some(addresses) = self.hosts.get(name) {
            return Some(Lookup::Host(addresses));
        }
        let search = self.search.as_deref()?;
        let host = name.strip_suffix(search)?;
        // A host in that domain is in the table itself, so the domain is not appended twice.
        if host.ends_with(search) {
            return None;
        }
        self.hosts
            .get(host)
            .map(|addresses| Lookup::Alias(host.len(), addresses))
    }
}

/// The names of a host, without trailing dots. A Kubernetes service in the proxy's own domain has
/// short names; in another domain they would be ambiguous.
fn names(host: &str, info: &NameInfo, config: &TableConfig) -> Vec<String> {
    let own = host.trim_end_matches('.').to_owned();
    let registry = &info.registry;
    let shortname = &info.shortname;
    let namespace = &info.namespace;
    let domain = match config.domain.split_once('.') {
        Some((first, rest)) if first == config.namespace => rest,
        Some(_) | None => &config.domain,
    };
    if registry != KUBERNETES || domain.is_empty() || !own.ends_with(domain) {
        return vec![own];
    }

    let first = domain.split('.').next().unwrap_or_default();
    let mut names = vec![
        own,
        format!("{shortname}.{namespace}"),
        format!("{shortname}.{namespace}.{first}"),
    ];
    if *namespace == config.namespace {
        names.push(shortname.clone());
    }

    names.extend(other_names(info));
    names
}

/// Further names of a host, which old control planes send.
#[allow(deprecated, reason = "old control planes send them")]
fn other_names(info: &NameInfo) -> impl Iterator<Item = String> {
    info.alt_hosts
        .iter()
        .map(|name| name.trim_end_matches('.').to_owned())
}
