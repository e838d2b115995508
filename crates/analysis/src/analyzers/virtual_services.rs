//! VirtualServices: their destinations and gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::hostname;
use navarch_api::istio::{
    Destination, DestinationRule, Gateway, RequestAuthentication, VirtualService,
};
use serde_json::Value;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::hosts::{Host, Hosts, service_of};
use crate::kind::Kind;
use crate::labels::is_subset;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::{Content, Resource, Texts, full_name};

/// Checks that destinations, subsets and gateways exist, and that routes by claims have tokens that
/// are validated.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "virtualservice.DestinationHostAnalyzer",
        description: "Checks the destination hosts associated with each virtual service",
        inputs: &[Kind::ServiceEntry, Kind::VirtualService, Kind::Service],
        run: destinations,
    },
    Analyzer {
        name: "virtualservice.DestinationRuleAnalyzer",
        description: "Checks the destination rules associated with each virtual service",
        inputs: &[Kind::VirtualService, Kind::DestinationRule],
        run: subsets,
    },
    Analyzer {
        name: "virtualservice.GatewayAnalyzer",
        description: "Checks the gateways associated with each virtual service",
        inputs: &[Kind::Gateway, Kind::KubernetesGateway, Kind::VirtualService],
        run: gateways,
    },
    Analyzer {
        name: "virtualservice.JWTClaimRouteAnalyzer",
        description: "Checks the VirtualService using JWT claim based routing has corresponding RequestAuthentication",
        inputs: &[
            Kind::VirtualService,
            Kind::RequestAuthentication,
            Kind::Gateway,
            Kind::Pod,
        ],
        run: claims,
    },
];

/// The reserved gateway name for all sidecars.
const MESH: &str = "mesh";

/// A destination with its place.
struct RoutedDestination<'a> {
    destination: &'a Destination,
    /// The field of its host.
    field: String,
    /// Whether it gets copies only.
    is_mirror: bool,
}

/// The destination of a route that names none: no host is empty.
static NOWHERE: Destination = Destination {
    host: String::new(),
    subset: String::new(),
    port: None,
};

fn routed_destinations(service: &VirtualService) -> Vec<RoutedDestination<'_>> {
    let route = |rule: &str, index: usize, place: usize| {
        format!("spec.{rule}[{index}].route[{place}].destination.host")
    };
    let mut all = Vec::new();
    let mut add = |destination, field, is_mirror| {
        all.push(RoutedDestination {
            destination,
            field,
            is_mirror,
        })
    };

    for (index, tcp) in service.tcp.iter().enumerate() {
        for (place, to) in tcp.route.iter().enumerate() {
            add(
                to.destination.as_ref().unwrap_or(&NOWHERE),
                route("tcp", index, place),
                false,
            );
        }
    }

    for (index, tls) in service.tls.iter().enumerate() {
        for (place, to) in tls.route.iter().enumerate() {
            add(
                to.destination.as_ref().unwrap_or(&NOWHERE),
                route("tls", index, place),
                false,
            );
        }
    }

    for (index, http) in service.http.iter().enumerate() {
        for (place, to) in http.route.iter().enumerate() {
            add(
                to.destination.as_ref().unwrap_or(&NOWHERE),
                route("http", index, place),
                false,
            );
        }

        http.mirror
            .iter()
            .for_each(|mirror| add(mirror, format!("spec.http[{index}].mirror.host"), true));

        for (place, mirror) in http.mirrors.iter().enumerate() {
            let field = format!("spec.http[{index}].mirrors[{place}].host");
            add(mirror.destination.as_ref().unwrap_or(&NOWHERE), field, true);
        }
    }

    all
}

