//! `navarch crds`.

use navarch_api::crds;

/// Prints the CustomResourceDefinitions of Istio's kinds.
#[expect(clippy::print_stdout, reason = "printing is what the command is for")]
pub(super) fn print() {
    print!("{}", crds::yaml());
}
