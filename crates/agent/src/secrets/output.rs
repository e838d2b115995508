//! `OUTPUT_CERTS`: writes the workload's certificate, key and roots to files, for programs without
//! SDS.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Secret, Secrets};
use navarch_base::atomic_file;

/// The mode of the files on a machine: readable by the agent's user only, as in Istio.
const MACHINE_MODE: u32 = 0o600;
/// The mode of the files in a pod: readable by everyone who has the folder, as in Istio. They are
/// for other containers of the pod, such as Prometheus, which run as other users.
const POD_MODE: u32 = 0o644;

/// Where certificates and keys are written to, and who may read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFiles {
    /// `OUTPUT_CERTS`.
    pub folder: PathBuf,
    /// The mode of the files.
    mode: u32,
}

impl OutputFiles {
    /// Files in a folder of a pod (`in_pod`) or of a machine.
    #[must_use]
    pub fn new(folder: PathBuf, in_pod: bool) -> Self {
        let mode = if in_pod { POD_MODE } else { MACHINE_MODE };
        Self { folder, mode }
    }
}

/// Writes the current secrets, and every change. Without `OUTPUT_CERTS`, waits forever.
pub(super) async fn follow(secrets: &Secrets) {
    let Some(output) = secrets.0.config.output.clone() else {
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
        let target = output.clone();
        let written = tokio::task::spawn_blocking(move || write(&target, &secret)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(folder = %output.folder.display(), %error, "failed to write certificates");
        }
    }
}

/// Writes one secret. The key is written before the certificate, for programs that watch the
/// certificate.
fn write(output: &OutputFiles, secret: &Arc<Secret>) -> io::Result<()> {
    let folder = &output.folder;
    let mode = output.mode;
    std::fs::create_dir_all(folder)?;
    let replace =
        |name: &str, bytes: &[u8]| atomic_file::replace(&folder.join(name), bytes, Some(mode));

    match &**secret {
        Secret::Certificate { chain, key } => {
            replace("key.pem", key.expose())?;
            replace("cert-chain.pem", chain)
        }
        Secret::Roots(roots) => replace("root-cert.pem", roots),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tokio_util::sync::CancellationToken;

    use super::super::tests::{clock, config};
    use super::super::{SecretsConfig, replace as publish};
    use super::*;
    use navarch_api::kubernetes::SecretBytes;

    use crate::metrics::AgentMetrics;

    #[tokio::test]
    async fn existing_certificates_are_written_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let config = SecretsConfig {
            output: Some(OutputFiles::new(output.clone(), true)),
            ..config(folder.path())
        };
        let (secrets, _task) = Secrets::new(
            config,
            None,
            clock,
            AgentMetrics::default(),
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

    #[test]
    fn files_are_readable_for_other_containers_of_a_pod_and_for_no_other_user_of_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Arc::new(Secret::Certificate {
            chain: "CHAIN".into(),
            key: SecretBytes::new("KEY"),
        });
        let roots = Arc::new(Secret::Roots("ROOTS".into()));

        for (name, in_pod, expected) in [("pod", true, 0o644), ("machine", false, 0o600)] {
            let output = OutputFiles::new(folder.path().join(name), in_pod);
            write(&output, &certificate).unwrap();
            write(&output, &roots).unwrap();

            for file in ["key.pem", "cert-chain.pem", "root-cert.pem"] {
                let found = std::fs::metadata(output.folder.join(file)).unwrap();
                assert_eq!(
                    found.permissions().mode() & 0o777,
                    expected,
                    "{name} {file}"
                );
            }
        }
    }
}
