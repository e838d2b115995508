//! The engine with a small translator: reuse, the extent of a change, cut-off of equal results,
//! panics.

mod copies;
mod floods;
mod gates;
mod large_lists;
mod soundness;
mod sweeps;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::proxy::Locality;
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::NamespacedName;
use navarch_registry::model::{ServiceEndpoints, ServiceKey, Workload};

/// Clusters: one per endpoint set. Endpoints: their number, and the label of the proxy that sees
/// them.
#[derive(Default)]
struct Toy {
    translated: AtomicUsize,
}

#[derive(Default)]
struct RecordingSink(Mutex<Vec<(ResourceType, Vec<String>)>>);

impl Sink for RecordingSink {
    fn publish(
        &self,
        resource_type: ResourceType,
        collection: Arc<Collection>,
        _: &Arc<PushCause>,
    ) {
        let bodies = collection
            .resources
            .iter()
            .map(|r| String::from_utf8_lossy(&r.body).into_owned())
            .collect();
        self.0.lock().push((resource_type, bodies));
    }
}

impl RecordingSink {
    fn take(&self) -> Vec<(ResourceType, Vec<String>)> {
        std::mem::take(&mut self.0.lock())
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name)
}

impl Translator for Toy {
    fn names(&self, _: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        view.all_services()
            .map(|service| ResourceName::new(service.key.hostname.as_str()))
            .collect()
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        self.translated.fetch_add(1, Ordering::Relaxed);
        let endpoints = view.endpoints(&key(name.as_str()))?;
        let accounts = &endpoints.service_accounts;
        assert!(
            !accounts.iter().any(|account| &**account == "boom"),
            "no such account"
        );
        let text = match resource_type {
            ResourceType::Endpoint => format!("{name}={}", accounts.len()),
            ResourceType::Route => {
                let app = view
                    .proxy()
                    .labels()
                    .get("app")
                    .cloned()
                    .unwrap_or_else(|| Arc::from("-"));
                format!("{name}={} for {app}", accounts.len())
            }
            ResourceType::Cluster
            | ResourceType::Listener
            | ResourceType::VirtualHost
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization
            | ResourceType::Object(_) => format!("{name} in {}", view.proxy().namespace()),
        };

        Some(Bytes::from(text))
    }
}

fn proxy(pod: &str, namespace: &str, app: &str) -> Arc<Proxy> {
    let id = format!("sidecar~10.0.0.1~{pod}.{namespace}~{namespace}.svc.cluster.local");
    let meta = serde_json::json!({"NAMESPACE": namespace, "LABELS": {"app": app}});
    Arc::new(Proxy::parse(&id, meta, Locality::default()).unwrap())
}

fn with_endpoints(
    context: &PushContext,
    name: &str,
    accounts: &[&str],
) -> (Arc<PushContext>, Vec<FactKey>) {
    let mut next = context.clone();
    let accounts = accounts.iter().map(|a| Arc::from(*a)).collect();
    let endpoints = ServiceEndpoints {
        service_accounts: accounts,
        ..ServiceEndpoints::default()
    };
    next.directory
        .endpoints
        .insert(key(name), Arc::new(endpoints));
    (Arc::new(next), vec![FactKey::Endpoints(key(name))])
}

/// Removes all unused results.
fn sweep_all(engine: &mut Engine) {
    engine.continue_sweep(|| true);
    engine.begin_sweep();
    engine.continue_sweep(|| true);
}

fn names(names: &[&str]) -> Interest {
    Interest {
        wildcard: false,
        names: Arc::new(names.iter().map(ResourceName::new).collect::<BTreeSet<_>>()),
    }
}

fn engine(services: &[(&str, &[&str])]) -> (Engine, Arc<Toy>) {
    let mut context = Arc::new(PushContext::default());
    for (name, accounts) in services {
        context = with_endpoints(&context, name, accounts).0;
    }
    let toy = Arc::new(Toy::default());
    (Engine::with_config(SMALL, context, toy.clone()), toy)
}

#[test]
fn like_proxies_share_one_translation_and_a_change_is_translated_once() {
    let (mut engine, toy) = engine(&[("a", &["x"]), ("b", &["x", "y"])]);
    let sinks: Vec<Arc<RecordingSink>> = (0..100)
        .map(|_| Arc::new(RecordingSink::default()))
        .collect();
    for (n, sink) in sinks.iter().enumerate() {
        let id = engine.connect(proxy(&format!("p{n}"), "shop", "web"), sink.clone());
        engine.subscribe(id, ResourceType::Endpoint, names(&["a", "b", "absent"]));
    }

    assert_eq!(toy.translated.load(Ordering::Relaxed), 3);
    sinks.iter().for_each(|sink| {
        assert_eq!(
            sink.take(),
            [(ResourceType::Endpoint, vec!["a=1".into(), "b=2".into()])]
        )
    });

    let (next, changed) = with_endpoints(engine.context(), "a", &["x", "z"]);
    let stats = engine.apply(next, changed);
    assert_eq!((stats.groups, stats.published), (1, 100));
    assert_eq!(toy.translated.load(Ordering::Relaxed), 4);
    sinks.iter().for_each(|sink| {
        assert_eq!(
            sink.take(),
            [(ResourceType::Endpoint, vec!["a=2".into(), "b=2".into()])]
        )
    });
}

