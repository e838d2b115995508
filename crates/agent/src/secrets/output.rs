//! `OUTPUT_CERTS`: the workload's certificate, key and roots as files, for what cannot ask for them.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Secret, Secrets};

/// Who may read the files: their owner, as Istio writes them.
const MODE: u32 = 0o600;

/// Writes what is in force, now and whenever it changes, for ever. Does nothing where nothing is to be written.
pub(super) async fn follow(secrets: &Secrets) {
    let Some(folder) = secrets.0.config.output.clone() else { return std::future::pending().await };
    let (mut certificate, mut roots) = (secrets.0.certificate.subscribe(), secrets.0.roots.subscribe());
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

/// Writes one secret. The key before the certificate: who watches the certificate finds its key.
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

/// Replaces a file as a whole.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (new, path) = (folder.join(format!(".{name}.new")), folder.join(name));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Made anew with this mode: nobody else can read it, not even for a moment.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}
