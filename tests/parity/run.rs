//! Runs one case through the engine and gives what each proxy got.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch::api::names::ResourceName;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::push::world::World;
use navarch_proto::json::Codec;
use serde_json::Value;

use super::case::{Case, CaseProxy};
use super::input;

/// Resources by type name (`clusters`, `endpoints`, …).
pub(crate) type Answers = BTreeMap<String, Vec<Value>>;

/// Takes no pushes: the runner looks at what is shown.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// What each proxy of a case gets, or why the case cannot run.
pub(crate) fn run(case: &Case, codec: &Codec) -> Result<BTreeMap<String, Answers>, String> {
    let (settings, changes) = input::read(case)?;
    let mut world = World::new(settings);
    world.apply(changes);
    let mut engine = Engine::new(world.context(), Arc::new(EnvoyTranslator));
    let mut answers = BTreeMap::new();
    for proxy in &case.proxies {
        answers.insert(proxy.name.clone(), ask_all(&mut engine, proxy, codec)?);
    }
    if let Some(fault) = engine.faults().first() {
        return Err(format!("{} panicked: {}", fault.query, fault.message));
    }
    Ok(answers)
}

/// Asks as the cases' README says: clusters, their endpoints, listeners, their routes, then what is named anywhere.
fn ask_all(engine: &mut Engine, proxy: &CaseProxy, codec: &Codec) -> Result<Answers, String> {
    let mut node = Proxy::parse(&proxy.node_id(), proxy.metadata(), Locality::parse(proxy.locality()))
        .map_err(|error| error.to_string())?;
    node.identity = Some(Arc::from(proxy.identity()));
    let id = engine.connect(Arc::new(node), Arc::new(Ignore));
    let everything = Interest { wildcard: true, ..Interest::default() };
    let mut answers = Answers::new();
    let clusters = ask(engine, id, ResourceType::Cluster, everything.clone(), codec)?;
    let eds: BTreeSet<String> = clusters.iter().filter_map(eds_name).collect();
    answers.insert("endpoints".into(), ask(engine, id, ResourceType::Endpoint, named(&eds), codec)?);
    let listeners = ask(engine, id, ResourceType::Listener, everything.clone(), codec)?;
    let mut routes = BTreeSet::new();
    listeners.iter().for_each(|listener| collect(listener, "routeConfigName", &mut routes));
    answers.insert("routes".into(), ask(engine, id, ResourceType::Route, named(&routes), codec)?);
    if proxy.captures_dns() {
        answers.insert("nametable".into(), ask(engine, id, ResourceType::NameTable, everything, codec)?);
    }
    answers.insert("clusters".into(), clusters);
    answers.insert("listeners".into(), listeners);
    Ok(answers)
}

fn ask(
    engine: &mut Engine,
    id: ProxyId,
    kind: ResourceType,
    interest: Interest,
    codec: &Codec,
) -> Result<Vec<Value>, String> {
    engine.subscribe(id, kind, interest);
    let shown = engine.shown(id, kind).ok_or("nothing is shown")?;
    let json = shown.resources.iter().map(|resource| {
        codec.any_to_json(kind.type_url(), &resource.body).map_err(|error| format!("{}: {error}", resource.name))
    });
    json.collect()
}

fn named(names: &BTreeSet<String>) -> Interest {
    Interest { wildcard: false, names: Arc::new(names.iter().map(ResourceName::new).collect()) }
}

fn eds_name(cluster: &Value) -> Option<String> {
    if cluster.get("type")?.as_str()? != "EDS" {
        return None;
    }
    let service = cluster.pointer("/edsClusterConfig/serviceName").and_then(Value::as_str);
    service.or_else(|| cluster.get("name").and_then(Value::as_str)).map(str::to_owned)
}

/// Gathers the texts that stand under `field` anywhere in a value.
fn collect(value: &Value, field: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            into.extend(map.get(field).and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, field, into));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, field, into)),
        _ => {}
    }
}
