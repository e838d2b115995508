//! A snapshot of a directory, without a running control plane.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tokio::sync::{Notify, mpsc};

use super::environment::{self, Variables};
use super::reading::read;
use navarch_api::any_object::AnyObject;
use navarch_api::mesh::MeshConfig;
use navarch_api::settings::Settings;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::{Change, MeshState};
use navarch_source::{FileSource, FileSourceConfig, SourceEvent};

const WAYPOINT_CLASS: &str = "istio-waypoint";
/// The variable that turns ambient mode on.
const AMBIENT: &str = "PILOT_ENABLE_AMBIENT";

/// The settings for a directory: those of `variables`, and ambient mode is on if it has a waypoint.
fn settings(changes: &[Change], variables: &Variables) -> anyhow::Result<Settings> {
    let is_waypoint = |change: &Change| matches!(change, Change::Put(AnyObject::KubernetesGateway(gateway)) if *gateway.spec.gateway_class_name == *WAYPOINT_CLASS);
    let is_ambient = changes.iter().any(is_waypoint);
    Ok(environment::settings(|name| {
        let value = variables.get(name);
        value.or_else(|| (is_ambient && name == AMBIENT).then(|| "true".to_owned()))
    })?)
}

/// The snapshot of a directory, read as by `navarch discovery --config-dir`, and the errors in it.
///
/// # Errors
/// If the directory does not exist, or the mesh config cannot be read.
pub(super) fn snapshot(
    directory: &Path,
    mesh: Option<&PathBuf>,
) -> anyhow::Result<(Arc<PushContext>, Vec<String>)> {
    snapshot_with(directory, mesh, &Variables::default())
}

/// Like [`snapshot`], by a control plane with these environment variables.
///
/// # Errors
/// As [`snapshot`], and if a variable is invalid.
pub(super) fn snapshot_with(
    directory: &Path,
    mesh: Option<&PathBuf>,
    variables: &Variables,
) -> anyhow::Result<(Arc<PushContext>, Vec<String>)> {
    ensure!(
        directory.is_dir(),
        "{} is not a directory",
        directory.display()
    );
    let mut config = MeshConfig::istio_defaults();

    if let Some(file) = mesh {
        config = config
            .apply(&read(file)?)
            .with_context(|| file.display().to_string())?
            .value;
    }

    let mut changes = vec![Change::Mesh(Arc::new(config))];
    let mut problems = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the tokio runtime")?;
    runtime.block_on(async {
        let (sender, mut batches) = mpsc::channel(64);
        let source = FileSource::new(FileSourceConfig {
            root: directory.to_owned(),
        });
        let mut reading = std::pin::pin!(source.run(sender, Arc::new(Notify::new())));

        loop {
            let batch = tokio::select! {
                ended = &mut reading => return ended.context("failed to read the directory"),
                batch = batches.recv() => batch.unwrap_or_default(),
            };
            for event in batch {
                match event {
                    SourceEvent::Added(object) | SourceEvent::Updated(object) => {
                        changes.push(Change::Put(object.without_internal_annotations()));
                    }
                    SourceEvent::Problems {
                        problems: found, ..
                    } => {
                        problems.extend(found.iter().map(ToString::to_string));
                    }
                    SourceEvent::FullSync => return Ok(()),
                    // A directory sends no other events before it has been read.
                    SourceEvent::Deleted(_)
                    | SourceEvent::MeshConfig(_)
                    | SourceEvent::MeshNetworks(_)
                    | SourceEvent::Keys(..) => {}
                }
            }
        }
    })?;

    let mut state = MeshState::new(settings(&changes, variables)?);
    state.apply(changes);
    Ok((state.context(), problems))
}
