//! Lists and watches one kind, across failures of the connection.
//!
//! This is not `kube::runtime::watcher`, because the configuration of the whole mesh passes through
//! here:
//! - An object that cannot be decoded or is invalid becomes a problem, and its last valid version
//!   stays in force ([`KindObjects`]); other objects of the stream go on. With kube's watcher a
//!   decoding error fails the list or the watch.
//! - A list is applied page by page or event by event to the objects that were sent. After a relist
//!   only differences are sent. kube's watcher sends all objects again, and its user gathers them
//!   in a second copy until the list is complete.
//! - Events are decoded from protobuf (where the kind has a binary form) or JSON straight into
//!   Navarch's own types, and equal texts are shared ([`SharedTexts`]).
//! - The version of the API is negotiated among several, and a kind that is not served is waited
//!   for.
//!
//! `tags.rs` uses kube's watcher: it reads the metadata of a few objects, and needs none of this.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::SOURCE;
use super::scope::{KubernetesScope, Tags};
use super::stream::{Chunk, Connection, Frames, Framing, StreamError};
use super::watch_state::{Pause, WatchOutcome, WatchRequest, WatchState};
use crate::event_log::{EventLog, event_log};
use crate::kind_objects::{KindObjects, kind_problem};
use crate::{Batch, RETRY};
use navarch_api::decode::{
    WatchEvent, decode_binary_event, decode_stored, decode_watch_event, has_binary_form,
};
use navarch_api::object::Kind;
use navarch_api::shared_texts::{HasTexts, SharedTexts};
use navarch_net::backoff::{Backoff, jitter};

/// The requested duration of a watch, with jitter, as in client-go.
const WATCH_TIMEOUT: Duration = Duration::from_secs(400);

/// Number of objects in a page of a list.
const PAGE_SIZE: usize = 500;

/// Maximum size of a page in bytes: users decide how large objects are, 1.5 MB each in etcd, and a
/// server could send without end. A larger page is requested again with fewer objects.
const MAX_PAGE_BYTES: usize = 256 << 20;

/// Poll interval of a kind that is not served, besides events of its definition.
const MISSING_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Number of quick retries after a definition changed: the kind is served a moment later.
const FAST_RETRIES: u32 = 6;

/// After this many consecutive failures the kind is reported as unreadable.
const MAX_FAILURES: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// Its path in each supported version, the best first.
    pub(super) paths: Vec<String>,
    /// The field selector; empty for all objects.
    pub(super) selector: String,
    /// Whether it counts as read if the server forbids reading it.
    pub(super) optional: bool,
}

/// Selects the objects of a kind that belong to this control plane.
pub(super) struct ObjectSelection {
    pub(super) scope: Arc<KubernetesScope>,
    /// The tags of this revision; `None` until they are read. The sender is closed if tags do not
    /// matter.
    pub(super) tags: watch::Receiver<Option<Tags>>,
}

/// The receiver of events is closed.
pub(super) struct Closed;

/// Lists and watches one kind.
pub(super) struct Reflector {
    target: Target,
    selection: ObjectSelection,
    connection: Connection,
    /// Notified when the definition of the kind changes.
    redefined: Arc<Notify>,
    events: mpsc::Sender<Batch>,
    /// Receives the kind once, when all its initial objects were sent.
    synced: Option<mpsc::Sender<Kind>>,
    /// The objects that were sent.
    held: KindObjects,
    texts: SharedTexts,
    state: WatchState,
    backoff: Backoff,
    /// Consecutive failures since data was received.
    failures: u32,
    /// Whether a problem of the kind was sent.
    unhealthy: bool,
    /// Quick retries that are left while the kind is not served.
    eager: u32,
    log: EventLog,
}

impl Reflector {
    /// A reflector in its initial state. `redefined` is notified when the definition of the kind
    /// changes; `synced` receives the kind once, when all its initial objects were sent; `texts`
    /// are those that objects share.
    pub(super) fn new(
        target: Target,
        selection: ObjectSelection,
        connection: Connection,
        redefined: Arc<Notify>,
        events: mpsc::Sender<Batch>,
        synced: mpsc::Sender<Kind>,
        texts: SharedTexts,
    ) -> Self {
        Self {
            held: KindObjects::new(target.kind, SOURCE.into()),
            texts,
            target,
            selection,
            connection,
            redefined,
            events,
            synced: Some(synced),
            state: WatchState::new(),
            backoff: RETRY,
            failures: 0,
            unhealthy: false,
            eager: 0,
            log: event_log!(SOURCE.into()),
        }
    }

