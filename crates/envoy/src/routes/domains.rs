//! The domains of virtual hosts: all names by which clients may request a service.

use std::net::IpAddr;
use std::sync::Arc;

use super::settings::RouteSettings;
use crate::service_address::{self, UNSPECIFIED};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::Service;

/// One domain of a virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Domain {
    /// The domain as in the configuration.
    pub(super) text: String,
    /// Whether it was derived from a name, and is lost to a host with exactly that name.
    pub(super) is_derived: bool,
    /// The DNS namespace whose proxies it is limited to; `None` means all.
    pub(super) local_to: Option<Arc<str>>,
}

/// Whether domains are also added with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PortForm {
    /// Without a port: Envoy ignores the port of the request.
    Bare,
    /// Both: for HTTP proxies, which accept requests for any port.
    WithPort(u16),
    /// Both, with the port of a listener: gRPC also compares the port.
    OfListener(u16),
}

/// The part of the proxy's DNS domain after the namespace, such as `.svc.cluster.local`; the whole
/// domain if it is not a Kubernetes domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DomainOfProxy;

/// The value of [`DomainOfProxy`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ProxyDomain {
    /// `<namespace>.svc.<suffix>`: the suffix, including `.svc.`.
    Kubernetes(String),
    /// Any other domain.
    Other(String),
}

/// Whether the proxy's DNS domain starts with this namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsInDnsNamespace(String);

/// The separator between the namespace and the rest of a Kubernetes DNS domain.
const SVC: &str = ".svc.";

impl Query for DomainOfProxy {
    type Value = ProxyDomain;

    fn compute(&self, view: &View<'_>) -> ProxyDomain {
        let domain = view.proxy().dns_domain();
        match domain.split_once(SVC) {
            Some((namespace, suffix)) if !namespace.is_empty() => {
                ProxyDomain::Kubernetes(format!("{SVC}{suffix}"))
            }
            Some((_, _)) => ProxyDomain::Kubernetes(domain.to_string()),
            None => ProxyDomain::Other(domain.to_string()),
        }
    }
}

impl ProxyQuery for DomainOfProxy {}

impl Query for IsInDnsNamespace {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.proxy()
            .dns_domain()
            .split_once(SVC)
            .is_some_and(|(namespace, _)| namespace == self.0)
    }
}

impl ProxyQuery for IsInDnsNamespace {}

impl Domain {
    /// A domain for all proxies.
    fn of_all(text: String) -> Self {
        Self {
            text,
            is_derived: false,
            local_to: None,
        }
    }

    /// Whether the proxy uses the domain.
    pub(super) fn is_known(&self, view: &View<'_>) -> bool {
        self.local_to
            .as_ref()
            .is_none_or(|namespace| *view.derived(&IsInDnsNamespace(namespace.to_string())))
    }
}

/// The domains of a service: its host and aliases with derived names, the pods of a headless
/// service, addresses. Those of other DNS namespaces than the proxy's are included: only
/// [`Domain::is_known`] reads the proxy's namespace.
pub(super) fn of_service(view: &View<'_>, service: &Service, form: PortForm) -> Vec<Domain> {
    let mut domains = Vec::new();
    let aliases = service.aliases.iter().map(|alias| alias.hostname.as_str());
    for host in std::iter::once(service.key.hostname.as_str()).chain(aliases) {
        domains.extend(in_form(host, form).map(Domain::of_all));
        domains.extend(derived(view, host, form));
    }

    if service.is_headless() {
        let pod = |domain: &Domain| Domain {
            text: format!("*.{}", domain.text),
            is_derived: false,
            ..domain.clone()
        };
        let pods: Vec<Domain> = domains.iter().map(pod).collect();
        domains.extend(pods);
    }

    for address in addresses(view, service, form) {
        if !address.is_empty() && *address != *UNSPECIFIED {
            domains.extend(in_form(&address, form).map(Domain::of_all));
        }
    }

    domains
}

/// The addresses of a service. On a listener's port, auto-allocated addresses are replaced by the
/// primary address for the proxy.
fn addresses(view: &View<'_>, service: &Service, form: PortForm) -> Vec<Arc<str>> {
    let is_on_port = matches!(form, PortForm::Bare | PortForm::OfListener(_));
    if is_on_port && (service.auto_ipv4.is_some() || service.auto_ipv6.is_some()) {
        let main = service_address::main(view, service);
        let plain = Service {
            default_address: main,
            auto_ipv4: None,
            auto_ipv6: None,
            ..service.clone()
        };
        return service_address::all(view, &plain);
    }
    service_address::all(view, service)
}

