//! Gateway, of the Gateway API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CertificateRef, Listener, ObjectReference};
use crate::mesh::LabelSelector;

/// `gateway.networking.k8s.io/Gateway`: where requests come in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesGateway {
    /// Name of the GatewayClass whose controller serves the Gateway.
    pub gateway_class_name: String,
    /// What is listened to.
    pub listeners: Vec<Listener>,
    /// Where it should be reached. Any but an address of the type `IPAddress` says that its proxies are there already.
    pub addresses: Vec<GatewayAddress>,
    /// How its proxies are deployed.
    pub infrastructure: Option<GatewayInfrastructure>,
    /// Which ListenerSets may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// TLS of all listeners and of backends.
    pub tls: Option<GatewayTls>,
    /// `All` or `None`: whether routes attach that name no parent. istiod has no such Gateways.
    pub default_scope: Option<String>,
    /// What of `status` others read.
    #[serde(skip)]
    pub status: GatewayStatus,
}

/// An address (`GatewaySpecAddress`, `GatewayStatusAddress`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GatewayAddress {
    /// `IPAddress`, `Hostname` or the name of another type.
    #[serde(rename = "type", default = "ip_address")]
    pub kind: String,
    /// The address; empty asks for any of the type.
    #[serde(default)]
    pub value: String,
}

/// How the proxies of a Gateway are deployed (`GatewayInfrastructure`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayInfrastructure {
    /// Labels of all that is made.
    pub labels: BTreeMap<String, String>,
    /// Annotations of all that is made.
    pub annotations: BTreeMap<String, String>,
    /// A ConfigMap in the Gateway's namespace that says more.
    pub parameters_ref: Option<ParametersRef>,
}

/// An object with settings (`LocalParametersReference`, `ParametersReference`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParametersRef {
    /// Its group; empty is the core group.
    pub group: String,
    /// `ConfigMap`, or a kind of Service parameters.
    pub kind: String,
    /// Name in the Gateway's own namespace.
    pub name: String,
    /// Its namespace, which GatewayClasses may name.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// Which ListenerSets may attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedListeners {
    /// Those of which namespaces.
    pub namespaces: ListenerNamespaces,
}

/// The namespaces of which ListenerSets may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerNamespaces {
    /// `All`, `Selector`, `Same` or `None`.
    pub from: String,
    /// Labels of the namespaces, for `Selector`.
    pub selector: Option<LabelSelector>,
}

/// TLS of a Gateway (`GatewayTLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayTls {
    /// Towards backends.
    pub backend: Option<GatewayBackendTls>,
    /// Towards clients.
    pub frontend: Option<FrontendTls>,
}

/// TLS towards backends (`GatewayBackendTLS`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayBackendTls {
    /// The certificate to show to backends.
    pub client_certificate_ref: Option<CertificateRef>,
}

/// TLS towards clients (`FrontendTLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    /// For every port that `per_port` does not name.
    pub default: TlsValidation,
    /// By port.
    pub per_port: Vec<PortFrontendTls>,
}

/// TLS towards the clients of one port (`TLSPortConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortFrontendTls {
    /// Port of the listeners whose client certificates are checked.
    pub port: i32,
    /// What holds there.
    #[serde(default)]
    pub tls: TlsValidation,
}

/// Whether clients show certificates (`TLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsValidation {
    /// How they are checked; absent is that none is asked for.
    pub validation: Option<FrontendValidation>,
}

/// How certificates of clients are checked (`FrontendTLSValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendValidation {
    /// ConfigMaps or Secrets with `ca.crt`.
    pub ca_certificate_refs: Vec<ObjectReference>,
    /// `AllowValidOnly` or `AllowInsecureFallback`.
    pub mode: String,
}

/// What is read of the status of a Gateway: where it is reached, and whether it is programmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStatus {
    /// Where it is reached.
    pub addresses: Vec<GatewayAddress>,
    /// What is known of it.
    pub conditions: Vec<GatewayCondition>,
}

/// A condition, as far as it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayCondition {
    /// `IPAddress`, `Hostname`, or a domain-prefixed word.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl KubernetesGateway {
    /// Takes over what counts of a status. One that cannot be read says nothing.
    pub(crate) fn take_status(&mut self, status: &Value) {
        self.status = serde_json::from_value(status.clone()).unwrap_or_default();
    }
}

impl Default for ListenerNamespaces {
    fn default() -> Self {
        Self { from: "None".to_owned(), selector: None }
    }
}

impl Default for FrontendValidation {
    fn default() -> Self {
        Self { ca_certificate_refs: Vec::new(), mode: "AllowValidOnly".to_owned() }
    }
}

/// The type of an address that names none.
fn ip_address() -> String {
    "IPAddress".to_owned()
}
