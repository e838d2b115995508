//! The load tool measures all of its figures, on small meshes.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "indexing JSON with a missing key gives null, and a test may fail loudly"
)]

mod ambient;
mod answers;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The results of a measurement.
struct Measured {
    /// What the tool wrote into the directory of its results.
    folder: TempDir,
    /// The figures of its JSON file.
    report: Value,
    /// What it printed.
    table: String,
}

impl Measured {
    /// The rows of the report, each with what was measured, value and unit.
    fn figures(&self) -> &[Value] {
        self.report["figures"].as_array().unwrap()
    }

    /// The text of a file of the results.
    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

/// Runs a command of the tool with these sizes. `Err` has the reason if navarch is not built.
///
/// # Panics
/// If the tool fails.
fn measure(command: &str, sizes: &[(&str, &str)]) -> Result<Measured, String> {
    let navarch = Path::new(env!("CARGO_BIN_EXE_navarch-load")).with_file_name("navarch");
    if !navarch.exists() {
        return Err(format!(
            "{} is missing: cargo build --workspace --bins",
            navarch.display()
        ));
    }

    let folder = tempfile::tempdir().unwrap();
    let output = run(command, &navarch, folder.path(), sizes);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");

    let json = std::fs::read(folder.path().join(format!("{command}.json"))).unwrap();
    Ok(Measured {
        report: serde_json::from_slice(&json).unwrap(),
        table: String::from_utf8(output.stdout).unwrap(),
        folder,
    })
}

/// Runs a command of the tool to its end.
fn run(command: &str, navarch: &Path, results: &Path, sizes: &[(&str, &str)]) -> Output {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_navarch-load"))
        .arg(command)
        .args([navarch, &checkout, results])
        .args(sizes.iter().flat_map(|(flag, size)| [flag, size]))
        .output()
        .unwrap()
}
