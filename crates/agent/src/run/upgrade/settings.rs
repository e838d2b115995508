//! The settings of replacing Envoy by another version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::epochs;
use super::super::prepare::Prepared;
use crate::oci::pull_secret::PullSecretFile;
use crate::settings::Settings;
use crate::upgrade::UpgradeConfig;
use crate::upgrade::attempt::AttemptLimits;
use crate::upgrade::signature::{KeyError, Keys};
use crate::variables::Variables;
use navarch_base::regular_file;

/// Reads the settings. A key that cannot be used is logged, and artefacts are refused with the
/// reason.
pub(in crate::run) fn config(
    prepared: &Prepared,
    variables: &Variables,
    user: Option<u32>,
) -> UpgradeConfig {
    let original = PathBuf::from(&prepared.config.binary_path);
    let folders = Settings::paths(variables.text("NAVARCH_PROXY_UPGRADE_PATHS"));
    let own_folder = original.parent().map(Path::to_owned);
    let store = variables.text_or("NAVARCH_PROXY_UPGRADE_STORE", "/var/lib/istio/data/envoy");
    let pull_secret = variables.text("NAVARCH_PROXY_UPGRADE_PULL_SECRET");
    let fetch = variables.duration(
        "NAVARCH_PROXY_UPGRADE_FETCH_TIMEOUT",
        Duration::from_mins(5),
    );
    let start = variables.duration(
        "NAVARCH_PROXY_UPGRADE_START_TIMEOUT",
        Duration::from_mins(1),
    );
    let judging = variables.duration("NAVARCH_PROXY_UPGRADE_JUDGING", Duration::from_secs(30));

    UpgradeConfig {
        folders: if folders.is_empty() {
            own_folder.into_iter().collect()
        } else {
            folders
        },
        original,
        keys: keys(variables.text("NAVARCH_PROXY_UPGRADE_KEY")),
        pull_secret: (!pull_secret.is_empty()).then(|| PullSecretFile::new(pull_secret.into())),
        store: store.into(),
        limits: AttemptLimits {
            fetch,
            start,
            judging,
        },
        user,
        drain: epochs::hot_restart(prepared)
            .map_or(Duration::ZERO, |hot_restart| hot_restart.parent_shutdown),
    }
}

/// The public keys in a PEM text, or in the file with this path.
fn keys(text: &str) -> Option<Result<Keys, KeyError>> {
    if text.is_empty() {
        return None;
    }
    let keys = if text.trim_start().starts_with("-----BEGIN") {
        Keys::parse(text.as_bytes())
    } else {
        let read = regular_file::read_text(text.as_ref());
        read.map_err(|source| KeyError::File {
            path: text.to_owned(),
            source,
        })
        .and_then(|pem| Keys::parse(pem.as_bytes()))
    };
    if let Err(error) = &keys {
        let reason: &dyn std::error::Error = error;
        tracing::error!(reason, "artefacts with another Envoy are refused");
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_pem_text_or_the_path_of_a_file() {
        use crate::upgrade::signature::tests::key;

        assert!(keys("").is_none());
        let pem = key().public_key_pem();
        assert!(keys(&pem).is_some_and(|keys| keys.is_ok()));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let text = path.to_string_lossy().into_owned();
        let missing = keys(&text);
        assert!(matches!(missing, Some(Err(KeyError::File { .. }))));
        std::fs::write(&path, pem).unwrap();
        assert!(keys(&text).is_some_and(|keys| keys.is_ok()));
    }
}
