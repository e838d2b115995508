//! A simulated Kubernetes API server: objects with a history of versions, lists, watches, writes
//! with optimistic concurrency, and faults.
//!
//! It is a service for `kube::Client`, so that all code of the product above the HTTP client is
//! real. Not simulated: admission, garbage collection, merging of lists by server-side apply
//! (an applied object is merged as RFC 7386 says), protobuf.

mod answers;
mod faults;
mod objects;
mod requests;
mod resources;
mod selectors;
mod service;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::link::Link;
use crate::random::Random;
use crate::story::Story;
use crate::tell;
use faults::Faults;
pub use faults::{Fault, Plant};
use objects::{Change, Objects, Part, WriteError, metadata, set};
use requests::{Failure, PatchKind, Request, merge};
use resources::{Resource, Resources};
pub use service::ApiClient;
use watches::{Line, Watch, WatchBody};

/// The client of writes by the simulated users of the cluster.
const USER: &str = "user";
/// The longest regular delay of a watch event, in milliseconds.
const MAX_EVENT_DELAY: u64 = 20;

/// The server. Clones are one server.
#[derive(Clone, Debug)]
pub struct ApiServer(Arc<Mutex<Server>>);

/// A write of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Who wrote.
    pub client: String,
    /// When it was sent.
    pub sent: Instant,
    /// When it was stored.
    pub stored: Instant,
    /// Such as `PATCH`.
    pub method: String,
    /// The plural of the resource.
    pub resource: String,
    /// `namespace/name`.
    pub name: String,
    /// Such as `status`.
    pub subresource: String,
}

#[derive(Debug)]
struct Server {
    name: &'static str,
    story: Story,
    random: Random,
    resources: Resources,
    objects: Objects,
    watches: Vec<Watch>,
    /// Number of watches that were opened.
    opened: u64,
    faults: Faults,
    /// The writes of control planes.
    writes: Vec<Write>,
    plant: Option<Plant>,
}

/// A response.
#[derive(Debug)]
enum Answer {
    Object(u16, Value),
    Failed(Failure),
    Watch(Box<WatchBody>),
}

impl ApiServer {
    /// A server without objects. `name` is its name in the story.
    #[must_use]
    pub fn new(name: &'static str, seed: u64, story: Story, plant: Option<Plant>) -> Self {
        Self(Arc::new(Mutex::new(Server {
            name,
            story,
            random: Random::new(seed, name),
            resources: Resources::default(),
            objects: Objects::default(),
            watches: Vec::new(),
            opened: 0,
            faults: Faults::default(),
            writes: Vec::new(),
            plant,
        })))
    }

    /// A client whose requests travel over a link.
    #[must_use]
    pub fn client(&self, name: &str, link: &Link, seed: u64) -> kube::Client {
        kube::Client::new(ApiClient::new(self, name, link, seed), "default")
    }

    /// Creates or replaces an object, as a user. Its status is replaced, too.
    ///
    /// # Panics
    /// If the server has no such resource.
    pub fn apply(&self, object: &Value) {
        let server = &mut *self.0.lock();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let kind = text(&object["kind"]);
        let resource = server.resources.of_kind(group, &kind);
        let resource = resource
            .unwrap_or_else(|| panic!("no resource {group}/{kind}"))
            .clone();
        let name = (
            text(metadata(object, "namespace")),
            text(metadata(object, "name")),
        );

        let now = server.now();
        let change = match server.objects.get(&resource, &name) {
            None => server
                .objects
                .create(&resource, &name, object.clone(), &now)
                .ok(),
            Some(_) => {
                let main = server
                    .objects
                    .replace(&resource, &name, Part::Main, object.clone());
                main.ok().flatten()
            }
        };
        if let Some(change) = change {
            server.publish(USER, &change);
        }
        if object.get("status").is_some()
            && let Ok(Some(change)) =
                server
                    .objects
                    .replace(&resource, &name, Part::Status, without_version(object))
        {
            server.publish(USER, &change);
        }
    }

    /// Deletes an object, as a user. Returns false if there is none.
    pub fn delete(&self, group: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let server = &mut *self.0.lock();
        let Some(resource) = server.resources.of_kind(group, kind).cloned() else {
            return false;
        };
        let name = (namespace.to_owned(), name.to_owned());
        match server.objects.delete(&resource, &name) {
            Ok(change) => {
                server.publish(USER, &change);
                true
            }
            Err(_) => false,
        }
    }

    /// The object with this name.
    #[must_use]
    pub fn get(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let server = self.0.lock();
        let resource = server.resources.of_kind(group, kind)?;
        let name = (namespace.to_owned(), name.to_owned());
        server.objects.get(resource, &name).cloned()
    }

