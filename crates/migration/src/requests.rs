//! The kinds of requests whose verdicts are compared: each source, each destination, and what
//! policies and routes tell apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use navarch_walk::token::Claims;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attributes::{Attributes, Headers};
use super::objects::{
    HTTP_ROUTE, ObjectName, Objects, POD, SERVICE, SERVICE_ENTRY, VIRTUAL_SERVICE, items, text,
    texts,
};
use super::pods::{DataPlane, Owner, is_alive, owner};
use super::routes::{MESH, ServiceHost};

/// The maximum number of kinds of requests to one port from one source.
const MAX_KINDS: usize = 256;
/// How the names of ports and application protocols begin whose bytes no policy sees as requests.
const OPAQUE: [&str; 7] = ["tcp", "tls", "https", "mongo", "mysql", "redis", "udp"];
/// A host that the mesh does not know, and its port.
const UNKNOWN_HOST: (&str, u16) = ("unknown-host.example", 80);

/// Requests that the same source sends to the same destination alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestKind {
    /// The workload that sends it, or the gateway that it enters at.
    pub source: Owner,
    /// The `Host` header, without a port.
    pub host: String,
    /// The port; `None` for the first one of a gateway that routes the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The method. It does not matter at ports that are not for HTTP.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Further headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: Headers,
    /// The claims of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Claims>,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)?;
        for (name, value) in &self.headers {
            write!(f, " {name}: {value}")?;
        }
        if let Some(claims) = &self.claims {
            write!(f, " with the token {}", Value::Object(claims.clone()))?;
        }
        write!(f, " from {}", self.source)
    }
}

/// Requests, and what could not be made requests of.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) kinds: Vec<RequestKind>,
    /// Why some requests are missing, with the object or host.
    pub(crate) missing: BTreeSet<(String, String)>,
}

/// A source of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    owner: Owner,
    is_gateway: bool,
}

/// A destination of requests.
struct Target {
    /// The namespace; empty for a host outside of the mesh.
    namespace: String,
    host: String,
    port: Option<u16>,
    is_http: bool,
    attributes: Attributes,
}

impl Requests {
    /// Those from and to the namespaces that move. `root` is the root namespace, `domain` that of
    /// services.
    pub(crate) fn of(
        objects: &Objects,
        moving: &BTreeSet<String>,
        root: &str,
        domain: &str,
    ) -> Self {
        let targets = targets(objects, domain, root);
        let entries = gateway_targets(objects, moving, root);
        let mut requests = Self::default();

        for source in sources(objects, moving) {
            let of_source = if source.is_gateway {
                &entries
            } else {
                &targets
            };
            for target in of_source {
                let is_touched = source.is_gateway
                    || moving.contains(&source.owner.namespace)
                    || moving.contains(&target.namespace)
                    || !moving.is_disjoint(&target.attributes.namespaces);
                if is_touched {
                    requests.add(&source.owner, target);
                }
            }
        }
        requests
    }

    /// Adds the requests of a source to a destination.
    fn add(&mut self, source: &Owner, target: &Target) {
        let base = RequestKind {
            source: source.clone(),
            host: target.host.clone(),
            port: target.port,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Headers::new(),
            claims: None,
        };
        if !target.is_http {
            self.kinds.push(base);
            return;
        }

        let attributes = &target.attributes;
        for (object, reason) in &attributes.without_example {
            self.missing.insert((object.to_string(), reason.clone()));
        }
        let tokens = std::iter::once(None).chain(attributes.tokens.iter().map(Some));
        let mut count = 0;
        for claims in tokens {
            for headers in &attributes.headers {
                for path in &attributes.paths {
                    for method in &attributes.methods {
                        count += 1;
                        if count > MAX_KINDS {
                            let reason = format!("more than {MAX_KINDS} kinds of requests");
                            self.missing.insert((target.host.clone(), reason));
                            return;
                        }
                        self.kinds.push(RequestKind {
                            method: method.clone(),
                            path: path.clone(),
                            headers: headers.clone(),
                            claims: claims.cloned(),
                            ..base.clone()
                        });
                    }
                }
            }
        }
    }
}

