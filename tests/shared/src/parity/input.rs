//! The input of a case as changes of the mesh.

use std::sync::Arc;

use navarch::api::any_object::AnyObject;
use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::{MeshConfig, MeshNetworks};
use navarch::api::names::ClusterId;
use navarch::api::settings::Settings;
use navarch::cli::environment;
use navarch::push::mesh_state::{Change, RemoteChange};

use super::case::Case;

pub fn settings(case: &Case) -> Result<Settings, String> {
    let env = case.env();
    environment::settings(|name| env.get(name).cloned()).map_err(|error| error.to_string())
}

/// Settings and mesh-wide configuration of a case, or the error of an invalid part.
pub fn read_without_objects(case: &Case) -> Result<(Settings, Vec<Change>), String> {
    let settings = settings(case)?;
    let mesh = MeshConfig::istio_defaults();
    let mesh = match case.file("mesh.yaml") {
        Some(text) => {
            mesh.apply(&text)
                .map_err(|error| format!("mesh.yaml: {error}"))?
                .value
        }
        None => mesh,
    };

    let mut changes = vec![Change::Mesh(Arc::new(mesh))];

    if let Some(text) = case.file("networks.yaml") {
        let networks = MeshNetworks::parse(&text)
            .map_err(|error| format!("networks.yaml: {error}"))?
            .value;
        changes.push(Change::Networks(Arc::new(networks)));
    }

    Ok((settings, changes))
}

/// Settings and changes of a case, or the error of an invalid part.
pub fn read(case: &Case) -> Result<(Settings, Vec<Change>), String> {
    let (settings, mut changes) = read_without_objects(case)?;
    changes.extend(objects(case, "input.yaml")?.into_iter().map(Change::Put));
    for cluster in case.remotes() {
        let objects = objects(case, &format!("input.{cluster}.yaml"))?;
        changes.push(Change::Remote(
            ClusterId::new(cluster),
            RemoteChange::Reset(objects),
        ));
    }
    Ok((settings, changes))
}

fn objects(case: &Case, file: &str) -> Result<Vec<AnyObject>, String> {
    let text = case
        .file(file)
        .ok_or_else(|| format!("the case has no {file}"))?;
    let mut objects = Vec::new();
    for decoded in decode_documents(&text, Format::Yaml) {
        match decoded.outcome {
            Outcome::Read { object, .. } => objects.push(object),
            Outcome::Ignored => {}
            Outcome::Rejected(error) => return Err(format!("{file}:{}: {error}", decoded.line)),
        }
    }
    Ok(objects)
}
