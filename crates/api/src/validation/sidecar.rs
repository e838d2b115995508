//! Rules for Sidecar.

use std::collections::{BTreeMap, BTreeSet};

use super::connection_pool::connection_pool;
use super::name::{
    UNIX_PREFIX, fqdn, ip_address, is_dns_label, no_partial_wildcard, port_name, port_number,
    unix_path, wildcard_domain,
};
use super::path::Path;
use super::port_protocol::{PortProtocol, optional_protocol};
use super::scope::workload_selector;
use super::server_tls::server_tls;
use super::virtual_service::destination;
use super::{Validate, Verdict};
use crate::istio::{
    CaptureMode, IstioEgressListener, IstioIngressListener, OutboundTrafficPolicy,
    OutboundTrafficPolicyMode, ServerTlsMode, ServerTlsSettings, Sidecar, SidecarPort,
};
use crate::object::ObjectMeta;

impl Validate for Sidecar {
    fn validate(&self, meta: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            workload_selector: selector,
            ingress: ingress_listeners,
            egress: egress_listeners,
            inbound_connection_pool,
            outbound_traffic_policy,
        } = self;

        let spec = Path::root("spec");
        workload_selector(
            &mut verdict,
            &spec.field("workloadSelector"),
            selector.as_ref(),
        );
        let says_nothing = ingress_listeners.is_empty()
            && egress_listeners.is_empty()
            && inbound_connection_pool.is_none()
            && outbound_traffic_policy.is_none();

        if says_nothing {
            verdict.error(
                &spec,
                "is empty; set ingress, egress, inboundConnectionPool or outboundTrafficPolicy",
            );
        }

        ingress(&mut verdict, &spec.field("ingress"), ingress_listeners);
        let pool = spec.field("inboundConnectionPool");
        connection_pool(&mut verdict, &pool, inbound_connection_pool.as_ref());
        egress(
            &mut verdict,
            &spec.field("egress"),
            egress_listeners,
            meta.key.namespace.as_str(),
        );

        let policy = spec.field("outboundTrafficPolicy");
        outbound_policy(&mut verdict, &policy, outbound_traffic_policy.as_ref());
        verdict
    }
}

/// Validates the ingress listeners.
fn ingress(verdict: &mut Verdict, at: &Path<'_>, listeners: &[IstioIngressListener]) {
    let mut numbers = BTreeSet::new();

    for (index, listener) in listeners.iter().enumerate() {
        let at = &at.item(index);
        let IstioIngressListener {
            port,
            bind,
            capture_mode: _,
            default_endpoint: endpoint,
            tls,
            connection_pool: pool,
        } = listener;

        let port_at = &at.field("port");
        let Some(port) = port else {
            verdict.error(port_at, "is missing; write number and protocol of the port");
            continue;
        };

        common_port(verdict, port_at, port);
        verdict.check(&port_at.field("number"), port_number(port.number));
        if !bind.is_empty() {
            verdict.check(&at.field("bind"), ip_address(bind));
        }

        unique_number(verdict, port_at, &mut numbers, port.number);
        if !endpoint.is_empty() {
            verdict.check(&at.field("defaultEndpoint"), default_endpoint(endpoint));
        }

        let protocol = PortProtocol::parse(&port.protocol);

        if let Some(tls) = tls {
            let at = &at.field("tls");
            if !protocol.is_some_and(PortProtocol::is_tls) {
                verdict.error(
                    at,
                    "is set, but the protocol has no TLS; use HTTPS or TLS, or remove it",
                );
            }
            ingress_tls(verdict, at, tls);
        }

        let pool_at = at.field("connectionPool");
        connection_pool(verdict, &pool_at, pool.as_ref());
        let has_http = pool.as_ref().is_some_and(|pool| pool.http.is_some());
        if has_http && !protocol.is_some_and(PortProtocol::is_http) {
            verdict.warn(
                &pool_at.field("http"),
                format!(
                    "has no effect because the protocol of port {} is {:?}, not HTTP",
                    port.number, port.protocol
                ),
            );
        }
    }
}

