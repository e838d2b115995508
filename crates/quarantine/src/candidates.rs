//! The objects that a rejected response may be due to.

use std::collections::BTreeSet;

use navarch_answers::difference::CollectionDiff;
use navarch_api::object::{Kind, ObjectRef};
use navarch_push::fact::FactKey;
use navarch_push::quarantine::is_chargeable;
use navarch_push::worker::{Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// Maximum number of checked resources of a rejected response.
const MAX_RESOURCES: usize = 32;
/// Maximum number of suspected objects.
const MAX_CANDIDATES: usize = 64;

/// The objects that may be the cause: those behind the resources that the proxy has not accepted,
/// and only those named in the error if it names some; of these the ones that changed since
/// `accepted`, the snapshot that it has last accepted, or else the ones that write Envoy's
/// configuration themselves. The most suspect is first.
pub(super) async fn candidates(
    push: &PushHandle,
    info: &ConnectionInfo,
    watch: &TypeInfo,
    accepted: u64,
) -> Vec<ObjectRef> {
    let id = info.proxy_id;
    let kind = watch.kind;
    let taken = watch.taken.clone();
    let message = watch
        .rejected
        .as_ref()
        .map(|rejected| rejected.message.clone())
        .unwrap_or_default();

    let looked = push.inspect(move |inspect| {
        let shown = inspect.engine.published(id, kind);
        let step = CollectionDiff::between(
            taken.as_ref().map(|(collection, _)| &**collection),
            shown.as_deref(),
        );
        let all: Vec<_> = step
            .new_resources()
            .map(|resource| resource.name.clone())
            .collect();
        let named: Vec<_> = all
            .iter()
            .filter(|name| message.contains(name.as_str()))
            .cloned()
            .collect();
        let names = if named.is_empty() { all } else { named };
        let facts = names
            .iter()
            .take(MAX_RESOURCES)
            .flat_map(|name| inspect.engine.provenance_in_order(id, kind, name));
        let behind = objects_of(inspect, facts);

        let changed = changed_since(inspect, &behind, accepted);
        (changed, behind)
    });

    let Ok((changed, behind)) = looked.await else {
        return Vec::new();
    };

    let mut found = if changed.is_empty() {
        behind
            .into_iter()
            .filter(|name| writes_for_envoy(name.kind))
            .collect()
    } else {
        by_suspicion(changed)
    };
    found.truncate(MAX_CANDIDATES);
    found
}

/// The snapshot that a proxy has last acknowledged; `None` if it has acknowledged nothing, or only
/// a trial.
pub(super) fn accepted_at(watch: &TypeInfo) -> Option<u64> {
    watch
        .taken
        .as_ref()
        .map(|(_, revision)| *revision)
        .filter(|revision| *revision > 0)
}

/// The objects of facts that can be quarantined, without duplicates, in order.
fn objects_of(inspect: &Inspect<'_>, facts: impl Iterator<Item = FactKey>) -> Vec<ObjectRef> {
    let objects = &inspect.engine.context().objects;
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut add = |name: ObjectRef| {
        if is_chargeable(name.kind) && objects.contains(&name) && seen.insert(name.clone()) {
            all.push(name);
        }
    };

    for fact in facts {
        if let FactKey::Object(name) = fact {
            add(name);
        } else if let FactKey::Service(key) = fact {
            let services = inspect.engine.context().directory.services.get(&key);
            services
                .into_iter()
                .flat_map(|all| all.iter())
                .for_each(|service| add(service.origin.clone()));
        } else if let FactKey::List(kind, namespace) = &fact {
            objects
                .all_of(*kind)
                .filter(|name| name.name.namespace == *namespace)
                .for_each(&mut add);
        } else if let FactKey::ListAll(kind) = &fact {
            objects
                .all_of(*kind)
                .filter(|name| is_chargeable(name.kind))
                .take(MAX_CANDIDATES)
                .for_each(&mut add);
        }
    }

    all
}

/// Whether objects of a kind write Envoy's configuration themselves.
fn writes_for_envoy(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::EnvoyFilter | Kind::WasmPlugin | Kind::TrafficExtension
    )
}

/// Sorts changed objects by suspicion: first those that write Envoy's configuration themselves.
/// Objects that define services are last: without them, the configuration of other objects for
/// these services would be missing, too.
fn by_suspicion(mut names: Vec<ObjectRef>) -> Vec<ObjectRef> {
    names.sort_by_key(|name| {
        (
            name.kind == Kind::ServiceEntry,
            !writes_for_envoy(name.kind),
        )
    });
    names
}

/// The objects that changed after a snapshot, as far as that is remembered.
fn changed_since(inspect: &Inspect<'_>, names: &[ObjectRef], since: u64) -> Vec<ObjectRef> {
    let pushes = inspect.pushes.iter().filter(|push| push.revision > since);
    let changed: BTreeSet<&ObjectRef> = pushes
        .flat_map(|push| push.objects.iter().map(|object| &object.name))
        .collect();
    names
        .iter()
        .filter(|name| changed.contains(name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use navarch_api::object::NamespacedName;

    use super::*;

    #[test]
    fn filters_are_suspected_first_and_services_last() {
        let named = |kind, name: &str| ObjectRef {
            kind,
            name: NamespacedName::new("shop", name),
        };
        let entry = named(Kind::ServiceEntry, "entry");
        let rule = named(Kind::VirtualService, "rule");
        let filter = named(Kind::EnvoyFilter, "filter");
        let all = vec![entry.clone(), rule.clone(), filter.clone()];
        assert_eq!(by_suspicion(all), [filter, rule, entry]);
    }
}
