//! The objects of the proxies of a Gateway of the Gateway API, from the templates of injection.
//!
//! The templates `kube-gateway` and `waypoint` of the config are rendered as istiod renders them (`TemplateInput` and
//! `derivedInput` of `pilot/pkg/config/kube/gatewaycommon`); where the config has none, those of Navarch's chart are.

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

/// The label that names the Gateway of an object.
const GATEWAY: &str = "gateway.networking.k8s.io/gateway-name";

/// A port of the Service of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPort {
    /// The name, unique in the Service.
    pub name: String,
    /// Port of a listener.
    pub port: i32,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// What is spoken there.
    pub app_protocol: String,
}

/// A Gateway whose objects are made, and what its controller has decided.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRequest<'a> {
    /// The Gateway, as the API server has it.
    pub gateway: &'a Value,
    /// The name of its class.
    pub class: &'a str,
    /// The name of the Deployment, the Service and what goes with them.
    pub deployment: &'a str,
    /// The name of the ServiceAccount.
    pub service_account: &'a str,
    /// The ports of the Service.
    pub ports: &'a [GatewayPort],
    /// The type of the Service.
    pub service_type: &'a str,
    /// Labels of all objects.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of all objects.
    pub annotations: &'a BTreeMap<String, String>,
    /// The controller, as the value of a label.
    pub controller: &'a str,
    /// Whether it joins the networks of an ambient mesh.
    pub east_west: bool,
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The version of the API server: 136 is 1.36.
    pub kube_version: i64,
    /// The annotations of the Gateway's namespace, where they are known.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
}

/// All that a template is rendered on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proxies<'a> {
    /// What was asked for.
    pub(super) request: &'a GatewayRequest<'a>,
    /// The proxy config.
    pub(super) proxy: &'a Effective,
    /// The proxy's image, unless an annotation names another.
    pub(super) image: &'a str,
    /// Whom the proxy runs as.
    pub(super) ids: Ids,
    /// The revision of the control plane.
    pub(super) revision: &'a str,
    /// The policy that cryptography must comply with.
    pub(super) compliance_policy: &'a str,
    /// Whether native sidecars may be used.
    pub(super) native_sidecars: bool,
}

impl Injector {
    /// The objects that a template makes for a Gateway, in its order.
    ///
    /// # Errors
    /// When there is no such template, or it fails.
    pub fn gateway_objects(&self, template: &str, request: &GatewayRequest<'_>) -> Result<Vec<Value>, InjectError> {
        self.rules().gateway_objects(template, request)
    }

    /// `global.network` of the values: the network of the cluster's pods; empty where it has no name.
    #[must_use]
    pub fn network(&self) -> String {
        self.rules().network().to_owned()
    }
}

impl Rules {
    /// As [`Injector::gateway_objects`].
    fn gateway_objects(&self, template: &str, request: &GatewayRequest<'_>) -> Result<Vec<Value>, InjectError> {
        let (inputs, global) = (self.inputs(), &self.values().global);
        // ProxyConfigs select the pods by this label, and the Gateway has no pods yet.
        let pods = json!({ "metadata": { "labels": { GATEWAY: pod::meta(request.gateway, "name") } } });
        let proxy = self.proxies().of(&pods, pod::meta(request.gateway, "namespace"))?;
        let flavour = proxy.config.image.as_ref().map(|image| image.image_type.as_str());
        let annotation = pod::annotation(request.gateway, "sidecar.istio.io/proxyImageType");
        let flavours = Flavours { annotation, proxy_config: flavour };
        let ids = if inputs.openshift {
            openshift::ids(request.namespace_annotations)
        } else {
            Ids { user: PROXY_ID, group: PROXY_ID }
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

/// Lays an overlay over an object as Kubernetes' strategic merge does for its kind: `Deployment`, `Service`, `ServiceAccount`,
/// or one without lists that are merged by key.
///
/// # Errors
/// When an item of a list that is merged by key has no key.
pub fn lay_over(kind: &str, object: &mut Value, overlay: Value) -> Result<(), InjectError> {
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
