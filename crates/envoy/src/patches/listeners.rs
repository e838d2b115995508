//! Patches of listeners, their listener filters and filter chains.

use std::sync::Arc;

use navarch_proto::envoy::config::listener::v3::{
    FilterChain, Listener, ListenerFilter, listener_filter,
};

use super::clusters::merge_socket;
use super::compiled::Patch;
use super::filters::{merge_config, patch_filters};
use super::insert::place;
use super::matching::{chain_matches, listener_matches, matches_name, wanted_listener_filter};
use super::merge::{MergeError, Target, TargetAny};
use super::select::Patches;
use navarch_api::istio::{ApplyTo, PatchContext, PatchOperation};
use navarch_push::view::View;

/// Applies the patches to a listener; `None` if one removes it.
#[must_use]
pub fn patch_listener(
    view: &View<'_>,
    patches: &Patches,
    context: PatchContext,
    mut listener: Listener,
) -> Option<Listener> {
    let patches: Vec<&Patch> = patches
        .iter()
        .map(|patch| &**patch)
        .filter(|patch| patch.applies_to(context))
        .collect();
    let mut target = Target::new(&mut listener);

    for patch in of_kind(&patches, ApplyTo::Listener) {
        if !listener_matches(patch, target.identity()) {
            continue;
        }

        if patch.operation == PatchOperation::Remove {
            return None;
        }

        let Some(message) = patch.message().filter(|_| patch.operation.merges()) else {
            continue;
        };

        match target.merge(patch.operation, message) {
            Ok(()) => patch.note(view),
            Err(error) => {
                let listener = &target.identity().name;
                view.remark(format!(
                    "{} does not apply to listener {listener}: {error}",
                    patch.describe()
                ));
            }
        }
    }

    target.finish();
    let of_filters = of_kind(&patches, ApplyTo::ListenerFilter)
        .filter(|patch| listener_matches(patch, &listener));
    let of_filters: Vec<&Patch> = of_filters.collect();
    for run in of_filters.chunk_by(|a, b| {
        a.operation == PatchOperation::Merge && b.operation == PatchOperation::Merge
    }) {
        patch_listener_filters(view, run, &mut listener.listener_filters);
    }

    patch_chains(view, &patches, &mut listener);
    Some(listener)
}

/// Whether patches can add, remove or rename listeners.
#[must_use]
pub fn names_change(patches: &Patches) -> bool {
    let mut of_listeners = patches
        .iter()
        .filter(|patch| patch.apply_to == ApplyTo::Listener);
    of_listeners.any(|patch| match patch.operation {
        PatchOperation::Add | PatchOperation::Remove => true,
        PatchOperation::Merge | PatchOperation::MergeAndReplaceList => patch
            .value::<Listener>()
            .is_some_and(|value| !value.name.is_empty()),
        PatchOperation::Invalid
        | PatchOperation::InsertBefore
        | PatchOperation::InsertAfter
        | PatchOperation::InsertFirst
        | PatchOperation::Replace => false,
    })
}

/// The listeners that patches add.
pub fn added_listeners(
    view: &View<'_>,
    patches: &Patches,
    context: PatchContext,
) -> impl Iterator<Item = Listener> {
    let added = patches
        .iter()
        .filter(move |patch| patch.apply_to == ApplyTo::Listener && patch.adds_for(context));
    let added = added.inspect(|patch| patch.note(view));
    added
        .filter_map(|patch: &Arc<Patch>| patch.value())
        .filter(|listener: &Listener| !listener.name.is_empty())
}

/// The patches of one type.
fn of_kind<'a>(patches: &[&'a Patch], kind: ApplyTo) -> impl Iterator<Item = &'a Patch> {
    patches
        .iter()
        .copied()
        .filter(move |patch| patch.apply_to == kind)
}

