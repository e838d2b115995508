//! Checks of a program before it takes over: whether it runs at all, can take over from the one that
//! runs, and accepts the bootstrap.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of a question to a program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the validation of a bootstrap.
const VALIDATE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of an answer.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Why a program is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started.
    #[error("{program} cannot be run: {source}")]
    Start {
        /// Its path, as the annotation or the store names it.
        program: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It does not answer.
    #[error("{program} {flag} has no answer of Envoy")]
    NoAnswer {
        /// Its path, as the annotation or the store names it.
        program: String,
        /// The flag with which it was started.
        flag: &'static str,
    },
    /// It could not take over sockets from the one that runs.
    #[error(
        "hot restart is not possible from version {running} to {wanted} of Envoy's protocol for it: restart the pod"
    )]
    HotRestart {
        /// What the running program answers.
        running: String,
        /// What the other program answers.
        wanted: String,
    },
    /// It does not say whether it accepts the bootstrap.
    #[error("{program} has not validated the bootstrap within {VALIDATE_TIMEOUT:?}")]
    Slow {
        /// Its path, as the annotation or the store names it.
        program: String,
    },
    /// It does not accept the bootstrap.
    #[error("{program} rejects the bootstrap, for a reason in the log")]
    Bootstrap {
        /// Its path, as the annotation or the store names it.
        program: String,
    },
}

/// What runs programs.
#[derive(Clone, Copy, Debug)]
pub struct ProgramCheck {
    /// The user and group, if different from the agent's.
    pub user: Option<u32>,
}

impl ProgramCheck {
    /// The version of a program, such as `1.40.0`.
    ///
    /// # Errors
    /// If it does not run, or does not answer as Envoy.
    pub async fn version(self, program: &Path) -> Result<String, ProgramError> {
        let text = self.ask(program, "--version").await?;
        version_of(&text).ok_or_else(|| no_answer(program, "--version"))
    }

    /// Checks that one program can take over from another.
    ///
    /// # Errors
    /// If one does not run, or their protocols differ.
    pub async fn takes_over(self, running: &Path, wanted: &Path) -> Result<(), ProgramError> {
        const FLAG: &str = "--hot-restart-version";
        let running = self.ask(running, FLAG).await?;
        let wanted = self.ask(wanted, FLAG).await?;
        if running == wanted {
            Ok(())
        } else {
            Err(ProgramError::HotRestart { running, wanted })
        }
    }

    /// Checks that a program accepts these arguments. It writes its reason to the agent's log.
    ///
    /// # Errors
    /// If it does not.
    pub async fn accepts(self, program: &Path, arguments: &[String]) -> Result<(), ProgramError> {
        let mut command = self.command(program);
        command
            .args(arguments)
            .args(["--mode", "validate"])
            .stdout(Stdio::null());
        let name = || program.display().to_string();
        match timeout(VALIDATE_TIMEOUT, command.status()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(_)) => Err(ProgramError::Bootstrap { program: name() }),
            Ok(Err(source)) => Err(ProgramError::Start {
                program: name(),
                source,
            }),
            Err(_) => Err(ProgramError::Slow { program: name() }),
        }
    }

    /// What a program prints for a flag: Envoy answers some on its standard output, and
    /// `--hot-restart-version` on its standard error.
    async fn ask(self, program: &Path, flag: &'static str) -> Result<String, ProgramError> {
        let failed = |source| ProgramError::Start {
            program: program.display().to_string(),
            source,
        };
        let mut command = self.command(program);
        command
            .arg(flag)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take();
        let errors = child.stderr.take();

        let read = async {
            let (output, errors) = tokio::try_join!(bounded(output), bounded(errors))?;
            let status = child.wait().await?;
            let answer = if output.is_empty() { errors } else { output };
            std::io::Result::Ok(status.success().then_some(answer))
        };
        match timeout(ANSWER_TIMEOUT, read).await {
            Ok(Ok(Some(answer))) if !answer.is_empty() => Ok(answer),
            Ok(Err(source)) => Err(failed(source)),
            Ok(Ok(_)) | Err(_) => Err(no_answer(program, flag)),
        }
    }

    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

/// The first bytes of what a program writes, without whitespace around them.
async fn bounded(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_ANSWER_BYTES).read_to_end(&mut text).await?;
    }
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

fn no_answer(program: &Path, flag: &'static str) -> ProgramError {
    ProgramError::NoAnswer {
        program: program.display().to_string(),
        flag,
    }
}

/// The version in `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn version_of(text: &str) -> Option<String> {
    let (_, build) = text.split_once("version: ")?;
    short_version(build.split_whitespace().next()?)
}

/// The version in `COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
#[must_use]
pub fn short_version(build: &str) -> Option<String> {
    let version = build.split('/').nth(1)?;
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '+');
    let is_version = !version.is_empty() && version.len() <= 64 && version.chars().all(is_sign);
    is_version.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    const CHECK: ProgramCheck = ProgramCheck { user: None };

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn versions_are_read_of_envoys_answers() {
        let text = "\n/usr/local/bin/envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n";
        assert_eq!(version_of(text).as_deref(), Some("1.40.0"));
        assert_eq!(version_of("hello"), None);
        assert_eq!(version_of("version: a/<b>/c"), None);
    }

    #[tokio::test]
    async fn programs_with_another_protocol_cannot_take_over() {
        let folder = tempfile::tempdir().unwrap();
        let old = script(folder.path(), "old", "echo 11.104");
        let same = script(folder.path(), "same", "echo 11.104");
        let other = script(folder.path(), "other", "echo 12.104");
        let fails = script(folder.path(), "fails", "echo 11.104; exit 1");
        let silent = script(folder.path(), "silent", "true");

        CHECK.takes_over(&old, &same).await.unwrap();
        let error = CHECK.takes_over(&old, &other).await.unwrap_err();
        assert!(error.to_string().contains("from version 11.104 to 12.104"));
        for bad in [fails, silent] {
            let error = CHECK.takes_over(&old, &bad).await.unwrap_err();
            assert!(matches!(error, ProgramError::NoAnswer { .. }), "{error}");
        }

        let missing = folder.path().join("missing");
        let error = CHECK.takes_over(&old, &missing).await.unwrap_err();
        assert!(matches!(error, ProgramError::Start { .. }), "{error}");
    }

    #[tokio::test]
    async fn the_exit_code_decides_about_the_bootstrap() {
        let folder = tempfile::tempdir().unwrap();
        let good = script(folder.path(), "good", "[ \"$*\" = '-c a --mode validate' ]");
        let arguments = ["-c", "a"].map(str::to_owned);
        CHECK.accepts(&good, &arguments).await.unwrap();
        let error = CHECK.accepts(&good, &[]).await.unwrap_err();
        assert!(matches!(error, ProgramError::Bootstrap { .. }), "{error}");
    }
}