    /// All objects of a kind.
    #[must_use]
    pub fn list(&self, group: &str, kind: &str) -> Vec<Value> {
        let server = self.0.lock();
        let is_it = |resource: &Resource| resource.group == group && resource.kind == kind;
        server
            .objects
            .all()
            .filter(|(resource, ..)| is_it(resource))
            .map(|(.., object)| object.clone())
            .collect()
    }

    /// All objects, by kind, namespace and name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Value> {
        let server = self.0.lock();
        server
            .objects
            .all()
            .map(|(resource, name, object)| {
                let name = format!("{} {}/{}", resource.kind, name.0, name.1);
                (name, object.clone())
            })
            .collect()
    }

    /// Begins a fault.
    pub fn begin(&self, fault: &Fault) {
        let server = &mut *self.0.lock();
        tell!(server.story, server.name, "fault: {fault}");
        match fault {
            Fault::DropWatches { resource, client } => server.drop_watches(resource, client),
            Fault::Compact => server.objects.compact(),
            other => server.faults.begin(other),
        }
    }

    /// Ends all faults.
    pub fn recover(&self) {
        self.0.lock().faults = Faults::default();
    }

    /// The writes of control planes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.0.lock().writes.clone()
    }

    /// Number of open watches.
    #[must_use]
    pub fn watches(&self) -> usize {
        let mut server = self.0.lock();
        server.watches.retain(|watch| !watch.lines.is_closed());
        server.watches.len()
    }

    /// Handles a request that was sent at a time.
    fn handle(&self, client: &ClientId, sent: Instant, head: &Parts, body: &Bytes) -> Answer {
        if let Some(review) = answers::review(head, body) {
            return Answer::Object(201, review);
        }

        let mut server = self.0.lock();
        let Some(request) = Request::parse(head, body, &server.resources) else {
            return Answer::Failed(Failure::new(404, "NotFound", "no such resource"));
        };
        if let Some(failure) = server.faulty(client, &request) {
            return Answer::Failed(failure);
        }

        let outcome = match (&request.method, request.query.watch) {
            (&Method::GET, true) => {
                return server
                    .watch(self, client, request)
                    .map_or_else(Answer::Failed, |body| Answer::Watch(Box::new(body)));
            }
            (&Method::GET, false) => server.read(&request),
            _ => server.write(client, sent, &request),
        };
        outcome.map_or_else(Answer::Failed, |(code, object)| {
            Answer::Object(code, object)
        })
    }

    /// Sends a bookmark to a watch.
    fn send_bookmark(&self, id: u64) {
        let server = &mut *self.0.lock();
        let version = server.objects.version();
        let delay = server.event_delay();
        if let Some(watch) = server.watches.iter_mut().find(|watch| watch.id == id) {
            let bookmark = watches::bookmark(&watch.request, version, false);
            watch.send(delay, Some(watches::line(&bookmark)));
        }
    }
}

/// Who sends a request, and over which connection.
#[derive(Clone, Debug)]
struct ClientId {
    name: String,
    link: Link,
    epoch: u64,
}

impl Watch {
    /// Sends a line after those before.
    fn send(&mut self, delay: Duration, text: Option<Bytes>) {
        self.last_arrival = self.last_arrival.max(Instant::now() + delay);
        let line = Line {
            arrives: self.last_arrival,
            text,
        };
        // The client may have closed the watch.
        _ = self.lines.send(line);
    }
}

impl Server {
    /// The wall clock.
    fn now(&self) -> String {
        let seconds = self.story.elapsed().as_secs();
        answers::timestamp(seconds)
    }

    /// The delay of an event.
    fn event_delay(&mut self) -> Duration {
        let regular = self.random.millis(0, MAX_EVENT_DELAY);
        regular + self.faults.event_delay(&mut self.random)
    }

    /// The failure that a fault causes.
    fn faulty(&mut self, client: &ClientId, request: &Request) -> Option<Failure> {
        let failure = self.faults.failure(&request.resource.plural)?;
        self.story.detail(&format!(
            "{}: {} {} {} of {} failed: {}",
            self.name,
            request.method,
            request.resource.plural,
            request.name,
            client.name,
            failure.code
        ));
        Some(failure)
    }

    fn drop_watches(&mut self, resource: &Option<String>, client: &Option<String>) {
        let is_meant = |watch: &Watch| {
            resource
                .as_ref()
                .is_none_or(|resource| *resource == watch.request.resource.plural)
                && client.as_ref().is_none_or(|client| *client == watch.client)
        };
        let dropped: Vec<Watch> = self
            .watches
            .extract_if(.., |watch| is_meant(watch))
            .collect();
        for mut watch in dropped {
            watch.send(Duration::ZERO, None);
        }
    }