/// Tells of destinations that are not there, and of subsets that requests through a gateway do not
/// get.
fn destinations(context: &Context, report: &mut Report) {
    let hosts = Hosts::of(context);
    let mut split: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();

    for (resource, service) in context.specs::<VirtualService>() {
        let routes = service
            .http
            .iter()
            .flat_map(|http| &http.route)
            .filter_map(|route| route.destination.as_ref());
        for destination in routes.filter(|destination| {
            !destination.subset.is_empty() && service.hosts.contains(&destination.host)
        }) {
            split
                .entry(&destination.host)
                .or_default()
                .insert(resource.full_name());
        }
    }

    for (resource, service) in context.specs::<VirtualService>() {
        for led in routed_destinations(service) {
            let host = hosts.find(
                &resource.namespace,
                &service.export_to,
                &led.destination.host,
            );
            if let Some(message) = fault(resource, &led, host) {
                report.add(message.at(&led.field));
            }
        }

        if service.gateways.is_empty() {
            continue;
        }

        let routes = service
            .http
            .iter()
            .flat_map(|http| &http.route)
            .filter_map(|route| route.destination.as_ref());

        for destination in routes.filter(|destination| destination.subset.is_empty()) {
            for other in split.get(destination.host.as_str()).into_iter().flatten() {
                let parameters = parameters![other, resource.full_name()];
                report.add(Message::new(
                    &messages::INGRESS_ROUTE_RULES_NOT_AFFECTED,
                    resource,
                    parameters,
                ));
            }
        }
    }
}

/// The fault of a destination, whose host is `host` if there is one.
fn fault(
    resource: &Arc<Resource>,
    led: &RoutedDestination<'_>,
    host: Option<&Host>,
) -> Option<Message> {
    let name = &led.destination.host;
    let not_found = |what: &str, value: String| {
        Some(Message::new(
            &messages::REFERENCED_RESOURCE_NOT_FOUND,
            resource,
            parameters![what, value],
        ))
    };

    let Some(host) = host else {
        return not_found(
            if led.is_mirror { "mirror host" } else { "host" },
            name.clone(),
        );
    };

    match &led.destination.port {
        Some(port) if !host.ports.contains(&port.number) => {
            not_found("host:port", format!("{name}:{}", port.number))
        }
        None if host.ports.len() > 1 => {
            let kind = &messages::VIRTUAL_SERVICE_DESTINATION_PORT_SELECTOR_REQUIRED;
            Some(Message::new(
                kind,
                resource,
                parameters![name, host.ports.clone()],
            ))
        }
        Some(_) | None => None,
    }
}

/// Tells of subsets that no DestinationRule has.
fn subsets(context: &Context, report: &mut Report) {
    let mut known = BTreeSet::new();

    for (resource, rule) in context.specs::<DestinationRule>() {
        let service = service_of(&rule.host, &resource.namespace);
        known.extend(
            rule.subsets
                .iter()
                .map(|subset| (service.clone(), subset.name.as_str())),
        );
    }

    for (resource, service) in context.specs::<VirtualService>() {
        for led in routed_destinations(service) {
            let Destination { host, subset, .. } = led.destination;
            if subset.is_empty()
                || known.contains(&(service_of(host, &resource.namespace), subset.as_str()))
            {
                continue;
            }
            let what = if led.is_mirror {
                "mirror+subset in destinationrule"
            } else {
                "host+subset in destinationrule"
            };

            let parameters = parameters![what, format!("{host}+{subset}")];
            let message = Message::new(
                &messages::REFERENCED_RESOURCE_NOT_FOUND,
                resource,
                parameters,
            );
            report.add(message.at(&led.field));
        }
    }
}