/// Validates the port of a listener by the rules for all listeners.
fn common_port(verdict: &mut Verdict, at: &Path<'_>, port: &SidecarPort) {
    let SidecarPort {
        number: _,
        protocol,
        name,
        target_port,
    } = port;
    if *target_port > 0 {
        verdict.error(
            &at.field("targetPort"),
            "has no effect in a Sidecar; remove it",
        );
    }
    if !name.is_empty() {
        verdict.check(&at.field("name"), port_name(name));
    }
    verdict.check(&at.field("protocol"), optional_protocol(protocol));
}

/// Rejects a port number that another listener uses.
fn unique_number(verdict: &mut Verdict, port_at: &Path<'_>, seen: &mut BTreeSet<u32>, number: u32) {
    if !seen.insert(number) {
        verdict.error(
            &port_at.field("number"),
            format!("{number} is the port of another listener; ports must be unique"),
        );
    }
}

/// The destination of traffic for the workload: a port of the local host, or a socket.
fn default_endpoint(endpoint: &str) -> Result<(), String> {
    if let Some(path) = endpoint.strip_prefix(UNIX_PREFIX) {
        return unix_path(path);
    }

    let wanted = || {
        format!(
            "{endpoint:?} is not an endpoint; write 127.0.0.1:, 0.0.0.0:, [::1]: or [::]: and a port, or unix:// and a path"
        )
    };
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(wanted)?;

    // Only a host in brackets may contain colons.
    if !matches!(
        host,
        "" | "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]" | "[127.0.0.1]" | "[0.0.0.0]" | "[]"
    ) {
        return Err(wanted());
    }

    match port.parse::<u32>() {
        Ok(port) => port_number(port),
        Err(_) => Err(wanted()),
    }
}

/// Validates TLS settings of a sidecar that terminates TLS.
fn ingress_tls(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    let unsupported = [
        ("subjectAltNames", !tls.subject_alt_names.is_empty()),
        ("httpsRedirect", tls.https_redirect),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];

    for (field, _) in unsupported.into_iter().filter(|(_, set)| *set) {
        verdict.error(&at.field(field), "is not supported in a Sidecar; remove it");
    }

    if matches!(
        tls.mode,
        ServerTlsMode::IstioMutual | ServerTlsMode::AutoPassthrough
    ) {
        verdict.error(
            &at.field("mode"),
            format!(
                "{} is not supported in a Sidecar; use SIMPLE or MUTUAL",
                tls.mode
            ),
        );
    }

    server_tls(verdict, at, tls);
}

/// Validates the egress listeners.
fn egress(
    verdict: &mut Verdict,
    at: &Path<'_>,
    listeners: &[IstioEgressListener],
    namespace: &str,
) {
    let mut numbers = BTreeSet::new();
    let mut sockets = BTreeSet::new();

    for (index, listener) in listeners.iter().enumerate() {
        let at = &at.item(index);
        let IstioEgressListener {
            port,
            bind,
            capture_mode,
            hosts,
        } = listener;

        let port_at = &at.field("port");

        if let Some(port) = port {
            egress_port(verdict, at, port, bind, *capture_mode);
            if port.number != 0 {
                unique_number(verdict, port_at, &mut numbers, port.number);
            } else if !sockets.insert(bind.as_str()) {
                verdict.error(
                    &at.field("bind"),
                    format!("{bind:?} is the socket of another listener; sockets must be unique"),
                );
            }
        } else if index + 1 != listeners.len() {
            verdict.error(
                port_at,
                "is missing; only the last listener may be for all ports",
            );
        }

        let hosts_at = at.field("hosts");

        if hosts.is_empty() {
            verdict.error(
                &hosts_at,
                "is empty; write at least one host, such as \"./*\"",
            );
        }

        for (index, host) in hosts.iter().enumerate() {
            egress_host(verdict, &hosts_at.item(index), host);
        }

        repeated_hosts(verdict, &hosts_at, hosts, namespace);
    }
}