/// The domains of a host without a service, of a VirtualService.
pub(super) fn of_host(host: &str, form: PortForm) -> Vec<Domain> {
    in_form(host, form).map(Domain::of_all).collect()
}

/// A name in the requested form.
fn in_form(name: &str, form: PortForm) -> impl Iterator<Item = String> {
    let ported = match form {
        PortForm::Bare => None,
        PortForm::WithPort(port) | PortForm::OfListener(port) => Some(with_port(name, port)),
    };
    std::iter::once(bracketed(name)).chain(ported)
}

/// A host as in a Host header: IPv6 addresses in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// `host:port`.
pub(super) fn with_port(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// The other names of a host: with a trailing dot, and shortened by the proxy's DNS domain.
pub(super) fn derived(view: &View<'_>, host: &str, form: PortForm) -> Vec<Domain> {
    let mut names: Vec<(String, Option<Arc<str>>)> = Vec::new();
    let mut texts = Vec::new();

    if view.get(&RouteSettings).absolute_hosts {
        let absolute = format!("{host}.");
        // Istio omits the trailing dot after an address, but not between address and port.
        let is_address = host.parse::<IpAddr>().is_ok();
        texts.extend(
            in_form(&absolute, form)
                .skip(usize::from(is_address))
                .map(|text| (text, None)),
        );
    }

    match &*view.derived(&DomainOfProxy) {
        ProxyDomain::Kubernetes(suffix) if host.ends_with(suffix.as_str()) => {
            names.extend(kubernetes_names(host))
        }
        ProxyDomain::Kubernetes(_) => {}
        ProxyDomain::Other(domain) => {
            names.extend(
                shared_suffix_names(host, domain)
                    .into_iter()
                    .map(|name| (name, None)),
            );
        }
    }

    for (name, local_to) in names {
        texts.extend(in_form(&name, form).map(|text| (text, local_to.clone())));
    }

    texts
        .into_iter()
        .map(|(text, local_to)| Domain {
            text,
            is_derived: true,
            local_to,
        })
        .collect()
}

/// The short names of `<name>.<namespace>.svc.<suffix>`: the bare name only for proxies of that
/// namespace.
fn kubernetes_names(host: &str) -> Vec<(String, Option<Arc<str>>)> {
    let Some((qualified, _)) = host.split_once(SVC) else {
        return Vec::new();
    };
    let Some((name, namespace)) = qualified.split_once('.') else {
        return Vec::new();
    };
    let short = (name.to_owned(), Some(Arc::from(namespace)));
    vec![
        short,
        (format!("{qualified}.svc"), None),
        (qualified.to_owned(), None),
    ]
}

/// The short names outside Kubernetes: the part before the labels that host and proxy share, and
/// with one shared label more if that part has two labels.
fn shared_suffix_names(host: &str, domain: &str) -> Vec<String> {
    let labels: Vec<&str> = host.split('.').collect();
    let shared = labels
        .iter()
        .rev()
        .zip(domain.rsplit('.'))
        .take_while(|(a, b)| **a == *b)
        .count();
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
    fn outside_of_kubernetes_the_shared_suffix_is_removed() {
        assert_eq!(
            shared_suffix_names("foo.local.campus.net", "local.campus.net"),
            ["foo"]
        );
        assert_eq!(
            shared_suffix_names("foo.local.campus.net", "remote.campus.net"),
            ["foo.local", "foo.local.campus"]
        );
        assert_eq!(
            shared_suffix_names("foo.local.campus.net", "example.com"),
            Vec::<String>::new()
        );
        assert_eq!(
            shared_suffix_names("foo.local.campus.net", ""),
            Vec::<String>::new()
        );
    }

    #[test]
    fn the_bare_name_is_for_its_own_namespace() {
        let names = kubernetes_names("reviews.shop.svc.cluster.local");
        let expected = [
            ("reviews", Some("shop")),
            ("reviews.shop.svc", None),
            ("reviews.shop", None),
        ];
        let expected = expected.map(|(name, local_to)| (name.to_owned(), local_to.map(Arc::from)));
        assert_eq!(names, expected);
        assert_eq!(kubernetes_names("reviews.svc.cluster.local"), []);
    }

    #[test]
    fn ipv6_domains_are_bracketed() {
        assert_eq!(with_port("fd00::1", 80), "[fd00::1]:80");
        let of_all = |text: &str| Domain::of_all(text.to_owned());
        assert_eq!(of_host("fd00::1", PortForm::Bare), [of_all("[fd00::1]")]);
        assert_eq!(
            of_host("fd00::1", PortForm::WithPort(80)),
            [of_all("[fd00::1]"), of_all("[fd00::1]:80")]
        );
        assert_eq!(with_port("shop.example", 80), "shop.example:80");
    }
}
