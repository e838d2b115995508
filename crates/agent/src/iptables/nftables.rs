//! Traffic capture by nftables (`--native-nftables`): one ruleset for both families, replaced in
//! one transaction.
//!
//! Names and rules match istio-nftables. Each run generates the complete ruleset, so applying it
//! twice changes nothing; the same transaction deletes tables that are no longer needed.

mod dns;
mod marks;
mod rules;
mod ruleset;

use super::apply::{ApplyError, DryRun};
use super::capture::CaptureError;
use super::options::Options;
use super::routes;
use super::tool;
use rules::rules;
use ruleset::{Ruleset, Table};

/// Generates the commands without reading the state of the machine.
///
/// # Errors
/// When the settings are invalid.
pub(super) fn dry_run(options: &Options) -> Result<Vec<DryRun>, CaptureError> {
    let text = if options.cleanup_only {
        cleaning(&Table::ALL)
    } else {
        generate(options)?.text()
    };
    Ok(vec![DryRun {
        program: tool::NFT.to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
    }])
}

/// Applies the options to the kernel in one transaction.
///
/// # Errors
/// When the settings are invalid, or `nft` fails.
pub(super) fn apply(options: &Options) -> Result<(), ApplyError> {
    let text = if options.cleanup_only {
        cleaning(&Table::ALL)
    } else {
        let ruleset = generate(options)?;
        cleaning(&ruleset.unused_tables()) + &ruleset.text()
    };
    tool::run(tool::NFT, &["-f".to_owned(), "-".to_owned()], Some(&text))?;
    tracing::info!(
        lines = text.lines().count(),
        cleaned = options.cleanup_only,
        "nftables rules applied"
    );
    if !options.cleanup_only {
        routes::configure(&options.capture)?;
    }
    Ok(())
}

/// Generates the ruleset for these options.
fn generate(options: &Options) -> Result<Ruleset, CaptureError> {
    let rules = rules(&options.capture)?;
    Ok(if options.trace { rules.traced() } else { rules })
}

/// The commands that delete tables, whether the tables exist or not.
fn cleaning(tables: &[Table]) -> String {
    tables
        .iter()
        .map(|table| format!("add table inet {0}\ndelete table inet {0}\n", table.name()))
        .collect()
}

#[cfg(test)]
mod tests;
