//! Commands about changes: `navarch plan`, `applied`, `why`, `doctor`, `rollout`, with files and
//! with a running control plane.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly, print what it measures, and spawn"
)]

mod doctor;
mod fields;
mod foreign_text;
mod live;
mod plans;
mod replicas;
mod rollouts;
mod shadow;
mod terminal;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use navarch_tests::proxy;
use serde_json::Value;
use tempfile::TempDir;

/// Runs the program until it exits.
fn navarch(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(env!("CARGO_BIN_EXE_navarch"))
        .args(arguments)
        .env_clear();
    command.output().unwrap()
}

/// The output of a command, and its exit code.
fn command_output(arguments: &[&str]) -> (String, i32) {
    let output = navarch(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap())
}

/// The JSON output of a command, and its exit code.
fn json(arguments: &[&str]) -> (Value, i32) {
    let output = navarch(&[arguments, &["-o", "json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {output:?}"));
    (value, output.status.code().unwrap())
}

/// A copy of the sample mesh that a test may change.
fn bookshop() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(sample()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// The sample mesh.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples/bookshop")
}

/// The content of a sample file after replacements.
fn edited(file: &str, edits: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(sample().join(file)).unwrap();
    for (from, to) in edits {
        assert!(text.contains(from), "{from} in {text}");
        text = text.replace(from, to);
    }
    text
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (text, code) = command_output(&["completions", shell]);
        assert_eq!(code, 0);
        for word in ["plan", "applied", "doctor", "fail-on"] {
            assert!(text.contains(word), "{word} for {shell}");
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let (text, code) = command_output(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");

    for (page, word) in [
        ("navarch", "doctor"),
        ("navarch-plan", "fail"),
        ("navarch-why-not", "METHOD"),
    ] {
        let page = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).unwrap();
        assert!(
            page.starts_with(".ie") && page.contains(".TH") && page.contains(word),
            "{page}"
        );
    }
}

#[test]
fn doctor_without_a_control_plane_fails_with_a_reason() {
    let (text, code) = command_output(&["doctor", "--address", "127.0.0.1:1"]);
    assert!(
        code == 1 && text.contains("next: kubectl get pods -n istio-system -l app=istiod"),
        "{text}"
    );
}
