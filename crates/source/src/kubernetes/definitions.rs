//! Hearing of definitions of kinds (CustomResourceDefinitions) that come and change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::stream::{Connection, StreamError};
use crate::RETRY;
use navarch_net::backoff::{Backoff, jitter};

/// A watch over all definitions, from those that are there.
const PATH: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=true&allowWatchBookmarks=true&resourceVersion=0";

/// The form of the answer: names will do.
const ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// How long to wait where nothing is wrong.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// An event, so far as it is read.
#[derive(Deserialize)]
struct Event {
    object: Object,
}

/// A definition, so far as it is read.
#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
}

/// The metadata of a definition, so far as it is read.
#[derive(Default, Deserialize)]
struct Metadata {
    /// `name`, such as `sidecars.networking.istio.io`.
    #[serde(default)]
    name: String,
}

/// Notifies reflectors when a definition changes. Where definitions may not be read, there are no notifications, and the kinds are
/// found by asking for them now and then.
pub(super) async fn watch(connection: Connection, waiting: BTreeMap<String, Arc<Notify>>) -> std::convert::Infallible {
    let mut backoff = RETRY;
    loop {
        let wait = match follow(&connection, &waiting, &mut backoff).await {
            Ok(()) => jitter(POLL_INTERVAL),
            Err(error) => {
                tracing::debug!(%error, "failed to watch CustomResourceDefinitions");
                backoff.next_delay()
            }
        };
        sleep(wait).await;
    }
}

/// Follows one watch to its end.
async fn follow(
    connection: &Connection,
    waiting: &BTreeMap<String, Arc<Notify>>,
    backoff: &mut Backoff,
) -> Result<(), StreamError> {
    let mut lines = connection.get(PATH, ACCEPT).await?;
    while let Some(chunk) = lines.next().await? {
        backoff.reset();
        for line in chunk.frames() {
            let event = serde_json::from_slice::<Event>(line).ok();
            if let Some(waiting) = event.and_then(|event| waiting.get(&event.object.metadata.name)) {
                waiting.notify_one();
            }
        }
    }
    Ok(())
}