/// The workloads and gateways that send requests. Of pods outside of the mesh and the namespaces
/// that move, one stands for all: they have no identity.
fn sources(objects: &Objects, moving: &BTreeSet<String>) -> BTreeSet<Source> {
    let mut sources = BTreeSet::new();
    let mut has_stranger = false;
    for (name, pod) in objects.of(POD).filter(|(_, pod)| is_alive(pod)) {
        let plane = DataPlane::of(pod);
        let is_stranger = plane == DataPlane::Outside && !moving.contains(&name.namespace);
        if matches!(plane, DataPlane::Waypoint | DataPlane::Ztunnel) || is_stranger && has_stranger
        {
            continue;
        }
        has_stranger |= is_stranger;
        sources.insert(Source {
            owner: owner(pod),
            is_gateway: plane == DataPlane::Gateway,
        });
    }
    sources
}

/// The services of the mesh, its other hosts, and a host that it does not know.
fn targets(objects: &Objects, domain: &str, root: &str) -> Vec<Target> {
    let mut targets = Vec::new();
    for (name, service) in objects.of(SERVICE) {
        let host = ServiceHost::of(service, domain);
        let attributes = Attributes::of_service(objects, &host, root);
        for port in items(service, "/spec/ports") {
            let Some(number) = port_number(port, "port") else {
                continue;
            };
            if text(port, "/protocol") == "UDP" {
                continue;
            }
            targets.push(Target {
                namespace: name.namespace.clone(),
                host: host.host.clone(),
                port: Some(number),
                is_http: !is_opaque(text(port, "/name"), text(port, "/appProtocol")),
                attributes: attributes.clone(),
            });
        }
    }

    for (name, entry) in objects.of(SERVICE_ENTRY) {
        for host in texts(entry, "/spec/hosts").filter(|host| !host.starts_with('*')) {
            for port in items(entry, "/spec/ports") {
                let Some(number) = port_number(port, "number") else {
                    continue;
                };
                let service_host = ServiceHost {
                    host: host.to_owned(),
                    name: "",
                    namespace: &name.namespace,
                };
                targets.push(Target {
                    namespace: name.namespace.clone(),
                    host: host.to_owned(),
                    port: Some(number),
                    is_http: !is_opaque(&text(port, "/protocol").to_ascii_lowercase(), ""),
                    attributes: Attributes::of_service(objects, &service_host, root),
                });
            }
        }
    }

    let (host, port) = UNKNOWN_HOST;
    targets.push(Target {
        namespace: String::new(),
        host: host.to_owned(),
        port: Some(port),
        is_http: false,
        attributes: Attributes::default(),
    });
    targets
}

/// The hosts of routes that are bound to gateways.
fn gateway_targets(objects: &Objects, moving: &BTreeSet<String>, root: &str) -> Vec<Target> {
    let mut routes: BTreeMap<String, Vec<(&ObjectName, &Value)>> = BTreeMap::new();
    for (name, object) in objects.of(VIRTUAL_SERVICE) {
        if texts(object, "/spec/gateways").any(|gateway| gateway != MESH) {
            for host in texts(object, "/spec/hosts") {
                routes
                    .entry(host.to_owned())
                    .or_default()
                    .push((name, object));
            }
        }
    }
    for (name, object) in objects.of(HTTP_ROUTE) {
        let is_at_gateway = items(object, "/spec/parentRefs")
            .any(|parent| matches!(text(parent, "/kind"), "" | "Gateway"));
        if is_at_gateway {
            for host in texts(object, "/spec/hostnames") {
                routes
                    .entry(host.to_owned())
                    .or_default()
                    .push((name, object));
            }
        }
    }

    let mut namespaces = moving.clone();
    namespaces.insert(root.to_owned());
    routes
        .into_iter()
        .map(|(host, routes)| Target {
            namespace: String::new(),
            host: host.replacen('*', "any", 1),
            port: None,
            is_http: true,
            attributes: Attributes::of(objects, namespaces.clone(), routes.into_iter()),
        })
        .collect()
}

fn port_number(port: &Value, field: &str) -> Option<u16> {
    let number = port.get(field)?.as_u64()?;
    u16::try_from(number).ok()
}

/// Whether a port is declared for something other than HTTP.
fn is_opaque(name: &str, app_protocol: &str) -> bool {
    let declared = if app_protocol.is_empty() {
        name
    } else {
        app_protocol
    };
    let prefix = declared.split('-').next().unwrap_or_default();
    OPAQUE.contains(&prefix)
}
