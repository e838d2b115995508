//! A selection of Istio's own integration suites, unchanged, on a real node with Navarch in istiod's
//! place: `scripts/istio-suites --slice`, whose logs stay in `istio-suites` of the build folder.

use std::path::Path;
use std::process::Command;

use navarch_testkit::node;

#[test]
fn a_selection_of_istios_suites_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(why) = node::missing(root) {
        navarch_testkit::skip::skip(&why);
        return;
    }

    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let target = program
        .ancestors()
        .nth(2)
        .expect("programs are in a folder of the build folder");
    let status = Command::new(root.join("scripts/istio-suites"))
        .arg("--slice")
        .arg("--program")
        .arg(program)
        .arg("--out")
        .arg(target.join("istio-suites"))
        .status()
        .expect("python3 runs the script");
    assert!(status.success(), "the script names the tests that failed");
}