/// Tells of gateways that are not there, or have none of the hosts.
fn gateways(context: &Context, report: &mut Report) {
    for (resource, service) in context.specs::<VirtualService>() {
        let is_served = service
            .gateways
            .iter()
            .any(|name| serves(context, resource, service, name));
        gateways_of_matches(context, report, resource, service);

        for (index, name) in service
            .gateways
            .iter()
            .enumerate()
            .filter(|(_, name)| *name != MESH)
        {
            let field = format!("spec.gateways[{index}]");
            let (namespace, short) = name.split_once('/').unwrap_or((&resource.namespace, name));
            if short.contains("~istio-autogenerated-k8s-gateway~") {
                let parameters = parameters![resource.full_name(), name];
                report.add(
                    Message::new(&messages::REFERENCED_INTERNAL_GATEWAY, resource, parameters)
                        .at(&field),
                );
                continue;
            }

            let own = context.find(Kind::Gateway, namespace, short);
            let kubernetes = own
                .is_none()
                .then(|| context.find(Kind::KubernetesGateway, namespace, short))
                .flatten();
            if own.is_none() && kubernetes.is_none() {
                let parameters = parameters!["gateway", name];
                report.add(
                    Message::new(
                        &messages::REFERENCED_RESOURCE_NOT_FOUND,
                        resource,
                        parameters,
                    )
                    .at(&field),
                );
            }

            // Unlike istioctl, this does not report a Gateway without the hosts if another Gateway
            // of the VirtualService has them.
            let is_missing = own.is_none() && kubernetes.is_none();
            if (is_missing || !is_served) && !serves(context, resource, service, name) {
                let gateway = full_name(namespace, short);
                let parameters = parameters![service.hosts.clone(), resource.full_name(), gateway];
                let kind = &messages::VIRTUAL_SERVICE_HOST_NOT_FOUND_IN_GATEWAY;
                report.add(Message::new(kind, resource, parameters).at(&field));
            }
        }
    }
}

/// Whether a gateway has one of the hosts of a VirtualService.
fn serves(context: &Context, resource: &Resource, service: &VirtualService, name: &str) -> bool {
    let (namespace, short) = name.split_once('/').unwrap_or((&resource.namespace, name));
    let own = context
        .find(Kind::Gateway, namespace, short)
        .and_then(|own| own.spec::<Gateway>());
    let hosts = match own {
        Some(gateway) => hosts_for(gateway, namespace, &resource.namespace),
        None => context
            .find(Kind::KubernetesGateway, namespace, short)
            .map(|gateway| hosts_of_listeners(gateway))
            .unwrap_or_default(),
    };
    hosts.iter().any(|host| {
        service
            .hosts
            .iter()
            .any(|requested| hostname::matches(host, requested))
    })
}

/// Tells of gateways in matches that are not there, or are none of the VirtualService's: such a
/// match never applies. istioctl does not look at them.
fn gateways_of_matches(
    context: &Context,
    report: &mut Report,
    resource: &Arc<Resource>,
    service: &VirtualService,
) {
    let full = |name: &str| match name.split_once('/') {
        Some(_) => name.to_owned(),
        None if name == MESH => name.to_owned(),
        None => full_name(&resource.namespace, name),
    };
    let mut known: BTreeSet<String> = service.gateways.iter().map(|name| full(name)).collect();
    if known.is_empty() {
        known.insert(MESH.to_owned());
    }

    for (field, name) in named_in_matches(service) {
        if known.contains(&full(name)) {
            continue;
        }

        let (namespace, short) = name.split_once('/').unwrap_or((&resource.namespace, name));
        let is_there = name == MESH
            || [Kind::Gateway, Kind::KubernetesGateway]
                .into_iter()
                .any(|kind| context.find(kind, namespace, short).is_some());
        if !is_there {
            let parameters = parameters!["gateway", name];
            report.add(
                Message::new(
                    &messages::REFERENCED_RESOURCE_NOT_FOUND,
                    resource,
                    parameters,
                )
                .at(&field),
            );
        }

        // A delegate has the gateways of the VirtualServices that delegate to it.
        if service.hosts.is_empty() {
            continue;
        }

        let why = format!(
            "{field}: {name:?} is not among the gateways of this VirtualService, so the match never applies"
        );
        report.add(Message::new(&messages::SCHEMA_WARNING, resource, parameters![why]).at(&field));
    }
}

/// The gateways that the matches of a VirtualService name, each with its field.
fn named_in_matches(service: &VirtualService) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for (index, route) in service.http.iter().enumerate() {
        let lists = route.matches.iter().map(|one| &one.gateways);
        found.extend(fields("http", index, lists));
    }
    for (index, route) in service.tls.iter().enumerate() {
        let lists = route.matches.iter().map(|one| &one.gateways);
        found.extend(fields("tls", index, lists));
    }
    for (index, route) in service.tcp.iter().enumerate() {
        let lists = route.matches.iter().map(|one| &one.gateways);
        found.extend(fields("tcp", index, lists));
    }
    found
}

