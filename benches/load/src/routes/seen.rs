//! The statuses of routes, as a watch of the API server shows them.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use futures_util::StreamExt as _;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// When each route was created and accepted, by number, and the number of writes to its object.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: BTreeMap<usize, Instant>,
    /// The generation of each status, and when it was written.
    pub(crate) reported: BTreeMap<usize, (i64, Instant)>,
    pub(crate) writes: usize,
}

/// The HTTPRoutes of a cluster.
pub(crate) fn routes_of(client: kube::Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "gateway.networking.k8s.io",
        "v1",
        "HTTPRoute",
    ));
    Api::all_with(client, &kind)
}

/// Records the statuses of routes after a version, until stopped.
///
/// # Errors
/// If the API server ends the watch with an error.
pub(crate) async fn follow(
    api: Api<DynamicObject>,
    mut version: String,
    seen: watch::Sender<Seen>,
) -> Result<()> {
    loop {
        let mut events = api
            .watch(&WatchParams::default().timeout(290), &version)
            .await?
            .boxed();
        while let Some(event) = events.next().await {
            let object = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => object,
                Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(status)) => {
                    bail!("the watch of the routes has failed: {}", status.message)
                }
                // The API server ends watches that fall behind.
                Err(error) => {
                    eprintln!("the watch of the routes continues from {version}: {error}");
                    break;
                }
            };

            let now = Instant::now();
            version = object.metadata.resource_version.clone().unwrap_or(version);
            let name = object.metadata.name.unwrap_or_default();
            let number = name
                .strip_prefix("route-")
                .and_then(|number| number.parse::<usize>().ok());
            let conditions = object
                .data
                .pointer("/status/parents/0/conditions")
                .and_then(Value::as_array);
            let is_accepted = conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Accepted" && one["status"] == "True")
            });

            let observed = conditions.and_then(|all| all.first()?["observedGeneration"].as_i64());
            let current = observed.filter(|observed| Some(*observed) == object.metadata.generation);
            seen.send_modify(|seen| {
                seen.writes += 1;
                if let (Some(number), Some(generation)) = (number, current)
                    && seen
                        .reported
                        .get(&number)
                        .is_none_or(|(known, _)| *known < generation)
                {
                    seen.reported.insert(number, (generation, now));
                }
                if let Some(number) = number.filter(|_| is_accepted) {
                    seen.accepted.entry(number).or_insert(now);
                }
            });
        }
    }
}
