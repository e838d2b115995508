//! Rules for VirtualService.

use super::header::is_claim;
use super::host_set::HostSet;
use super::http_route::http_route;
use super::l4_route::{RouteHosts, tcp_route, tls_route};
use super::name::{dns_label, fqdn, is_dns_label, port_number, sni_domain, wildcard_domain};
use super::path::Path;
use super::scope::{ExportRule, export_to};
use super::unreachable::unreachable_rules;
use super::{Validate, Verdict};
use crate::hostname::is_ip_address;
use crate::istio::{Destination, MESH_GATEWAY, VirtualService};
use crate::object::ObjectMeta;

impl Validate for VirtualService {
    fn validate(&self, meta: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            hosts: _,
            gateways,
            http,
            tls,
            tcp,
            export_to: entries,
        } = self;

        let spec = Path::root("spec");
        let is_delegate = self.hosts.is_empty();
        if is_delegate {
            delegate(&mut verdict, &spec, self);
        }

        gateway_names(&mut verdict, &spec.field("gateways"), gateways);
        if gateways.is_empty() || !is_for_gateways_only(self) {
            no_claims(&mut verdict, &spec.field("http"), self);
        }

        hosts(&mut verdict, &spec.field("hosts"), self);

        if http.is_empty() && tls.is_empty() && tcp.is_empty() {
            verdict.error(
                &spec,
                "has no routes; write at least one in http, tls or tcp",
            );
        }

        let list = spec.field("http");
        for (index, route) in http.iter().enumerate() {
            http_route(&mut verdict, &list.item(index), route, is_delegate);
        }

        let list = spec.field("tls");
        let claims = RouteHosts::of(self);
        for (index, route) in tls.iter().enumerate() {
            tls_route(&mut verdict, &list.item(index), route, &claims);
        }

        let list = spec.field("tcp");
        for (index, route) in tcp.iter().enumerate() {
            tcp_route(&mut verdict, &list.item(index), route);
        }

        export_to(
            &mut verdict,
            &spec.field("exportTo"),
            entries,
            meta.key.namespace.as_str(),
            ExportRule::Config,
        );

        unreachable_rules(&mut verdict, &spec, self);
        verdict
    }
}

/// Whether sidecars do not receive the routes. It is also true if no gateway is set, so check that
/// first.
pub(super) fn is_for_gateways_only(service: &VirtualService) -> bool {
    !service
        .gateways
        .iter()
        .any(|gateway| gateway == MESH_GATEWAY)
}

/// Rejects fields that a delegate, which has no hosts, must not have.
fn delegate(verdict: &mut Verdict, at: &Path<'_>, service: &VirtualService) {
    for (field, is_empty) in [
        ("gateways", service.gateways.is_empty()),
        ("tls", service.tls.is_empty()),
        ("tcp", service.tcp.is_empty()),
    ] {
        if !is_empty {
            verdict.error(
                &at.field(field),
                "is set, but there are no hosts, which makes this a delegate of HTTP routes; remove it, or write hosts",
            );
        }
    }
}

/// Validates names of gateways.
///
/// Stops after the first name without a namespace, as istiod does.
pub(super) fn gateway_names(verdict: &mut Verdict, at: &Path<'_>, gateways: &[String]) {
    for (index, gateway) in gateways.iter().enumerate() {
        let at = &at.item(index);
        let Some((namespace, name)) = gateway.split_once('/') else {
            if let Some((name, rest)) = gateway.split_once('.') {
                let namespace = rest.split('.').next().unwrap_or(rest);
                verdict.warn(
                    at,
                    format!("{gateway:?} is an old form; write \"{namespace}/{name}\""),
                );
            }
            return verdict.check(at, fqdn(gateway));
        };
        verdict.check(at, gateway_name(gateway, namespace, name));
    }
}

