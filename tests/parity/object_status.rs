//! Statuses of Gateway API objects: the objects of a case, with the objects that controllers would
//! create, and the statuses that the leader would write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kube::api::DynamicObject;
use navarch::api::decode::{Outcome, decode_value};
use navarch::api::yaml::{self, Schema};
use navarch::envoy::EnvoyTranslator;
use navarch::envoy::gateway_api::StatusSubject;
use navarch::push::engine::{Interest, PushCause, Sink};
use navarch::push::mesh_state::Change;
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::status::gateways::ClassInfo;
use navarch::status::{OwnObjects, StatusScope, service_of_pool, status_correction};
use serde_json::{Map, Value, json};

use super::case::Case;
use super::run::text;
use super::{created, input};

/// The revision of the installation with which the cases were recorded.
const REVISION: &str = "default";
/// The controller name of waypoints, whose entries Navarch writes as well.
const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

/// Keeps the last published collection.
#[derive(Default)]
struct Latest(Mutex<Option<Arc<Collection>>>);

impl Sink for Latest {
    fn publish(&self, _: ResourceType, collection: Arc<Collection>, _: &Arc<PushCause>) {
        *self.0.lock().unwrap() = Some(collection);
    }
}

/// The differences of a case's statuses; `None` without an expectation.
pub(crate) async fn differences(case: &Case) -> Result<Option<Vec<String>>, String> {
    let Some(expected) = case.file("expect/status.json") else {
        return Ok(None);
    };
    let expected: BTreeMap<String, Value> = serde_json::from_str(&expected).map_err(text)?;
    Ok(Some(compare(&expected, &statuses(case).await?)))
}

/// The statuses of a case, by kind, namespace and name.
pub(crate) async fn statuses(case: &Case) -> Result<BTreeMap<String, Value>, String> {
    let (settings, mut changes) = input::read_without_objects(case)?;
    let mut objects = Objects::default();
    for document in documents(&case.file("input.yaml").unwrap_or_default())? {
        objects.put(document);
    }

    let controllers = created::settings(case)?;
    let classes = if controllers.classes {
        ClassInfo::builtin(&settings.gateway_api)
    } else {
        Vec::new()
    };

    for (name, class) in classes {
        objects.0.entry(format!("GatewayClass//{name}")).or_insert_with(|| {
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": { "name": name, "generation": 1 }, "spec": { "controllerName": class.controller },
            })
        });
    }

    // The objects that istiod deploys for Gateways, if the case contains them.
    for made in documents(&case.file("expect/created.yaml").unwrap_or_default())? {
        if made["kind"] == "Service" {
            objects.apply(made);
        }
    }

    if controllers.deploys {
        objects.deploy(case)?;
    }

    let mut statuses = objects.statuses();
    let api = settings.gateway_api.clone();
    if !api.enabled || !api.status {
        return Ok(statuses);
    }

    let writer = Writer {
        controllers: [api.controller, MESH_CONTROLLER.to_owned()],
        serves_pools: api.inference,
    };
    let (push, _) =
        worker::start(settings, Debounce::default(), Arc::new(EnvoyTranslator)).map_err(text)?;
    changes.extend(objects.changes()?);
    push.change(changes).await.map_err(text)?;

    push.full_sync().await.map_err(text)?;
    push.wait_synced().await.map_err(text)?;
    let latest = Arc::new(Latest::default());
    let proxy = Proxy::parse(
        "router~127.0.0.1~status.navarch~navarch",
        json!({}),
        Locality::default(),
    )
    .map_err(text)?;
    let id = push
        .connect(Arc::new(proxy), None, latest.clone())
        .await
        .map_err(text)?;
    let all = Interest {
        wildcard: true,
        ..Interest::default()
    };
    push.subscribe(id, ResourceType::ObjectStatus, all)
        .await
        .map_err(text)?;

    writer
        .write(&push, &latest, &mut objects, &mut statuses)
        .await?;
    let updates = documents(&case.file("update.yaml").unwrap_or_default())?;
    if !updates.is_empty() {
        for update in updates {
            objects.patch(update);
        }
        if controllers.deploys {
            objects.deploy(case)?;
        }
        push.change(objects.changes()?).await.map_err(text)?;
        writer
            .write(&push, &latest, &mut objects, &mut statuses)
            .await?;
    }

    push.disconnect(id);
    super::run::no_faults(&push).await?;
    Ok(statuses)
}

