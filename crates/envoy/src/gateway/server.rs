//! One server of merged Gateways: its TLS handling, owner and names.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::istio::{Server, ServerTlsMode, ServerTlsSettings};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_registry::protocol::Protocol;

/// A server in a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedServer {
    /// The Gateway that declares it.
    pub(crate) gateway: NamespacedName,
    /// The Gateway as in VirtualServices: `namespace/name`.
    pub(crate) gateway_name: Arc<str>,
    /// The declared server. Hosts are `host` or `namespace/host`: `.` and `*` are resolved.
    pub(crate) server: Server,
    /// The declared port's number.
    pub(crate) port: u16,
    /// The declared protocol.
    pub(crate) protocol: Protocol,
    /// The route configuration; empty if connections are not parsed as HTTP.
    pub(crate) route_name: String,
}

/// How a server handles connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Handling<'a> {
    /// Parses HTTP.
    Http,
    /// Terminates TLS and parses HTTP.
    Https(&'a ServerTlsSettings),
    /// Terminates TLS and forwards the content.
    EndTls(&'a ServerTlsSettings),
    /// Passes TLS through, by VirtualServices.
    Passthrough,
    /// Passes TLS through to the cluster named by its SNI.
    AutoPassthrough,
    /// Forwards bytes.
    Opaque,
}

impl PlannedServer {
    /// A server from its Gateway. `listens_on` is the listening port. `None` for one without a
    /// port.
    pub(crate) fn new(gateway: &NamespacedName, server: &Server, listens_on: u16) -> Option<Self> {
        let port = server.port.as_ref()?;
        let mut planned = Self {
            gateway: gateway.clone(),
            gateway_name: gateway.to_string().into(),
            server: Server {
                hosts: resolve_hosts(&server.hosts, &gateway.namespace),
                ..server.clone()
            },
            port: u16::try_from(port.number).ok()?,
            protocol: Protocol::parse(&port.protocol),
            route_name: String::new(),
        };
        planned.route_name = planned.name_of_routes(listens_on, &port.name);
        Some(planned)
    }

    /// How it handles connections.
    pub(crate) fn handling(&self) -> Handling<'_> {
        if self.protocol.is_http() {
            return Handling::Http;
        }

        let Some(tls) = &self.server.tls else {
            return Handling::Opaque;
        };

        match tls.mode {
            ServerTlsMode::Passthrough => Handling::Passthrough,
            ServerTlsMode::AutoPassthrough => Handling::AutoPassthrough,
            ServerTlsMode::Simple
            | ServerTlsMode::Mutual
            | ServerTlsMode::IstioMutual
            | ServerTlsMode::OptionalMutual => {
                if self.protocol == Protocol::Https {
                    Handling::Https(tls)
                } else {
                    Handling::EndTls(tls)
                }
            }
        }
    }

    /// Whether HTTP requests are redirected to HTTPS.
    pub(crate) fn redirects_to_https(&self) -> bool {
        self.server
            .tls
            .as_ref()
            .is_some_and(|tls| tls.https_redirect)
    }

    /// The SNI names that it accepts: its hosts without their namespaces, sorted, each once.
    pub(crate) fn sni_hosts(&self) -> Vec<String> {
        let hosts: BTreeSet<&str> = self
            .server
            .hosts
            .iter()
            .map(|host| split_host(host).1)
            .collect();
        hosts.into_iter().map(str::to_owned).collect()
    }

    /// Its hosts that VirtualServices of a namespace may use.
    pub(crate) fn hosts_for<'a>(&'a self, namespace: &Namespace) -> Vec<&'a str> {
        self.hosts()
            .filter(|host| host.is_open_to(namespace))
            .map(|host| host.host)
            .collect()
    }

    /// Its hosts, with the namespaces that may use them.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = ServerHost<'_>> {
        self.server.hosts.iter().map(|host| {
            let (scope, host) = split_host(host);
            ServerHost { scope, host }
        })
    }

    /// The name of its route configuration. All HTTP servers of a port share one; each HTTPS server
    /// has its own, since it must only be reachable by its own SNI names and certificate.
    fn name_of_routes(&self, listens_on: u16, port_name: &str) -> String {
        let bind = match self.server.bind.as_str() {
            "" => String::new(),
            bind => format!(".{bind}"),
        };
        match self.handling() {
            Handling::Http => format!("http.{listens_on}{bind}"),
            Handling::Https(_) => {
                let namespace = &self.gateway.namespace;
                let name = &self.gateway.name;
                format!("https.{}.{port_name}.{name}.{namespace}{bind}", self.port)
            }
            Handling::EndTls(_)
            | Handling::Passthrough
            | Handling::AutoPassthrough
            | Handling::Opaque => String::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerHost<'a> {
    /// The namespace whose VirtualServices may use it; `None` means any.
    scope: Option<&'a str>,
    /// The host, wildcards included.
    pub(crate) host: &'a str,
}

impl ServerHost<'_> {
    /// Whether VirtualServices of a namespace may use it.
    pub(crate) fn is_open_to(&self, namespace: &Namespace) -> bool {
        self.scope
            .is_none_or(|scope| scope == "*" || *namespace == scope)
    }
}