/// The gateways that the matches of one route name.
fn fields<'a>(
    list: &str,
    route: usize,
    matches: impl Iterator<Item = &'a Vec<String>>,
) -> Vec<(String, &'a str)> {
    let mut found = Vec::new();
    for (place, gateways) in matches.enumerate() {
        for (index, name) in gateways.iter().enumerate() {
            let field = format!("spec.{list}[{route}].match[{place}].gateways[{index}]");
            found.push((field, name.as_str()));
        }
    }
    found
}

/// The hosts of a Gateway that VirtualServices of `requester` may claim.
fn hosts_for<'a>(gateway: &'a Gateway, namespace: &str, requester: &str) -> Vec<&'a str> {
    let hosts = gateway.servers.iter().flat_map(|server| &server.hosts);
    let open = hosts.filter_map(|host| match host.split_once('/') {
        None => Some(host.as_str()),
        Some((of, name)) => {
            let is_open = of == "*" || of == requester || of == "." && namespace == requester;
            is_open.then_some(name)
        }
    });
    open.collect()
}

/// The hosts of a Gateway of the Gateway API; a listener without one takes all.
fn hosts_of_listeners(gateway: &Resource) -> Vec<&str> {
    let Content::Plain(spec) = &gateway.content else {
        return Vec::new();
    };
    let listeners = spec
        .get("listeners")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let host = |listener| {
        Value::get(listener, "hostname")
            .and_then(Value::as_str)
            .filter(|host| !host.is_empty())
    };
    listeners
        .map(|listener| host(listener).unwrap_or("*"))
        .collect()
}

/// Reports routes that match claims of tokens where no RequestAuthentication validates tokens.
fn claims(context: &Context, report: &mut Report) {
    let mut policies: BTreeMap<&str, Vec<Texts>> = BTreeMap::new();

    for (resource, policy) in context.specs::<RequestAuthentication>() {
        let selector = policy
            .selector
            .as_ref()
            .map(|selector| selector.match_labels.clone())
            .unwrap_or_default();
        policies
            .entry(&resource.namespace)
            .or_default()
            .push(selector);
    }

    for (resource, service) in context.specs::<VirtualService>() {
        let Some(key) = claim(service) else { continue };

        for name in service.gateways.iter().filter(|name| *name != MESH) {
            let (namespace, short) = name.split_once('/').unwrap_or((&resource.namespace, name));
            let gateway = context
                .find(Kind::Gateway, namespace, short)
                .and_then(|gateway| gateway.spec::<Gateway>());
            let Some(gateway) = gateway else { continue };
            for pod in context.pods_with(&gateway.selector) {
                let near = ["istio-system", pod.namespace.as_str()]
                    .into_iter()
                    .filter_map(|of| policies.get(of))
                    .flatten();
                if !near
                    .into_iter()
                    .any(|selector| is_subset(selector, &pod.labels))
                {
                    let parameters = parameters![key, full_name(namespace, short), &pod.name];
                    report.add(Message::new(
                        &messages::JWT_CLAIM_BASED_ROUTING_WITHOUT_REQUEST_AUTHN,
                        resource,
                        parameters,
                    ));
                }
            }
        }
    }
}

/// The first header by which routes look at a claim.
fn claim(service: &VirtualService) -> Option<&str> {
    let matches = service.http.iter().flat_map(|http| &http.matches);
    let mut headers =
        matches.flat_map(|request| request.headers.keys().chain(request.without_headers.keys()));
    headers.find(|name| is_claim(name)).map(String::as_str)
}

/// Whether a header refers to a claim: `@request.auth.claims.group` or
/// `@request.auth.claims[group]`.
fn is_claim(header: &str) -> bool {
    const PREFIX: &str = "@request.auth.claims";
    let is_prefixed = header
        .get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
    let rest = header
        .get(PREFIX.len()..)
        .filter(|_| is_prefixed)
        .unwrap_or_default();
    rest.len() > 1 && rest.starts_with('.')
        || rest.len() > 2 && rest.starts_with('[') && rest.ends_with(']')
}
