//! The script that files reports of conformance suites. Its tests are in Python, as it is.

use std::process::Command;

use super::folder;

#[test]
fn conformance_reports_are_filed_as_their_projects_want_them() {
    let tests = Command::new("python3")
        .arg(folder("tests/house/conformance_report.py"))
        .output()
        .unwrap();

    let report = String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success(), "{report}");
}
