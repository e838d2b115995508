//! `navarch inject`: injects objects in files, without a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use navarch_answers::difference::text_diff;
use serde_json::Value;

use super::environment;
use super::output::{print_yaml, report};
use super::reading::read;
use navarch_api::mesh::MeshConfig;
use navarch_api::yaml::{self, Schema};
use navarch_base::printable::escape;
use navarch_webhook::inject::{Injector, InjectorInputs, NativeSidecars, Note, inject_object};

/// Add the proxy to the pods of files, as the webhook would
///
/// Reads YAML or JSON with any number of objects, and prints them as YAML; objects without pods
/// stay as they are. Values, config and mesh config are those of the ConfigMaps
/// istio-sidecar-injector and istio; without them the defaults of an installation are used.
#[derive(Args, Debug)]
pub(super) struct Inject {
    /// File with the objects, or - for the standard input; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File with the mesh config: key mesh of the ConfigMap istio
    #[arg(
        long = "meshConfigFile",
        alias = "mesh-config-file",
        value_name = "FILE"
    )]
    mesh_config: Option<PathBuf>,
    /// File with the chart's values: key values of the ConfigMap istio-sidecar-injector
    #[arg(long = "valuesFile", alias = "values-file", value_name = "FILE")]
    values: Option<PathBuf>,
    /// File with policy and templates: key config of the ConfigMap istio-sidecar-injector
    #[arg(
        long = "injectConfigFile",
        alias = "inject-config-file",
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    /// Revision of the control plane
    #[arg(long, value_name = "REVISION", default_value = "")]
    revision: String,
    /// Namespace of objects without one
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Show what changes, as a unified diff
    #[arg(long)]
    diff: bool,
}

impl Inject {
    /// Injects the files and prints the result.
    ///
    /// # Errors
    /// If a file cannot be read, or a pod is rejected.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let injector = self.injector()?;
        let mut out = String::new();
        let mut notes = Vec::new();

        for file in &self.files {
            let text = read(file)?;
            for document in yaml::documents(&text) {
                let mut object: Value =
                    yaml::parse(document.text, Schema::V1_1).map_err(|error| {
                        anyhow::anyhow!(
                            "{}, after line {}: {error}",
                            file.display(),
                            document.lines_before
                        )
                    })?;
                let before = object.clone();
                inject_object(&injector, &mut object, &self.namespace, &mut notes)
                    .with_context(|| file.display().to_string())?;
                out.push_str(&self.shown(&before, &object)?);
            }
        }

        print_yaml(&out)?;
        for line in notes.iter().flat_map(note_lines) {
            report(&escape(&line));
        }
        Ok(())
    }

    /// The injector with the settings of the flags.
    fn injector(&self) -> anyhow::Result<Injector> {
        let mut mesh = MeshConfig::istio_defaults();

        if let Some(file) = &self.mesh_config {
            mesh = mesh
                .apply(&read(file)?)
                .with_context(|| file.display().to_string())?
                .value;
        }

        let text = |file: &Option<PathBuf>| file.as_deref().map_or_else(|| Ok(String::new()), read);
        let variable = |name: &str| environment::variable(name).unwrap_or_default();
        let inputs = InjectorInputs {
            values: text(&self.values)?,
            config: text(&self.config)?,
            revision: self.revision.clone(),
            native_sidecars: NativeSidecars::parse(&variable("ENABLE_NATIVE_SIDECARS")),
            compliance_policy: variable("COMPLIANCE_POLICY"),
            ..InjectorInputs::new(Arc::new(mesh))
        };

        Ok(Injector::new(&inputs)?)
    }

    /// An object as printed text.
    fn shown(&self, before: &Value, after: &Value) -> anyhow::Result<String> {
        let text = serde_saphyr::to_string(after)?;
        if !self.diff {
            return Ok(format!("---\n{}\n", text.trim_end()));
        }

        let before = serde_saphyr::to_string(before)?;
        let name = |path: &str| {
            after
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned()
        };

        let title = format!("{} {}", name("/kind"), name("/metadata/name"));
        let injected = format!("{title}, injected");
        Ok(text_diff(&before, &text, Some([&title, &injected])))
    }
}

/// The messages to the user about an object.
fn note_lines(note: &Note) -> Vec<String> {
    let skipped = note
        .skipped
        .map(|reason| format!("{}: not injected: {}", note.object, reason.explained()));
    let warnings = note
        .warnings
        .iter()
        .map(|warning| format!("{}: {warning}", note.object));
    skipped.into_iter().chain(warnings).collect()
}