    /// Runs until the receiver of events is closed.
    pub(super) async fn run(mut self) {
        loop {
            if self.take_tags().await.is_err() {
                return;
            }

            let result = match (self.state.next.clone(), self.state.streams_lists) {
                (WatchRequest::ListAny | WatchRequest::ListConsistent, false) => self.list().await,
                (next, _) => self.watch(next).await,
            };
            let Ok(outcome) = result else { return };
            if let WatchOutcome::Failed(StreamError::Rejected(status)) = &outcome
                && status.code == 410
            {
                tracing::debug!(kind = %self.target.kind, %status, "resourceVersion expired; relisting");
            }

            let (state, pause) = self.state.after(outcome, self.target.paths.len());
            self.state = state;
            if self.pause(pause).await.is_err() {
                return;
            }
        }
    }

    /// Takes new tags, and relists if they have changed, because tags decide which objects belong
    /// to this revision.
    async fn take_tags(&mut self) -> Result<(), Closed> {
        let is_first = self.selection.tags.borrow().is_none();
        if is_first {
            tokio::select! {
                // A closed sender means that there are no tags.
                _ = self.selection.tags.wait_for(Option::is_some) => {}
                () = self.events.closed() => return Err(Closed),
            }
        }

        if is_first || self.selection.tags.has_changed().unwrap_or_default() {
            let tags = self
                .selection
                .tags
                .borrow_and_update()
                .clone()
                .unwrap_or_default();
            self.held.set_tags(tags);
            self.state.next = match self.state.next.clone() {
                WatchRequest::ListAny => WatchRequest::ListAny,
                WatchRequest::ListConsistent | WatchRequest::WatchFrom(_) => {
                    WatchRequest::ListConsistent
                }
            };
        }

        Ok(())
    }

    /// Waits before the next request, and reports failures.
    async fn pause(&mut self, pause: Pause) -> Result<(), Closed> {
        let back = self.connection.back.clone();

        // A delay that the server requested (`Retry-After`) is kept.
        let must_wait = matches!(&pause, Pause::Failure { least, .. } if !least.is_zero());
        let wait = match pause {
            Pause::None => return Ok(()),
            Pause::Missing => return self.await_definition().await,
            Pause::Forbidden(reason) => {
                self.report_failure(reason).await?;
                if self.target.optional {
                    self.sync().await;
                }
                self.backoff.next_delay()
            }
            Pause::Failure { least, reason } => {
                self.failures += 1;
                tracing::debug!(kind = %self.target.kind, error = reason, failures = self.failures, "failed to list or watch a kind");
                if self.failures >= MAX_FAILURES {
                    self.report_failure(reason).await?;
                }
                least + self.backoff.next_delay()
            }
        };

        tokio::select! {
            () = sleep(wait) => Ok(()),
            () = back.notified(), if !must_wait => Ok(()),
            () = self.events.closed() => Err(Closed),
        }
    }

    /// The kind is not served: deletes all of its objects, and waits until its definition changes.
    async fn await_definition(&mut self) -> Result<(), Closed> {
        let mut batch = Batch::new();
        self.held.begin_round();
        self.held.end_round(&mut batch);
        self.clear_problem(&mut batch);
        self.send_batch(batch).await?;
        self.sync().await;

        if self.eager > 0 {
            self.eager -= 1;
            sleep(self.backoff.next_delay()).await;
            return Ok(());
        }

        self.backoff.reset();
        let poll = jitter(MISSING_POLL_INTERVAL);
        tokio::select! {
            defined = timeout(poll, self.redefined.notified()) => {
                if defined.is_ok() {
                    self.eager = FAST_RETRIES;
                }
                Ok(())
            }
            () = self.events.closed() => Err(Closed),
        }
    }

    /// Opens a watch, and sends its events.
    async fn watch(&mut self, ask: WatchRequest) -> Result<WatchOutcome, Closed> {
        let path = self.watch_path(&ask);
        let opened = tokio::select! {
            opened = self.connection.get(&path, accepted(self.target.kind)) => opened,
            () = self.events.closed() => return Err(Closed),
        };
        let mut lines = match opened {
            Ok(lines) => lines,
            Err(error) => return Ok(WatchOutcome::Failed(error)),
        };
        let mut initial = !matches!(ask, WatchRequest::WatchFrom(_));

        if initial {
            self.held.begin_round();
        } else {
            self.progress().await?;
        }

        let mut empty = true;

        loop {
            let chunk = match self.next(&mut lines, initial).await? {
                Ok(Some(chunk)) => chunk,
                // A watch that ends at once must count as a failure, or it would be reopened
                // without delay.
                Ok(None) if empty || initial => return Ok(failed("the response ended early")),
                Ok(None) => return Ok(WatchOutcome::Ended),
                Err(error) => return Ok(WatchOutcome::Failed(error)),
            };

            empty = false;
            let mut batch = Batch::new();
            let failure = self.apply(&chunk, &mut initial, &mut batch);
            self.send_batch(batch).await?;

            if !initial {
                self.progress().await?;
                self.sync().await;
            }

            if let Some(error) = failure {
                return Ok(WatchOutcome::Failed(error));
            }
        }
    }