    /// Sends a change to the watches, and tells it.
    fn publish(&mut self, client: &str, change: &Change) {
        self.tell_change(client, change);
        self.watches.retain(|watch| !watch.lines.is_closed());

        for index in 0..self.watches.len() {
            let delay = self.event_delay();
            let is_repeated = self.faults.repeats(&mut self.random);
            let Some(watch) = self.watches.get_mut(index) else {
                continue;
            };
            let is_lost = self.plant == Some(Plant::LostDeletions) && change.after.is_none();
            if watch.request.resource != change.resource || is_lost {
                continue;
            }
            if let Some(event) = watches::event(&watch.request, change) {
                let line = watches::line(&event);
                if is_repeated {
                    watch.send(delay, Some(line.clone()));
                }
                watch.send(delay, Some(line));
            }
        }
    }

    fn tell_change(&self, client: &str, change: &Change) {
        let verb = match (&change.before, &change.after) {
            (None, _) => "created",
            (Some(_), Some(_)) => "changed",
            (Some(_), None) => "deleted",
        };
        let text = format!(
            "{client} {verb} {} {}/{} (rv {})",
            change.resource.kind, change.name.0, change.name.1, change.version
        );
        // Locks are renewed all the time.
        let is_lock = change.resource.plural == "leases" || change.name.1.starts_with("istio-");
        if is_lock && verb == "changed" {
            self.story.detail(&text);
        } else {
            self.story.add(&self.name, &text);
        }
    }

    /// Reads an object or a list.
    fn read(&mut self, request: &Request) -> Result<(u16, Value), Failure> {
        if !request.name.is_empty() {
            let object = self
                .objects
                .get(&request.resource, &request.object_name())
                .ok_or_else(|| answers::not_found(request))?;
            return Ok((200, watches::shown(request, object)));
        }

        let newest = self.objects.version();
        let (version, skipped) = match request.query.continues.as_deref().map(answers::page) {
            Some(page) => page.ok_or_else(|| answers::expired("invalid continue token"))?,
            None => (self.list_version(request, newest), 0),
        };
        if version < self.objects.oldest() && skipped > 0 {
            return Err(answers::expired("the continue token has expired"));
        }

        let objects = self.objects.at(&request.resource, version);
        let selected: Vec<_> = objects
            .iter()
            .filter(|(name, object)| request.query.selector.selects(&name.0, object))
            .map(|(_, object)| object)
            .collect();
        Ok((200, answers::list(request, &selected, version, skipped)))
    }

    /// The version of a list: an older one is allowed if the request does not require the newest.
    fn list_version(&mut self, request: &Request, newest: u64) -> u64 {
        match request.query.resource_version.as_deref() {
            Some("0") => newest.saturating_sub(self.faults.lag(&mut self.random)),
            _ => newest,
        }
    }

    /// Opens a watch.
    fn watch(
        &mut self,
        server: &ApiServer,
        client: &ClientId,
        request: Request,
    ) -> Result<WatchBody, Failure> {
        let newest = self.objects.version();
        let from = match request.query.resource_version.as_deref() {
            None | Some("0") => None,
            Some(version) => Some(version.parse::<u64>().unwrap_or_default()),
        };

        let (lines, receiver) = mpsc::unbounded_channel();
        self.opened += 1;
        let mut watch = Watch {
            id: self.opened,
            client: client.name.clone(),
            request,
            lines,
            last_arrival: Instant::now(),
        };
        self.story.detail(&format!(
            "{}: {} watches {} from {from:?}",
            self.name, client.name, watch.request.resource.plural
        ));

        let begins_with_all = watch.request.query.sends_initial_events || from.is_none();
        let version = if begins_with_all {
            let version = self.list_version(&watch.request, newest);
            self.send_all(&mut watch, version);
            version
        } else {
            from.unwrap_or_default()
        };
        if version > newest {
            return Err(answers::too_large(version, newest));
        }

        // As a real server, it tells so within the response.
        let is_expired = !begins_with_all && version < self.objects.oldest();
        if is_expired {
            let expired = answers::expired("too old resource version").status();
            let event = json!({ "type": "ERROR", "object": expired });
            watch.send(Duration::ZERO, Some(watches::line(&event)));
        } else {
            for change in self.objects.since(&watch.request.resource, version) {
                if let Some(event) = watches::event(&watch.request, &change) {
                    let delay = self.event_delay();
                    watch.send(delay, Some(watches::line(&event)));
                }
            }
        }

        let seconds = watch.request.query.timeout_seconds.unwrap_or(1800);
        let body = WatchBody {
            id: watch.id,
            server: server.clone(),
            link: client.link.clone(),
            epoch: client.epoch,
            lines: receiver,
            travelling: None,
            ends: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
            bookmark: watch
                .request
                .query
                .bookmarks
                .then(WatchBody::first_bookmark),
        };
        if !is_expired {
            self.watches.push(watch);
        }
        Ok(body)
    }

