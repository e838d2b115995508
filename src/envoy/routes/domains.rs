//! The domains of virtual hosts: all names by which clients may ask for a service.

use std::net::IpAddr;
use std::sync::Arc;

use super::settings::RouteSettings;
use crate::envoy::service_address::{self, UNSPECIFIED};
use crate::push::query::{ProxyQuery, Query};
use crate::push::view::View;
use crate::registry::model::Service;

/// The domains of one virtual host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Domains {
    /// All of them, the main name first.
    pub(super) all: Vec<String>,
    /// Those that were derived from a name, and stand back where another host has that very name.
    pub(super) derived: Vec<String>,
}

/// Whether domains stand with their port beside those without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PortForm {
    /// Without: Envoy leaves the port of the request out of the comparison.
    Bare,
    /// Both: for HTTP proxies, which take requests for any port.
    WithPort(u16),
}

/// What follows the namespace in the proxy's DNS domain, such as `.svc.cluster.local`; the whole domain where it is no
/// Kubernetes domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DomainOfProxy;

/// The value of [`DomainOfProxy`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ProxyDomain {
    /// `<namespace>.svc.<suffix>`: the suffix, `.svc.` included.
    Kubernetes(String),
    /// Any other.
    Other(String),
}

/// Whether the proxy's DNS domain starts with this namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsInDnsNamespace(String);

/// What parts a namespace from the rest of a Kubernetes DNS domain.
const SVC: &str = ".svc.";

impl Query for DomainOfProxy {
    type Value = ProxyDomain;

    fn compute(&self, view: &View<'_>) -> ProxyDomain {
        let domain = view.proxy().dns_domain();
        match domain.split_once(SVC) {
            Some((namespace, suffix)) if !namespace.is_empty() => ProxyDomain::Kubernetes(format!("{SVC}{suffix}")),
            Some((_, _)) => ProxyDomain::Kubernetes(domain.to_string()),
            None => ProxyDomain::Other(domain.to_string()),
        }
    }
}

impl ProxyQuery for DomainOfProxy {}

impl Query for IsInDnsNamespace {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.proxy().dns_domain().split_once(SVC).is_some_and(|(namespace, _)| namespace == self.0)
    }
}

impl ProxyQuery for IsInDnsNamespace {}

/// The domains of a service: its host and aliases with what they are derived to, the pods of a headless service, addresses.
pub(super) fn of_service(view: &View<'_>, service: &Service, form: PortForm) -> Domains {
    let mut domains = Domains::default();
    let aliases = service.aliases.iter().map(|alias| alias.hostname.as_str());
    for host in std::iter::once(service.key.hostname.as_str()).chain(aliases) {
        let derived = derived(view, host, form);
        push(&mut domains.all, host, form);
        domains.all.extend(derived.iter().cloned());
        domains.derived.extend(derived);
    }
    if service.is_headless() {
        let pods: Vec<String> = domains.all.iter().map(|domain| format!("*.{domain}")).collect();
        domains.all.extend(pods);
    }
    for address in addresses(view, service, form) {
        if !address.is_empty() && *address != *UNSPECIFIED {
            push(&mut domains.all, &address, form);
        }
    }
    domains
}

/// The addresses of a service. A listener's port has the service with its main address in place of those that were
/// allocated for it.
fn addresses(view: &View<'_>, service: &Service, form: PortForm) -> Vec<Arc<str>> {
    if form == PortForm::Bare && (service.auto_ipv4.is_some() || service.auto_ipv6.is_some()) {
        let main = service_address::main(view, service);
        let plain = Service { default_address: main, auto_ipv4: None, auto_ipv6: None, ..service.clone() };
        return service_address::all(view, &plain);
    }
    service_address::all(view, service)
}

/// The domain of a host that only a VirtualService names.
pub(super) fn of_host(host: &str) -> Domains {
    Domains { all: vec![bracketed(host)], derived: Vec::new() }
}

/// Adds a name in the form asked for.
fn push(domains: &mut Vec<String>, name: &str, form: PortForm) {
    domains.push(bracketed(name));
    if let PortForm::WithPort(port) = form {
        domains.push(with_port(name, port));
    }
}

/// A host in the form that a Host header has: IPv6 addresses in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// `host:port`.
pub(super) fn with_port(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// The other names of a host: with a dot at its end, and shortened as the proxy's DNS domain allows.
fn derived(view: &View<'_>, host: &str, form: PortForm) -> Vec<String> {
    let mut names = Vec::new();
    if view.get(&RouteSettings).absolute_hosts {
        let absolute = format!("{host}.");
        if let PortForm::WithPort(port) = form {
            if host.parse::<IpAddr>().is_err() {
                names.push(absolute.clone());
            }
            names.push(with_port(&absolute, port));
        } else if host.parse::<IpAddr>().is_err() {
            names.push(absolute);
        }
    }
    let short = match &*view.derived(&DomainOfProxy) {
        ProxyDomain::Kubernetes(suffix) => {
            if host.ends_with(suffix.as_str()) {
                kubernetes_names(view, host)
            } else {
                Vec::new()
            }
        }
        ProxyDomain::Other(domain) => shared_suffix_names(host, domain),
    };
    short.iter().for_each(|name| push(&mut names, name, form));
    names
}

/// The short names of `<name>.<namespace>.svc.<suffix>`: without the name's own namespace only in that namespace.
fn kubernetes_names(view: &View<'_>, host: &str) -> Vec<String> {
    let Some((qualified, _)) = host.split_once(SVC) else { return Vec::new() };
    let Some((name, namespace)) = qualified.split_once('.') else { return Vec::new() };
    let service = format!("{qualified}.svc");
    if *view.derived(&IsInDnsNamespace(namespace.to_owned())) {
        vec![name.to_owned(), service, qualified.to_owned()]
    } else {
        vec![qualified.to_owned(), service]
    }
}

/// The short names outside of Kubernetes: what stands before the labels that host and proxy share, and one shared label more
/// where two stand before them.
fn shared_suffix_names(host: &str, domain: &str) -> Vec<String> {
    let labels: Vec<&str> = host.split('.').collect();
    let shared = labels.iter().rev().zip(domain.rsplit('.')).take_while(|(a, b)| **a == *b).count();
    if shared == 0 {
        return Vec::new();
    }
    let (own, common) = labels.split_at(labels.len() - shared);
    let mut names = vec![own.join(".")];
    if let ([_, _], [first, ..]) = (own, common) {
        names.push(format!("{}.{first}", own.join(".")));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_kubernetes_the_shared_suffix_goes() {
        assert_eq!(shared_suffix_names("foo.local.campus.net", "local.campus.net"), ["foo"]);
        assert_eq!(shared_suffix_names("foo.local.campus.net", "remote.campus.net"), ["foo.local", "foo.local.campus"]);
        assert_eq!(shared_suffix_names("foo.local.campus.net", "example.com"), Vec::<String>::new());
        assert_eq!(shared_suffix_names("foo.local.campus.net", ""), Vec::<String>::new());
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        assert_eq!(with_port("fd00::1", 80), "[fd00::1]:80");
        assert_eq!(of_host("fd00::1").all, ["[fd00::1]"]);
        assert_eq!(with_port("shop.example", 80), "shop.example:80");
    }
}
