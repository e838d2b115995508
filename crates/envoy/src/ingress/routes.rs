//! The rules of Ingresses for one host as HTTP routes.

use std::cmp::Reverse;
use std::sync::Arc;

use navarch_api::istio::{
    Destination, HttpMatchRequest, HttpRoute, HttpRouteDestination, PortSelector, StringMatch,
};
use navarch_api::kubernetes::{
    Ingress, IngressBackend, IngressPath, IngressPort, PathType, Service,
};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::view::View;

#[derive(Debug, Default)]
pub(super) struct HostRules<'a>(Vec<HostRule<'a>>);

#[derive(Debug)]
pub(super) struct HostRule<'a> {
    pub(super) ingress: &'a Arc<Object<Ingress>>,
    /// The index of the rule in the Ingress.
    index: usize,
    paths: &'a [IngressPath],
}

impl<'a> HostRules<'a> {
    pub(super) fn add(
        &mut self,
        ingress: &'a Arc<Object<Ingress>>,
        index: usize,
        paths: &'a [IngressPath],
    ) {
        self.0.push(HostRule {
            ingress,
            index,
            paths,
        });
    }

    /// The rules, those of the oldest Ingress first.
    pub(super) fn in_order(mut self) -> Vec<HostRule<'a>> {
        self.0.sort_by(|a, b| {
            let one = &a.ingress.meta;
            let other = &b.ingress.meta;
            let by_age = one
                .created
                .cmp(&other.created)
                .then_with(|| one.key.name.cmp(&other.key.name));
            by_age
                .then_with(|| one.key.namespace.cmp(&other.key.namespace))
                .then_with(|| a.index.cmp(&b.index))
        });
        self.0
    }
}

/// The routes of rules: longer paths first, exact ones before prefixes of the same length.
pub(super) fn of_rules(rules: &[HostRule<'_>], domain: &str, view: &View<'_>) -> Vec<HttpRoute> {
    let of_rule = |rule: &HostRule<'_>| -> Vec<HttpRoute> {
        let paths = rule.paths.iter().enumerate();
        paths
            .filter_map(|(index, path)| route(rule, index, path, domain, view))
            .collect()
    };
    let mut routes: Vec<HttpRoute> = rules.iter().flat_map(of_rule).collect();
    routes.sort_by_key(
        |route| match route.matches.first().and_then(|first| first.uri.as_ref()) {
            Some(StringMatch::Exact(path)) => (Reverse(path.len()), false),
            Some(StringMatch::Prefix(path)) => (Reverse(path.len()), true),
            Some(StringMatch::Unset | StringMatch::Regex(_)) | None => (Reverse(0), true),
        },
    );
    routes
}

/// The route of a path; `None`, with a remark, if its backend is invalid.
fn route(
    rule: &HostRule<'_>,
    index: usize,
    path: &IngressPath,
    domain: &str,
    view: &View<'_>,
) -> Option<HttpRoute> {
    let namespace = &rule.ingress.meta.key.namespace;
    let destination = match destination(&path.backend, namespace, domain, view) {
        Ok(destination) => destination,
        Err(fault) => {
            let key = rule.ingress.meta.key();
            let place = format!("spec.rules[{}].http.paths[{index}].backend", rule.index);
            view.remark(format!("Ingress {key}: {place} is not served: {fault}"));
            return None;
        }
    };

    let uri = uri_match(path);
    let matched = uri.map(|uri| HttpMatchRequest {
        uri: Some(uri),
        ..HttpMatchRequest::default()
    });

    Some(HttpRoute {
        matches: matched.into_iter().collect(),
        route: vec![HttpRouteDestination {
            destination: Some(destination),
            weight: 100,
            ..HttpRouteDestination::default()
        }],
        ..HttpRoute::default()
    })
}

/// The match of a path; `None` matches every path.
fn uri_match(path: &IngressPath) -> Option<StringMatch> {
    let text = &*path.path;
    match path.path_type {
        PathType::Exact => Some(StringMatch::Exact(text.to_owned())),
        PathType::Prefix => Some(StringMatch::Prefix(text.to_owned())),
        PathType::ImplementationSpecific => match text {
            "" | "*" | "/*" | ".*" => None,
            _ => Some(
                match text.strip_suffix(".*").or_else(|| text.strip_suffix("/*")) {
                    Some(prefix) => StringMatch::Prefix(prefix.to_owned()),
                    None => StringMatch::Exact(text.to_owned()),
                },
            ),
        },
    }
}

/// The destination of requests.
fn destination(
    backend: &IngressBackend,
    namespace: &Namespace,
    domain: &str,
    view: &View<'_>,
) -> Result<Destination, String> {
    let IngressBackend::Service { name, port } = backend else {
        return Err("its backend names no service".to_owned());
    };

    let number = match port {
        IngressPort::Number(number) => *number,
        IngressPort::Name(port) => {
            let key = NamespacedName::of(namespace.clone(), name.clone());
            let service = view.object::<Service>(&key);
            let found = service
                .and_then(|service| service.spec.ports.iter().find(|known| known.name == *port));
            found
                .ok_or_else(|| format!("Service {key} has no port {:?}", port.as_str()))?
                .port
        }
    };

    Ok(Destination {
        host: format!("{name}.{namespace}.svc.{domain}"),
        port: Some(PortSelector {
            number: u32::from(number),
        }),
        ..Destination::default()
    })
}
