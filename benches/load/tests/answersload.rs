//! The load tool of `navarch plan` and `navarch applied` produces every figure, on a small mesh.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

use std::path::Path;
use std::process::Command;

use navarch_testkit::skip::skip;
use serde_json::Value;

#[test]
fn every_figure_is_measured() {
    let program = Path::new(env!("CARGO_BIN_EXE_answersload"));
    let navarch = program.with_file_name("navarch");
    if !navarch.exists() {
        return skip(&format!(
            "{} is missing: cargo build --workspace --bins",
            navarch.display()
        ));
    }

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = tempfile::tempdir().unwrap();
    let small = [
        ("--plan-services", "20"),
        ("--plan-proxies", "12"),
        ("--plans", "1"),
        ("--applied-proxies", "20"),
        ("--asks", "1"),
        ("--services", "20"),
        ("--churn-proxies", "10"),
        ("--churn-seconds", "3"),
        ("--rounds", "1"),
    ];

    let sizes = small.iter().flat_map(|(flag, size)| [flag, size]);
    let output = Command::new(program)
        .args([&navarch, &root])
        .arg(results.path())
        .args(sizes)
        .output()
        .unwrap();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value =
        serde_json::from_slice(&std::fs::read(results.path().join("answers.json")).unwrap())
            .unwrap();
    let figures = report["figures"].as_array().unwrap();
    let goals: Vec<_> = figures
        .iter()
        .filter(|figure| figure["goal"].is_number())
        .collect();
    assert_eq!((figures.len(), goals.len()), (11, 6), "{figures:?}");

    assert!(
        figures.iter().all(|figure| figure["value"].is_number()),
        "{figures:?}"
    );
    let steps = &report["details"]["plan"]["steps_ms"];
    for step in ["copy", "apply", "traffic", "encode"] {
        assert!(steps[step].is_number(), "{step}: {steps}");
    }

    // This figure is counted, not timed: a history holds up to 20 responses.
    let history = figures
        .iter()
        .find(|figure| figure["unit"] == "bytes")
        .unwrap()["value"]
        .as_f64()
        .unwrap();

    assert!((500.0..=2000.0).contains(&history), "{history} bytes");
    let table = std::fs::read_to_string(results.path().join("answers.md")).unwrap();
    assert_eq!(table.lines().count(), 2 + figures.len(), "{table}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), table);
}

#[test]
fn it_fails_if_nothing_can_be_measured() {
    let results = tempfile::tempdir().unwrap();
    let nothing = results.path().join("no-such-program");
    let program = env!("CARGO_BIN_EXE_answersload");
    let output = Command::new(program)
        .args([&nothing, results.path(), results.path()])
        .output()
        .unwrap();
    assert!(
        !output.status.success() && !results.path().join("answers.json").exists(),
        "{output:?}"
    );
}
