//! Watches definitions of kinds (CustomResourceDefinitions).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::stream::{Connection, StreamError};
use crate::RETRY;
use navarch_net::backoff::{Backoff, jitter};

/// A watch of all definitions, from the existing ones.
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=true&allowWatchBookmarks=true&resourceVersion=0";

/// The media type of the response: metadata is enough.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Delay before the next watch if there was no failure.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The fields of an event that are read.
#[derive(Deserialize)]
struct Event {
    object: Object,
}

/// The fields of a definition that are read.
#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
}

/// The fields of a definition's metadata that are read.
#[derive(Default, Deserialize)]
struct Metadata {
    /// `name`, such as `sidecars.networking.istio.io`.
    #[serde(default)]
    name: String,
}

/// Notifies reflectors when a definition changes. If definitions may not be read, there are no
/// notifications, and reflectors poll for their kinds.
pub(super) async fn watch(
    connection: Connection,
    waiting: BTreeMap<String, Arc<Notify>>,
) -> std::convert::Infallible {
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

/// Follows one watch until it ends.
async fn follow(
    connection: &Connection,
    waiting: &BTreeMap<String, Arc<Notify>>,
    backoff: &mut Backoff,
) -> Result<(), StreamError> {
    let mut lines = connection.get(PATH, ACCEPT).await?;
    while let Some(chunk) = lines.next(false).await? {
        backoff.reset();
        for line in chunk.frames() {
            let event = serde_json::from_slice::<Event>(line).ok();
            if let Some(waiting) = event.and_then(|event| waiting.get(&event.object.metadata.name))
            {
                waiting.notify_one();
            }
        }
    }
    Ok(())
}