/// Applies patches to listener filters: to one, or to several if they merge.
fn patch_listener_filters(view: &View<'_>, patches: &[&Patch], filters: &mut Vec<ListenerFilter>) {
    if let [patch] = patches
        && patch.operation != PatchOperation::Merge
    {
        let wanted = wanted_listener_filter(patch);
        if place(
            filters,
            patch.operation,
            patch.value(),
            wanted.is_some(),
            |filter| matches_name(wanted, &filter.name),
        ) {
            patch.note(view);
        }
        return;
    }

    for filter in filters {
        let Some(listener_filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
            continue;
        };

        let mut config = TargetAny::new(config);
        for patch in patches
            .iter()
            .filter(|patch| wanted_listener_filter(patch) == Some(filter.name.as_str()))
        {
            let Some(value) = patch.value::<ListenerFilter>() else {
                continue;
            };
            if let Some(listener_filter::ConfigType::TypedConfig(patched)) = &value.config_type {
                merge_config(view, patch, &filter.name, &mut config, patched);
            }
        }

        config.finish();
    }
}

/// Applies patches to the filter chains of a listener.
fn patch_chains(view: &View<'_>, patches: &[&Patch], listener: &mut Listener) {
    // The matches only read fields that identify the listener, while the chains are taken out.
    let chains = std::mem::take(&mut listener.filter_chains);
    let mut kept: Vec<FilterChain> = Vec::with_capacity(chains.len());
    for chain in chains.into_iter().filter(|chain| !chain.filters.is_empty()) {
        kept.extend(patch_chain(view, patches, listener, chain));
    }

    if let Some(chain) = listener
        .default_filter_chain
        .take_if(|chain| !chain.filters.is_empty())
    {
        listener.default_filter_chain = patch_chain(view, patches, listener, chain);
    }

    for patch in of_kind(patches, ApplyTo::FilterChain) {
        if patch.operation == PatchOperation::Add && listener_matches(patch, listener) {
            patch.note(view);
            kept.extend(
                patch
                    .value::<FilterChain>()
                    .filter(|chain| !chain.filters.is_empty()),
            );
        }
    }

    listener.filter_chains = kept;
}

/// Applies patches to one filter chain; `None` if one removes it.
fn patch_chain(
    view: &View<'_>,
    patches: &[&Patch],
    listener: &Listener,
    mut chain: FilterChain,
) -> Option<FilterChain> {
    let mut target = Target::new(&mut chain);

    for patch in of_kind(patches, ApplyTo::FilterChain) {
        if !listener_matches(patch, listener) || !chain_matches(patch, listener, target.identity())
        {
            continue;
        }
        if patch.operation == PatchOperation::Remove {
            return None;
        }

        if !patch.operation.merges() {
            continue;
        }

        match merge_chain(patch, &mut target) {
            Ok(()) => patch.note(view),
            Err(error) => {
                let patch = patch.describe();
                let listener = &listener.name;
                let chain = &target.identity().name;
                view.remark(format!(
                    "{patch} does not apply to filter chain {chain:?} of listener {listener}: {error}"
                ));
            }
        }
    }

    target.finish();
    let of_filters: Vec<&Patch> = patches
        .iter()
        .copied()
        .filter(|patch| matches!(patch.apply_to, ApplyTo::NetworkFilter | ApplyTo::HttpFilter))
        .filter(|patch| listener_matches(patch, listener) && chain_matches(patch, listener, &chain))
        .collect();

    if !of_filters.is_empty() {
        patch_filters(view, &of_filters, &mut chain.filters);
    }

    Some(chain)
}

/// Merges a patch into a filter chain. A transport socket with the name of the chain's socket is
/// merged into that only.
fn merge_chain(patch: &Patch, chain: &mut Target<'_, FilterChain>) -> Result<(), MergeError> {
    let Some(message) = patch.message() else {
        return Ok(());
    };
    if let Some(socket) = patch
        .value::<FilterChain>()
        .and_then(|value| value.transport_socket)
        && let Some(target) = &mut chain.whole().transport_socket
        && target.name == socket.name
    {
        return merge_socket(target, &socket);
    }
    chain.merge(patch.operation, message)
}