#[test]
fn equal_results_stop_propagation_and_unread_changes_are_free() {
    let (mut engine, _) = engine(&[("a", &["x"]), ("b", &["x"])]);
    let sink = Arc::new(RecordingSink::default());
    let id = engine.connect(proxy("p", "shop", "web"), sink.clone());
    engine.subscribe(id, ResourceType::Endpoint, names(&["a"]));
    sink.take();
    let (next, changed) = with_endpoints(engine.context(), "a", &["other"]);
    let stats = engine.apply(next, changed);
    assert_eq!((stats.groups, stats.published), (1, 0));
    let (next, changed) = with_endpoints(engine.context(), "b", &["x", "y"]);
    assert_eq!(engine.apply(next, changed), PushStats::default());
    assert!(sink.take().is_empty());
}

#[test]
fn results_are_split_only_by_proxy_properties_that_were_read() {
    let (mut engine, toy) = engine(&[("a", &["x"])]);
    for (n, (namespace, app)) in [("shop", "web"), ("shop", "api"), ("bank", "web")]
        .into_iter()
        .enumerate()
    {
        let sink = Arc::new(RecordingSink::default());
        let id = engine.connect(proxy(&format!("p{n}"), namespace, app), sink.clone());
        for resource_type in [
            ResourceType::Endpoint,
            ResourceType::Cluster,
            ResourceType::Route,
        ] {
            engine.subscribe(id, resource_type, names(&["a"]));
        }

        let expected = [
            (ResourceType::Endpoint, vec!["a=1".to_owned()]),
            (ResourceType::Cluster, vec![format!("a in {namespace}")]),
            (ResourceType::Route, vec![format!("a=1 for {app}")]),
        ];
        assert_eq!(sink.take(), expected);
    }

    // One for endpoints, two for namespaces, two for apps.
    assert_eq!(toy.translated.load(Ordering::Relaxed), 5);
}

#[test]
fn a_derived_attribute_that_changes_moves_only_its_proxy() {
    let (mut engine, _) = engine(&[("a", &["x"])]);
    let sinks: Vec<Arc<RecordingSink>> =
        (0..3).map(|_| Arc::new(RecordingSink::default())).collect();
    for (n, sink) in sinks.iter().enumerate() {
        let id = engine.connect(proxy(&format!("p{n}"), "shop", "web"), sink.clone());
        engine.subscribe(id, ResourceType::Route, names(&["a"]));
        sink.take();
    }

    let mut next = PushContext::clone(engine.context());
    let name = NamespacedName::new("shop", "p1");
    let labels = [(Arc::from("app"), Arc::from("v2"))].into();
    let workload = Workload {
        own_labels: labels,
        namespace: Namespace::new("shop"),
        ..Workload::default()
    };

    next.directory
        .workloads
        .insert(name.clone(), Arc::new(workload));
    engine.apply(Arc::new(next), vec![FactKey::Workload(name.clone())]);
    assert!(sinks[0].take().is_empty() && sinks[2].take().is_empty());
    assert_eq!(
        sinks[1].take(),
        [(ResourceType::Route, vec!["a=1 for v2".to_owned()])]
    );

    let mut next = PushContext::clone(engine.context());
    next.directory.workloads.remove(&name);
    engine.apply(Arc::new(next), vec![FactKey::Workload(name)]);
    assert_eq!(
        sinks[1].take(),
        [(ResourceType::Route, vec!["a=1 for web".to_owned()])]
    );
    let (next, changed) = with_endpoints(engine.context(), "a", &["x", "y"]);
    assert_eq!(engine.apply(next, changed).groups, 1);

    sinks.iter().for_each(|sink| {
        assert_eq!(
            sink.take(),
            [(ResourceType::Route, vec!["a=2 for web".to_owned()])]
        )
    });
}

#[test]
fn a_panic_keeps_the_last_good_resource_names_the_facts_and_heals() {
    let (mut engine, _) = engine(&[("a", &["x"]), ("b", &["x"])]);
    let sink = Arc::new(RecordingSink::default());
    let id = engine.connect(proxy("p", "shop", "web"), sink.clone());
    engine.subscribe(id, ResourceType::Endpoint, names(&["a", "b"]));
    sink.take();
    let (next, changed) = with_endpoints(engine.context(), "a", &["boom"]);
    engine.apply(next, changed);
    assert!(sink.take().is_empty());

    let faults = engine.faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        (&*faults[0].message, &*faults[0].facts),
        ("no such account", &[FactKey::Endpoints(key("a"))][..])
    );
    let (next, changed) = with_endpoints(engine.context(), "b", &["x", "y"]);
    engine.apply(next, changed);

    assert_eq!(
        sink.take(),
        [(ResourceType::Endpoint, vec!["a=1".into(), "b=2".into()])]
    );
    let (next, changed) = with_endpoints(engine.context(), "a", &["x", "y", "z"]);
    engine.apply(next, changed);
    assert_eq!(
        sink.take(),
        [(ResourceType::Endpoint, vec!["a=3".into(), "b=2".into()])]
    );

    assert!(engine.faults().is_empty());
}

#[test]
fn nothing_is_left_of_proxies_that_went() {
    let (mut engine, _) = engine(&[("a", &["x"])]);
    for n in 0..50 {
        let id = engine.connect(
            proxy(&format!("p{n}"), &format!("ns{n}"), "web"),
            Arc::new(RecordingSink::default()),
        );
        engine.subscribe(id, ResourceType::Cluster, names(&["a"]));
        engine.disconnect(id);
    }
    sweep_all(&mut engine);
    assert_eq!(engine.sizes().results, 0);
    assert_eq!(engine.sizes().subscribers, 0);
}
