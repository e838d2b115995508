//! `navarch discovery --record`, `navarch replay` and `navarch support-bundle`: a replay computes
//! the recorded pushes again, byte for byte.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly, print what it measures, and spawn"
)]

mod disk;
mod kubernetes;
mod replays;

use std::path::{Path, PathBuf};
use std::process::Command;

use navarch_testkit::navarch::Navarch;
use navarch_tests::proxy;
use serde_json::Value;
use tempfile::TempDir;

use proxy::{Reaction, Sidecar, connect};

/// The program under test.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_navarch"))
}

/// The output of a command, and its exit code.
fn command_output(arguments: &[&str]) -> (String, i32) {
    let mut command = Command::new("timeout");
    let output = command
        .arg("120")
        .arg(program())
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap())
}

/// The JSON output of `navarch replay` for a record, and its exit code.
fn replayed(dir: &Path) -> (Value, i32) {
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(program())
        .args(["replay", "-o", "json"])
        .arg(dir)
        .env_clear();
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {output:?}"));
    (value, output.status.code().unwrap())
}

/// A copy of the sample mesh that a test may change.
fn bookshop() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples/bookshop");
    for entry in std::fs::read_dir(sample).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// Starts with a directory, and records.
async fn start(folder: &Path, record: &Path, more: &[&str]) -> Navarch {
    let mut flags = vec![
        "--registries=".to_owned(),
        format!("--record={}", record.display()),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    Navarch::start(program(), folder, &flags).await.unwrap()
}

/// Sidecars of the sample mesh.
async fn sidecars(navarch: &Navarch, reactions: &[Reaction]) -> Vec<Sidecar> {
    let mut all = Vec::new();
    for (n, reaction) in reactions.iter().enumerate() {
        let pod = format!("web-{n}");
        let ip = format!("10.7.0.{}", n + 1);
        all.push(
            connect(
                navarch.xds,
                &pod,
                "bookshop",
                &ip,
                &[("app", "web")],
                *reaction,
            )
            .await,
        );
    }
    all
}

/// Changes the weights of the reviews' routes, and adds an annotation of `ballast` bytes.
fn edit(folder: &Path, weight: u32, ballast: usize) {
    let sample =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples/bookshop/reviews-routing.yaml");
    let text = std::fs::read_to_string(sample)
        .unwrap()
        .replace("weight: 90", &format!("weight: {weight}"));
    let note = format!(
        "metadata:\n  annotations: {{note: {:?}}}\n",
        "x".repeat(ballast)
    );
    std::fs::write(
        folder.join("reviews-routing.yaml"),
        text.replace("metadata:\n", &note),
    )
    .unwrap();
}

fn segments(record: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(record)
        .into_iter()
        .flatten()
        .map(|one| one.unwrap().path())
        .collect();
    all.sort();
    all
}

fn text(record: &Path) -> String {
    segments(record)
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap_or_default())
        .collect()
}

/// Waits until a record contains a text at least `often` times.
async fn record_contains(record: &Path, what: &str, often: usize) {
    let place = record.to_owned();
    navarch_testkit::wait::until(&format!("{often} times {what} in the record"), || {
        let text = text(&place);
        async move { text.matches(what).count() >= often }
    })
    .await;
}
