//! The holders of the controllers' locks, as the API server stores them: at most one per lock, as
//! Lease or ConfigMap.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use navarch_testkit::mesh::{self, Mesh};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;

/// The annotation of ConfigMaps that are leader election locks.
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// The content of a lock.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    /// Empty if the lock was released.
    holder: String,
    /// When the holder took it.
    since: Timestamp,
    /// When it expires unless it is renewed.
    until: Timestamp,
}

/// The observed history of all locks.
#[derive(Debug, Default)]
struct Seen {
    /// By name and form.
    locks: BTreeMap<(String, &'static str), Held>,
    /// Changes of holders.
    changes: Vec<String>,
    /// Locks with two holders at once.
    faults: Vec<String>,
}

impl Seen {
    /// Adds a new version of a lock.
    fn take(&mut self, name: &str, form: &'static str, now: Timestamp, held: &Held) {
        let before = self.locks.insert((name.to_owned(), form), held.clone());
        if held.holder.is_empty() {
            return;
        }

        let before = before.filter(|before| before.holder != held.holder);
        if let Some(before) = &before {
            self.changes.push(format!(
                "{name} ({form}): {} after {:?}",
                held.holder, before.holder
            ));
            if !before.holder.is_empty() && held.since < before.until {
                self.faults.push(format!(
                    "{name} ({form}) was taken from {before:?} by {held:?}"
                ));
            }
        }

        let others = self
            .locks
            .iter()
            .filter(|((other, kind), _)| other == name && *kind != form);
        for ((_, kind), other) in others {
            if !other.holder.is_empty() && other.holder != held.holder && other.until > now {
                self.faults.push(format!(
                    "{name} is held as {form} by {held:?} and as {kind} by {other:?}"
                ));
            }
        }
    }
}

/// The content of a Lease or a ConfigMap; `None` if it is not a lock.
fn read(object: &DynamicObject, form: &str) -> Option<Held> {
    let record: Value = match form {
        "Lease" => object.data.get("spec")?.clone(),
        _ => serde_json::from_str(object.metadata.annotations.as_ref()?.get(RECORD)?).ok()?,
    };
    let time = |field: &str| {
        record[field]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };

    let seconds =
        SignedDuration::from_secs(record["leaseDurationSeconds"].as_i64().unwrap_or_default());
    Some(Held {
        holder: record["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        since: time("acquireTime").unwrap_or_default(),
        until: time("renewTime").unwrap_or_default() + seconds,
    })
}

/// A watch of all locks.
pub(crate) struct Locks {
    seen: Arc<Mutex<Seen>>,
    /// Dropping the tasks ends the watches.
    _watches: JoinSet<()>,
}

impl Locks {
    /// Begins to watch.
    pub(crate) async fn watch(mesh: &Mesh) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(mesh.node.kubeconfig())?;
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watches = JoinSet::new();

        for (form, group, plural) in [
            ("Lease", "coordination.k8s.io", "leases"),
            ("ConfigMap", "", "configmaps"),
        ] {
            let resource = ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk(group, "v1", form),
                plural,
            );
            let all =
                Api::<DynamicObject>::namespaced_with(client.clone(), mesh::NAMESPACE, &resource);
            let seen = seen.clone();
            watches.spawn(async move {
                let mut events =
                    std::pin::pin!(watcher(all, watcher::Config::default()).default_backoff());
                while let Some(event) = events.next().await {
                    let Ok(Event::Apply(object) | Event::InitApply(object)) = event else {
                        continue;
                    };
                    let (Some(held), Some(name)) = (read(&object, form), object.metadata.name)
                    else {
                        continue;
                    };
                    seen.lock().take(&name, form, Timestamp::now(), &held);
                }
            });
        }

        Ok(Self {
            seen,
            _watches: watches,
        })
    }

    /// The locks held by pods with this name prefix.
    pub(crate) fn of(&self, pod: &str) -> Vec<String> {
        let seen = self.seen.lock();
        let held = seen
            .locks
            .iter()
            .filter(|(_, held)| held.holder.starts_with(pod));
        held.map(|((name, form), _)| format!("{name} ({form})"))
            .collect()
    }

    /// The changes of holders; fails if a lock had two holders.
    pub(crate) fn verdict(&self) -> Result<Vec<String>> {
        let seen = self.seen.lock();
        ensure!(seen.faults.is_empty(), "{}", seen.faults.join("\n"));
        Ok(seen.changes.clone())
    }
}

#[test]
fn two_holders_of_one_lock_are_detected() {
    let now = Timestamp::now();
    let held = |holder: &str, since: i64, until: i64| {
        let at = |seconds: i64| now + SignedDuration::from_secs(seconds);
        Held {
            holder: holder.to_owned(),
            since: at(since),
            until: at(until),
        }
    };

    let faults = |versions: &[(&'static str, Held)]| {
        let mut seen = Seen::default();
        for (form, held) in versions {
            seen.take("lock", form, now, held);
        }
        seen.faults.len()
    };

    assert_eq!(
        faults(&[
            ("Lease", held("a", -9, 9)),
            ("Lease", held("a", -9, 12)),
            ("Lease", held("", -9, 1)),
            ("Lease", held("b", 0, 9))
        ]),
        0
    );

    assert_eq!(
        faults(&[("Lease", held("a", -90, -60)), ("Lease", held("b", 0, 9))]),
        0,
        "the lock had expired"
    );
    assert_eq!(
        faults(&[("Lease", held("a", -9, 9)), ("Lease", held("b", 0, 9))]),
        1
    );

    assert_eq!(
        faults(&[("Lease", held("a", -9, 9)), ("ConfigMap", held("b", 0, 9))]),
        1
    );
    assert_eq!(
        faults(&[("Lease", held("a", -9, 9)), ("ConfigMap", held("a", 0, 9))]),
        0
    );
}
