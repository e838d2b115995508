//! Starts Envoy's next epoch when certificates in files have changed: for an Envoy whose own
//! configuration names the files, because its certificates do not come by SDS.
//!
//! The agents of Istio's first versions did so. Events of the files' folders within a delay are one,
//! and only a different hash of the contents, in their listed order, starts an epoch.

use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::bootstrap_check::BootstrapCheck;
use super::prepare::Prepared;
use super::watch;
use crate::envoy_life::{EnvoyCommand, HotRestart, SharedMemory};
use crate::go_path;
use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};

/// How much longer than it drains a process lives after its successor has started: 60 s for the 45
/// of the default, as in Istio 0.8.
const SHUTDOWN_AFTER_DRAIN: Duration = Duration::from_secs(15);

/// The longest path that a socket can have, less what Envoy adds to it: the role, the base id, the
/// epoch.
const MAX_SOCKET_PATH: usize = 107 - "_udp_parent_".len() - 11;

/// How Envoy is started so that it can be succeeded; `None` if it never is.
pub(super) fn hot_restart(prepared: &Prepared) -> Option<HotRestart> {
    let settings = &prepared.settings;
    if !settings.uses_hot_restart() {
        return None;
    }
    let drain = prepared
        .config
        .drain_duration
        .and_then(|duration| duration.as_std())
        .unwrap_or_default();

    let folder = &prepared.config.config_path;
    let sockets = go_path::join(folder, "envoy-hot-restart");
    let is_short = sockets.len() <= MAX_SOCKET_PATH;
    if !is_short {
        tracing::warn!(
            folder,
            "the path is too long for sockets of hot restart: they are in the network namespace, \
             where other processes of the pod can use them"
        );
    }

    Some(HotRestart {
        base_id: go_path::join(folder, "envoy-base-id").into(),
        sockets: is_short.then(|| sockets.into()),
        shared_memory: SharedMemory::default(),
        parent_shutdown: drain.saturating_add(SHUTDOWN_AFTER_DRAIN),
        in_place: settings.replaces_in_place,
    })
}

/// Orders the next epoch whenever the content of the files has changed. Does not return if there are
/// files to watch.
pub(super) async fn next_epoch_on_change(
    prepared: &Prepared,
    check: &BootstrapCheck,
    give: mpsc::Sender<EnvoyCommand>,
) {
    let files = &prepared.settings.certificate_files;
    if files.is_empty() {
        return std::future::pending().await;
    }

    let mut events = FileEvents::of_files(files.iter().map(PathBuf::as_path));
    let mut known = hash(files);
    tracing::info!(?files, "watching certificates for the next epoch of Envoy");

    loop {
        events.wait(WATCHED_INTERVAL).await;
        sleep(prepared.settings.certificate_reload_delay).await;
        let found = hash(files);
        if found == known {
            continue;
        }
        known = found;

        let Some(arguments) = watch::arguments(prepared) else {
            continue;
        };
        if let Err(error) = check.accepts(&arguments).await {
            tracing::error!(
                ?files,
                %error,
                "the changed certificates are not used; Envoy keeps the previous ones"
            );
            continue;
        }
        tracing::info!(?files, "certificates have changed");
        if give.send(EnvoyCommand::NextEpoch).await.is_err() {
            return;
        }
    }
}

/// The hash of all files that can be read.
fn hash(files: &[PathBuf]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for file in files {
        if let Ok(content) = regular_file::read(file, MAX_SETTINGS_BYTES) {
            hash.update(content.len().to_be_bytes());
            hash.update(content);
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_read_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let chain = folder.path().join("cert-chain.pem");
        let missing = folder.path().join("absent/key.pem");
        std::fs::write(&chain, "one").unwrap();
        let both = [chain.clone(), missing];

        assert_eq!(hash(&both), hash(std::slice::from_ref(&chain)));

        let before = hash(&both);
        std::fs::write(&chain, "two").unwrap();
        assert_ne!(hash(&both), before);
    }

    #[test]
    fn the_order_of_the_files_counts() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        std::fs::write(&one, "a").unwrap();
        std::fs::write(&two, "b").unwrap();

        assert_ne!(hash(&[one.clone(), two.clone()]), hash(&[two, one]));
    }
}
