//! What replacing an istiod changes: what stays the same, what has no effect in Navarch, and what
//! must be done first; and the Helm values with which Navarch's chart takes over.
//!
//! ```text
//! Objects (without values of Secrets) ─▶ Installation ─▶ rows of each part ─▶ Preflight
//!                                             └─▶ HelmValues, and rows of what they cannot keep
//! ```
//!
//! How flags and variables are read is known where they are read; those rows come from there, given
//! [`Installation::process`].

mod configuration;
mod control_plane;
mod credentials;
mod data_plane;
mod mesh_settings;
mod objects;
mod process;
mod release;
mod row;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;

use navarch_api::revision::REVISION_LABEL;
use serde_json::Value;

use crate::kind::Kind;
pub use objects::Objects;
use objects::{DEPLOYMENT, label, name, namespace};
pub use process::Process;
pub use row::{Outcome, Preflight, Row};
pub use values::HelmValues;

/// The label of control planes.
const APP: &str = "app";
/// The value of that label.
const ISTIOD: &str = "istiod";
/// The revision without a name.
const DEFAULT_REVISION: &str = "default";
/// What stands for a container that is not there.
static NO_CONTAINER: Value = Value::Null;

/// An installation of Istio: one control plane, and the objects around it.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    objects: &'a Objects,
    /// The namespace of the control plane.
    namespace: &'a str,
    /// Its revision; `default` for the one without a name.
    revision: &'a str,
    deployment: &'a Value,
}

impl<'a> Installation<'a> {
    /// The control plane of a namespace, and of a revision if there are several.
    ///
    /// # Errors
    /// If there is none, or several and no revision selects one.
    pub fn find(
        objects: &'a Objects,
        system: &str,
        revision: Option<&str>,
    ) -> Result<Self, String> {
        let all: Vec<_> = objects
            .of(DEPLOYMENT)
            .filter(|object| namespace(object) == system && label(object, APP) == ISTIOD)
            .map(|deployment| Self {
                objects,
                namespace: namespace(deployment),
                revision: revision_of(deployment),
                deployment,
            })
            .collect();
        let found: Vec<_> = all
            .iter()
            .filter(|one| revision.is_none_or(|revision| one.revision == revision))
            .collect();

        match found.as_slice() {
            [one] => Ok(**one),
            [] if all.is_empty() => Err(format!(
                "namespace {system} has no Deployment with the label {APP}={ISTIOD}: find it with \
                 `kubectl get deployments -A -l {APP}={ISTIOD}`, and set --istioNamespace"
            )),
            [] => Err(format!(
                "namespace {system} has no control plane of revision {:?}: set --revision to one of {}",
                revision.unwrap_or_default(),
                revisions(&all)
            )),
            _ => Err(format!(
                "namespace {system} has several control planes: set --revision to one of {}",
                revisions(&all)
            )),
        }
    }

    /// What replacing this control plane changes. `process` are the rows about its flags and
    /// variables, `missing` the kinds that could not be read.
    #[must_use]
    pub fn preflight(
        self,
        values: &HelmValues,
        process: Vec<Row>,
        missing: &BTreeSet<Kind>,
    ) -> Preflight {
        let mesh = mesh_settings::read(self);
        let mut rows = control_plane::rows(self, missing);
        rows.extend(process);
        rows.extend(mesh.rows);
        rows.extend_from_slice(values.rows());
        rows.extend(data_plane::rows(self));
        rows.extend(configuration::rows(self, mesh.mesh, missing));

        Preflight::new(self.title(), rows)
    }

    /// The command line and the environment of the control plane.
    #[must_use]
    pub fn process(self) -> Process {
        Process::of(self.container())
    }

    /// The Deployment as rows name it.
    #[must_use]
    pub fn title(self) -> String {
        objects::title(self.deployment)
    }

    /// The container of the control plane: the one named `discovery`, or the first.
    fn container(self) -> &'a Value {
        let containers = objects::items(self.deployment, "/spec/template/spec/containers");
        let mut named =
            containers.filter(|container| objects::text(container, "/name") == "discovery");
        let mut all = objects::items(self.deployment, "/spec/template/spec/containers");
        named.next().or_else(|| all.next()).unwrap_or(&NO_CONTAINER)
    }

    /// The name of an object of this revision: `istio`, or `istio-canary`.
    fn named(self, name: &str) -> String {
        if self.revision == DEFAULT_REVISION {
            name.to_owned()
        } else {
            format!("{name}-{}", self.revision)
        }
    }

    /// The entry of a ConfigMap of this revision.
    fn entry(self, map: &str, key: &str) -> Option<&'a str> {
        let found = self.config_map(map)?.get("data")?.get(key)?;
        found.as_str()
    }

    /// The ConfigMap of this revision with this name, such as `istio`.
    fn config_map(self, map: &str) -> Option<&'a Value> {
        let wanted = self.named(map);
        self.objects
            .of(objects::CONFIG_MAP)
            .find(|object| namespace(object) == self.namespace && name(object) == wanted)
    }
}

/// The revision of a control plane with this Deployment.
fn revision_of(deployment: &Value) -> &str {
    match label(deployment, REVISION_LABEL) {
        "" => DEFAULT_REVISION,
        revision => revision,
    }
}

/// The revisions of control planes, in one line.
fn revisions(all: &[Installation<'_>]) -> String {
    let revisions: BTreeSet<_> = all.iter().map(|one| one.revision).collect();
    revisions.into_iter().collect::<Vec<_>>().join(", ")
}
