//! Collections of very many resources: what one change of them costs, and that its result is that
//! of an engine that computes all.

use super::*;

/// The names of addresses with these numbers.
fn address_names(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<ResourceName> {
    numbers
        .into_iter()
        .map(|number| ResourceName::new(format!("pod{number:06}")))
        .collect()
}

/// A context after addresses were added or changed, and others removed; and what changed in it.
fn with_addresses(
    context: &PushContext,
    put: &BTreeSet<ResourceName>,
    accounts: usize,
    removed: &BTreeSet<ResourceName>,
) -> (Arc<PushContext>, Vec<FactKey>) {
    let mut next = context.clone();
    let endpoints = Arc::new(ServiceEndpoints {
        service_accounts: (0..accounts).map(|n| Arc::from(n.to_string())).collect(),
        ..ServiceEndpoints::default()
    });
    for name in put {
        let endpoints = endpoints.clone();
        next.directory
            .endpoints
            .insert(key(name.as_str()), endpoints);
    }
    for name in removed {
        next.directory.endpoints.remove(&key(name.as_str()));
    }

    let mut changed: Vec<FactKey> = put
        .iter()
        .chain(removed)
        .map(|name| FactKey::Endpoints(key(name.as_str())))
        .collect();
    next.address_names.update(put, removed);
    if next.address_names != context.address_names {
        changed.push(FactKey::AddressNames);
    }
    (Arc::new(next), changed)
}

/// Resources with the number of service accounts as content.
struct Accounts;

impl Translator for Accounts {
    fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
        Vec::new()
    }

    fn resource(&self, _: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        let endpoints = view.endpoints(&key(name.as_str()))?;
        Some(Bytes::from(endpoints.service_accounts.len().to_string()))
    }
}

/// An engine on a context, and a ztunnel that subscribes to all addresses.
fn with_subscriber(context: &Arc<PushContext>) -> (Engine, ProxyId) {
    let mut engine = Engine::new(context.clone(), Arc::new(Accounts));
    let id = subscribe_to_all(&mut engine, "ztunnel-a");
    (engine, id)
}

fn subscribe_to_all(engine: &mut Engine, pod: &str) -> ProxyId {
    let sink = Arc::new(RecordingSink::default());
    let id = engine.connect(proxy(pod, "istio-system", "ztunnel"), sink);
    let interest = Interest {
        wildcard: true,
        names: Arc::default(),
    };
    engine.subscribe(id, ResourceType::Address, interest);
    id
}

fn addresses(engine: &Engine, id: ProxyId) -> Arc<Collection> {
    engine.published(id, ResourceType::Address).unwrap()
}

/// The collection of an engine that computes all.
fn computed_anew(context: &Arc<PushContext>) -> Arc<Collection> {
    let (engine, id) = with_subscriber(context);
    addresses(&engine, id)
}

#[test]
fn one_change_among_100_000_addresses_visits_a_fraction_of_their_chunks() {
    let all = address_names(0..100_000);
    let none = BTreeSet::new();
    let context = with_addresses(&PushContext::default(), &all, 1, &none).0;
    let (mut engine, id) = with_subscriber(&context);
    let other = subscribe_to_all(&mut engine, "ztunnel-b");

    // Changed, added, removed.
    let steps = [
        (address_names([70_007]), none.clone()),
        (address_names([100_001]), none.clone()),
        (none.clone(), address_names([50_000])),
    ];
    for (put, removed) in steps {
        let before = addresses(&engine, id);
        let (next, changed) = with_addresses(engine.context(), &put, 2, &removed);
        let stats = engine.apply(next, changed);

        // There are more than 3,000 chunks.
        assert_eq!(stats.published, 2);
        assert!(stats.computed <= 20, "{stats:?}");
        assert!(stats.visited < 2_000, "{stats:?}");

        let after = addresses(&engine, id);
        assert!(Arc::ptr_eq(&after, &addresses(&engine, other)));
        let [gone, new] = before.resources.apart(&after.resources);
        assert!(gone.count() + new.count() < 1_500);
        for name in &put {
            assert_eq!(&*after.resources.find(name).unwrap().body, b"2");
        }
        assert!(
            removed
                .iter()
                .all(|name| after.resources.find(name).is_none())
        );
    }

    assert!(*addresses(&engine, id) == *computed_anew(engine.context()));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(16))]

    #[test]
    fn a_changed_collection_equals_that_of_an_engine_that_computes_all(
        first in 0..4_000_usize,
        steps in proptest::collection::vec(
            (
                proptest::collection::btree_set(0..4_000_usize, 0..30),
                proptest::collection::btree_set(0..4_000_usize, 0..30),
                1..4_usize,
            ),
            1..6,
        ),
    ) {
        let all = address_names(0..first);
        let context = with_addresses(&PushContext::default(), &all, 1, &BTreeSet::new()).0;
        let (mut engine, id) = with_subscriber(&context);

        for (put, removed, accounts) in steps {
            let removed = address_names(removed.difference(&put).copied());
            let put = address_names(put);
            let (next, changed) = with_addresses(engine.context(), &put, accounts, &removed);
            engine.apply(next, changed);

            let shown = addresses(&engine, id);
            let fresh = computed_anew(engine.context());
            proptest::prop_assert!(*shown == *fresh);
            proptest::prop_assert!(shown.resources.iter().eq(fresh.resources.iter()));
            proptest::prop_assert_eq!(shown.resources.len(), fresh.resources.len());
        }
    }
}
