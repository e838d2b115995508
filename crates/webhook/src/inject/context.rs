//! The input of the overlays: the pod before injection, and all settings for the pod.

use std::collections::BTreeMap;

use serde_json::Value;

use super::names::{INTERCEPTION_MODE, NATIVE_SIDECAR, PROXY, STATUS_PORT};
use super::pod::{self, List};
use super::proxy_settings::Effective;
use super::values::{Text, Values};
use super::workload::Workload;
use navarch_api::mesh::{MeshConfig, ProxyConfig};

/// The user and group ID of the proxy if the namespace assigns no IDs.
pub(super) const PROXY_ID: i64 = 1337;

/// The user and group ID of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) user: i64,
    pub(super) group: i64,
}

/// All inputs of an overlay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    /// The pod without the additions of an earlier injection.
    pub(super) pod: &'a Value,
    pub(super) workload: &'a Workload,
    /// The pod's proxy config.
    pub(super) proxy: &'a Effective,
    pub(super) values: &'a Values,
    pub(super) mesh: &'a MeshConfig,
    /// The revision of the control plane.
    pub(super) revision: &'a str,
    /// The compliance policy for cryptography.
    pub(super) compliance_policy: &'a str,
    /// Whether proxies are native sidecars unless the pod's annotation overrides it.
    pub(super) native_sidecars: bool,
    /// The user and group of the proxy.
    pub(super) ids: Ids,
}

impl<'a> Context<'a> {
    /// The value of an annotation, if the pod has the annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        pod::annotation(self.pod, name)
    }

    /// The value of an annotation, else the given value.
    pub(super) fn annotation_or(&self, name: &str, value: &'a Text) -> &'a str {
        self.annotation(name).unwrap_or(value.as_str())
    }

    /// The value of a label, if the pod has the label and the value is not empty.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        pod::label(self.pod, name).filter(|value| !value.is_empty())
    }

    pub(super) fn proxy_config(&self) -> &'a ProxyConfig {
        &self.proxy.config
    }

    /// The mode of traffic interception, `REDIRECT`, `TPROXY` or `NONE`.
    pub(super) fn interception_mode(&self) -> &'a str {
        self.annotation(INTERCEPTION_MODE)
            .unwrap_or(self.proxy_config().interception_mode.as_str())
    }

    /// The agent's port, as text.
    pub(super) fn status_port(&self) -> &'a str {
        self.annotation_or(STATUS_PORT, &self.values.global.proxy.status_port)
    }

    /// Whether the overlay's proxy is a native sidecar: any non-empty annotation except `false`
    /// enables it.
    pub(super) fn is_native(&self) -> bool {
        match self.annotation(NATIVE_SIDECAR) {
            None | Some("") => self.native_sidecars,
            Some(value) => value != "false",
        }
    }

    /// The pod's containers.
    pub(super) fn containers(&self) -> &'a [Value] {
        pod::containers(self.pod, List::Containers)
    }

    /// The names of the pod's containers, except the pod's own proxy container.
    pub(super) fn app_containers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.containers()
            .iter()
            .map(pod::name)
            .filter(|name| *name != PROXY)
    }

    /// The image of the proxy or of the init container. The annotation or the value is a complete
    /// image or, without a slash, only a name.
    pub(super) fn image(&self, image: ImageOf) -> String {
        let global = &self.values.global;
        let name = match image {
            ImageOf::Proxy => &global.proxy.image,
            ImageOf::Init => &global.proxy_init.image,
        };
        let requested = self.annotation_or("sidecar.istio.io/proxyImage", name);
        if requested.contains('/') {
            requested.to_owned()
        } else {
            self.stock_image(image)
        }
    }

    /// The image from the values; the pod selects only the variant.
    pub(super) fn stock_image(&self, image: ImageOf) -> String {
        let global = &self.values.global;
        let name = match image {
            ImageOf::Proxy => &global.proxy.image,
            ImageOf::Init => &global.proxy_init.image,
        };
        let flavour = self
            .proxy_config()
            .image
            .as_ref()
            .map(|image| image.image_type.as_str());
        let flavours = super::image::Flavours {
            annotation: self.annotation("sidecar.istio.io/proxyImageType"),
            proxy_config: flavour.filter(|_| image == ImageOf::Proxy),
        };
        super::image::image(global, name.as_str(), flavours)
    }

    pub(super) fn trust_domain(&self) -> &'a str {
        if self.mesh.trust_domain.is_empty() {
            self.values.global.trust_domain.as_str()
        } else {
            &self.mesh.trust_domain
        }
    }

    /// Additional environment variables of the proxy, from the proxy config.
    pub(super) fn metadata(&self) -> &'a BTreeMap<String, String> {
        &self.proxy_config().proxy_metadata
    }

    /// The service account of the pod.
    pub(super) fn service_account(&self) -> &'a str {
        let account = self
            .pod
            .get("spec")
            .and_then(|spec| spec.get("serviceAccountName"));
        account.and_then(Value::as_str).unwrap_or_default()
    }
}

/// The container that uses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageOf {
    Proxy,
    /// The container that sets up or validates traffic capture.
    Init,
}
