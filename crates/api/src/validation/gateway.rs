//! Rules for Gateway.

use std::collections::BTreeSet;

use super::name::{
    UNIX_PREFIX, dns_label, ip_address, is_dns_label, no_partial_wildcard, port_number, unix_path,
    wildcard_domain,
};
use super::path::Path;
use super::port_protocol::PortProtocol;
use super::server_tls::server_tls;
use super::{Validate, Verdict};
use crate::hostname::is_ip_address;
use crate::istio::{Gateway, Port, Server, ServerTlsMode, ServerTlsSettings};
use crate::object::ObjectMeta;

impl Validate for Gateway {
    fn validate(&self, meta: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            servers,
            selector: _,
        } = self;
        let metadata = Path::root("metadata");
        verdict.check(
            &metadata.field("name"),
            dns_label(&meta.key.name, "the name of a Gateway"),
        );

        let spec = Path::root("spec");
        let list = spec.field("servers");
        if servers.is_empty() {
            verdict.error(&list, "is empty; write at least one server");
        }

        let mut names = BTreeSet::new();

        for (index, one) in servers.iter().enumerate() {
            let at = &list.item(index);
            server(&mut verdict, at, one);
            let Some(port) = &one.port else {
                continue;
            };

            let at_port = at.field("port");

            if !names.insert(port.name.as_str()) {
                verdict.error(
                    &at_port.field("name"),
                    format!(
                        "{:?} is the name of another port; names must be unique in a Gateway",
                        port.name
                    ),
                );
            }

            let redirects = one.tls.as_ref().is_some_and(|tls| tls.https_redirect);
            if redirects && !PortProtocol::parse(&port.protocol).is_some_and(PortProtocol::is_http)
            {
                let tls = at.field("tls");
                verdict.warn(
                    &tls.field("httpsRedirect"),
                    "redirects plain HTTP only; use it on an HTTP port",
                );
            }
        }

        verdict
    }
}

/// Validates a server.
fn server(verdict: &mut Verdict, at: &Path<'_>, server: &Server) {
    let Server {
        port: server_port,
        bind,
        hosts,
        tls,
        default_endpoint: _,
        name: _,
    } = server;

    let list = at.field("hosts");
    if hosts.is_empty() {
        verdict.error(&list, "is empty; write at least one host, or \"*\" for all");
    }

    for (index, host) in hosts.iter().enumerate() {
        server_host(verdict, &list.item(index), host);
    }

    if let Some(path) = bind.strip_prefix(UNIX_PREFIX) {
        verdict.check(&at.field("bind"), unix_path(path));
    } else if !bind.is_empty() {
        verdict.check(&at.field("bind"), ip_address(bind));
    }

    if let Some(tls) = tls {
        server_tls(verdict, &at.field("tls"), tls);
    }

    let at_port = at.field("port");

    match server_port {
        None => verdict.error(
            &at_port,
            "is missing; write number, protocol and name of the port",
        ),
        Some(port_found) => {
            if let Some(protocol) = port(verdict, &at_port, port_found, bind) {
                tls_fits(verdict, &at.field("tls"), protocol, tls.as_ref());
            }
        }
    }
}

/// Validates a host of a server.
fn server_host(verdict: &mut Verdict, at: &Path<'_>, text: &str) {
    let host = match text.split_once('/') {
        None => text,
        Some((namespace, host)) => {
            if !matches!(namespace, "*" | ".") && !is_dns_label(namespace) {
                verdict.error(
                    at,
                    format!(
                        "{namespace:?} in {text:?} is not a namespace; write \"*\", \".\" or the name of a namespace"
                    ),
                );
            }
            host
        }
    };

    if host != "*" && !host.contains('.') && !is_ip_address(host) {
        verdict.error(
            at,
            format!("{host:?} is a short name; write the host in full, or \"*\" for all"),
        );
    } else if !is_ip_address(host) {
        verdict.check(at, wildcard_domain(host));
    } else if !host.contains('.') {
        verdict.error(
            at,
            format!("{host:?} cannot be served; use bind for an IPv6 address"),
        );
    }

    verdict.check(at, no_partial_wildcard(host));
}

/// Validates a port; returns its protocol if the port is valid.
fn port(verdict: &mut Verdict, at: &Path<'_>, port: &Port, bind: &str) -> Option<PortProtocol> {
    let Port {
        number,
        protocol,
        name,
        target_port,
    } = port;

    let before = verdict.errors.len();
    let parsed = PortProtocol::parse(protocol);
    if parsed.is_none() {
        verdict.error(
            &at.field("protocol"),
            format!(
                "{protocol:?} is not a protocol; write {}",
                PortProtocol::NAMES
            ),
        );
    }

    let is_unix = bind.starts_with(UNIX_PREFIX);
    if *number > 0 || !is_unix {
        verdict.check(&at.field("number"), port_number(*number));
    }

    if *target_port > 0 {
        verdict.error(
            &at.field("targetPort"),
            "has no effect in a Gateway; remove it",
        );
    }

    if name.is_empty() {
        verdict.error(&at.field("name"), "is missing; name the port");
    }

    let good = verdict.errors.len() == before;

    if is_unix && *number != 0 {
        verdict.error(
            &at.field("number"),
            format!("{number} is set, but bind is a Unix domain socket; write 0"),
        );
    }

    parsed.filter(|_| good)
}

/// Validates that TLS settings are set if, and only if, the protocol uses TLS.
fn tls_fits(
    verdict: &mut Verdict,
    at: &Path<'_>,
    protocol: PortProtocol,
    tls: Option<&ServerTlsSettings>,
) {
    match tls {
        None if protocol.is_tls() => {
            verdict.error(at, "is missing; protocols HTTPS and TLS need it")
        }
        Some(_) if protocol.is_tls() => {}
        None => {}
        Some(tls) => {
            let passes = matches!(
                tls.mode,
                ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough
            );
            let bare = tls.ca_certificates.is_empty()
                && tls.private_key.is_empty()
                && tls.server_certificate.is_empty();

            if !protocol.is_http() {
                verdict.error(
                    at,
                    "is set, but the protocol has no TLS; use HTTPS or TLS, or remove it",
                );
            } else if !passes || !bare {
                verdict.error(
                    at,
                    "is set, but the protocol is plain HTTP; use HTTPS, or keep only httpsRedirect",
                );
            }
        }
    }
}
