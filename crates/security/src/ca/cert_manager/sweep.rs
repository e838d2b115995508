//! Follows all CertificateRequests of the control plane's replicas, and deletes what is left.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::super::registration::objects::{Deletion, MAX_DELETIONS, Objects};
use super::memory::Memory;
use super::{LABEL, LABEL_VALUE};
use crate::Clock;
use navarch_kubernetes::InWords;

/// Interval of deleting objects that were left.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Follows and deletes objects; does not return.
pub(super) async fn run(
    api: Api<DynamicObject>,
    objects: Objects<DynamicObject>,
    memory: Memory,
    clock: Clock,
) {
    let list = Notify::new();
    tokio::join!(
        follow(api, &memory, &list),
        sweep(&objects, &memory, &list, clock)
    );
}

/// Remembers the objects, and hands their verdicts to those who wait; does not return. Lists all
/// objects again at each notice of `list`.
async fn follow(api: Api<DynamicObject>, memory: &Memory, list: &Notify) {
    let config = watcher::Config::default().labels(&format!("{LABEL}={LABEL_VALUE}"));

    loop {
        let mut events = std::pin::pin!(watcher(api.clone(), config.clone()).default_backoff());
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = list.notified() => break,
            };
            match event {
                Some(Ok(Event::Apply(object) | Event::InitApply(object))) => memory.see(&object),
                Some(Ok(Event::Delete(object))) => {
                    memory.forget(object.metadata.name.as_deref().unwrap_or_default());
                }
                Some(Ok(Event::Init)) => memory.begin_list(),
                Some(Ok(Event::InitDone)) => {}
                Some(Err(error)) => tracing::warn!(
                    error = %InWords(&error),
                    "failed to watch CertificateRequests"
                ),
                None => return std::future::pending().await,
            }
        }
    }
}

/// Deletes what is left, time and again; does not return.
pub(super) async fn sweep(
    objects: &Objects<DynamicObject>,
    memory: &Memory,
    list: &Notify,
    clock: Clock,
) {
    let mut rounds = tokio::time::interval(SWEEP_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        rounds.tick().await;
        let now = Timestamp::try_from(clock()).unwrap_or(Timestamp::MAX);
        delete(objects, memory, memory.due(now)).await;
        if memory.needs_list() {
            list.notify_one();
        }
    }
}

/// Deletes objects, several at once. Those that could not be deleted stay remembered.
async fn delete(objects: &Objects<DynamicObject>, memory: &Memory, names: Vec<String>) {
    // A line for each would flood the log while the API server is away.
    let failures = Mutex::new(Vec::new());

    let noted = &failures;
    let delete = |name: String| async move {
        match objects.delete(&name).await {
            // Its event follows.
            Ok(Deletion::Deleted) => {}
            Ok(Deletion::Missing) => memory.forget(&name),
            Err(error) => noted.lock().push(error.to_string()),
        }
    };
    stream::iter(names)
        .for_each_concurrent(MAX_DELETIONS, delete)
        .await;

    let failures = failures.into_inner();
    if let Some(error) = failures.last() {
        tracing::warn!(
            count = failures.len(),
            error,
            "failed to delete CertificateRequests; the next sweep tries again"
        );
    }
}
