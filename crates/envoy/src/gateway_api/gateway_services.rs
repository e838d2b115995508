//! The Services of the proxies of a Gateway.

use super::classes::{self, Controller};
use super::fault::Fault;
use super::settings::Values;
use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::object::Object;

/// A deprecated annotation without effect.
const SERVICE_TYPE: &str = "networking.istio.io/service-type";

/// The Services of a Gateway's proxies.
pub(super) struct GatewayServices {
    /// Their hosts.
    pub(super) hosts: Vec<String>,
    /// The fault of the Gateway's addresses, or a deprecated annotation.
    pub(super) fault: Option<Fault>,
}

/// The Services of a Gateway's proxies: the one of its Deployment, or those that its addresses
/// name.
pub(super) fn services(
    gateway: &Object<KubernetesGateway>,
    controller: Controller,
    values: &Values,
) -> GatewayServices {
    if classes::is_managed(&values.api, &gateway.spec) {
        return GatewayServices {
            hosts: vec![classes::managed_service(gateway, controller, values)],
            fault: None,
        };
    }

    let namespace = gateway.meta.key.namespace.as_str();
    let (hosts, others): (Vec<_>, Vec<_>) = gateway
        .spec
        .addresses
        .iter()
        .partition(|address| address.kind == "Hostname");

    let full = |value: &str| {
        if value.contains('.') {
            value.to_owned()
        } else {
            values.host(value, namespace)
        }
    };

    let hosts = hosts
        .into_iter()
        .map(|address| full(&address.value))
        .collect();

    if !others.is_empty() {
        let others: Vec<&str> = others
            .iter()
            .map(|address| address.value.as_str())
            .collect();
        let message = format!(
            "only Hostname is supported, ignoring [{}]",
            others.join(" ")
        );
        let fault = Some(Fault::new("UnsupportedAddress", message));
        return GatewayServices { hosts, fault };
    }

    let fault = gateway
        .meta
        .annotations
        .contains_key(SERVICE_TYPE)
        .then(|| {
            let message =
                format!("annotation {SERVICE_TYPE} is deprecated, use spec.infrastructure");
            Fault::new("DeprecatedField", message)
        });

    GatewayServices { hosts, fault }
}