/// Validates the name of a gateway that has a namespace.
fn gateway_name(gateway: &str, namespace: &str, name: &str) -> Result<(), String> {
    if is_dns_label(namespace) && is_dns_label(name) {
        return Ok(());
    }
    Err(format!(
        "{gateway:?} is not the name of a Gateway; write it as namespace/name, or \"mesh\" for all sidecars"
    ))
}

/// Rejects routing by claims if sidecars receive the routes.
fn no_claims(verdict: &mut Verdict, at: &Path<'_>, service: &VirtualService) {
    for (route_index, route) in service.http.iter().enumerate() {
        let route_at = at.item(route_index);
        let matches_at = route_at.field("match");

        for (index, request) in route.matches.iter().enumerate() {
            let at = matches_at.item(index);
            for (field, headers) in [
                ("headers", &request.headers),
                ("withoutHeaders", &request.without_headers),
            ] {
                for name in headers.keys().filter(|name| is_claim(name)) {
                    let map = at.field(field);
                    verdict.error(
                        &map.field(name),
                        "routes by a JWT claim, which only gateways support; set gateways without \"mesh\"",
                    );
                }
            }
        }
    }
}

/// Validates the hosts.
fn hosts(verdict: &mut Verdict, at: &Path<'_>, service: &VirtualService) {
    let for_gateways = !service.gateways.is_empty() && is_for_gateways_only(service);
    let has_sni = service
        .tls
        .iter()
        .flat_map(|route| &route.matches)
        .any(|found| !found.sni_hosts.is_empty());
    let mut all_good = true;

    for (index, host) in service.hosts.iter().enumerate() {
        let outcome = if for_gateways && has_sni {
            sni_domain(host)
        } else {
            wildcard_domain(host)
        };

        let outcome = match outcome {
            Err(_) if is_ip_address(host) => Ok(()),
            Ok(()) if host == "*" && !for_gateways => {
                Err("\"*\" would match all traffic of the mesh; write hosts, or set gateways without \"mesh\""
                    .to_owned())
            }
            outcome => outcome,
        };

        all_good &= outcome.is_ok();
        verdict.check(&at.item(index), outcome);
    }

    if !all_good {
        return;
    }

    let mut before = HostSet::default();

    for (index, host) in service.hosts.iter().enumerate() {
        if let Some(found) = before
            .overlapping(host)
            .and_then(|found| service.hosts.get(found))
        {
            verdict.error(
                &at.item(index),
                format!("{host:?} overlaps with {found:?}; write each host once"),
            );
        }
        before.put(index, host);
    }
}

/// Validates a destination.
pub(super) fn destination(verdict: &mut Verdict, at: &Path<'_>, destination: &Destination) {
    let Destination { host, subset, port } = destination;
    let outcome = match host.as_str() {
        "*" => Err("\"*\" is not a destination; write the host of a service".to_owned()),
        host => wildcard_domain(host),
    };
    verdict.check(&at.field("host"), outcome);
    if !subset.is_empty() {
        verdict.check(&at.field("subset"), subset_name(subset));
    }
    if let Some(port) = port {
        let at = at.field("port");
        verdict.check(&at.field("number"), port_number(port.number));
    }
}

pub(super) fn subset_name(name: &str) -> Result<(), String> {
    dns_label(name, "the name of a subset")
}

/// Validates a weight.
pub(super) fn weight(verdict: &mut Verdict, at: &Path<'_>, weight: i32) {
    if weight < 0 {
        verdict.error(
            &at.field("weight"),
            format!("{weight} is negative; write 0 or more"),
        );
    }
}

/// Validates the weights of a route together.
pub(super) fn total_weight(
    verdict: &mut Verdict,
    at: &Path<'_>,
    weights: impl ExactSizeIterator<Item = i32>,
) {
    if weights.len() > 1 && weights.map(i64::from).sum::<i64>() == 0 {
        verdict.error(
            at,
            "has no weights; give at least one of the destinations a weight above 0",
        );
    }
}
