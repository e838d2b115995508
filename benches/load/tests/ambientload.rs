//! The load tool of ambient mode produces every figure, on a small mesh.

use std::path::Path;
use std::process::Command;

use navarch_testkit::skip::skip;
use serde_json::Value;

#[test]
fn every_figure_is_measured() {
    let program = Path::new(env!("CARGO_BIN_EXE_ambientload"));
    let navarch = program.with_file_name("navarch");
    if !navarch.exists() {
        return skip(&format!(
            "{} is missing: cargo build --workspace --bins",
            navarch.display()
        ));
    }

    if let Err(error) = navarch_testkit::cluster::programs() {
        return skip(&format!("{error:#}"));
    }

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = tempfile::tempdir().unwrap();
    let small = [
        ("--start-services", "20"),
        ("--cold-services", "20"),
        ("--runs", "1"),
        ("--services", "100"),
        ("--policy-services", "20"),
        ("--policies", "10"),
        ("--burst", "50"),
        ("--ztunnels", "3"),
        ("--added", "2"),
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
        serde_json::from_slice(&std::fs::read(results.path().join("ambient.json")).unwrap())
            .unwrap();
    let figures = report.get("figures").and_then(Value::as_array).unwrap();
    let value = |figure: &Value| figure.get("value").and_then(Value::as_f64);
    assert_eq!(figures.len(), 22, "{figures:?}");

    assert!(
        figures.iter().all(|figure| value(figure).is_some()),
        "{figures:?}"
    );

    // This figure is counted, not timed: a ztunnel that reconnects with its versions must not
    // receive those resources again.
    let what = |figure: &&Value| {
        figure
            .get("what")
            .and_then(Value::as_str)
            .is_some_and(|what| what.contains("of those of"))
    };

    let share = figures.iter().find(what).and_then(value).unwrap();
    assert!(share < 1.0, "{share} % of the bytes are sent again");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        std::fs::read_to_string(results.path().join("ambient.md")).unwrap()
    );
}
