//! Patches of route configurations, their virtual hosts and routes.

use navarch_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};

use super::compiled::Patch;
use super::insert::place;
pub use super::matching::RoutesIdentity;
use super::matching::{host_matches, route_matches, routes_match, wanted_route};
use super::merge::{Identity, Target};
use super::select::Patches;
use navarch_api::istio::{ApplyTo, PatchOperation};
use navarch_push::view::View;

/// Applies the patches to a route configuration.
pub fn patch_routes(
    view: &View<'_>,
    patches: &Patches,
    identity: &RoutesIdentity<'_>,
    routes: &mut RouteConfiguration,
) {
    let patches: Vec<&Patch> = patches
        .iter()
        .map(|patch| &**patch)
        .filter(|patch| patch.applies_to(identity.context))
        .collect();
    let mut target = Target::new(routes);

    for patch in of_kind(&patches, ApplyTo::RouteConfiguration) {
        if patch.operation.merges() && routes_match(patch, &target.identity().name, identity) {
            merge_into(view, patch, &mut target);
        }
    }

    target.finish();
    let name = routes.name.clone();
    let patches: Vec<&Patch> = patches
        .into_iter()
        .filter(|patch| routes_match(patch, &name, identity))
        .collect();
    let mut removed = Vec::new();

    for host in &mut routes.virtual_hosts {
        if !patch_host(view, &patches, host) {
            removed.push(host.name.clone());
        }
    }

    let added = of_kind(&patches, ApplyTo::VirtualHost)
        .filter(|patch| patch.operation == PatchOperation::Add);
    let added = added.inspect(|patch| patch.note(view));
    routes
        .virtual_hosts
        .extend(added.filter_map(Patch::value::<VirtualHost>));
    routes
        .virtual_hosts
        .retain(|host| !removed.contains(&host.name));
}

/// The patches of one type.
fn of_kind<'a>(patches: &[&'a Patch], kind: ApplyTo) -> impl Iterator<Item = &'a Patch> {
    patches
        .iter()
        .copied()
        .filter(move |patch| patch.apply_to == kind)
}

/// Merges a patch into a matching message.
fn merge_into<M: Identity>(view: &View<'_>, patch: &Patch, target: &mut Target<'_, M>) {
    match patch
        .message()
        .map(|message| target.merge(patch.operation, message))
    {
        Some(Ok(())) => patch.note(view),
        Some(Err(error)) => view.remark(format!("{} does not apply: {error}", patch.describe())),
        None => {}
    }
}

/// Applies patches to one virtual host. Returns false if it is removed.
fn patch_host(view: &View<'_>, patches: &[&Patch], host: &mut VirtualHost) -> bool {
    let mut target = Target::new(host);

    for patch in of_kind(patches, ApplyTo::VirtualHost) {
        if !host_matches(patch, target.identity()) {
            continue;
        }

        match patch.operation {
            PatchOperation::Remove => return false,
            PatchOperation::Merge | PatchOperation::MergeAndReplaceList => {
                merge_into(view, patch, &mut target)
            }
            PatchOperation::Replace => {
                if let Some(value) = patch.value() {
                    *target.whole() = value;
                    patch.note(view);
                }
            }
            PatchOperation::Invalid
            | PatchOperation::Add
            | PatchOperation::InsertBefore
            | PatchOperation::InsertAfter
            | PatchOperation::InsertFirst => {}
        }
    }

    target.finish();
    let of_routes = of_kind(patches, ApplyTo::HttpRoute).filter(|patch| host_matches(patch, host));
    let of_routes: Vec<&Patch> = of_routes.collect();
    if !of_routes.is_empty() {
        patch_host_routes(view, &of_routes, &mut host.routes);
    }

    true
}

/// Applies patches to the matching routes of a virtual host.
fn patch_host_routes(view: &View<'_>, patches: &[&Patch], routes: &mut Vec<Route>) {
    routes.retain_mut(|route| {
        let mut target = Target::new(route);

        for patch in patches {
            if !route_matches(patch, target.identity()) {
                continue;
            }
            if patch.operation == PatchOperation::Remove {
                return false;
            }
            if patch.operation.merges() {
                merge_into(view, patch, &mut target);
            }
        }

        target.finish();
        true
    });

    for patch in patches {
        let selective = wanted_route(patch).is_some();
        let found = routes.iter().any(|route| route_matches(patch, route));

        match patch.operation {
            PatchOperation::InsertFirst if selective && !found => {}
            PatchOperation::Add
            | PatchOperation::InsertFirst
            | PatchOperation::InsertAfter
            | PatchOperation::InsertBefore => {
                if place(routes, patch.operation, patch.value(), selective, |route| {
                    route_matches(patch, route)
                }) {
                    patch.note(view);
                }
            }
            PatchOperation::Invalid
            | PatchOperation::Merge
            | PatchOperation::MergeAndReplaceList
            | PatchOperation::Remove
            | PatchOperation::Replace => {}
        }
    }
}
