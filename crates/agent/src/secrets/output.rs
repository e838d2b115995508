//! `OUTPUT_CERTS`: writes the workload's certificate, key and roots to files, for programs without
//! SDS.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Secret, Secrets};

/// The mode of the files: readable by the owner only, as in Istio.
const MODE: u32 = 0o600;

/// Writes the current secrets, and every change. Without `OUTPUT_CERTS`, waits forever.
pub(super) async fn follow(secrets: &Secrets) {
    let Some(folder) = secrets.0.config.output.clone() else {
        return std::future::pending().await;
    };

    let mut certificate = secrets.0.certificate.subscribe();
    let mut roots = secrets.0.roots.subscribe();

    // Current values are written, too.
    certificate.mark_changed();
    roots.mark_changed();

    loop {
        let changed = tokio::select! {
            Ok(()) = certificate.changed() => certificate.borrow_and_update().clone(),
            Ok(()) = roots.changed() => roots.borrow_and_update().clone(),
            else => return,
        };
        let Some(secret) = changed else { continue };
        let target = folder.clone();
        let written = tokio::task::spawn_blocking(move || write(&target, &secret)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(folder = %folder.display(), %error, "failed to write certificates");
        }
    }
}

/// Writes one secret. The key is written before the certificate, for programs that watch the
/// certificate.
fn write(folder: &Path, secret: &Arc<Secret>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    match &**secret {
        Secret::Certificate { chain, key } => {
            replace(folder, "key.pem", key.expose())?;
            replace(folder, "cert-chain.pem", chain)
        }
        Secret::Roots(roots) => replace(folder, "root-cert.pem", roots),
    }
}

/// Replaces a file atomically.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!(".{name}.new"));
    let path = folder.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Created with this mode, so that it is never readable for others.
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::tests::{clock, config};
    use super::super::{SecretsConfig, replace as publish};
    use super::*;
    use crate::metrics::AgentMetrics;

    #[tokio::test]
    async fn existing_certificates_are_written_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let config = SecretsConfig {
            output: Some(output.clone()),
            ..config(folder.path())
        };
        let (secrets, _task) = Secrets::new(
            config,
            None,
            (clock, AgentMetrics::default()),
            CancellationToken::new(),
        );

        publish(&secrets.0.roots, Secret::Roots("ROOTS".into()));
        let written = async {
            while std::fs::read_to_string(output.join("root-cert.pem"))
                .ok()
                .as_deref()
                != Some("ROOTS")
            {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };

        tokio::select! {
            () = follow(&secrets) => panic!("it has ended"),
            () = written => {}
            () = tokio::time::sleep(std::time::Duration::from_secs(20)) => panic!("nothing is written"),
        }
    }
}
