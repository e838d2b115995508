//! The Services of the proxies of a Gateway.

use super::classes::{self, Controller};
use super::fault::Fault;
use super::settings::Values;
use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::object::Object;

/// A deprecated annotation without effect.
const SERVICE_TYPE: &str = "networking.istio.io/service-type";

/// The hosts of the Services of a Gateway's proxies, and the fault of their addresses, if any.
pub(super) fn services(
    gateway: &Object<KubernetesGateway>,
    controller: Controller,
    values: &Values,
) -> (Vec<String>, Option<Fault>) {
    if classes::is_managed(&values.api, &gateway.spec) {
        return (
            vec![classes::managed_service(gateway, controller, values)],
            None,
        );
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
        return (hosts, Some(Fault::new("UnsupportedAddress", message)));
    }

    let deprecated = gateway
        .meta
        .annotations
        .contains_key(SERVICE_TYPE)
        .then(|| {
            let message =
                format!("annotation {SERVICE_TYPE} is deprecated, use spec.infrastructure");
            Fault::new("DeprecatedField", message)
        });

    (hosts, deprecated)
}