    /// The next frames, many if it `gathers` ([`Frames::next`]); `None` when the tags have changed
    /// or the response has ended.
    async fn next(
        &mut self,
        lines: &mut Frames,
        gathers: bool,
    ) -> Result<Result<Option<Chunk>, StreamError>, Closed> {
        let mut tags = self.selection.tags.clone();
        tokio::select! {
            chunk = lines.next(gathers) => Ok(chunk),
            Ok(()) = tags.changed() => Ok(Ok(None)),
            () = self.events.closed() => Err(Closed),
        }
    }

    /// Applies the events of a watch; returns the reason if the watch must end.
    fn apply(
        &mut self,
        chunk: &Chunk,
        initial: &mut bool,
        batch: &mut Batch,
    ) -> Option<StreamError> {
        for frame in chunk.frames() {
            let kind = self.target.kind;

            // A bug that one object triggers must not affect other objects.
            let texts = &mut self.texts;
            let Ok(event) = catch_unwind(AssertUnwindSafe(|| {
                decode(kind, chunk.framing, frame, texts)
            })) else {
                tracing::error!(%kind, "BUG: panic while decoding an object; skipped");
                continue;
            };

            let version = match event {
                Ok(WatchEvent::Put(mut stored)) => {
                    let version = std::mem::take(&mut stored.version);
                    self.held.put(stored, &self.selection.scope, batch);
                    version
                }
                Ok(WatchEvent::Gone { name, version }) => {
                    self.held.remove(&name, batch);
                    version
                }
                Ok(WatchEvent::Bookmark {
                    version,
                    ends_initial,
                }) => {
                    if *initial && ends_initial {
                        self.held.end_round(batch);
                        *initial = false;
                    }
                    version
                }
                Ok(WatchEvent::Failed(status)) => return Some(StreamError::Rejected(status)),
                Err(error) => {
                    return Some(StreamError::Broken(format!(
                        "failed to decode a watch event: {error}"
                    )));
                }
            };

            if !*initial && !version.is_empty() {
                self.state.next = WatchRequest::WatchFrom(version);
            }
        }

        None
    }

    /// Lists all objects page by page, and sends the differences.
    async fn list(&mut self) -> Result<WatchOutcome, Closed> {
        self.held.begin_round();
        let mut more = String::new();
        let mut page_size = PAGE_SIZE;

        loop {
            let mut page = match self.page(&more, &mut page_size).await {
                Ok(page) => page,
                Err(error) => return Ok(WatchOutcome::Failed(error)),
            };

            let list_version = page.get("apiVersion").cloned().unwrap_or_default();
            let mut batch = Batch::new();

            for mut item in take_items(&mut page) {
                if let Some(members) = item.as_object_mut() {
                    // The items of a list have no `kind` and no `apiVersion`.
                    members.insert("kind".to_owned(), Value::from(self.target.kind.as_str()));
                    members.insert("apiVersion".to_owned(), list_version.clone());
                }
                let mut stored = decode_stored(&item);
                stored.share(&mut self.texts);
                self.held.put(stored, &self.selection.scope, &mut batch);
            }

            let text = |pointer: &str| {
                page.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };

            more = text("/metadata/continue");
            let version = text("/metadata/resourceVersion");

            if more.is_empty() {
                self.held.end_round(&mut batch);
                self.state.next = WatchRequest::WatchFrom(version);
            }

            self.send_batch(batch).await?;
            self.progress().await?;

            if more.is_empty() {
                self.sync().await;
                return Ok(WatchOutcome::Ended);
            }
        }
    }

    /// The path of the current API version.
    fn path(&self) -> &str {
        self.target
            .paths
            .get(self.state.version)
            .expect("the version is below the number of paths")
    }

