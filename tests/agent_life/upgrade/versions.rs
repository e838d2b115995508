//! The two Envoys of the tests, as they say of themselves.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use navarch_agent::upgrade::program::short_version;
use navarch_testkit::{envoy, skip};

/// What a program answers: on its standard output, or on its standard error.
fn ask(program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).output()?;
    ensure!(
        output.status.success(),
        "{} {flag}: {output:?}",
        program.display()
    );
    let answer = match output.stdout.is_empty() {
        true => output.stderr,
        false => output.stdout,
    };
    Ok(String::from_utf8(answer)?.trim().to_owned())
}

/// The version of an Envoy, such as `1.40.0`.
pub(super) fn version(program: &Path) -> Result<String> {
    let answer = ask(program, "--version")?;
    let (_, build) = answer.split_once("version: ").context("no version")?;
    short_version(build).with_context(|| format!("no version in {build}"))
}

/// The version of hot restart of the Envoy of the image.
pub(super) fn hot_restart_version() -> Result<String> {
    ask(&envoy::program(), "--hot-restart-version")
}

/// The Envoy of the image and the one before it.
pub(super) struct TwoVersions {
    pub(super) current: String,
    pub(super) former: String,
    /// The path of the former one.
    pub(super) former_program: String,
}

impl TwoVersions {
    /// Asks both programs; `None` if a test with them must be skipped.
    pub(super) fn find() -> Result<Option<Self>> {
        let link = envoy::former_program();
        let Ok(program) = fs::canonicalize(&link) else {
            skip::skip(&format!("{} is missing: run `make tools`", link.display()));
            return Ok(None);
        };

        let current = version(&envoy::program())?;
        let former = version(&program)?;
        if current == former {
            skip::skip(&format!("both Envoys have version {current}"));
            return Ok(None);
        }
        Ok(Some(Self {
            current,
            former,
            former_program: program.display().to_string(),
        }))
    }
}
