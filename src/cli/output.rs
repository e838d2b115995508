//! Output formats.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use navarch_api::printable::escape_lines;
use serde::Serialize;

use super::color::Colors;

/// A form of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Prints in either format, text with colors if enabled. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print(
    output: Output,
    text: &impl Display,
    json: &impl Serialize,
) -> anyhow::Result<()> {
    let text = match output {
        Output::Text => {
            let text = text.to_string();
            Colors::of_stdout(None).answer(&escape_lines(&text))
        }
        Output::Json => format!("{}\n", serde_json::to_string_pretty(json)?),
    };
    write(&text)
}

/// Writes to the standard output. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn write(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Err(_) | Ok(()) => Ok(()),
    }
}
