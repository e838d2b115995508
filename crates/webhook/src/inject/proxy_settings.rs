//! The effective `ProxyConfig` of a pod.
//!
//! In ascending precedence: Istio's defaults, mesh config, ProxyConfig objects for the mesh and for
//! the namespace, the pod's annotation, and a ProxyConfig object that selects the pod (istiod's
//! `pilot/pkg/model/proxy_config.go`). Only set fields override: zero values do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::error::InjectError;
use super::names::PROXY_CONFIG;
use super::pod;
use navarch_api::duration::Duration;
use navarch_api::istio;
use navarch_api::mesh::{AuthenticationPolicy, MeshConfig, ProxyConfig, ProxyImage};
use navarch_api::object::Object;
use navarch_api::proto_json;
use navarch_api::text_error::TextError;

/// A ProxyConfig object.
type Resource = Arc<Object<istio::ProxyConfig>>;

/// A proxy config and its JSON for the proxy's environment.
#[derive(Debug)]
pub(super) struct Effective {
    pub(super) config: ProxyConfig,
    /// The fields that differ from Istio's defaults, as JSON.
    pub(super) json: String,
    /// Unknown fields of the annotation.
    pub(super) unknown_fields: Vec<String>,
}

/// The inputs for the proxy configs of all pods.
#[derive(Debug)]
pub(super) struct ProxySettings {
    /// Istio's defaults with mesh config.
    base: Arc<Effective>,
    /// The root namespace, whose objects apply to all namespaces.
    root: String,
    /// ProxyConfig objects by namespace, oldest first.
    resources: BTreeMap<String, Vec<Resource>>,
}

impl ProxySettings {
    /// Creates the settings from mesh config and ProxyConfig objects.
    ///
    /// # Errors
    /// When merging configs fails, which is possible only for values that were not parsed from
    /// text.
    pub(super) fn read(mesh: &MeshConfig, objects: &[Resource]) -> Result<Self, TextError> {
        let mut resources: BTreeMap<String, Vec<Resource>> = BTreeMap::new();

        for object in objects {
            resources
                .entry(object.meta.key.namespace.to_string())
                .or_default()
                .push(Arc::clone(object));
        }

        for list in resources.values_mut() {
            list.sort_by(|a, b| {
                (a.meta.created, &a.meta.key.name).cmp(&(b.meta.created, &b.meta.key.name))
            });
        }

        let mut config = merge(&ProxyConfig::istio_defaults(), &mesh.default_config)?;
        if !mesh.root_namespace.is_empty()
            && let Some(whole) = whole_namespace(&resources, &mesh.root_namespace)
        {
            config = merge(&config, &whole)?;
        }
        let base = Arc::new(Effective {
            json: text_of(&config),
            config,
            unknown_fields: Vec::new(),
        });

        Ok(Self {
            base,
            root: mesh.root_namespace.clone(),
            resources,
        })
    }

    /// The effective config of a pod in a namespace.
    ///
    /// # Errors
    /// When the pod's annotation is not a valid proxy config.
    pub(super) fn of(&self, pod: &Value, namespace: &str) -> Result<Arc<Effective>, InjectError> {
        let annotation = pod::annotation(pod, PROXY_CONFIG);
        let own = self.resources.get(namespace);
        if annotation.is_none() && own.is_none() {
            return Ok(Arc::clone(&self.base));
        }

        let mut config = self.base.config.clone();
        if namespace != self.root
            && let Some(whole) = whole_namespace(&self.resources, namespace)
        {
            config = merge(&config, &whole)?;
        }
        let mut unknown_fields = Vec::new();

        if let Some(text) = annotation {
            let written = ProxyConfig::default().apply(text)?;
            unknown_fields = written.unknown_fields;
            config = merge(&config, &written.value)?;
        }

        let selecting = own
            .into_iter()
            .flatten()
            .find(|resource| selects(resource, pod));
        if let Some(resource) = selecting {
            config = merge(&config, &of_resource(resource))?;
        }

        Ok(Arc::new(Effective {
            json: text_of(&config),
            config,
            unknown_fields,
        }))
    }
}

/// Merges the set fields of one config into another.
fn merge(below: &ProxyConfig, over: &ProxyConfig) -> Result<ProxyConfig, TextError> {
    Ok(below.apply(&json(over))?.value)
}

/// The JSON of a config.
fn json(config: &ProxyConfig) -> String {
    proto_json::to_proto_json_text(config).expect("all map keys of a ProxyConfig are strings")
}

/// The ProxyConfig object for a whole namespace.
fn whole_namespace(
    resources: &BTreeMap<String, Vec<Resource>>,
    namespace: &str,
) -> Option<ProxyConfig> {
    let whole = resources
        .get(namespace)?
        .iter()
        .find(|resource| resource.spec.selector.is_none())?;
    Some(of_resource(whole))
}

/// Whether an object selects a pod by labels.
fn selects(resource: &Resource, pod: &Value) -> bool {
    let Some(selector) = &resource.spec.selector else {
        return false;
    };
    let has = |(name, value): (&String, &String)| pod::label(pod, name) == Some(value.as_str());
    !selector.match_labels.is_empty() && selector.match_labels.iter().all(has)
}

/// The proxy config with an object's fields.
fn of_resource(resource: &Resource) -> ProxyConfig {
    let istio::ProxyConfig {
        selector: _,
        concurrency,
        environment_variables,
        image,
    } = &resource.spec;
    ProxyConfig {
        concurrency: *concurrency,
        proxy_metadata: environment_variables.clone(),
        image: image.as_ref().map(|image| ProxyImage {
            image_type: image.image_type.clone(),
        }),
        ..ProxyConfig::default()
    }
}

/// The JSON for the proxy's environment, without the fields that have Istio's defaults.
fn text_of(config: &ProxyConfig) -> String {
    let defaults = ProxyConfig::istio_defaults();
    let mut config = config.clone();
    let texts = [
        (&mut config.config_path, &defaults.config_path),
        (&mut config.binary_path, &defaults.binary_path),
        (&mut config.discovery_address, &defaults.discovery_address),
    ];

    for (text, default) in texts {
        if text == default {
            text.clear();
        }
    }

    let durations: [(&mut Option<Duration>, _); 2] = [
        (&mut config.drain_duration, defaults.drain_duration),
        (
            &mut config.termination_drain_duration,
            defaults.termination_drain_duration,
        ),
    ];

    for (duration, default) in durations {
        if *duration == default {
            *duration = None;
        }
    }

    let numbers = [
        (&mut config.proxy_admin_port, defaults.proxy_admin_port),
        (&mut config.stat_name_length, defaults.stat_name_length),
        (&mut config.status_port, defaults.status_port),
    ];

    for (number, default) in numbers {
        if *number == default {
            *number = 0;
        }
    }

    if config.control_plane_auth_policy == defaults.control_plane_auth_policy {
        config.control_plane_auth_policy = AuthenticationPolicy::default();
    }

    if config.service_cluster == defaults.service_cluster {
        config.service_cluster = None;
    }

    json(&config)
}
