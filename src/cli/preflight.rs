//! `navarch preflight`: what replacing an istiod by Navarch changes.

mod cluster;
mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use navarch_analysis::preflight::{HelmValues, Installation, Objects};
use navarch_base::atomic_file;
use navarch_base::printable::escape;

use super::kubeconfig::{IstioNamespaceFlag, KubeconfigFlags, ReadTimeoutFlag};
use super::output::{Output, print, print_yaml, report};
use super::progress::Progress;
use super::reading;
use cluster::Look;

/// The exit code if something must be done first.
const BLOCKED_EXIT_CODE: u8 = 1;
/// The exit code if not everything could be looked at.
const UNSEEN_EXIT_CODE: u8 = 2;
/// The standard output as the file of the values.
const STDOUT: &str = "-";
/// The mode of the file of the values.
const PRIVATE_MODE: u32 = 0o600;
/// The advice if there is no kubeconfig.
const ADVICE: &str = "name a kubeconfig by --kubeconfig, or a dump of the objects by --from";

/// See what replacing an istiod by Navarch changes
///
/// Looks at an installation of Istio and reports what must be done first, what has no effect in
/// Navarch, and what stays the same: istiod's release, flags and variables, mesh config, the
/// injector, the CA, webhooks, kinds and objects, proxies, ztunnel and istio-cni, Gateways and
/// remote clusters. With --values it writes the Helm values that keep the installation's settings.
///
/// Nothing is changed. Only names of Secrets are read from a cluster; values of Secrets in a dump
/// are dropped, and credentials in settings are left out of the values.
///
/// Exit codes: 0 nothing must be done first; 1 something must be done first; 2 the command line is
/// wrong, or not everything could be looked at.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch preflight                                   the cluster of the kubeconfig
  navarch preflight --context east --revision canary  one of several control planes
  navarch preflight --values values.yaml && helm upgrade istiod deploy/charts/navarch -n istio-system -f values.yaml --skip-crds
  navarch preflight --from dump/ -o json              files that `kubectl get -o yaml` has written")]
pub(super) struct Preflight {
    /// File or directory with the objects as YAML or JSON, or - for the standard input, instead of
    /// a cluster
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,
    /// File to write the Helm values to, which its owner alone can read, or - to print them instead
    /// of the report, which is then on the standard error
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    #[command(flatten)]
    system: IstioNamespaceFlag,
    /// Revision of the control plane (label istio.io/rev); required if there are several
    #[arg(short = 'r', long, value_name = "NAME")]
    revision: Option<String>,
    /// Output format of the report
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    timeout: ReadTimeoutFlag,
}

impl Preflight {
    /// Looks at the installation and prints the report and the values.
    ///
    /// # Errors
    /// Never: a failure is printed, and has its own exit code.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let code = self.look().unwrap_or_else(|error| {
            report(&format!("Error: {error:?}"));
            UNSEEN_EXIT_CODE
        });
        Ok(ExitCode::from(code))
    }

    /// Looks at the installation, prints everything and returns the exit code.
    fn look(&self) -> anyhow::Result<u8> {
        let look = match &self.from {
            Some(path) => Look {
                objects: read_dump(path)?,
                missing: BTreeSet::new(),
                gaps: Vec::new(),
            },
            None => self.read_cluster()?,
        };
        let found = Installation::find(
            &look.objects,
            &self.system.istio_namespace,
            self.revision.as_deref(),
        );
        for gap in &look.gaps {
            report(&escape(&format!("Warning: {gap}.")));
        }

        let installation = found.map_err(anyhow::Error::msg)?;
        let values = HelmValues::of(installation);
        let process = process::rows(&installation.title(), &installation.process());
        let preflight = installation.preflight(&values, process, &look.missing);

        match &self.values {
            Some(file) if file == Path::new(STDOUT) => {
                report(&preflight.to_string().trim_end());
                print_yaml(&values.yaml())?;
            }
            Some(file) => {
                write_private(file, &values.yaml())?;
                print(self.output, &preflight, &preflight)?;
            }
            None => print(self.output, &preflight, &preflight)?,
        }

        Ok(if preflight.is_blocked() {
            BLOCKED_EXIT_CODE
        } else if look.gaps.is_empty() {
            0
        } else {
            UNSEEN_EXIT_CODE
        })
    }

    /// Reads the objects of the kubeconfig's cluster.
    fn read_cluster(&self) -> anyhow::Result<Look> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;

        runtime.block_on(async {
            let opened = self.kubeconfig.required(ADVICE).await?;
            let _progress = Progress::begin("reading the objects of the installation");
            let reading = cluster::read(&opened, &self.system.istio_namespace);
            self.timeout.limit(&opened.name, reading).await
        })
    }
}

/// Writes a file for its owner alone: values of variables may be tokens. What is no regular file,
/// such as a pipe, is written to as it is.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let is_special = std::fs::metadata(file).is_ok_and(|found| !found.is_file());
    let written = if is_special {
        std::fs::write(file, text)
    } else {
        atomic_file::replace(file, text.as_bytes(), Some(PRIVATE_MODE))
    };
    written.with_context(|| format!("failed to write {}", file.display()))
}

/// Reads the objects of files.
fn read_dump(path: &Path) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    reading::read_objects(path, |object| objects.add(object))?;
    if objects.is_empty() {
        bail!(
            "{} has no objects: dump them with `kubectl get -o yaml`",
            path.display()
        );
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_of_the_values_is_readable_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.yaml");
        std::fs::write(&file, "old").unwrap();

        write_private(&file, "env: {}\n").unwrap();

        assert_eq!(std::fs::read_to_string(&file).unwrap(), "env: {}\n");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE_MODE);
    }
}
