//! The scripts that make, sign and publish the artefacts of a release. Their tests are in Python, as
//! they are.

use std::process::Command;

use super::folder;

#[test]
fn release_artefacts_are_the_same_in_two_runs_and_reach_a_registry() {
    let tests = Command::new("python3")
        .arg(folder("tests/house/release_artefacts.py"))
        .env("NAVARCH_PROGRAM", env!("CARGO_BIN_EXE_navarch"))
        .output()
        .unwrap();

    let report = String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success(), "{report}");
}
