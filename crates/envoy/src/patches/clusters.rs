//! Patches of clusters.

use std::sync::Arc;

use navarch_proto::envoy::config::cluster::v3::Cluster;

use super::compiled::Patch;
use super::matching::cluster_matches;
use super::merge::{MergeError, Target, merge_any};
use super::select::Patches;
use navarch_api::istio::{PatchContext, PatchOperation};
use navarch_api::names::Hostname;
use navarch_push::view::View;

/// Applies the patches to a cluster; `None` if one removes it.
pub fn patch_cluster(
    view: &View<'_>,
    patches: &Patches,
    context: PatchContext,
    hosts: &[Hostname],
    mut cluster: Cluster,
) -> Option<Cluster> {
    let mut target = Target::new(&mut cluster);

    for patch in patches.iter().filter(|patch| patch.applies_to(context)) {
        if !cluster_matches(patch, &target.identity().name, hosts) {
            continue;
        }

        if patch.operation == PatchOperation::Remove {
            return None;
        }

        if !patch.operation.merges() {
            continue;
        }

        match merge_cluster(patch, &mut target) {
            Ok(()) => patch.note(view),
            Err(error) => {
                let cluster = &target.identity().name;
                view.remark(format!(
                    "{} does not apply to cluster {cluster}: {error}",
                    patch.describe()
                ));
            }
        }
    }

    target.finish();
    Some(cluster)
}

/// The name of a cluster after patches; `None` if one removes it. Does not read the cluster itself.
pub fn patched_name(
    patches: &Patches,
    context: PatchContext,
    hosts: &[Hostname],
    name: &str,
) -> Option<String> {
    let mut name = name.to_owned();
    for patch in patches.iter().filter(|patch| patch.applies_to(context)) {
        if !cluster_matches(patch, &name, hosts) {
            continue;
        }
        if patch.operation == PatchOperation::Remove {
            return None;
        }
        if patch.operation.merges()
            && let Some(renamed) = new_name(patch)
        {
            name = renamed;
        }
    }
    Some(name)
}

/// The name in a merged value. A value with a transport socket only changes the socket.
fn new_name(patch: &Patch) -> Option<String> {
    let value: Cluster = patch.value()?;
    (value.transport_socket.is_none() && !value.name.is_empty()).then_some(value.name)
}

/// Whether patches can add, remove or rename clusters.
#[must_use]
pub fn names_change(patches: &Patches) -> bool {
    patches.iter().any(|patch| match patch.operation {
        PatchOperation::Add | PatchOperation::Remove => true,
        PatchOperation::Merge | PatchOperation::MergeAndReplaceList => new_name(patch).is_some(),
        PatchOperation::Invalid
        | PatchOperation::InsertBefore
        | PatchOperation::InsertAfter
        | PatchOperation::InsertFirst
        | PatchOperation::Replace => false,
    })
}

/// The clusters that patches add.
pub fn added_clusters(
    view: &View<'_>,
    patches: &Patches,
    context: PatchContext,
) -> impl Iterator<Item = Cluster> {
    let added = patches.iter().filter(move |patch| patch.adds_for(context));
    added
        .inspect(|patch| patch.note(view))
        .filter_map(|patch: &Arc<Patch>| patch.value())
}

/// Merges a patch into a matching cluster.
///
/// If the patch has a transport socket, only that is merged: into the cluster's socket of the same
/// name, else as a replacement. A cluster with transport socket matches keeps these, since it
/// cannot have a socket in addition.
fn merge_cluster(patch: &Patch, cluster: &mut Target<'_, Cluster>) -> Result<(), MergeError> {
    let Some(message) = patch.message() else {
        return Ok(());
    };

    let socket = patch
        .value::<Cluster>()
        .and_then(|value| value.transport_socket);
    let Some(socket) = socket else {
        return cluster.merge(patch.operation, message);
    };

    let cluster = cluster.whole();
    let target = if cluster.transport_socket_matches.is_empty() {
        cluster
            .transport_socket
            .as_mut()
            .filter(|target| target.name == socket.name)
    } else {
        let mut choices = cluster
            .transport_socket_matches
            .iter_mut()
            .filter_map(|choice| choice.transport_socket.as_mut());
        match choices.find(|target| target.name == socket.name) {
            Some(target) => Some(target),
            None => return Ok(()),
        }
    };

    match target {
        Some(target) => merge_socket(target, &socket),
        None => {
            cluster.transport_socket = Some(socket);
            Ok(())
        }
    }
}

/// Merges the configuration of a transport socket.
pub(super) fn merge_socket(
    target: &mut navarch_proto::envoy::config::core::v3::TransportSocket,
    patch: &navarch_proto::envoy::config::core::v3::TransportSocket,
) -> Result<(), MergeError> {
    use navarch_proto::envoy::config::core::v3::transport_socket::ConfigType;
    if let (Some(ConfigType::TypedConfig(target)), Some(ConfigType::TypedConfig(patch))) =
        (&mut target.config_type, &patch.config_type)
    {
        merge_any(target, patch)?;
    }
    Ok(())
}
