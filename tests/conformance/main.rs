//! The Gateway API: every field of its CRDs is decoded, and one test of its conformance suite
//! passes on a real node, by `scripts/conformance`: the suite's gateways are deployed, its pods get
//! sidecars, and requests follow its HTTPRoutes. `make conformance` runs the whole suite.
//!
//! The suite needs root and the programs that `scripts/cluster/missing` checks; a test that cannot
//! run is skipped with a reason (`navarch_testkit::skip`).

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test may fail loudly and print"
)]

mod fields;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::node;

/// The suite's name of the test.
const TEST: &str = "HTTPRouteMatching";

#[test]
fn a_test_of_the_gateway_apis_conformance_suite_passes() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(why) = node::missing(root) {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    // The path of a Unix socket is limited to 108 bytes, so the directory needs a short one.
    let out = tempfile::Builder::new()
        .prefix("conformance-")
        .tempdir_in("/tmp")?;
    let mut command = Command::new(root.join("scripts/conformance"));
    command
        .args([
            "--program",
            env!("CARGO_BIN_EXE_navarch"),
            &format!("-run-test={TEST}"),
            "--out",
        ])
        .arg(out.path());

    let [networks] = node::free_networks()?;
    command.envs(networks);
    let status = command
        .status()
        .context("scripts/conformance cannot be run")?;
    let log = std::fs::read_to_string(out.path().join("suite.log")).unwrap_or_default();

    if !status.success() {
        for line in log
            .lines()
            .filter(|line| line.contains("FAIL") || line.contains("Error"))
            .take(200)
        {
            eprintln!("{line}");
        }
    }

    ensure!(status.success(), "scripts/conformance: {status}");
    ensure!(
        log.contains(&format!("    --- PASS: TestConformance/{TEST} ")),
        "{TEST} did not run"
    );

    Ok(())
}
