//! Watches the user's files that Envoy is started with, and restarts Envoy gracefully when one
//! changes.
//!
//! Directories are watched instead of files, as mounted files are replaced by symbolic links of
//! their directories. Changes are detected by a hash of the files' content, and debounced until the
//! files are stable. A bootstrap that Envoy rejects is ignored.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::bootstrap_check::BootstrapCheck;
use super::prepare::{self, Prepared};
use crate::envoy_arguments::envoy_arguments;
use crate::envoy_life::EnvoyCommand;
use crate::variables::Variables;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};

/// Interval at which files are checked without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The files to watch.
pub(super) fn watched(prepared: &Prepared) -> Vec<PathBuf> {
    let paths = [
        &prepared.settings.bootstrap_override,
        &prepared.config.custom_config_file,
    ];
    paths
        .into_iter()
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// Orders a restart whenever a file's content has changed. Does not return if there are files to
/// watch.
pub(super) async fn restart_on_change(
    files: Vec<PathBuf>,
    prepared: &Prepared,
    variables: &Variables,
    check: &BootstrapCheck,
    give: mpsc::Sender<EnvoyCommand>,
) {
    if files.is_empty() {
        return std::future::pending().await;
    }

    let delay = variables
        .duration("FILE_DEBOUNCE_DURATION", Duration::from_millis(100))
        .max(Duration::from_millis(10));
    let (heard, mut changes) = mpsc::channel(1);
    let _watcher = listen(&files, heard)
        .inspect_err(|error| tracing::warn!(%error, "failed to watch files; polling them instead"))
        .ok();
    let mut known = hash(&files);

    loop {
        // Some file systems send no notifications.
        let _ = timeout(POLL_INTERVAL, changes.recv()).await;
        let found = settled(&files, delay).await;
        if found == known {
            continue;
        }

        known = found;
        let Some(arguments) = arguments(prepared) else {
            continue;
        };

        if let Err(error) = check.accepts(&arguments).await {
            tracing::error!(%error, "the changed bootstrap is not used; Envoy keeps the previous one");
            continue;
        }

        if give.send(EnvoyCommand::Restart(arguments)).await.is_err() {
            return;
        }
    }
}

/// Watches the directories of files.
fn listen(files: &[PathBuf], heard: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |_| {
        // One pending restart is enough for all changes.
        let _ = heard.try_send(());
    })?;
    for folder in files.iter().filter_map(|file| file.parent()) {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// The files' hash once they are stable.
async fn settled(files: &[PathBuf], delay: Duration) -> [u8; 32] {
    let mut last = hash(files);
    loop {
        sleep(delay).await;
        let next = hash(files);
        if next == last {
            return next;
        }
        last = next;
    }
}

/// The hash of all files. A missing file counts as empty.
fn hash(files: &[PathBuf]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for file in files {
        let content = regular_file::read(file, MAX_SETTINGS_BYTES).unwrap_or_default();
        hash.update(content.len().to_be_bytes());
        hash.update(content);
    }
    hash.finalize().into()
}

/// Envoy's arguments with the current files; `None` if the override is invalid, as while it is
/// being written.
pub(super) fn arguments(prepared: &Prepared) -> Option<Vec<String>> {
    let over = prepare::over(&prepared.settings);
    let Prepared {
        config,
        settings,
        identity,
        bootstrap,
        ..
    } = prepared;

    let readable = over.is_some() || settings.bootstrap_override.is_empty();
    readable.then(|| {
        envoy_arguments(
            config,
            settings,
            &identity.addresses,
            bootstrap,
            over.as_deref(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_reported_if_its_content_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("custom.yaml");
        std::fs::write(&file, "a").unwrap();
        let files = vec![file.clone()];
        let (heard, mut changes) = mpsc::channel(1);
        let _watcher = listen(&files, heard).unwrap();
        let before = hash(&files);
        std::fs::write(folder.path().join("next"), "b").unwrap();
        std::fs::rename(folder.path().join("next"), &file).unwrap();
        timeout(Duration::from_secs(5), changes.recv())
            .await
            .unwrap()
            .unwrap();
        assert_ne!(settled(&files, Duration::from_millis(10)).await, before);
        std::fs::write(&file, "a").unwrap();
        assert_eq!(hash(&files), before);
    }
}