    /// The selector as a part of a query.
    fn selector(&self) -> String {
        match self.target.selector.as_str() {
            "" => String::new(),
            selector => {
                format!(
                    "&fieldSelector={}",
                    selector
                        .replace('=', "%3D")
                        .replace('!', "%21")
                        .replace(',', "%2C")
                )
            }
        }
    }

    /// The path and query of a watch.
    fn watch_path(&self, ask: &WatchRequest) -> String {
        let seconds = jitter(WATCH_TIMEOUT).as_secs();
        let from = match ask {
            WatchRequest::ListAny => {
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
                    .to_owned()
            }
            WatchRequest::ListConsistent => {
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
            }
            WatchRequest::WatchFrom(version) => format!("&resourceVersion={version}"),
        };
        let path = self.path();
        let selector = self.selector();
        format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{from}{selector}"
        )
    }

    /// A page of a list; `more` is the `continue` token of the previous page. If its objects are too
    /// large, `page_size` becomes smaller.
    async fn page(&mut self, more: &str, page_size: &mut usize) -> Result<Value, StreamError> {
        loop {
            let path = self.list_path(more, *page_size);
            let mut page = self.connection.get(&path, "application/json").await?;
            match page.all(MAX_PAGE_BYTES).await {
                Err(StreamError::TooLarge(_)) if *page_size > 1 => *page_size /= 2,
                body => return decoded_list(&body?),
            }
        }
    }

    /// The path and query of a page of a list, of `page_size` objects at most; `more` is the
    /// `continue` token of the previous page.
    fn list_path(&self, more: &str, page_size: usize) -> String {
        let from = if more.is_empty() {
            String::new()
        } else {
            format!("&continue={more}")
        };
        format!("{}?limit={page_size}{from}{}", self.path(), self.selector())
    }

    /// Resets failures and backoff, as data was received.
    async fn progress(&mut self) -> Result<(), Closed> {
        self.backoff.reset();
        if std::mem::take(&mut self.failures) > 0 {
            self.connection.back.notify_waiters();
        }
        self.eager = 0;
        let mut batch = Batch::new();
        self.clear_problem(&mut batch);
        self.send_batch(batch).await
    }

    /// Clears the problem of the kind, if one was sent.
    fn clear_problem(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.unhealthy) {
            batch.push(kind_problem(SOURCE, self.target.kind, None));
        }
    }

    /// Sends a problem that the kind is unreadable, once.
    async fn report_failure(&mut self, reason: String) -> Result<(), Closed> {
        if std::mem::replace(&mut self.unhealthy, true) {
            return Ok(());
        }
        self.send_batch(vec![kind_problem(SOURCE, self.target.kind, Some(reason))])
            .await
    }

    /// Reports once that all initial objects were sent.
    async fn sync(&mut self) {
        if let Some(synced) = self.synced.take() {
            tracing::debug!(kind = %self.target.kind, objects = self.held.len(), "kind synced");
            // The receiver is closed when the source ends.
            let _ignored = synced.send(self.target.kind).await;
        }
    }

    /// Sends a batch unless it is empty.
    async fn send_batch(&mut self, batch: Batch) -> Result<(), Closed> {
        if batch.is_empty() {
            return Ok(());
        }

        self.log.record(&batch);
        self.events.send(batch).await.map_err(|_| Closed)
    }
}

/// The `Accept` header for a kind's events, preferred media type first.
fn accepted(kind: Kind) -> &'static str {
    if has_binary_form(kind) {
        "application/vnd.kubernetes.protobuf;stream=watch,application/json"
    } else {
        "application/json"
    }
}

fn decode(
    kind: Kind,
    framing: Framing,
    frame: &[u8],
    texts: &mut SharedTexts,
) -> Result<WatchEvent, String> {
    match framing {
        Framing::Lines => decode_watch_event(kind, frame, texts).map_err(|error| error.to_string()),
        Framing::Lengths => {
            decode_binary_event(kind, frame, texts).map_err(|error| error.to_string())
        }
    }
}

/// The text of a list as JSON.
fn decoded_list(body: &[u8]) -> Result<Value, StreamError> {
    serde_json::from_slice(body)
        .map_err(|error| StreamError::Broken(format!("failed to decode a list response: {error}")))
}

/// Takes the items out of a list; copies of pods would cost as much as their decoding.
fn take_items(list: &mut Value) -> Vec<Value> {
    if let Some(Value::Array(items)) = list.get_mut("items") {
        std::mem::take(items)
    } else {
        Vec::new()
    }
}

/// A failure that is not a response of the server.
fn failed(reason: &str) -> WatchOutcome {
    WatchOutcome::Failed(StreamError::Broken(reason.to_owned()))
}
