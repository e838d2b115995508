//! Mesh config and mesh networks of the installation.

use navarch_api::mesh::MeshNetworks;
use navarch_api::validation::{Problem, Verdict, validate_mesh_config, validate_mesh_networks};

use super::Installation;
use super::row::{Outcome, Row};
use crate::context::Mesh;

/// The ConfigMap, without its revision.
pub(super) const CONFIG_MAP: &str = "istio";
/// Its entry with the mesh config.
pub(super) const CONFIG: &str = "mesh";
/// Its entry with the networks.
pub(super) const NETWORKS: &str = "meshNetworks";
/// What to do with a field without effect.
const REMOVE: &str = "remove the field, or leave it: it is ignored";

/// The settings of the mesh, and their rows of the report.
#[derive(Debug)]
pub(super) struct MeshSettings {
    pub(super) mesh: Mesh,
    pub(super) rows: Vec<Row>,
}

/// Reads the settings as the control plane does: over Istio's defaults.
pub(super) fn read(installation: Installation<'_>) -> MeshSettings {
    let mut mesh = Mesh {
        system_namespace: installation.namespace().to_owned(),
        ..Mesh::default()
    };
    let mut rows = Vec::new();
    let object = format!(
        "ConfigMap {}/{}",
        installation.namespace(),
        installation.istiod.named(CONFIG_MAP)
    );

    if let Some(text) = installation.entry(CONFIG_MAP, CONFIG) {
        match mesh.config.apply(text) {
            Ok(read) => {
                let verdict = validate_mesh_config(&read.value);
                rows.extend(unknown(&object, CONFIG, &read.unknown_fields));
                rows.extend(problems(&object, CONFIG, &verdict));
                mesh.config = read.value;
            }
            Err(error) => rows.push(unreadable(&object, CONFIG, &error.to_string())),
        }
    }

    if let Some(text) = installation.entry(CONFIG_MAP, NETWORKS) {
        match MeshNetworks::parse(text) {
            Ok(read) => {
                let verdict = validate_mesh_networks(&read.value);
                rows.extend(unknown(&object, NETWORKS, &read.unknown_fields));
                rows.extend(problems(&object, NETWORKS, &verdict));
                mesh.networks = read.value;
            }
            Err(error) => rows.push(unreadable(&object, NETWORKS, &error.to_string())),
        }
    }

    if rows.is_empty() {
        let reason = "mesh config and networks are read as istiod reads them";
        rows.push(Row::new(Outcome::Same, &object, reason));
    }
    MeshSettings { mesh, rows }
}

/// A text that cannot be read at all.
fn unreadable(object: &str, entry: &str, error: &str) -> Row {
    Row::new(Outcome::DoFirst, object, error)
        .at(entry)
        .then("correct the entry: without it the mesh has Istio's defaults")
}

/// Fields that mesh config does not have.
fn unknown(object: &str, entry: &str, fields: &[String]) -> Vec<Row> {
    let row = |field: &String| {
        let reason = "is no field that Navarch knows";
        Row::new(Outcome::NoEffect, object, reason)
            .at(format!("{entry}: {field}"))
            .then(REMOVE)
    };
    fields.iter().map(row).collect()
}

/// Invalid fields, and fields without effect.
fn problems(object: &str, entry: &str, verdict: &Verdict) -> Vec<Row> {
    let row = |outcome, problem: &Problem| {
        Row::new(outcome, object, &problem.message).at(format!("{entry}: {}", problem.field))
    };
    let errors = verdict
        .errors
        .iter()
        .map(|problem| row(Outcome::DoFirst, problem).then("correct the field"));
    let without_effect = verdict
        .warnings
        .iter()
        .filter(|problem| problem.is_without_effect())
        .map(|problem| row(Outcome::NoEffect, problem).then(REMOVE));
    errors.chain(without_effect).collect()
}
