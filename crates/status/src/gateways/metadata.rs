//! Names, labels and annotations of a Gateway's objects, and whether the Gateway has objects.

use std::collections::BTreeMap;

use navarch_api::gateway_api::KubernetesGateway;
use serde_json::Value;

use super::classes::ClassInfo;
use super::settings::GatewayControllerSettings;

/// The annotation with the controller version that deploys the Gateway. The highest version takes
/// precedence.
pub(super) const CONTROLLER_VERSION: &str = "gateway.istio.io/controller-version";
/// The version of this controller, which istiod has used since 1.18.
pub(super) const VERSION: i64 = 5;
/// The label with the capture mode of an ambient mesh.
const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
/// The label of a network.
const NETWORK: &str = "topology.istio.io/network";
/// Labels and annotations in `infrastructure` with this prefix are not copied: they are reserved
/// for the Gateway API.
const RESERVED: &str = "gateway.networking.k8s.io/";

/// Labels or annotations.
pub(super) type Texts = BTreeMap<String, String>;

/// The labels or annotations of an object.
pub(super) fn texts(object: &Value, field: &str) -> Texts {
    let found = object
        .get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_object);
    let texts = found
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Whether Navarch deploys the proxies of a Gateway: it requests no address, or one IP address for
/// the Service.
pub(super) fn is_managed(spec: &KubernetesGateway, settings: &GatewayControllerSettings) -> bool {
    match spec.addresses.as_slice() {
        _ if !settings.api.manual_deployment => true,
        [] => true,
        [address] => address.kind == "IPAddress",
        _ => false,
    }
}

/// Which controller deploys a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This controller.
    This,
    /// None, or an earlier version: this controller takes it over.
    Nobody,
    /// A later or an unknown version.
    Another,
}

impl Holder {
    pub(super) fn of(annotations: &Texts) -> Self {
        match annotations
            .get(CONTROLLER_VERSION)
            .map(|version| version.parse::<i64>())
        {
            None => Self::Nobody,
            Some(Ok(version)) if version == VERSION => Self::This,
            Some(Ok(version)) if version < VERSION => Self::Nobody,
            Some(_) => Self::Another,
        }
    }
}

/// The annotation with another name for the objects of a Gateway.
pub(super) const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
/// The annotation with the ServiceAccount of a Gateway's pods.
pub(super) const SERVICE_ACCOUNT: &str = "gateway.istio.io/service-account";

/// Names, labels and annotations of a Gateway's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// The name of all objects except the ServiceAccount.
    pub(super) deployment: String,
    /// The name of the ServiceAccount.
    pub(super) service_account: String,
    pub(super) service_type: String,
    pub(super) labels: Texts,
    pub(super) annotations: Texts,
}

impl Metadata {
    /// The metadata for a Gateway of a class. `network` is the network of the cluster's pods.
    pub(super) fn of(
        gateway: &Value,
        spec: &KubernetesGateway,
        class: &ClassInfo,
        settings: &GatewayControllerSettings,
        network: &str,
    ) -> Self {
        let name = gateway
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let labels = texts(gateway, "labels");
        let annotations = texts(gateway, "annotations");
        let usual = if class.has_suffix {
            format!("{name}-{}", spec.gateway_class_name)
        } else {
            name.to_owned()
        };

        let annotation_value = |annotation: &str| {
            annotations
                .get(annotation)
                .filter(|value| !value.is_empty())
                .cloned()
        };

        let service_type = annotations.get("networking.istio.io/service-type");
        let infrastructure = |field: &str, own: &Texts| {
            let requested = gateway
                .pointer("/spec/infrastructure")
                .and_then(|requested| requested.get(field));
            match requested.and_then(Value::as_object) {
                Some(requested) => {
                    let requested = requested
                        .iter()
                        .filter(|(name, _)| !name.starts_with(RESERVED));
                    requested
                        .filter_map(|(name, value)| {
                            Some((name.clone(), value.as_str()?.to_owned()))
                        })
                        .collect()
                }
                None if settings.copies_metadata => own.clone(),
                None => Texts::new(),
            }
        };

        let mut made = Self {
            deployment: annotation_value(NAME_OVERRIDE).unwrap_or_else(|| usual.clone()),
            service_account: annotation_value(SERVICE_ACCOUNT).unwrap_or(usual),
            service_type: service_type
                .map_or(class.service_type, String::as_str)
                .to_owned(),
            labels: infrastructure("labels", &labels),
            annotations: infrastructure("annotations", &annotations),
        };

        made.follow_mesh(&spec.gateway_class_name, &labels, settings, network);
        made
    }

