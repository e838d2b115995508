//! Invariants for any translator: a proxy never gets resources computed for another, no change is
//! lost, and memory does not grow.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::query::ProxyQuery;

/// A translator that calls a function for each endpoint set.
pub(super) struct By<F>(pub(super) F);

impl<F: Fn(&View<'_>, &str) -> String + Send + Sync> Translator for By<F> {
    fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
        Vec::new()
    }

    fn resource(&self, _: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        Some(Bytes::from((self.0)(view, name.as_str())))
    }
}

pub(super) fn accounts(view: &View<'_>, name: &str) -> Vec<String> {
    let endpoints = view.endpoints(&key(name));
    endpoints
        .iter()
        .flat_map(|found| {
            found
                .service_accounts
                .iter()
                .map(|account| account.to_string())
        })
        .collect()
}

/// The proxy's app if the endpoint set `switch` is `on`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AppIfOn;

impl Query for AppIfOn {
    type Value = String;

    fn compute(&self, view: &View<'_>) -> String {
        match accounts(view, "switch").first().map(String::as_str) {
            Some("on") => view
                .proxy()
                .labels()
                .get("app")
                .map(|app| app.to_string())
                .unwrap_or_default(),
            Some("boom") => panic!("the switch blew"),
            Some(_) | None => "off".to_owned(),
        }
    }
}

impl ProxyQuery for AppIfOn {}

