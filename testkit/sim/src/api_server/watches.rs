//! Watches of the simulated API server: their events on the way to the client.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ApiServer;
use super::objects::{Change, set};
use super::requests::Request;
use crate::link::{Link, Listener, Passage};

/// The interval of bookmarks, as of a real server about a minute.
const BOOKMARK_INTERVAL: std::time::Duration = std::time::Duration::from_mins(1);

/// What arrives of a watch, and when.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) arrives: Instant,
    pub(crate) arrival: Arrival,
}

/// What arrives.
#[derive(Debug)]
pub(crate) enum Arrival {
    Text(Bytes),
    /// The end of the connection.
    Break,
    /// Nothing arrives from now on: the connection is half-open.
    Silence,
}

/// An open watch, as the server sees it.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) id: u64,
    pub(crate) client: String,
    pub(crate) request: Request,
    pub(crate) lines: mpsc::UnboundedSender<Line>,
    pub(crate) last_arrival: Instant,
}

/// The body of a watch's response.
#[derive(Debug)]
pub(crate) struct WatchBody {
    pub(crate) id: u64,
    pub(crate) server: ApiServer,
    pub(crate) link: Link,
    /// The changes of the link.
    pub(crate) changes: Listener,
    pub(crate) epoch: u64,
    pub(crate) lines: mpsc::UnboundedReceiver<Line>,
    pub(crate) travelling: Option<(Pin<Box<Sleep>>, Arrival)>,
    /// Whether the connection is half-open.
    pub(crate) is_silent: bool,
    /// When the server ends the watch.
    pub(crate) ends: Pin<Box<Sleep>>,
    /// When it sends the next bookmark.
    pub(crate) bookmark: Option<Pin<Box<Sleep>>>,
}

impl WatchBody {
    /// When the first bookmark is due.
    pub(crate) fn first_bookmark() -> Pin<Box<Sleep>> {
        Box::pin(sleep_until(Instant::now() + BOOKMARK_INTERVAL))
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.changes.wake_at_change(context);
        match self.link.passage(self.epoch) {
            Passage::Open => {}
            Passage::Broken => {
                return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
            }
            Passage::Stuck => return Poll::Pending,
        }
        if self.is_silent {
            return Poll::Pending;
        }

        if let Some(bookmark) = &mut self.bookmark
            && bookmark.as_mut().poll(context).is_ready()
        {
            bookmark.as_mut().reset(Instant::now() + BOOKMARK_INTERVAL);
            // The next poll registers the timer.
            _ = bookmark.as_mut().poll(context);
            self.server.send_bookmark(self.id);
        }

        loop {
            if let Some((arrives, _)) = &mut self.travelling {
                ready!(arrives.as_mut().poll(context));
            }
            match self.travelling.take() {
                Some((_, Arrival::Text(text))) => return Poll::Ready(Some(Ok(Frame::data(text)))),
                Some((_, Arrival::Break)) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
                }
                Some((_, Arrival::Silence)) => {
                    self.is_silent = true;
                    return Poll::Pending;
                }
                None => {}
            }

            match self.lines.poll_recv(context) {
                Poll::Ready(Some(Line { arrives, arrival })) => {
                    self.travelling = Some((Box::pin(sleep_until(arrives)), arrival));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.ends.as_mut().poll(context));
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// The event of a change for a watch; `None` if its selector does not select the object.
pub(crate) fn event(request: &Request, change: &Change) -> Option<Value> {
    let selects = |object: &&Value| request.query.selector.selects(&change.name.0, object);
    let before = change.before.as_ref().filter(selects);
    let after = change.after.as_ref().filter(selects);
    let (kind, object) = match (before, after) {
        (None, Some(after)) => ("ADDED", after.clone()),
        (Some(_), Some(after)) => ("MODIFIED", after.clone()),
        (Some(before), None) => {
            let mut gone = change.after.clone().unwrap_or_else(|| before.clone());
            set(
                &mut gone,
                "resourceVersion",
                json!(change.version.to_string()),
            );
            ("DELETED", gone)
        }
        (None, None) => return None,
    };
    Some(json!({ "type": kind, "object": shown(request, &object) }))
}

/// An event with the version of the collection, and no object.
pub(crate) fn bookmark(request: &Request, version: u64, ends_initial: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if ends_initial && let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(
            "annotations".to_owned(),
            json!({ "k8s.io/initial-events-end": "true" }),
        );
    }
    let object = json!({ "metadata": metadata });
    json!({ "type": "BOOKMARK", "object": shown(request, &object) })
}

/// An object in the form that the request asks for.
pub(crate) fn shown(request: &Request, object: &Value) -> Value {
    if request.is_metadata_only {
        return json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        });
    }
    let mut shown = object.clone();
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("kind".to_owned(), json!(request.resource.kind));
        shown.insert("apiVersion".to_owned(), json!(request.api_version));
    }
    shown
}

/// A line of JSON.
pub(crate) fn line(event: &Value) -> Bytes {
    let mut text = event.to_string();
    text.push('\n');
    Bytes::from(text)
}
