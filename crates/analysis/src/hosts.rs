//! The hosts of the mesh and their visibility.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use navarch_api::istio::ServiceEntry;

use crate::context::Context;
use crate::resource::Texts;

/// The scope of what all namespaces see.
pub(crate) const ALL_NAMESPACES: &str = "*";
/// Means the object's own namespace.
const OWN_NAMESPACE: &str = ".";
/// The suffix of the full names of Kubernetes Services.
const CLUSTER_DOMAIN: &str = ".svc.cluster.local";
/// The annotation with the namespaces to which a Service is exported.
const EXPORT_TO: &str = "networking.istio.io/exportTo";

/// The object of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// The ports that it listens on.
    pub(crate) ports: Vec<u32>,
    /// The workload selector of a ServiceEntry.
    pub(crate) selector: Texts,
}

/// The hosts of Services and ServiceEntries by the namespace that sees them.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// By scope and full name.
    named: BTreeMap<(String, String), Host>,
}

impl Hosts {
    /// Gathers them.
    pub(crate) fn of(context: &Context) -> Self {
        let mut hosts = Self::default();

        for (resource, entry) in context.specs::<ServiceEntry>() {
            let ports = entry.ports.iter().map(|port| port.number).collect();
            let selector = entry
                .workload_selector
                .as_ref()
                .map(|selector| selector.labels.clone())
                .unwrap_or_default();
            let host = Host { ports, selector };
            for scope in scopes(&entry.export_to, &resource.namespace) {
                for name in &entry.hosts {
                    let full = fully_qualified(name, &resource.namespace);
                    hosts.named.insert((scope.clone(), full), host.clone());
                }
            }
        }

        for (resource, service) in context.specs::<Service>() {
            let ports = service
                .spec
                .iter()
                .flat_map(|spec| spec.ports.iter().flatten());
            let ports = ports
                .filter_map(|port| u32::try_from(port.port).ok())
                .collect();
            let host = Host {
                ports,
                ..Host::default()
            };

            let exported: Vec<String> = match resource.annotation(EXPORT_TO) {
                None | Some("") => Vec::new(),
                Some(list) => list
                    .split(',')
                    .map(|namespace| namespace.trim().to_owned())
                    .collect(),
            };

            for scope in scopes(&exported, &resource.namespace) {
                let full = fully_qualified(&resource.name, &resource.namespace);
                hosts.named.insert((scope, full), host.clone());
            }
        }

        hosts
    }

    /// The object of a host that an object of `namespace` references, if it is visible there.
    pub(crate) fn find(&self, namespace: &str, export_to: &[String], host: &str) -> Option<&Host> {
        let full = fully_qualified(host, namespace);
        let in_scope = |scope: &str| self.named.get(&(scope.to_owned(), full.clone()));
        let own = [OWN_NAMESPACE.to_owned()];
        let seen_from = if export_to.is_empty() {
            own.as_slice()
        } else {
            export_to
        };

        let resolved = seen_from.iter().map(|scope| {
            if scope == OWN_NAMESPACE {
                namespace
            } else {
                scope
            }
        });

        in_scope(ALL_NAMESPACES)
            .or_else(|| resolved.into_iter().find_map(in_scope))
            .or_else(|| {
                let host_suffix = host.strip_prefix('*').unwrap_or(host);
                [ALL_NAMESPACES, namespace]
                    .into_iter()
                    .find_map(|scope| self.covering(scope, host_suffix))
            })
    }

    /// The wildcard of a scope that a name is under.
    fn covering(&self, scope: &str, requested: &str) -> Option<&Host> {
        let from = (scope.to_owned(), "*".to_owned());
        let wildcards = self
            .named
            .range(from..)
            .take_while(|((of, name), _)| of == scope && name.starts_with('*'));
        let mut under =
            wildcards.filter(|((_, name), _)| requested.ends_with(name.trim_start_matches('*')));
        under.next().map(|(_, host)| host)
    }
}

/// The namespaces that see an object of `namespace`; `*` is all.
pub(crate) fn scopes(export_to: &[String], namespace: &str) -> Vec<String> {
    if export_to.is_empty() || export_to.iter().any(|scope| scope == ALL_NAMESPACES) {
        return vec![ALL_NAMESPACES.to_owned()];
    }
    let own = |scope: &String| {
        if scope == OWN_NAMESPACE {
            namespace.to_owned()
        } else {
            scope.clone()
        }
    };
    let mut scopes: Vec<_> = export_to.iter().map(own).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

/// The full name of a host; short names are Services of the object's namespace.
pub(crate) fn fully_qualified(host: &str, namespace: &str) -> String {
    if host.starts_with('*') || host.contains('.') {
        return host.to_owned();
    }
    format!("{host}.{namespace}{CLUSTER_DOMAIN}")
}

/// Namespace and name of the Service of a host; the host itself, in the object's namespace, if it
/// is none.
pub(crate) fn service_of(host: &str, namespace: &str) -> (String, String) {
    let parts = host
        .strip_suffix(CLUSTER_DOMAIN)
        .and_then(|short| short.rsplit_once('.'));
    match parts {
        Some((name, of)) if !name.is_empty() && !of.is_empty() => (of.to_owned(), name.to_owned()),
        Some(_) | None => (namespace.to_owned(), host.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_resolve_to_services() {
        assert_eq!(
            service_of("a.b.svc.cluster.local", "x"),
            ("b".to_owned(), "a".to_owned())
        );
        assert_eq!(service_of("a.b", "x"), ("x".to_owned(), "a.b".to_owned()));
        assert_eq!(fully_qualified("a", "x"), "a.x.svc.cluster.local");
        assert_eq!(fully_qualified("a.com", "x"), "a.com");
        assert_eq!(scopes(&[".".to_owned(), "b".to_owned()], "a"), ["a", "b"]);
    }
}