    /// Sends all objects of a version to a new watch.
    fn send_all(&mut self, watch: &mut Watch, version: u64) {
        for (name, object) in self.objects.at(&watch.request.resource, version) {
            if watch.request.query.selector.selects(&name.0, &object) {
                let object = watches::shown(&watch.request, &object);
                let event = json!({ "type": "ADDED", "object": object });
                let delay = self.event_delay();
                watch.send(delay, Some(watches::line(&event)));
            }
        }
        if watch.request.query.sends_initial_events {
            let bookmark = watches::bookmark(&watch.request, version, true);
            let delay = self.event_delay();
            watch.send(delay, Some(watches::line(&bookmark)));
        }
    }

    /// Applies a write.
    fn write(
        &mut self,
        client: &ClientId,
        sent: Instant,
        request: &Request,
    ) -> Result<(u16, Value), Failure> {
        let name = match request.name.as_str() {
            "" => (request.namespace.clone(), self.name_of_new(request)),
            _ => request.object_name(),
        };
        if self.faults.conflicts(&mut self.random) {
            self.touch(&request.resource, &name);
        }
        let change = self.change(request, &name).map_err(|failure| {
            self.story.detail(&format!(
                "{}: {} {} of {} failed: {}",
                self.name, request.method, name.1, client.name, failure.message
            ));
            failure
        })?;

        if let Some(change) = &change {
            self.publish(&client.name, change);
            self.writes.push(Write {
                client: client.name.clone(),
                sent,
                stored: Instant::now(),
                method: request.method.to_string(),
                resource: request.resource.plural.clone(),
                name: format!("{}/{}", name.0, name.1),
                subresource: request.subresource.clone(),
            });
        }

        if let Some(failure) = self.faults.lost_answer(&client.name) {
            return Err(failure);
        }
        let object = self.objects.get(&request.resource, &name);
        let object = object.map_or_else(
            || json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {} }),
            |object| watches::shown(request, object),
        );
        let code = if request.method == Method::POST {
            201
        } else {
            200
        };
        Ok((code, object))
    }

    /// Changes an object a little, as another writer.
    fn touch(&mut self, resource: &Resource, name: &objects::Name) {
        let version = self.objects.version();
        let Some(mut object) = self.objects.get(resource, name).cloned() else {
            return;
        };
        let touched =
            json!({ "metadata": { "annotations": { "sim/touched": version.to_string() } } });
        merge(&mut object, &touched);
        if let Ok(Some(change)) = self.objects.replace(resource, name, Part::Main, object) {
            self.publish("another writer", &change);
        }
    }

    /// The name of an object that is created.
    fn name_of_new(&mut self, request: &Request) -> String {
        let text = |member| metadata(&request.body, member).as_str().unwrap_or_default();
        match text("name") {
            "" => format!("{}{:05}", text("generateName"), self.random.below(100_000)),
            name => name.to_owned(),
        }
    }

    fn change(
        &mut self,
        request: &Request,
        name: &objects::Name,
    ) -> Result<Option<Change>, Failure> {
        let resource = &request.resource;
        let part = match request.subresource.as_str() {
            "status" => Part::Status,
            _ => Part::Main,
        };
        let failed = |error| match error {
            WriteError::NotFound => answers::not_found(request),
            WriteError::Exists => {
                Failure::new(409, "AlreadyExists", format!("{} already exists", name.1))
            }
            WriteError::Conflict => Failure::new(409, "Conflict", "the object has been modified"),
        };
        let now = self.now();

        match request.method {
            Method::POST => {
                let mut object = request.body.clone();
                set(&mut object, "name", json!(name.1));
                if !name.0.is_empty() {
                    set(&mut object, "namespace", json!(name.0));
                }
                let created = self.objects.create(resource, name, object, &now);
                created.map(Some).map_err(failed)
            }
            Method::PUT => {
                let object = request.body.clone();
                self.objects
                    .replace(resource, name, part, object)
                    .map_err(failed)
            }
            Method::DELETE => {
                answers::check_preconditions(request, self.objects.get(resource, name))?;
                self.objects
                    .delete(resource, name)
                    .map(Some)
                    .map_err(failed)
            }
            Method::PATCH => {
                let Some(before) = self.objects.get(resource, name).cloned() else {
                    if request.patch != PatchKind::Apply || part == Part::Status {
                        return Err(failed(WriteError::NotFound));
                    }
                    let created = self
                        .objects
                        .create(resource, name, request.body.clone(), &now);
                    return created.map(Some).map_err(failed);
                };
                let patched = answers::patched(request, before)?;
                self.objects
                    .replace(resource, name, part, patched)
                    .map_err(failed)
            }
            _ => Err(Failure::new(405, "MethodNotAllowed", "unknown method")),
        }
    }
}

/// The object without the version that it was read at.
fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    merge(
        &mut object,
        &json!({ "metadata": { "resourceVersion": null } }),
    );
    object
}
