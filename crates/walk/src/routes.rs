//! Lazy decoding of a route configuration: of thousands of virtual hosts only those of requests are
//! decoded.

use std::sync::OnceLock;

use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use prost::Message;
use prost::bytes::Bytes;

/// A lazily decoded route configuration; malformed parts are treated as absent.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    body: Bytes,
    table: OnceLock<Table>,
}

/// The virtual hosts.
#[derive(Clone, Debug, Default)]
struct Table {
    hosts: Vec<Host>,
    ignores_ports: bool,
}

/// One virtual host.
#[derive(Clone, Debug)]
struct Host {
    domains: Vec<String>,
    body: Bytes,
    read: OnceLock<Box<VirtualHost>>,
}

/// The fields of a `RouteConfiguration` that select a virtual host.
#[derive(Clone, PartialEq, Message)]
struct Hosts {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    virtual_hosts: Vec<Bytes>,
    #[prost(bool, tag = "14")]
    ignore_port_in_host_matching: bool,
}

/// The field of a `VirtualHost` that selects requests.
#[derive(Clone, PartialEq, Message)]
struct Domains {
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
}

impl Routes {
    /// From an encoded `RouteConfiguration`.
    #[must_use]
    pub fn new(body: Bytes) -> Self {
        Self {
            body,
            table: OnceLock::new(),
        }
    }

    /// All virtual hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &VirtualHost> {
        self.table().hosts.iter().map(Host::read)
    }

    /// The domains of each virtual host.
    pub fn domains(&self) -> impl Iterator<Item = &[String]> {
        self.table()
            .hosts
            .iter()
            .map(|host| host.domains.as_slice())
    }

    /// The first virtual host with a domain, with or without a port.
    #[must_use]
    pub fn with_domain(&self, domain: &str) -> Option<&VirtualHost> {
        let is = |own: &String| match own.strip_prefix(domain) {
            None => false,
            Some("") => true,
            Some(rest) => rest
                .strip_prefix(':')
                .is_some_and(|port| !port.contains(':')),
        };
        self.table()
            .hosts
            .iter()
            .find(|host| host.domains.iter().any(is))
            .map(Host::read)
    }

    /// The virtual host of a host: exact, by the longest suffix, by the longest prefix, else `*`.
    #[must_use]
    pub fn of_host(&self, host: &str) -> Option<&VirtualHost> {
        let table = self.table();
        let host = match host.rsplit_once(':') {
            Some((bare, port)) if table.ignores_ports && port.parse::<u16>().is_ok() => bare,
            Some(_) | None => host,
        };
        let fits = table.hosts.iter().filter_map(|one| {
            let best = one
                .domains
                .iter()
                .filter_map(|domain| fit(domain.as_bytes(), host.as_bytes()))
                .max()?;
            Some((best, one))
        });
        fits.max_by_key(|(best, _)| *best)
            .map(|(_, one)| one.read())
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let Hosts {
                virtual_hosts,
                ignore_port_in_host_matching,
            } = Hosts::decode(self.body.clone()).unwrap_or_default();
            let host = |body: Bytes| Host {
                domains: Domains::decode(body.clone()).unwrap_or_default().domains,
                body,
                read: OnceLock::new(),
            };
            let hosts = virtual_hosts.into_iter().map(host).collect();
            Table {
                hosts,
                ignores_ports: ignore_port_in_host_matching,
            }
        })
    }
}

impl From<&RouteConfiguration> for Routes {
    fn from(routes: &RouteConfiguration) -> Self {
        let host = |host: &VirtualHost| Host {
            domains: host.domains.clone(),
            body: Bytes::new(),
            read: Box::new(host.clone()).into(),
        };
        let hosts = routes.virtual_hosts.iter().map(host).collect();
        let table = Table {
            hosts,
            ignores_ports: routes.ignore_port_in_host_matching,
        };
        Self {
            body: Bytes::new(),
            table: table.into(),
        }
    }
}

impl Host {
    fn read(&self) -> &VirtualHost {
        self.read
            .get_or_init(|| Box::new(VirtualHost::decode(self.body.clone()).unwrap_or_default()))
    }
}

/// How specifically a domain matches a host, case-insensitively: the type of match, and its length.
fn fit(domain: &[u8], host: &[u8]) -> Option<(u8, usize)> {
    let length = domain.len();
    if domain.eq_ignore_ascii_case(host) {
        return Some((3, length));
    }

    let longer_than = |part: &[u8]| host.len().checked_sub(part.len()).filter(|rest| *rest > 0);

    match domain {
        b"*" => Some((0, 0)),
        [b'*', suffix @ ..] => {
            let end = host.get(longer_than(suffix)?..)?;
            end.eq_ignore_ascii_case(suffix).then_some((2, length))
        }
        [prefix @ .., b'*'] => {
            longer_than(prefix)?;
            host.get(..prefix.len())?
                .eq_ignore_ascii_case(prefix)
                .then_some((1, length))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(hosts: &[&[&str]]) -> RouteConfiguration {
        let host = |domains: &&[&str]| VirtualHost {
            name: domains.concat(),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            ..VirtualHost::default()
        };
        RouteConfiguration {
            virtual_hosts: hosts.iter().map(host).collect(),
            ignore_port_in_host_matching: true,
            ..RouteConfiguration::default()
        }
    }

    #[test]
    fn the_most_specific_virtual_host_is_selected() {
        let routes = routes(&[
            &["*"],
            &["*.example"],
            &["*.A.example"],
            &["b.example"],
            &["pre.*"],
        ]);

        for read in [
            Routes::from(&routes),
            Routes::new(routes.encode_to_vec().into()),
        ] {
            let chosen = |name: &str| {
                read.of_host(name)
                    .map(|host| host.name.clone())
                    .unwrap_or_default()
            };
            assert_eq!(chosen("B.example:8080"), "b.example");
            assert_eq!(chosen("x.a.example"), "*.A.example");
            assert_eq!(chosen("c.example"), "*.example");
            assert_eq!(chosen("pre.x"), "pre.*");
            assert_eq!(
                [chosen("other"), chosen("pre."), chosen(".example")],
                ["*", "*", "*"]
            );
            assert_eq!(
                read.hosts().cloned().collect::<Vec<_>>(),
                routes.virtual_hosts
            );
        }

        let broken = Routes::new(Bytes::from_static(&[0x12, 5, 1]));
        assert_eq!((broken.of_host("a"), broken.hosts().count()), (None, 0));
    }

    #[test]
    fn a_domain_is_found_with_or_without_its_port() {
        let routes = Routes::from(&routes(&[
            &["a.example"],
            &["b.example:80", "b:80"],
            &["[::1]:80"],
        ]));

        let named = |domain: &str| {
            routes
                .with_domain(domain)
                .map(|host| host.domains[0].clone())
        };
        assert_eq!(named("a.example").as_deref(), Some("a.example"));
        assert_eq!(
            (named("b").as_deref(), named("b:80").as_deref()),
            (Some("b.example:80"), Some("b.example:80"))
        );

        assert_eq!(named("[::1]").as_deref(), Some("[::1]:80"));
        assert_eq!(
            [
                named("b.exam"),
                named("["),
                named("a.example:80"),
                named("b.example:")
            ],
            [None, None, None, None]
        );
    }
}
