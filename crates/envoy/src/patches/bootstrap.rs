//! Patches of the bootstrap.

use navarch_proto::envoy::config::bootstrap::v3::Bootstrap;

use super::merge::Target;
use super::select::{PatchClass, patches};
use navarch_api::istio::PatchOperation;
use navarch_push::view::View;

/// Merges the patches of the proxy into its bootstrap. There are no other operations, and no match
/// criteria except for the proxy.
pub fn patch_bootstrap(view: &View<'_>, bootstrap: &mut Bootstrap) {
    let Some(patches) = patches(view, PatchClass::Bootstrap) else {
        return;
    };
    let mut target = Target::new(bootstrap);

    for patch in patches.iter() {
        let Some(message) = patch
            .message()
            .filter(|_| patch.operation == PatchOperation::Merge)
        else {
            view.remark(format!(
                "{} is ignored: only MERGE applies to the bootstrap",
                patch.describe()
            ));
            continue;
        };

        match target.merge(patch.operation, message) {
            Ok(()) => patch.note(view),
            Err(error) => view.remark(format!(
                "{} does not apply to the bootstrap: {error}",
                patch.describe()
            )),
        }
    }

    target.finish();
}
