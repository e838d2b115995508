//! What objects of the Gateway API are told in their status: the world of a case with what controllers would have made of it, and
//! what the leader would then write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use navarch::api::decode::{Outcome, decode_value};
use navarch::api::yaml::{self, Schema};
use navarch::envoy::EnvoyTranslator;
use navarch::envoy::gateway_api::StatusSubject;
use navarch::push::engine::{Interest, PushCause, Sink};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::push::world::Change;
use navarch::status::{Share, status_correction};
use serde_json::{Map, Value, json};

use super::case::Case;
use super::input;
use super::run::text;

/// The classes that istiod makes, and their controllers.
const CLASSES: [(&str, &str); 2] =
    [("istio", "istio.io/gateway-controller"), ("istio-remote", "istio.io/unmanaged-gateway")];
/// That of waypoints.
const WAYPOINTS: (&str, &str) = ("istio-waypoint", "istio.io/mesh-controller");
/// The controllers whose entries are ours.
const CONTROLLERS: [&str; 2] = ["istio.io/gateway-controller", "istio.io/mesh-controller"];

/// Keeps what was published last.
#[derive(Default)]
struct Latest(Mutex<Option<Arc<Collection>>>);

impl Sink for Latest {
    fn publish(&self, _: ResourceType, collection: Arc<Collection>, _: &Arc<PushCause>) {
        *self.0.lock().unwrap() = Some(collection);
    }
}

/// The differences of a case's statuses; `None` where it has no expectation.
pub(crate) async fn differences(case: &Case) -> Result<Option<Vec<String>>, String> {
    let Some(expected) = case.file("expect/status.json") else { return Ok(None) };
    let expected: BTreeMap<String, Value> = serde_json::from_str(&expected).map_err(text)?;
    let (settings, mut changes) = input::read_without_objects(case)?;
    let mut objects = Objects::default();
    for document in documents(&case.file("input.yaml").unwrap_or_default())? {
        objects.put(document);
    }
    let waypoints = settings.gateway_api.waypoints.then_some(WAYPOINTS);
    for (name, controller) in CLASSES.into_iter().chain(waypoints) {
        objects.0.entry(format!("GatewayClass//{name}")).or_insert_with(|| {
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": { "name": name, "generation": 1 }, "spec": { "controllerName": controller },
            })
        });
    }
    // What istiod deploys for Gateways.
    for made in documents(&case.file("expect/created.yaml").unwrap_or_default())? {
        if made["kind"] == "Service" {
            objects.apply(made);
        }
    }
    for gateway in objects.undeployed() {
        objects.put(gateway);
    }
    let (push, _) = worker::start(settings, Debounce::default(), Arc::new(EnvoyTranslator)).map_err(text)?;
    changes.extend(objects.changes()?);
    push.change(changes).await.map_err(text)?;
    push.full_sync().await.map_err(text)?;
    push.wait_synced().await.map_err(text)?;
    let latest = Arc::new(Latest::default());
    let proxy =
        Proxy::parse("router~127.0.0.1~status.navarch~navarch", json!({}), Locality::default()).map_err(text)?;
    let id = push.connect(Arc::new(proxy), None, latest.clone()).await.map_err(text)?;
    let all = Interest { wildcard: true, ..Interest::default() };
    push.subscribe(id, ResourceType::ObjectStatus, all).await.map_err(text)?;
    let mut statuses = objects.statuses();
    write(&push, &latest, &mut statuses).await?;
    let updates = documents(&case.file("update.yaml").unwrap_or_default())?;
    if !updates.is_empty() {
        for update in updates {
            objects.patch(update);
        }
        push.change(objects.changes()?).await.map_err(text)?;
        write(&push, &latest, &mut statuses).await?;
    }
    push.disconnect(id);
    super::run::no_faults(&push).await?;
    Ok(Some(compare(&expected, &statuses)))
}

