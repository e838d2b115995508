//! Where results are written.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

/// The directory for the results, from the command line.
#[derive(Clone, Debug, Args)]
pub(crate) struct Results {
    /// The directory for the results; it is created if it does not exist
    results: PathBuf,
}

impl Results {
    /// Writes `NAME.json`, and returns its text.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn json(&self, name: &str, value: &impl Serialize) -> Result<String> {
        let text = pretty(value)?;
        write(&self.results.join(format!("{name}.json")), &text)?;
        Ok(text)
    }

    /// Writes `NAME.md`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn table(&self, name: &str, table: &str) -> Result<()> {
        write(&self.results.join(format!("{name}.md")), table)
    }
}

/// Indented JSON with a line break at its end.
///
/// # Errors
/// If the value is no JSON.
pub(crate) fn pretty(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes a file, and its directory if that does not exist.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    let write = || {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, text)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_written_to_a_directory_that_did_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results {
            results: folder.path().join("new/results"),
        };
        let text = results.json("a", &serde_json::json!({ "b": 1 })).unwrap();
        results.table("a", "| b |\n").unwrap();

        let read = |file: &str| fs::read_to_string(results.results.join(file)).unwrap();
        assert_eq!(text, "{\n  \"b\": 1\n}\n");
        assert_eq!((read("a.json"), read("a.md")), (text, "| b |\n".to_owned()));

        let blocked = folder.path().join("new/results/a.md/b.md");
        let error = write(&blocked, "").unwrap_err();
        assert!(error.to_string().contains("a.md/b.md"), "{error:#}");
    }
}