/// Validates the port of an egress listener.
fn egress_port(
    verdict: &mut Verdict,
    at: &Path<'_>,
    port: &SidecarPort,
    bind: &str,
    capture_mode: CaptureMode,
) {
    let port_at = at.field("port");
    common_port(verdict, &port_at, port);
    let bind_at = at.field("bind");

    if port.number != 0 {
        verdict.check(&port_at.field("number"), port_number(port.number));
        if !bind.is_empty() {
            verdict.check(&bind_at, ip_address(bind));
        }
        return;
    }

    match bind.strip_prefix(UNIX_PREFIX) {
        Some(path) => verdict.check(&bind_at, unix_path(path)),
        None => verdict.error(
            &port_at.field("number"),
            "is 0, which is for Unix domain sockets; write a port, or set bind to unix:// and a path",
        ),
    }

    if capture_mode == CaptureMode::Iptables {
        verdict.error(
            &at.field("captureMode"),
            "is IPTABLES, which cannot capture a socket; use NONE or DEFAULT",
        );
    }
}

/// Validates a host that the workload may reach.
fn egress_host(verdict: &mut Verdict, at: &Path<'_>, text: &str) {
    let Some((namespace, host)) = text.split_once('/') else {
        verdict.error(
            at,
            format!("{text:?} has no namespace; write it as namespace/host, such as \"./*\""),
        );
        return;
    };

    let named = namespace.strip_prefix('~').unwrap_or(namespace);
    let good = if named.is_empty() {
        namespace == "~"
    } else {
        matches!(named, "*" | ".") || is_dns_label(named)
    };

    if !good {
        verdict.error(
            at,
            format!(
                "{namespace:?} in {text:?} is not a namespace; write \"*\", \".\", \"~\" or the name of a namespace"
            ),
        );
    }

    if host != "*" && !host.contains('.') {
        verdict.error(
            at,
            format!(
                "{host:?} in {text:?} is a short name; write the host in full, or \"*\" for all"
            ),
        );
    } else {
        verdict.check(at, wildcard_domain(host));
    }

    verdict.check(at, no_partial_wildcard(host));
}

/// Warns of hosts that others in the list cover.
fn repeated_hosts(verdict: &mut Verdict, at: &Path<'_>, hosts: &[String], own_namespace: &str) {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();

    for (index, text) in hosts.iter().enumerate() {
        let Some((namespace, host)) = text
            .split_once('/')
            .filter(|(namespace, _)| !namespace.starts_with('~'))
        else {
            continue;
        };

        let namespace = if namespace == "." {
            own_namespace
        } else {
            namespace
        };

        let known = seen.entry(namespace).or_default();
        let repeats = if host == "*" {
            !known.is_empty()
        } else {
            known.contains(host) || known.contains("*")
        };

        if repeats {
            verdict.warn(
                &at.item(index),
                format!("{text:?} overlaps with an earlier host; write each once"),
            );
        }

        known.insert(host);
    }

    if seen.len() > 1 && seen.get("*").is_some_and(|known| known.contains("*")) {
        verdict.warn(
            at,
            "has entries besides \"*/*\", which matches everything; remove the rest",
        );
    }
}

/// Validates the policy for traffic to unknown hosts.
fn outbound_policy(verdict: &mut Verdict, at: &Path<'_>, policy: Option<&OutboundTrafficPolicy>) {
    let Some(OutboundTrafficPolicy {
        mode,
        egress_proxy: Some(proxy),
    }) = policy
    else {
        return;
    };

    let at = &at.field("egressProxy");

    if *mode != OutboundTrafficPolicyMode::AllowAny {
        verdict.error(at, "is set, but the mode is not ALLOW_ANY, so it would receive no traffic; change one of them");
        return;
    }

    if let Err(reason) = fqdn(&proxy.host) {
        verdict.error(&at.field("host"), reason);
    }

    if proxy.port.is_none() {
        verdict.error(&at.field("port"), "is missing; write the port of the proxy");
        return;
    }

    if fqdn(&proxy.host).is_ok() {
        destination(verdict, at, proxy);
    }
}
