//! Output formats, and the only way to the terminal: whatever a command prints is escaped here.
//!
//! `tests/house/main.rs` fails on other files that print.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use clap::ValueEnum;
use navarch_base::printable::{escape_body, escape_json, escape_lines};
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
    match output {
        Output::Text => {
            let text = text.to_string();
            write(&Colors::of_stdout(None).answer(&escape_lines(&text)))
        }
        Output::Json => print_json(&serde_json::to_string_pretty(json)?),
    }
}

/// Prints lines of text, without colors. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_text(text: &str) -> anyhow::Result<()> {
    write(&escape_lines(text))
}

/// Prints a part of a long text. Returns false if the pipe is closed.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_part(text: &impl Display) -> anyhow::Result<bool> {
    write_open(&escape_lines(&text.to_string()))
}

/// Prints a document of JSON, and a line break. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_json(json: &str) -> anyhow::Result<()> {
    write(&format!("{}\n", escape_json(json)))
}

/// Prints the body of a response, and a line break. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_body(body: &str) -> anyhow::Result<()> {
    write(&format!("{}\n", escape_body(body)))
}

/// Prints YAML, or a diff of YAML. A closed pipe is not an error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_yaml(yaml: &str) -> anyhow::Result<()> {
    write(&shown_yaml(yaml, std::io::stdout().is_terminal()))
}

/// Prints text of the program itself, in which texts of others are escaped. A closed pipe is not an
/// error.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn write(text: &str) -> anyhow::Result<()> {
    write_open(text).map(|_| ())
}

/// Prints lines to the standard error, so that the output stays valid.
pub(super) fn report(text: &impl Display) {
    let text = format!("{}\n", escape_lines(&text.to_string()));
    // There is no other place for it.
    _ = std::io::stderr().write_all(text.as_bytes());
}

/// YAML for a terminal, or for a program. Plain scalars have no escapes, so that for a program it
/// stays as it is.
fn shown_yaml(yaml: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal {
        escape_lines(yaml)
    } else {
        Cow::Borrowed(yaml)
    }
}

/// Writes to the standard output. Returns false if the pipe is closed.
fn write_open(text: &str) -> anyhow::Result<bool> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_escaped_on_terminals_alone() {
        let yaml = "name: a\u{202e}b\n";
        assert_eq!(shown_yaml(yaml, true), "name: a\\u{202e}b\n");
        assert_eq!(shown_yaml(yaml, false), yaml);
    }
}
