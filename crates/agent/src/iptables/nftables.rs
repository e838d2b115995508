//! The same capture by native nftables (`--native-nftables`): one ruleset for both families, exchanged in one transaction.
//!
//! Names and rules are those of istio-nftables. What is asked for is made whole each time, so that to apply it twice changes
//! nothing; tables that are not needed any more are taken away in the same transaction.

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

const PROGRAM: &str = "nft";

/// What would be done, without looking at the machine.
///
/// # Errors
/// When no rules can be made.
pub(super) fn dry_run(options: &Options) -> Result<Vec<DryRun>, CaptureError> {
    let text = if options.cleanup_only { cleaning(&Table::ALL) } else { made(options)?.text() };
    Ok(vec![DryRun { program: PROGRAM.to_owned(), lines: text.lines().map(str::to_owned).collect() }])
}

/// Brings the kernel to what the options ask for, all or nothing.
///
/// # Errors
/// When no rules can be made, or `nft` fails.
pub(super) fn apply(options: &Options) -> Result<(), ApplyError> {
    let text = if options.cleanup_only {
        cleaning(&Table::ALL)
    } else {
        let ruleset = made(options)?;
        cleaning(&ruleset.unused_tables()) + &ruleset.text()
    };
    tool::run(PROGRAM, &["-f".to_owned(), "-".to_owned()], Some(&text))?;
    tracing::info!(lines = text.lines().count(), cleaned = options.cleanup_only, "nftables rules applied");
    if !options.cleanup_only {
        routes::configure(&options.capture)?;
    }
    Ok(())
}

/// The rules that are asked for.
fn made(options: &Options) -> Result<Ruleset, CaptureError> {
    let rules = rules(&options.capture)?;
    Ok(if options.trace { rules.traced() } else { rules })
}

/// The text that takes tables away, whether they are there or not.
fn cleaning(tables: &[Table]) -> String {
    tables.iter().map(|table| format!("add table inet {0}\ndelete table inet {0}\n", table.name())).collect()
}

#[cfg(test)]
mod tests;
