//! Listeners of Gateways and ListenerSets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CertificateRef, gateway_group};
use crate::mesh::LabelSelector;

/// A port, a protocol and a host (`Listener`, `ListenerEntry`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Its name in the Gateway or ListenerSet.
    pub name: String,
    /// The host; unset matches any.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The port. 0 is unset: a ListenerSet then gets a port, which istiod does not allocate.
    #[serde(default)]
    pub port: i32,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, `HBONE` or the name of another.
    pub protocol: String,
    /// TLS settings.
    #[serde(default)]
    pub tls: Option<ListenerTls>,
    /// Which routes may attach.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
}

/// TLS settings of a listener (`ListenerTLSConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    /// `Terminate` or `Passthrough`.
    pub mode: String,
    /// The certificates that the listener presents.
    pub certificate_refs: Vec<CertificateRef>,
    /// Settings of implementations.
    pub options: BTreeMap<String, String>,
}

/// Which routes may attach (`AllowedRoutes`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    /// From which namespaces routes may attach.
    pub namespaces: RouteNamespaces,
    /// The kinds of the routes; empty means all kinds that the protocol supports.
    pub kinds: Vec<RouteGroupKind>,
}

/// The namespaces whose routes may attach (`RouteNamespaces`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteNamespaces {
    /// `All`, `Selector`, `Same` or `None`.
    pub from: String,
    /// Labels of the namespaces, for `Selector`.
    pub selector: Option<LabelSelector>,
}

/// A kind of route (`RouteGroupKind`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteGroupKind {
    /// API group; `gateway.networking.k8s.io` if absent.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// Kind of route, as in `HTTPRoute`.
    pub kind: String,
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            mode: "Terminate".to_owned(),
            certificate_refs: Vec::new(),
            options: BTreeMap::new(),
        }
    }
}

impl Default for RouteNamespaces {
    fn default() -> Self {
        Self {
            from: "Same".to_owned(),
            selector: None,
        }
    }
}