/// Writes statuses as the leader does.
struct Writer {
    /// The controller names of our entries.
    controllers: [String; 2],
    /// Whether Services are created for InferencePools.
    serves_pools: bool,
}

impl Writer {
    /// Writes statuses once they are computed, and again once the Services of InferencePools exist.
    async fn write(
        &self,
        push: &PushHandle,
        latest: &Latest,
        objects: &mut Objects,
        statuses: &mut BTreeMap<String, Value>,
    ) -> Result<(), String> {
        let collection = published(push, latest)
            .await?
            .ok_or("no statuses were published")?;
        self.take(&collection, objects, statuses)?;
        let own = objects.own()?;
        if self.serves_pools && objects.serve_pools(statuses, &own)? {
            push.change(objects.changes()?).await.map_err(text)?;
            if let Some(collection) = published(push, latest).await? {
                self.take(&collection, objects, statuses)?;
            }
        }
        Ok(())
    }

    /// Writes the statuses of our revision.
    fn take(
        &self,
        collection: &Collection,
        objects: &Objects,
        statuses: &mut BTreeMap<String, Value>,
    ) -> Result<(), String> {
        let own = objects.own()?;
        let controllers = self.controllers.each_ref().map(String::as_str);

        for resource in collection.resources.iter() {
            let Some(subject) = StatusSubject::parse(resource.name.as_str()) else {
                continue;
            };

            let object = subject.object();
            let name = format!(
                "{}/{}/{}",
                object.kind, object.name.namespace, object.name.name
            );

            if !objects
                .0
                .get(&name)
                .is_some_and(|object| is_own(&own, object))
            {
                continue;
            }
            let wanted: Map<String, Value> =
                serde_json::from_slice(&resource.body).map_err(text)?;
            let key = name.replace("//", "/");
            let Some(corrected) = status_correction(
                statuses.get(&key),
                &wanted,
                StatusScope::Whole,
                &controllers,
                "now",
            ) else {
                continue;
            };

            let status = statuses.entry(key).or_insert_with(|| json!({}));

            for (member, value) in corrected {
                match value {
                    Value::Null => {
                        _ = status
                            .as_object_mut()
                            .ok_or("a status is an object")?
                            .remove(&member)
                    }
                    value => status[member] = value,
                }
            }
        }

        Ok(())
    }
}

/// The next published collection; `None` if none is published.
async fn published(push: &PushHandle, latest: &Latest) -> Result<Option<Arc<Collection>>, String> {
    for _ in 0..200 {
        push.inspect(|_| ()).await.map_err(text)?;
        if latest.0.lock().unwrap().is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(latest.0.lock().unwrap().take())
}

/// Whether our revision writes an object's status.
fn is_own(own: &OwnObjects, object: &Value) -> bool {
    let meta = &object["metadata"];
    own.has(
        meta["namespace"].as_str().unwrap_or_default(),
        meta["labels"]["istio.io/rev"].as_str(),
    )
}

/// Whether an object is read: Gateways of any revision, and Kubernetes' own kinds.
fn is_read(object: &Value, own: &OwnObjects) -> bool {
    let group = object["apiVersion"]
        .as_str()
        .unwrap_or_default()
        .split('/')
        .next()
        .unwrap_or_default();
    let is_gateway = object["kind"] == "Gateway" && group == "gateway.networking.k8s.io";
    let is_defined = ["gateway.networking.", "inference.", "multicluster."]
        .iter()
        .any(|start| group.starts_with(start))
        || group.ends_with(".istio.io");
    let named = object["metadata"]["labels"]["istio.io/rev"]
        .as_str()
        .filter(|named| !named.is_empty());
    is_gateway || !is_defined || named.is_none_or(|named| own.has("any", Some(named)))
}

/// An object in the form of kube's client.
fn dynamic(object: &Value) -> Result<DynamicObject, String> {
    serde_json::from_value(object.clone()).map_err(text)
}

/// The differences of statuses, ignoring messages and times.
fn compare(expected: &BTreeMap<String, Value>, actual: &BTreeMap<String, Value>) -> Vec<String> {
    let mut out = Vec::new();
    for key in expected
        .keys()
        .chain(actual.keys().filter(|key| !expected.contains_key(*key)))
    {
        // An empty status equals an absent one.
        let status = |all: &BTreeMap<String, Value>| {
            all.get(key)
                .cloned()
                .map(plain)
                .filter(|status| *status != json!({}))
        };
        let [expected, actual] = [expected, actual].map(status);
        match (expected, actual) {
            (Some(expected), Some(actual)) => super::canon::walk(&expected, &actual, key, &mut out),
            (Some(_), None) => out.push(format!("- {key} has no status")),
            (None, Some(actual)) => out.push(format!("+ {key} has a status: {actual}")),
            (None, None) => {}
        }
    }

    out
}

/// A status without messages and times, its conditions sorted by type.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(plain).collect();
            if items
                .iter()
                .all(|item| item.get("type").is_some() && item.get("reason").is_some())
            {
                items.sort_by_key(|item| item["type"].to_string());
            }
            Value::Array(items)
        }
        Value::Object(members) => {
            let kept = members
                .into_iter()
                .filter(|(name, _)| name != "message" && name != "lastTransitionTime");
            Value::Object(kept.map(|(name, value)| (name, plain(value))).collect())
        }
        other => other,
    }
}