pub(super) fn engine_by<F: Fn(&View<'_>, &str) -> String + Send + Sync + 'static>(
    services: &[(&str, &[&str])],
    f: F,
) -> Engine {
    let mut context = Arc::new(PushContext::default());
    for (name, accounts) in services {
        context = with_endpoints(&context, name, accounts).0;
    }
    Engine::with_config(SMALL, context, Arc::new(By(f)))
}

fn subscribed(engine: &mut Engine, proxy: Arc<Proxy>) -> (ProxyId, Arc<RecordingSink>) {
    let sink = Arc::new(RecordingSink::default());
    let id = engine.connect(proxy, sink.clone());
    engine.subscribe(id, ResourceType::Route, names(&["a"]));
    (id, sink)
}

pub(super) fn set(engine: &mut Engine, name: &str, accounts: &[&str]) -> PushStats {
    let (next, changed) = with_endpoints(engine.context(), name, accounts);
    engine.apply(next, changed)
}

pub(super) fn relabel(engine: &mut Engine, pod: &str, app: &str) -> PushStats {
    let mut next = PushContext::clone(engine.context());
    let name = NamespacedName::new("shop", pod);
    let labels = [(Arc::from("app"), Arc::from(app))].into();
    let workload = Workload {
        own_labels: labels,
        namespace: Namespace::new("shop"),
        ..Workload::default()
    };
    next.directory
        .workloads
        .insert(name.clone(), Arc::new(workload));
    engine.apply(Arc::new(next), vec![FactKey::Workload(name)])
}

pub(super) fn shown(engine: &Engine, id: ProxyId) -> Vec<String> {
    let collection = engine.published(id, ResourceType::Route).unwrap();
    collection
        .resources
        .iter()
        .map(|r| String::from_utf8_lossy(&r.body).into_owned())
        .collect()
}

#[test]
fn a_last_good_result_is_used_only_for_its_own_proxies() {
    let mut engine = engine_by(&[("a", &["x"])], |view, name| {
        assert!(accounts(view, name) != ["boom"], "boom");
        format!(
            "{:?} for {}",
            accounts(view, name),
            view.proxy().namespace()
        )
    });

    let (shop, _) = subscribed(&mut engine, proxy("p", "shop", "web"));
    let (bank, _) = subscribed(&mut engine, proxy("p", "bank", "web"));
    assert_eq!(set(&mut engine, "a", &["boom"]).published, 0);
    assert_eq!(shown(&engine, shop), ["[\"x\"] for shop"]);
    assert_eq!(shown(&engine, bank), ["[\"x\"] for bank"]);
    let (other, _) = subscribed(&mut engine, proxy("p", "club", "web"));
    assert!(shown(&engine, other).is_empty());
    set(&mut engine, "a", &["y"]);

    assert_eq!(shown(&engine, shop), ["[\"y\"] for shop"]);
    assert_eq!(shown(&engine, bank), ["[\"y\"] for bank"]);
    assert_eq!(shown(&engine, other), ["[\"y\"] for club"]);
}

#[test]
fn a_result_with_a_new_dependency_follows_it() {
    let mut engine = engine_by(&[("a", &["x"]), ("switch", &["off"])], |view, _| {
        (*view.derived(&AppIfOn)).clone()
    });
    let (id, _) = subscribed(&mut engine, proxy("p", "shop", "web"));
    assert_eq!(shown(&engine, id), ["off"]);
    set(&mut engine, "switch", &["on"]);
    assert_eq!(shown(&engine, id), ["web"]);
    assert_eq!(relabel(&mut engine, "p", "v2").published, 1);
    assert_eq!(shown(&engine, id), ["v2"]);
}

#[test]
fn a_failing_result_keeps_its_last_value_and_recovers() {
    let mut engine = engine_by(&[("a", &["x"]), ("switch", &["on"])], |view, name| {
        format!("{:?} of {}", accounts(view, name), view.derived(&AppIfOn))
    });
    let (old, _) = subscribed(&mut engine, proxy("p", "shop", "web"));
    assert_eq!(set(&mut engine, "switch", &["boom"]).published, 0);
    let (new, _) = subscribed(&mut engine, proxy("q", "shop", "api"));
    assert!(shown(&engine, new).is_empty());

    // Other resources are still updated.
    set(&mut engine, "a", &["y"]);
    assert_eq!(shown(&engine, old), ["[\"y\"] of web"]);
    assert!(shown(&engine, new).is_empty());
    assert_eq!(
        engine
            .faults()
            .iter()
            .map(|fault| &*fault.message)
            .collect::<Vec<_>>(),
        ["the switch blew"]
    );

    set(&mut engine, "switch", &["on"]);
    assert_eq!(shown(&engine, old), ["[\"y\"] of web"]);
    assert_eq!(shown(&engine, new), ["[\"y\"] of api"]);
    set(&mut engine, "switch", &["off"]);
    assert_eq!(shown(&engine, old), ["[\"y\"] of off"]);
    assert_eq!(shown(&engine, new), ["[\"y\"] of off"]);
}

#[test]
fn nondeterministic_read_order_loses_no_dependency() {
    let turn = AtomicBool::new(false);
    let mut engine = engine_by(&[("a", &["x"])], move |view, name| {
        let proxy = view.proxy();
        let (namespace, domain) = if turn.fetch_xor(true, Ordering::Relaxed) {
            let domain = proxy.dns_domain();
            (proxy.namespace(), domain)
        } else {
            (proxy.namespace(), proxy.dns_domain())
        };
        format!("{:?} for {namespace} in {domain}", accounts(view, name))
    });

    let ids: Vec<ProxyId> = ["a", "b", "c"]
        .into_iter()
        .map(|namespace| subscribed(&mut engine, proxy("p", namespace, "web")).0)
        .collect();

    for account in ["x", "y", "z", "x"] {
        set(&mut engine, "a", &[account]);
        let all: Vec<_> = ids.iter().flat_map(|id| shown(&engine, *id)).collect();
        let expected =
            ["a", "b", "c"].map(|ns| format!("[\"{account}\"] for {ns} in {ns}.svc.cluster.local"));
        assert_eq!(all, expected);
    }
}

#[test]
fn answers_facts_and_questions_of_the_past_are_forgotten() {
    let mut engine = engine_by(&[("a", &["x"]), ("switch", &["on"])], |view, _| {
        let app = view.derived(&AppIfOn);
        // Each resource has its own fact and its own attribute query.
        format!(
            "{app} {:?} {:?}",
            accounts(view, &app),
            view.proxy().meta(&app)
        )
    });

    let (id, _) = subscribed(&mut engine, proxy("p", "shop", "web"));
    relabel(&mut engine, "p", "first");
    sweep_all(&mut engine);
    let before = engine.sizes();
    for n in 0..200 {
        relabel(&mut engine, "p", &format!("app{n:03}"));
    }

    relabel(&mut engine, "p", "first");
    assert!(engine.sizes().facts > before.facts + 100);
    sweep_all(&mut engine);
    assert_eq!(engine.sizes(), before);

    // Reused ids have their new meaning.
    for app in ["app007", "first", "app199"] {
        relabel(&mut engine, "p", app);
        assert_eq!(shown(&engine, id), [format!("{app} [] None")]);
    }
}
