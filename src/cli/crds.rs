//! `navarch crds`.

use navarch_api::crds;

use super::output;

/// Prints the CustomResourceDefinitions of Istio's kinds.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print() -> anyhow::Result<()> {
    output::write(crds::YAML)
}