/// The documents in a YAML text.
fn documents(stream: &str) -> Result<Vec<Value>, String> {
    let parse = |document: yaml::Document<'_>| {
        yaml::parse(document.text, Schema::V1_2).map_err(|error| error.reason)
    };
    let all: Result<Vec<Value>, String> = yaml::documents(stream).map(parse).collect();
    Ok(all?.into_iter().filter(Value::is_object).collect())
}

/// The objects by kind, namespace and name.
#[derive(Default)]
struct Objects(BTreeMap<String, Value>);

fn key(object: &Value) -> String {
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    format!(
        "{}/{}/{}",
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

impl Objects {
    /// Adds an object with a generation, as the server sets it.
    fn put(&mut self, mut object: Value) {
        object["metadata"]["generation"] = json!(1);
        self.0.insert(key(&object), object);
    }

    /// Applies a Service by server-side apply: fields of other managers stay.
    fn apply(&mut self, service: Value) {
        let Some(known) = self.0.get_mut(&key(&service)) else {
            return self.put(service);
        };

        merge(
            &mut known["metadata"]["labels"],
            &service["metadata"]["labels"],
        );
        let ports = service["spec"]["ports"]
            .as_array()
            .cloned()
            .unwrap_or_default();

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

    /// Adds the Services for Gateways, if the case does not contain them; they have no addresses
    /// yet.
    fn deploy(&mut self, case: &Case) -> Result<(), String> {
        let objects: Vec<Value> = self.0.values().cloned().collect();
        for mut service in created::made(case, &objects)?
            .into_values()
            .filter(|made| made["kind"] == "Service")
        {
            if !self.0.contains_key(&key(&service)) {
                service["spec"]["clusterIP"] = json!("10.96.200.1");
                service["spec"]["clusterIPs"] = json!(["10.96.200.1"]);
                self.put(service);
            }
        }
        Ok(())
    }

    /// Adds the Services of InferencePools, as their statuses demand; returns whether there are new
    /// ones.
    fn serve_pools(
        &mut self,
        statuses: &BTreeMap<String, Value>,
        own: &OwnObjects,
    ) -> Result<bool, String> {
        let mut services = Vec::new();
        for (name, pool) in self
            .0
            .iter()
            .filter(|(_, object)| object["kind"] == "InferencePool")
        {
            let mut pool = pool.clone();
            pool["status"] = statuses.get(name).cloned().unwrap_or_default();
            let service = service_of_pool(&dynamic(&pool)?).filter(|_| is_own(own, &pool));
            services.extend(service.filter(|service| !self.0.contains_key(&key(service))));
        }
        let are_new = !services.is_empty();
        services.into_iter().for_each(|service| self.put(service));
        Ok(are_new)
    }

    /// The objects of the revision.
    fn own(&self) -> Result<OwnObjects, String> {
        let objects: Result<Vec<_>, String> = self.0.values().map(dynamic).collect();
        Ok(OwnObjects::of(REVISION, "istio-system", objects?))
    }

    fn changes(&self) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        let own = self.own()?;
        for object in self.0.values().filter(|object| is_read(object, &own)) {
            match decode_value(object) {
                (_, Outcome::Read { object, .. }) => changes.push(Change::Put(object)),
                (_, Outcome::Ignored) => {}
                (subject, Outcome::Rejected(error)) => return Err(format!("{subject}: {error}")),
            }
        }
        Ok(changes)
    }

    /// The initial statuses: the server's defaults, overlaid by those in the case.
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
