//! `istio-iptables` and `istio-clean-iptables`.

use std::path::Path;

use anyhow::Context as _;

use crate::host;
use crate::iptables::{Options, VALIDATION_EXIT_CODE, apply, dry_run, validate};
use crate::variables::Variables;

/// Installs the rules for these flags and variables.
pub(super) fn run(arguments: &[String], variables: &Variables) -> anyhow::Result<i32> {
    super::log::start("", false)?;
    act(&options(arguments, variables)?, variables)
}

/// Removes the rules.
pub(super) fn clean(arguments: &[String], variables: &Variables) -> anyhow::Result<i32> {
    super::log::start("", false)?;
    act(
        &Options {
            cleanup_only: true,
            validate: false,
            ..options(arguments, variables)?
        },
        variables,
    )
}

/// Reads flags, variables and the properties of the machine.
fn options(arguments: &[String], variables: &Variables) -> anyhow::Result<Options> {
    let user = variables.text_or("ENVOY_USER", "istio-proxy");
    let facts = host::facts(&user, Path::new(host::RESOLV_CONF));
    Ok(Options::read(arguments, variables, &facts)?)
}

/// Applies the options.
fn act(options: &Options, variables: &Variables) -> anyhow::Result<i32> {
    match (options.skip_apply, options.dry_run) {
        (true, _) => {}
        (false, true) => show(options, variables)?,
        (false, false) => apply(options)?,
    }
    if options.validate {
        if let Err(error) = validate(options) {
            tracing::error!(%error, "traffic capture is not working; the CNI plugin may not have set up its rules yet");
            return Ok(VALIDATION_EXIT_CODE);
        }
        tracing::info!("traffic capture validated");
    }
    Ok(0)
}

/// Prints the commands, and writes them to the file of `DRY_RUN_FILE_PATH`.
#[expect(clippy::print_stdout, reason = "printing is what a dry run is for")]
fn show(options: &Options, variables: &Variables) -> anyhow::Result<()> {
    let planned = dry_run(options)?;
    for run in &planned {
        println!("# {}\n{}", run.program, run.lines.join("\n"));
    }
    let path = variables.text("DRY_RUN_FILE_PATH");
    if !path.is_empty() {
        let lines: Vec<_> = planned
            .into_iter()
            .flat_map(|run| run.lines)
            .map(|line| line + "\n")
            .collect();
        std::fs::write(path, lines.concat()).with_context(|| format!("failed to write {path}"))?;
    }
    Ok(())
}
