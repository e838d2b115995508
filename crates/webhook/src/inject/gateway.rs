//! The Kubernetes objects for the proxies of a Gateway API Gateway, rendered from injection
//! templates.
//!
//! The templates `kube-gateway` and `waypoint` of the config are rendered as in istiod
//! (`TemplateInput` and `derivedInput` of `pilot/pkg/config/kube/gatewaycommon`); the default
//! templates are those of Navarch's chart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::context::{Ids, PROXY_ID};
use super::error::InjectError;
use super::image::{self, Flavours};
use super::injector::Injector;
use super::pod;
use super::proxy_settings::Effective;
use super::rules::Rules;
use super::{NativeSidecars, merge, openshift};

/// The label with the name of an object's Gateway.
const GATEWAY: &str = "gateway.networking.k8s.io/gateway-name";

/// A port of the Gateway's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPort {
    /// The port's name, unique in the Service.
    pub name: String,
    /// The port of a listener.
    pub port: i32,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// The application protocol of the port.
    pub app_protocol: String,
}

/// A Gateway and the decisions of its controller, as input of the templates.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRequest<'a> {
    /// The Gateway object from the API server.
    pub gateway: &'a Value,
    /// The name of the GatewayClass.
    pub class: &'a str,
    /// The name of the Deployment, the Service and related objects.
    pub deployment: &'a str,
    /// The name of the ServiceAccount.
    pub service_account: &'a str,
    /// The ports of the Service.
    pub ports: &'a [GatewayPort],
    /// `spec.type` of the Service: `LoadBalancer`, `ClusterIP`, or the value of the Gateway's
    /// annotation.
    pub service_type: &'a str,
    /// Labels of all objects.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of all objects.
    pub annotations: &'a BTreeMap<String, String>,
    /// The controller's name as a label value.
    pub controller: &'a str,
    /// Whether the Gateway is an east-west gateway of an ambient mesh.
    pub east_west: bool,
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The version of the API server, such as 136 for 1.36.
    pub kube_version: i64,
    /// The annotations of the Gateway's namespace, if known.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
}

/// All inputs of a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proxies<'a> {
    pub(super) request: &'a GatewayRequest<'a>,
    /// The proxy config.
    pub(super) proxy: &'a Effective,
    /// The proxy's image, unless an annotation names another.
    pub(super) image: &'a str,
    /// The user and group of the proxy.
    pub(super) ids: Ids,
    /// The revision of the control plane.
    pub(super) revision: &'a str,
    /// The compliance policy for cryptography.
    pub(super) compliance_policy: &'a str,
    /// Whether native sidecars are supported.
    pub(super) native_sidecars: bool,
}

impl Injector {
    /// Renders the objects of a Gateway from a template, in the template's order.
    ///
    /// # Errors
    /// When the template is unknown or fails.
    pub fn gateway_objects(
        &self,
        template: &str,
        request: &GatewayRequest<'_>,
    ) -> Result<Vec<Value>, InjectError> {
        self.rules().gateway_objects(template, request)
    }

    /// `global.network` of the values: the network of the cluster's pods; empty if unset.
    #[must_use]
    pub fn network(&self) -> String {
        self.rules().network().to_owned()
    }
}

impl Rules {
    /// See [`Injector::gateway_objects`].
    fn gateway_objects(
        &self,
        template: &str,
        request: &GatewayRequest<'_>,
    ) -> Result<Vec<Value>, InjectError> {
        let inputs = self.inputs();
        let global = &self.values().global;

        // ProxyConfigs select pods by this label, and the Gateway has no pods yet.
        let pods =
            json!({ "metadata": { "labels": { GATEWAY: pod::meta(request.gateway, "name") } } });
        let proxy = self
            .proxies()
            .of(&pods, pod::meta(request.gateway, "namespace"))?;
        let flavour = proxy
            .config
            .image
            .as_ref()
            .map(|image| image.image_type.as_str());

        let annotation = pod::annotation(request.gateway, "sidecar.istio.io/proxyImageType");
        let flavours = Flavours {
            annotation,
            proxy_config: flavour,
        };
        let ids = if inputs.openshift {
            openshift::ids(request.namespace_annotations)
        } else {
            Ids {
                user: PROXY_ID,
                group: PROXY_ID,
            }
        };

        let proxies = Proxies {
            request,
            proxy: &proxy,
            image: &image::image(global, global.proxy.image.as_str(), flavours),
            ids,
            revision: &inputs.revision,
            compliance_policy: &inputs.compliance_policy,
            native_sidecars: inputs.native_sidecars != NativeSidecars::Disabled,
        };

        self.templates().objects(template, &proxies)
    }

    /// `global.network`.
    fn network(&self) -> &str {
        self.values().global.network.as_str()
    }
}

/// Applies an overlay to an object by Kubernetes' strategic merge for its kind: `Deployment`,
/// `Service`, `ServiceAccount`, or a kind without lists that are merged by key.
///
/// # Errors
/// When an item of a list with a merge key has no key.
pub fn apply_overlay(kind: &str, object: &mut Value, overlay: Value) -> Result<(), InjectError> {
    let keys = match kind {
        "Deployment" => merge::key_in_pod,
        "Service" => |field: &str| match field {
            "ports" => Some("port"),
            "ownerReferences" => Some("uid"),
            _ => None,
        },
        "ServiceAccount" => |field: &str| match field {
            "secrets" => Some("name"),
            "ownerReferences" => Some("uid"),
            _ => None,
        },
        _ => |field: &str| (field == "ownerReferences").then_some("uid"),
    };
    merge::merge_by(object, overlay, keys)
}
