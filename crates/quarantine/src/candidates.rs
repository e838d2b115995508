//! The objects that a rejected response may be due to.

use std::collections::BTreeSet;

use navarch_answers::difference::CollectionDiff;
use navarch_api::istio::DestinationRule;
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, Object, ObjectRef};
use navarch_push::fact::FactKey;
use navarch_push::quarantine::is_chargeable;
use navarch_push::worker::{Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// Maximum number of checked resources of a rejected response.
const MAX_RESOURCES: usize = 32;
/// Maximum number of suspected objects.
const MAX_CANDIDATES: usize = 64;

/// The objects that may be the cause: those behind the resources that the proxy has not accepted,
/// and only those named in the error if it names some; of these the ones whose change since
/// `accepted`, the snapshot that it has last accepted, may be why the resources are others, or else
/// the ones that write Envoy's configuration themselves. The most suspect is first.
///
/// Most resources depend on tables of all objects of a kind. A change in a table that leaves what
/// was looked up there as it was makes no candidate: otherwise, changes in any namespace would make
/// the rejections of all others wait for a trial.
pub(super) async fn candidates(
    push: &PushHandle,
    info: &ConnectionInfo,
    watch: &TypeInfo,
    accepted: u64,
) -> Vec<ObjectRef> {
    let id = info.proxy_id;
    let resource_type = watch.resource_type;
    let taken = watch.taken.clone();
    let namespace = info.proxy.namespace.clone();
    let message = watch
        .rejected
        .as_ref()
        .map(|rejected| rejected.message.clone())
        .unwrap_or_default();

    let looked = push.inspect(move |inspect| {
        let shown = inspect.engine.published(id, resource_type);
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
            .flat_map(|name| inspect.engine.provenance_in_order(id, resource_type, name));
        let behind = objects_of(inspect, facts);

        let facts = names.iter().take(MAX_RESOURCES).flat_map(|name| {
            inspect
                .engine
                .provenance_since(id, resource_type, name, accepted)
        });
        let mut changed = changed_since(inspect, &objects_of(inspect, facts), accepted);
        if changed.is_empty() {
            // A result that nothing needed in between may have an older value again: then its last
            // change is from before.
            changed = changed_since(inspect, &behind, accepted);
        }
        changed.retain(|name| may_reach(inspect, name, &namespace));
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

/// Whether an object may reach proxies of a namespace. The first rule of a host is found by a table
/// of all DestinationRules, so that changes of others are behind it, too: those that only another
/// namespace sees are not the cause.
fn may_reach(inspect: &Inspect<'_>, name: &ObjectRef, namespace: &Namespace) -> bool {
    if name.kind != Kind::DestinationRule || name.name.namespace == *namespace {
        return true;
    }
    let objects = &inspect.engine.context().objects;
    let rule = objects.get::<DestinationRule>(&name.name);
    rule.is_none_or(|rule| !is_private(rule))
}

/// Whether only proxies of its own namespace see a DestinationRule, whatever the mesh's default.
fn is_private(rule: &Object<DestinationRule>) -> bool {
    let own = rule.meta.key.namespace.as_str();
    let is_own = |name: &str| name == "." || name == own;
    rule.spec.workload_selector.is_some()
        || matches!(rule.spec.export_to.as_slice(), [only] if is_own(only))
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
    use navarch_api::object::{NamespacedName, ObjectMeta};

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

    #[test]
    fn a_rule_that_names_only_its_own_namespace_is_private() {
        for (export_to, has_selector, is_private) in [
            (&[][..], false, false),
            (&["."][..], false, true),
            (&["shop"][..], false, true),
            (&["bank"][..], false, false),
            (&["*"][..], false, false),
            (&[".", "bank"][..], false, false),
            (&["*"][..], true, true),
        ] {
            let rule = Object {
                meta: ObjectMeta {
                    key: NamespacedName::new("shop", "rule"),
                    ..ObjectMeta::default()
                },
                spec: DestinationRule {
                    export_to: export_to.iter().map(|&name| name.to_owned()).collect(),
                    workload_selector: has_selector.then(Default::default),
                    ..DestinationRule::default()
                },
            };
            assert_eq!(super::is_private(&rule), is_private, "{export_to:?}");
        }
    }
}