/// Writes as the leader does, once what is to be written is known.
async fn write(push: &PushHandle, latest: &Latest, statuses: &mut BTreeMap<String, Value>) -> Result<(), String> {
    for _ in 0..200 {
        push.inspect(|_| ()).await.map_err(text)?;
        if latest.0.lock().unwrap().is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let collection = latest.0.lock().unwrap().take().ok_or("no statuses were published")?;
    for resource in collection.resources.iter() {
        let Some(subject) = StatusSubject::parse(resource.name.as_str()) else { continue };
        let object = subject.object();
        let key = match object.kind.is_cluster_scoped() {
            true => format!("{}/{}", object.kind, object.name.name),
            false => format!("{}/{}", object.kind, object.name),
        };
        let wanted: Map<String, Value> = serde_json::from_slice(&resource.body).map_err(text)?;
        let Some(corrected) = status_correction(statuses.get(&key), &wanted, Share::Whole, &CONTROLLERS, "now") else {
            continue;
        };
        let status = statuses.entry(key).or_insert_with(|| json!({}));
        for (member, value) in corrected {
            match value {
                Value::Null => _ = status.as_object_mut().ok_or("a status is an object")?.remove(&member),
                value => status[member] = value,
            }
        }
    }
    Ok(())
}

/// Where statuses differ: in all but messages and times.
fn compare(expected: &BTreeMap<String, Value>, actual: &BTreeMap<String, Value>) -> Vec<String> {
    let mut out = Vec::new();
    for key in expected.keys().chain(actual.keys().filter(|key| !expected.contains_key(*key))) {
        let [expected, actual] = [expected, actual].map(|all| all.get(key).cloned().map(plain));
        match (expected, actual) {
            (Some(expected), Some(actual)) => super::canon::walk(&expected, &actual, key, &mut out),
            (Some(_), None) => out.push(format!("- {key} has no status")),
            (None, Some(actual)) => out.push(format!("+ {key} has a status: {actual}")),
            (None, None) => {}
        }
    }
    out
}

/// A status without messages and times, its conditions ordered by type.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(plain).collect();
            if items.iter().all(|item| item.get("type").is_some() && item.get("reason").is_some()) {
                items.sort_by_key(|item| item["type"].to_string());
            }
            Value::Array(items)
        }
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(name, _)| name != "message" && name != "lastTransitionTime");
            Value::Object(kept.map(|(name, value)| (name, plain(value))).collect())
        }
        other => other,
    }
}

/// The documents of a text.
fn documents(stream: &str) -> Result<Vec<Value>, String> {
    let parse = |document: yaml::Document<'_>| yaml::parse(document.text, Schema::V1_2).map_err(|error| error.reason);
    let all: Result<Vec<Value>, String> = yaml::documents(stream).map(parse).collect();
    Ok(all?.into_iter().filter(Value::is_object).collect())
}

/// The objects of a world by kind, namespace and name.
#[derive(Default)]
struct Objects(BTreeMap<String, Value>);

