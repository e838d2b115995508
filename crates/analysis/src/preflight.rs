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

use navarch_api::istiod::{self, Istiod};
use serde_json::Value;

use crate::kind::Kind;
pub use objects::Objects;
use objects::{label, name, namespace};
pub use process::Process;
use release::Minor;
pub use row::{Outcome, Preflight, Row};
pub use values::HelmValues;

/// The label with the version of the chart that has made an object.
const CHART_VERSION: &str = "app.kubernetes.io/version";
/// What stands for a container that is not there.
static NO_CONTAINER: Value = Value::Null;

/// An installation of Istio: one control plane, and the objects around it.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    objects: &'a Objects,
    istiod: Istiod<'a>,
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
            .iter()
            .filter_map(Istiod::of)
            .filter(|istiod| istiod.namespace() == system)
            .map(|istiod| Self { objects, istiod })
            .collect();
        let found: Vec<_> = all
            .iter()
            .filter(|one| revision.is_none_or(|revision| one.revision() == revision))
            .collect();

        let (app, value) = istiod::APP;

        match found.as_slice() {
            [one] => Ok(**one),
            [] if all.is_empty() => Err(format!(
                "namespace {system} has no Deployment with the label {app}={value}: find it with \
                 `kubectl get deployments -A -l {app}={value}`, and set --istioNamespace"
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
        objects::title(self.deployment())
    }

    /// The namespace of the control plane.
    fn namespace(self) -> &'a str {
        self.istiod.namespace()
    }

    /// Its revision; `default` for the one without a name.
    fn revision(self) -> &'a str {
        self.istiod.revision()
    }

    fn deployment(self) -> &'a Value {
        self.istiod.deployment()
    }

    /// The container of the control plane; null without one.
    fn container(self) -> &'a Value {
        self.istiod.container().unwrap_or(&NO_CONTAINER)
    }

    /// The release of istiod: that of its image. If the image is named by a digest, or by a tag of
    /// the user's own, that of the tag which the same chart has set for proxies, else that of the
    /// chart. `None` if no release can be told.
    fn release(self) -> Option<Minor> {
        let image = objects::text(self.container(), "/image");
        let chart = label(self.deployment(), CHART_VERSION);
        Minor::of_image(image)
            .or_else(|| Minor::parse(&values::proxy_tag(self)?))
            .or_else(|| Minor::of_chart(chart))
    }

    /// The entry of a ConfigMap of this revision.
    fn entry(self, map: &str, key: &str) -> Option<&'a str> {
        let found = self.config_map(map)?.get("data")?.get(key)?;
        found.as_str()
    }

    /// The ConfigMap of this revision with this name, such as `istio`.
    fn config_map(self, map: &str) -> Option<&'a Value> {
        let wanted = self.istiod.named(map);
        self.objects
            .of(objects::CONFIG_MAP)
            .find(|object| namespace(object) == self.namespace() && name(object) == wanted)
    }
}

/// The revisions of control planes, in one line.
fn revisions(all: &[Installation<'_>]) -> String {
    let revisions: BTreeSet<_> = all.iter().map(|one| one.revision()).collect();
    revisions.into_iter().collect::<Vec<_>>().join(", ")
}
