//! The state of the simulated API server, and what requests do to it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::faults::Faults;
use super::objects::{self, Change, Objects, Part, WriteError, metadata, set};
use super::requests::{Failure, PatchKind, Request, merge};
use super::resources::{Resource, Resources};
use super::watches::{self, Arrival, Line, Watch, WatchBody};
use super::{ApiServer, ClientId, Plant, Write, answers};
use crate::random::Random;
use crate::story::Story;

/// The longest regular delay of a watch event, in milliseconds.
const MAX_EVENT_DELAY: u64 = 20;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) story: Story,
    pub(super) random: Random,
    pub(super) resources: Resources,
    pub(super) objects: Objects,
    pub(super) watches: Vec<Watch>,
    /// Number of watches that were opened.
    pub(super) opened: u64,
    pub(super) faults: Faults,
    /// The writes of control planes.
    pub(super) writes: Vec<Write>,
    pub(super) plant: Option<Plant>,
}

impl Watch {
    /// Sends something after what was sent before.
    pub(super) fn send(&mut self, delay: Duration, arrival: Arrival) {
        self.last_arrival = self.last_arrival.max(Instant::now() + delay);
        let line = Line {
            arrives: self.last_arrival,
            arrival,
        };
        // The client may have closed the watch.
        _ = self.lines.send(line);
    }
}

impl Server {
    /// The wall clock.
    pub(super) fn now(&self) -> String {
        let seconds = self.story.elapsed().as_secs();
        answers::timestamp(seconds)
    }

    /// The delay of an event.
    pub(super) fn event_delay(&mut self) -> Duration {
        let regular = self.random.millis(0, MAX_EVENT_DELAY);
        regular + self.faults.event_delay(&mut self.random)
    }

    /// The failure that a fault causes.
    pub(super) fn faulty(&mut self, client: &ClientId, request: &Request) -> Option<Failure> {
        let failure = self.faults.failure(request)?;
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

    /// Breaks the watches of a resource; of all if it is `None`.
    pub(super) fn drop_watches(&mut self, resource: Option<&String>) {
        let is_meant = |watch: &mut Watch| {
            resource.is_none_or(|resource| *resource == watch.request.resource.plural)
        };
        let dropped: Vec<Watch> = self.watches.extract_if(.., is_meant).collect();
        for mut watch in dropped {
            watch.send(Duration::ZERO, Arrival::Break);
        }
    }

    /// Makes one watch of a resource half-open; of any if it is `None`.
    pub(super) fn silence_watch(&mut self, resource: Option<&String>) {
        self.watches.retain(|watch| !watch.lines.is_closed());
        let is_meant = |watch: &Watch| {
            resource.is_none_or(|resource| *resource == watch.request.resource.plural)
        };
        let meant: Vec<usize> = (0..self.watches.len())
            .filter(|index| self.watches.get(*index).is_some_and(is_meant))
            .collect();
        let Some(index) = meant.get(self.random.index(meant.len())) else {
            return;
        };

        let mut watch = self.watches.remove(*index);
        let text = format!(
            "the watch of {} by {} is half-open",
            watch.request.resource.plural, watch.client
        );
        self.story.add(&self.name, &text);
        watch.send(Duration::ZERO, Arrival::Silence);
    }

    /// Sends a change to the watches, and tells it.
    pub(super) fn publish(&mut self, client: &str, change: &Change) {
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
                    watch.send(delay, Arrival::Text(line.clone()));
                }
                watch.send(delay, Arrival::Text(line));
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
    pub(super) fn read(&mut self, request: &Request) -> Result<(u16, Value), Failure> {
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
    pub(super) fn watch(
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

        let mut is_open = true;
        let begins_with_all = watch.request.query.sends_initial_events || from.is_none();
        let version = if begins_with_all {
            let version = self.list_version(&watch.request, newest);
            is_open = self.send_all(&mut watch, version);
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
            watch.send(Duration::ZERO, Arrival::Text(watches::line(&event)));
            is_open = false;
        } else {
            for change in self.objects.since(&watch.request.resource, version) {
                if let Some(event) = watches::event(&watch.request, &change) {
                    let delay = self.event_delay();
                    watch.send(delay, Arrival::Text(watches::line(&event)));
                }
            }
        }

        let seconds = watch.request.query.timeout_seconds.unwrap_or(1800);
        let body = WatchBody {
            id: watch.id,
            server: server.clone(),
            link: client.link.clone(),
            changes: client.link.listen(),
            epoch: client.epoch,
            lines: receiver,
            travelling: None,
            is_silent: false,
            ends: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
            bookmark: watch
                .request
                .query
                .bookmarks
                .then(WatchBody::first_bookmark),
        };
        if is_open {
            self.watches.push(watch);
        }
        Ok(body)
    }

    /// Sends all objects of a version to a new watch. Returns false if a fault breaks it off.
    fn send_all(&mut self, watch: &mut Watch, version: u64) -> bool {
        let query = watch.request.query.clone();
        let mut objects = self.objects.at(&watch.request.resource, version);
        objects.retain(|name, object| query.selector.selects(&name.0, object));
        let breaks_after = self
            .faults
            .list_breaks_after(objects.len(), &mut self.random)
            .filter(|_| query.sends_initial_events);

        for (sent, object) in objects.into_values().enumerate() {
            if breaks_after == Some(sent) {
                break;
            }
            let object = watches::shown(&watch.request, &object);
            let event = json!({ "type": "ADDED", "object": object });
            let delay = self.event_delay();
            watch.send(delay, Arrival::Text(watches::line(&event)));
        }

        if breaks_after.is_some() {
            watch.send(Duration::ZERO, Arrival::Break);
            return false;
        }
        if query.sends_initial_events {
            let bookmark = watches::bookmark(&watch.request, version, true);
            let delay = self.event_delay();
            watch.send(delay, Arrival::Text(watches::line(&bookmark)));
        }
        true
    }

    /// Applies a write.
    pub(super) fn write(
        &mut self,
        client: &ClientId,
        sent: Instant,
        request: &Request,
    ) -> Result<(u16, Value), Failure> {
        let name = match request.name.as_str() {
            "" => (request.namespace.clone(), self.name_of_new(request)),
            _ => request.object_name(),
        };
        if request.shows_key() {
            let text = format!(
                "{} writes one into {} {}",
                client.name, request.resource.kind, name.1
            );
            self.story
                .violated("private keys stay where they belong", &text);
        }
        if self.faults.conflicts(&mut self.random) {
            self.touch(&request.resource, &name);
        }
        let changed = self.change(request, &name);
        let change = changed.inspect_err(|failure| {
            self.story.detail(&format!(
                "{}: {} {} of {} failed: {}",
                self.name, request.method, name.1, client.name, failure.message
            ));
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

        if let Some(failure) = self
            .faults
            .lost_answer(&client.name, &request.resource.plural)
        {
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
