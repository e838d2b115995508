//! Changes to a pod after the overlays: everything that templates cannot express, or must not get
//! wrong.

pub(super) mod cluster;
mod order;
mod probes;
pub(super) mod prometheus;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::InjectError;
use super::go_json;
use super::names::{NETWORK, STATUS};
use super::pod::{self, List};
use navarch_api::mesh::{MeshConfig, ProxyConfig};
use navarch_base::go_text::parse_bool;

/// The settings for the final changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finishing<'a> {
    pub(super) mesh: &'a MeshConfig,
    /// The pod's proxy config.
    pub(super) proxy_config: &'a ProxyConfig,
    /// Whether the values delay the application until the proxy has started.
    pub(super) hold: bool,
    /// Whether the values redirect probes to the agent.
    pub(super) rewrite_probes: bool,
    /// Environment variables of the proxy that override the template's.
    pub(super) environment: &'a BTreeMap<String, String>,
    /// The annotations from the injection config.
    pub(super) annotations: &'a BTreeMap<String, String>,
    /// The revision of the control plane.
    pub(super) revision: &'a str,
}

impl Finishing<'_> {
    /// Applies the final changes to a pod that was merged with a template.
    ///
    /// # Errors
    /// When the pod's metrics annotations cannot be merged.
    pub(super) fn finish(&self, pod: &mut Value, template: &Value) -> Result<(), InjectError> {
        let again = pod::annotation(pod, STATUS).is_some();
        cluster::set_environment(pod, self.environment);
        let agent_port = self.mesh.default_config.status_port;
        if merges_metrics(pod, self.mesh) {
            prometheus::merge(pod, &agent_port.to_string())?;
        }

        prometheus::announce_secure_port(pod);
        probes::rewrite(pod, self.rewrite_probes, agent_port);

        if again {
            for name in [prometheus::SCRAPING, probes::PROBERS] {
                cluster::move_last(pod, name);
            }
        }

        if let Some(network) = self.environment.get("ISTIO_META_NETWORK") {
            pod::labels_mut(pod).insert(NETWORK.to_owned(), json!(network));
        }

        let annotations = pod::annotations_mut(pod);
        annotations.insert(STATUS.to_owned(), json!(status(template, self.revision)));
        annotations.extend(
            self.annotations
                .iter()
                .map(|(name, value)| (name.clone(), json!(value))),
        );

        let hold = self
            .proxy_config
            .hold_application_until_proxy_starts
            .unwrap_or_default()
            || self.hold;
        order::order(pod, hold);

        Ok(())
    }
}

/// Whether the agent serves the application's metrics: from the annotation, else mesh config; the
/// default is true.
fn merges_metrics(pod: &Value, mesh: &MeshConfig) -> bool {
    let value = pod::annotation(pod, "prometheus.istio.io/merge-metrics").and_then(parse_bool);
    value.or(mesh.enable_prometheus_merge).unwrap_or(true)
}

/// The status annotation: names of the template's containers, volumes and image pull secrets, and
/// the revision.
fn status(template: &Value, revision: &str) -> String {
    let names = |items: &[Value]| -> Value {
        let names: Vec<_> = items.iter().map(pod::name).collect();
        if names.is_empty() {
            Value::Null
        } else {
            json!(names)
        }
    };

    let list = |field: &str| {
        let items = template
            .get("spec")
            .and_then(|spec| spec.get(field))
            .and_then(Value::as_array);
        names(items.map_or(&[], Vec::as_slice))
    };

    let revision = if revision.is_empty() {
        "default"
    } else {
        revision
    };

    let parts = [
        (List::Init.field(), list(List::Init.field())),
        (List::Containers.field(), list(List::Containers.field())),
        ("volumes", list("volumes")),
        ("imagePullSecrets", list("imagePullSecrets")),
        ("revision", json!(revision)),
    ];

    let parts: Vec<_> = parts
        .iter()
        .map(|(name, value)| format!("\"{name}\":{}", go_json::text(value)))
        .collect();
    format!("{{{}}}", parts.join(","))
}