/// What names an object.
fn key(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    format!("{}/{}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

impl Objects {
    /// Adds an object, as the server gives it out: with a generation.
    fn put(&mut self, mut object: Value) {
        object["metadata"]["generation"] = json!(1);
        self.0.insert(key(&object), object);
    }

    /// Applies a Service as its manager does: what others have set stays.
    fn apply(&mut self, service: Value) {
        let Some(known) = self.0.get_mut(&key(&service)) else { return self.put(service) };
        merge(&mut known["metadata"]["labels"], &service["metadata"]["labels"]);
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        if let Some(known) = known["spec"]["ports"].as_array_mut() {
            for port in ports {
                if known.iter().all(|own| own["port"] != port["port"]) {
                    known.push(port);
                }
            }
        }
    }

    /// Merges a patch into an object, or adds it.
    fn patch(&mut self, patch: Value) {
        match self.0.get_mut(&key(&patch)) {
            Some(object) => {
                let before = object.get("spec").cloned();
                merge(object, &patch);
                if object.get("spec") != before.as_ref() {
                    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                    object["metadata"]["generation"] = json!(generation + 1);
                }
            }
            None => self.put(patch),
        }
    }

    /// The Services that istiod makes for Gateways, where the case does not say: their addresses are to come.
    fn undeployed(&self) -> Vec<Value> {
        let gateways = self.0.values().filter(|object| {
            object["kind"] == "Gateway" && object["apiVersion"].as_str().is_some_and(|api| api.starts_with("gateway."))
        });
        let service = |gateway: &Value| {
            let class = gateway["spec"]["gatewayClassName"].as_str()?;
            let object = self.0.get(&format!("GatewayClass//{class}"))?;
            let is_waypoint = object["spec"]["controllerName"] == WAYPOINTS.1;
            if !is_waypoint && object["spec"]["controllerName"] != CLASSES[0].1 {
                return None;
            }
            let addresses = gateway["spec"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
            if addresses.len() > 1 || addresses.iter().any(|address| address["type"] == "Hostname") {
                return None;
            }
            let name = gateway["metadata"]["name"].as_str()?;
            let name = if is_waypoint { name.to_owned() } else { format!("{name}-{class}") };
            let mut ports: BTreeMap<i64, Value> = BTreeMap::new();
            for listener in gateway["spec"]["listeners"].as_array()? {
                let port = listener["port"].as_i64()?;
                ports
                    .entry(port)
                    .or_insert_with(|| json!({ "name": listener["name"], "port": port, "protocol": "TCP" }));
            }
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": name, "namespace": gateway["metadata"]["namespace"],
                    "labels": { "gateway.istio.io/managed": "istio.io-gateway-controller" },
                },
                "spec": {
                    "type": if is_waypoint { "ClusterIP" } else { "LoadBalancer" },
                    "clusterIP": "10.96.200.1", "clusterIPs": ["10.96.200.1"],
                    "ports": ports.into_values().collect::<Vec<_>>(),
                },
            });
            (!self.0.contains_key(&key(&service))).then_some(service)
        };
        gateways.filter_map(service).collect()
    }

    /// The objects as changes.
    fn changes(&self) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        for object in self.0.values() {
            match decode_value(object) {
                (_, Outcome::Read { object, .. }) => changes.push(Change::Put(object)),
                (_, Outcome::Ignored) => {}
                (subject, Outcome::Rejected(error)) => return Err(format!("{subject}: {error}")),
            }
        }
        Ok(changes)
    }

    /// The statuses that the server gives objects that nobody has written to, and those that the case gives them.
    fn statuses(&self) -> BTreeMap<String, Value> {
        let mut statuses = BTreeMap::new();
        for object in self.0.values() {
            let api = object["apiVersion"].as_str().unwrap_or_default();
            if !api.starts_with("gateway.networking.") && !api.starts_with("inference.") {
                continue;
            }
            let waiting = |kind: &str| {
                json!({
                    "type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                })
            };
            let defaulted = match object["kind"].as_str() {
                Some("GatewayClass") => Some(json!({ "conditions": [waiting("Accepted")] })),
                Some("Gateway" | "ListenerSet") => {
                    Some(json!({ "conditions": [waiting("Accepted"), waiting("Programmed")] }))
                }
                _ => None,
            };
            let status = object.get("status").cloned().or(defaulted);
            let name = key(object).replace("//", "/");
            statuses.extend(status.map(|status| (name, status)));
        }
        statuses
    }
}

/// Merges a patch (RFC 7396).
fn merge(value: &mut Value, patch: &Value) {
    match (value, patch) {
        (Value::Object(members), Value::Object(patches)) => {
            for (name, patch) in patches {
                match patch {
                    Value::Null => _ = members.remove(name),
                    patch => merge(members.entry(name.clone()).or_insert(Value::Null), patch),
                }
            }
        }
        (value @ Value::Null, patch @ Value::Object(_)) => {
            *value = json!({});
            merge(value, patch);
        }
        (value, patch) => *value = patch.clone(),
    }
}