    /// Adds labels for ambient mode: ztunnel does not capture the proxies of Gateways, and
    /// waypoints have a network.
    fn follow_mesh(
        &mut self,
        class: &str,
        own: &Texts,
        settings: &GatewayControllerSettings,
        network: &str,
    ) {
        let waypoint = class.contains("waypoint");
        let east_west = class.contains("east-west");
        let has_mode = own.contains_key(DATAPLANE_MODE) || self.labels.contains_key(DATAPLANE_MODE);
        if settings.api.waypoints && !waypoint && !east_west && !has_mode {
            self.labels
                .insert(DATAPLANE_MODE.to_owned(), "none".to_owned());
        }
        if (waypoint || east_west) && !network.is_empty() && !own.contains_key(NETWORK) {
            self.labels.insert(NETWORK.to_owned(), network.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::gateway_api::GatewayApiSettings;
    use serde_json::json;

    use super::*;

    /// The metadata of a Gateway of the class `class`, in an ambient mesh.
    fn of(meta: Value, infrastructure: Value, class: &str) -> Metadata {
        let spec =
            json!({ "gatewayClassName": class, "listeners": [], "infrastructure": infrastructure });
        let gateway = json!({ "metadata": meta, "spec": spec });
        let api = GatewayApiSettings {
            waypoints: true,
            ..GatewayApiSettings::default()
        };
        let classes = ClassInfo::builtin(&api);
        let (_, info) = classes.iter().find(|(name, _)| name == class).unwrap();

        let settings = GatewayControllerSettings {
            api,
            ..GatewayControllerSettings::default()
        };

        Metadata::of(
            &gateway,
            &serde_json::from_value(spec).unwrap(),
            info,
            &settings,
            "net",
        )
    }

    #[test]
    fn names_and_labels_follow_the_gateway() {
        let plain = of(
            json!({ "name": "web", "labels": { "a": "b" } }),
            json!(null),
            "istio",
        );
        assert_eq!(
            (plain.deployment.as_str(), plain.service_account.as_str()),
            ("web-istio", "web-istio")
        );

        assert_eq!(
            json!(plain.labels),
            json!({ "a": "b", "istio.io/dataplane-mode": "none" })
        );
        let annotations = json!({ "gateway.istio.io/name-override": "x", "gateway.istio.io/service-account": "y" });
        let infrastructure = json!({ "labels": { "c": "d", "gateway.networking.k8s.io/x": "y" } });
        let named = of(
            json!({ "name": "web", "labels": { "a": "b" }, "annotations": annotations }),
            infrastructure,
            "istio",
        );

        assert_eq!(
            (named.deployment.as_str(), named.service_account.as_str()),
            ("x", "y")
        );
        assert_eq!(
            json!(named.labels),
            json!({ "c": "d", "istio.io/dataplane-mode": "none" })
        );

        let waypoint = of(json!({ "name": "wp" }), json!(null), "istio-waypoint");
        assert_eq!(
            (waypoint.deployment.as_str(), waypoint.service_type.as_str()),
            ("wp", "ClusterIP")
        );
        assert_eq!(
            json!(waypoint.labels),
            json!({ "topology.istio.io/network": "net" })
        );
    }

    #[test]
    fn gateways_of_a_newer_controller_version_are_not_taken_over() {
        let holder = |version: &str| {
            Holder::of(&Texts::from([(
                CONTROLLER_VERSION.to_owned(),
                version.to_owned(),
            )]))
        };
        assert_eq!(Holder::of(&Texts::new()), Holder::Nobody);
        assert_eq!(
            ["1", "5", "6", "x"].map(holder),
            [
                Holder::Nobody,
                Holder::This,
                Holder::Another,
                Holder::Another
            ]
        );
    }
}