/// Namespace (if any) and name of a server's host.
fn split_host(host: &str) -> (Option<&str>, &str) {
    match host.split_once('/') {
        Some((namespace, host)) => (Some(namespace), host),
        None => (None, host),
    }
}

/// Hosts with `./` replaced by the own namespace, and `*/` removed. `*/*` matches everything.
fn resolve_hosts(hosts: &[String], own: &Namespace) -> Vec<String> {
    if hosts.iter().any(|host| host == "*/*") {
        return vec!["*".to_owned()];
    }
    let resolve = |host: &String| match split_host(host) {
        (Some("."), host) => format!("{own}/{host}"),
        (Some("*"), host) => host.to_owned(),
        (Some(_) | None, _) => host.clone(),
    };
    hosts.iter().map(resolve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::istio::Port;

    /// A server on port 443 of the Gateway `edge/front`.
    fn a_server(
        protocol: &str,
        mode: Option<ServerTlsMode>,
        hosts: &[&str],
        bind: &str,
    ) -> PlannedServer {
        let server = Server {
            port: Some(Port {
                number: 443,
                protocol: protocol.to_owned(),
                name: "web".to_owned(),
                target_port: 0,
            }),
            bind: bind.to_owned(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            tls: mode.map(|mode| ServerTlsSettings {
                mode,
                ..ServerTlsSettings::default()
            }),
            ..Server::default()
        };
        PlannedServer::new(&NamespacedName::new("edge", "front"), &server, 8443).unwrap()
    }

    #[test]
    fn plain_http_shares_routes_by_port_and_https_has_its_own() {
        let name = |protocol, mode, bind| a_server(protocol, mode, &["*"], bind).route_name;
        assert_eq!(name("HTTP", None, ""), "http.8443");
        assert_eq!(name("GRPC", None, "10.0.0.1"), "http.8443.10.0.0.1");
        assert_eq!(
            name("HTTPS", Some(ServerTlsMode::Simple), ""),
            "https.443.web.front.edge"
        );
        assert_eq!(
            name("HTTPS", Some(ServerTlsMode::Mutual), "10.0.0.1"),
            "https.443.web.front.edge.10.0.0.1"
        );
        assert_eq!(name("HTTPS", Some(ServerTlsMode::Passthrough), ""), "");
        assert_eq!(name("TLS", Some(ServerTlsMode::Simple), ""), "");
    }

    #[test]
    fn hosts_are_open_to_the_namespaces_that_they_name() {
        let server = a_server(
            "HTTP",
            None,
            &[
                "./own.example",
                "*/any.example",
                "shop/shop.example",
                "*.all",
            ],
            "",
        );

        assert_eq!(
            server.server.hosts,
            [
                "edge/own.example",
                "any.example",
                "shop/shop.example",
                "*.all"
            ]
        );

        assert_eq!(
            server.hosts_for(&Namespace::new("shop")),
            ["any.example", "shop.example", "*.all"]
        );
        assert_eq!(
            server.hosts_for(&Namespace::new("edge")),
            ["own.example", "any.example", "*.all"]
        );

        assert_eq!(
            a_server("HTTP", None, &["./own.example", "*/*"], "")
                .server
                .hosts,
            ["*"]
        );
    }

    #[test]
    fn sni_names_are_sorted_without_namespaces() {
        let server = a_server(
            "TLS",
            Some(ServerTlsMode::Passthrough),
            &["b/z.example", "a.example", "c/z.example"],
            "",
        );
        assert_eq!(server.sni_hosts(), ["a.example", "z.example"]);
    }
}
