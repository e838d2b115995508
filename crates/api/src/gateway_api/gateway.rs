//! Gateway, of the Gateway API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CertificateRef, Listener, ObjectReference};
use crate::mesh::LabelSelector;

/// `gateway.networking.k8s.io/Gateway`: listeners for incoming requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesGateway {
    /// Name of the GatewayClass whose controller serves the Gateway.
    pub gateway_class_name: String,
    /// `spec.listeners`: a port, protocol and hostname each.
    pub listeners: Vec<Listener>,
    /// Requested addresses. An address of any type except `IPAddress` means that the proxies
    /// already exist.
    pub addresses: Vec<GatewayAddress>,
    /// How its proxies are deployed.
    pub infrastructure: Option<GatewayInfrastructure>,
    /// Which ListenerSets may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// TLS settings of all listeners and for backends.
    pub tls: Option<GatewayTls>,
    /// `All` or `None`: whether routes without a parent attach. istiod has no default Gateways.
    pub default_scope: Option<String>,
    /// The fields of `status` that other components read.
    #[serde(skip)]
    pub status: GatewayStatus,
}

/// An address (`GatewaySpecAddress`, `GatewayStatusAddress`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GatewayAddress {
    /// `IPAddress`, `Hostname` or the name of another type.
    #[serde(rename = "type", default = "ip_address")]
    pub kind: String,
    /// The address; empty requests any address of the type.
    #[serde(default)]
    pub value: String,
}

/// How the proxies of a Gateway are deployed (`GatewayInfrastructure`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayInfrastructure {
    /// Labels of all generated objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations of all generated objects.
    pub annotations: BTreeMap<String, String>,
    /// A ConfigMap in the Gateway's namespace with further settings.
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
    /// Its namespace, which GatewayClasses may set.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// Which ListenerSets may attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedListeners {
    /// Where these ListenerSets are; by default in no namespace, so that none may attach.
    pub namespaces: ListenerNamespaces,
}

/// The namespaces whose ListenerSets may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerNamespaces {
    /// `All`, `Selector`, `Same` or `None`.
    pub from: String,
    /// Labels of the namespaces, for `Selector`.
    pub selector: Option<LabelSelector>,
}

/// TLS settings of a Gateway (`GatewayTLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayTls {
    /// For connections to backends.
    pub backend: Option<GatewayBackendTls>,
    /// For connections from clients.
    pub frontend: Option<FrontendTls>,
}

/// TLS settings for connections to backends (`GatewayBackendTLS`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayBackendTls {
    /// The certificate that the Gateway presents to backends.
    pub client_certificate_ref: Option<CertificateRef>,
}

/// TLS settings for connections from clients (`FrontendTLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    /// The settings for every port that `per_port` does not contain.
    pub default: TlsValidation,
    /// The settings by port.
    pub per_port: Vec<PortFrontendTls>,
}

/// TLS settings for the clients of one port (`TLSPortConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortFrontendTls {
    /// Port of the listeners whose client certificates are checked.
    pub port: i32,
    /// The settings of the port.
    #[serde(default)]
    pub tls: TlsValidation,
}

/// Validation of client certificates (`TLSConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsValidation {
    /// How client certificates are validated; unset requests none.
    pub validation: Option<FrontendValidation>,
}

/// How client certificates are validated (`FrontendTLSValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendValidation {
    /// ConfigMaps or Secrets with `ca.crt`.
    pub ca_certificate_refs: Vec<ObjectReference>,
    /// `AllowValidOnly` or `AllowInsecureFallback`.
    pub mode: String,
}

/// The fields of a Gateway's status that are read: its addresses, and whether it is programmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStatus {
    /// `status.addresses`: assigned by the controller of the GatewayClass.
    pub addresses: Vec<GatewayAddress>,
    /// `status.conditions`.
    pub conditions: Vec<GatewayCondition>,
}

/// The used fields of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayCondition {
    /// The type of the condition, such as `Programmed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl KubernetesGateway {
    /// Copies the used fields of a status. An unreadable status is empty.
    pub(crate) fn take_status(&mut self, status: &Value) {
        self.status = serde_json::from_value(status.clone()).unwrap_or_default();
    }
}

impl Default for ListenerNamespaces {
    fn default() -> Self {
        Self {
            from: "None".to_owned(),
            selector: None,
        }
    }
}

impl Default for FrontendValidation {
    fn default() -> Self {
        Self {
            ca_certificate_refs: Vec::new(),
            mode: "AllowValidOnly".to_owned(),
        }
    }
}

/// The default type of an address.
fn ip_address() -> String {
    "IPAddress".to_owned()
}
