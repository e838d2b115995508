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
mod server;
mod service;
mod watches;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::link::Link;
use crate::random::Random;
use crate::story::Story;
use crate::tell;
use faults::Faults;
pub use faults::{FailedWrite, Fault, Plant};
use objects::{Objects, Part, metadata};
use requests::{Failure, Request, merge};
use resources::{Resource, Resources};
use server::Server;
pub use service::ApiClient;
use watches::{Arrival, WatchBody};

/// The client of writes by the simulated users of the cluster.
const USER: &str = "user";

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

/// A response.
#[derive(Debug)]
enum Answer {
    Object(u16, Value),
    Failed(Failure),
    Watch(Box<WatchBody>),
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {} {}",
            self.client, self.method, self.resource, self.name, self.subresource
        )
    }
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

    /// The objects of a kind whose names begin so.
    #[must_use]
    pub fn named(&self, group: &str, kind: &str, prefix: &str) -> Vec<Value> {
        let server = self.0.lock();
        let Some(resource) = server.resources.of_kind(group, kind) else {
            return Vec::new();
        };
        server
            .objects
            .of(resource)
            .filter(|(name, _)| name.1.starts_with(prefix))
            .map(|(_, object)| object.clone())
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
            Fault::DropWatches { resource } => server.drop_watches(resource.as_ref()),
            Fault::Silence { resource } => server.silence_watch(resource.as_ref()),
            Fault::Compact => server.objects.compact(),
            Fault::Fail { .. }
            | Fault::FailWrites { .. }
            | Fault::FailLists { .. }
            | Fault::BreakLists { .. }
            | Fault::Lag { .. }
            | Fault::Delay { .. }
            | Fault::Repeat { .. }
            | Fault::Conflict { .. }
            | Fault::LoseAnswers { .. } => server.faults.begin(fault),
        }
    }

    /// Deletes the objects whose owners or namespaces are gone, as the garbage collector does.
    pub(crate) fn collect_garbage(&self) {
        let server = &mut *self.0.lock();
        for (resource, name) in server.objects.orphans() {
            if let Ok(change) = server.objects.delete(&resource, &name) {
                server.publish("garbage collector", &change);
            }
        }
    }

    /// Frees the history of objects, which only ever grows, and that of writes.
    pub(crate) fn free_history(&self) {
        let server = &mut *self.0.lock();
        server.objects.free_history();
        server.writes = Vec::new();
    }

    /// Whether a fault is in force that requests fail of.
    pub(crate) fn fails(&self) -> bool {
        self.0.lock().faults.fail_requests()
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

    /// The number of open watches of each client.
    #[must_use]
    pub fn watches(&self) -> BTreeMap<String, usize> {
        let mut server = self.0.lock();
        server.watches.retain(|watch| !watch.lines.is_closed());
        let mut counts = BTreeMap::new();
        for watch in &server.watches {
            *counts.entry(watch.client.clone()).or_default() += 1;
        }
        counts
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
            watch.send(delay, Arrival::Text(watches::line(&bookmark)));
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

/// The object without the version that it was read at.
fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    merge(
        &mut object,
        &json!({ "metadata": { "resourceVersion": null } }),
    );
    object
}
