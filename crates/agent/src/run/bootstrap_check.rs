//! Whether a changed bootstrap may be used: every program of Envoy that may be started with it must
//! accept it. These are the one that runs, the one before it, which takes over again if a new one
//! fails, and the one of the image, which is started after a crash and when the container starts
//! again.

use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::prepare::Prepared;
use crate::envoy_life::RunningEnvoys;
use crate::upgrade::program::{ProgramCheck, ProgramError};

/// Validates changed bootstraps. Clones see the same Envoys.
#[derive(Clone, Debug)]
pub(super) struct BootstrapCheck {
    check: ProgramCheck,
    /// The program of the image.
    original: PathBuf,
    running: watch::Receiver<RunningEnvoys>,
}

impl BootstrapCheck {
    pub(super) fn new(
        prepared: &Prepared,
        check: ProgramCheck,
        running: watch::Receiver<RunningEnvoys>,
    ) -> Self {
        Self {
            check,
            original: PathBuf::from(&prepared.config.binary_path),
            running,
        }
    }

    /// Checks that all programs accept these arguments. They write their reasons to the agent's log.
    ///
    /// # Errors
    /// Of the first program that rejects them, or cannot be run.
    pub(super) async fn accepts(&self, arguments: &[String]) -> Result<(), ProgramError> {
        let mut accepting = Vec::new();
        // An upgrade may start another program while one validates.
        while let Some(program) = self.next(&accepting) {
            self.check.accepts(&program, arguments).await?;
            accepting.push(program);
        }
        Ok(())
    }

    /// A program that may be started and is not among these.
    fn next(&self, accepting: &[PathBuf]) -> Option<PathBuf> {
        let mut programs = self.programs().into_iter();
        programs.find(|program| !accepting.contains(program))
    }

    /// The programs that may be started, each once: that of the image first.
    fn programs(&self) -> Vec<PathBuf> {
        let mut programs = vec![self.original.clone()];
        let running = self.running.borrow();
        for envoy in running.current.iter().chain(&running.draining) {
            let program = Path::new(&envoy.program);
            if !programs.iter().any(|known| known == program) {
                programs.push(program.to_owned());
            }
        }
        programs
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::envoy_life::RunningEnvoy;

    /// A program that ends with this code.
    fn program(folder: &Path, name: &str, code: u8) -> PathBuf {
        let path = folder.join(name);
        write(&path, format!("#!/bin/sh\nexit {code}\n")).unwrap();
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn envoy(program: &Path, epoch: u32) -> RunningEnvoy {
        RunningEnvoy {
            epoch,
            process: None,
            program: program.display().to_string(),
        }
    }

    /// The outcome of a check with the image's program and those that run, oldest first.
    async fn verdict(original: &Path, running: &[&Path]) -> Result<(), String> {
        let envoys = (0..).zip(running).map(|(epoch, path)| envoy(path, epoch));
        let mut draining: Vec<_> = envoys.collect();
        let current = draining.pop();
        let all = RunningEnvoys {
            current,
            draining,
            ..RunningEnvoys::default()
        };
        let check = BootstrapCheck {
            check: ProgramCheck { user: None },
            original: original.to_owned(),
            running: watch::channel(all).1,
        };
        let outcome = check.accepts(&["-c".to_owned()]).await;
        outcome.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn every_program_that_may_be_started_must_accept_a_bootstrap() {
        let folder = tempfile::tempdir().unwrap();
        let image = program(folder.path(), "image", 0);
        let newer = program(folder.path(), "newer", 0);
        let strict = program(folder.path(), "strict", 1);
        let [image, newer, strict] = [&image, &newer, &strict].map(PathBuf::as_path);

        verdict(image, &[]).await.unwrap();
        verdict(image, &[image, newer]).await.unwrap();
        for (original, running) in [
            (image, vec![strict]),
            (image, vec![strict, newer]),
            (strict, vec![newer]),
        ] {
            let error = verdict(original, &running).await.unwrap_err();
            let expected = format!("{} rejects the bootstrap", strict.display());
            assert!(error.starts_with(&expected), "{error}");
        }

        let deleted = folder.path().join("deleted");
        let error = verdict(image, &[&deleted]).await.unwrap_err();
        let expected = format!("{} cannot be run", deleted.display());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_starts_meanwhile_must_accept_the_bootstrap_too() {
        let folder = tempfile::tempdir().unwrap();
        let strict = program(folder.path(), "strict", 1);
        let image = program(folder.path(), "image", 0);
        let go = folder.path().join("go");
        let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
        write(&image, format!("#!/bin/sh\n{wait}\n")).unwrap();

        let (states, running) = watch::channel(RunningEnvoys::default());
        let check = BootstrapCheck {
            check: ProgramCheck { user: None },
            original: image,
            running,
        };
        let arguments = ["-c".to_owned()];
        let upgrade = async {
            states.send_modify(|state| state.current = Some(envoy(&strict, 1)));
            write(&go, "").unwrap();
        };
        let (outcome, ()) = tokio::join!(check.accepts(&arguments), upgrade);
        let error = outcome.unwrap_err().to_string();
        let expected = format!("{} rejects the bootstrap", strict.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}
