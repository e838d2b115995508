//! Who holds the locks of controllers, as the API server tells it: one at a time, in whichever
//! form.

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

/// The annotation of ConfigMaps that are locks.
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// What a lock says.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    /// Empty where it was given back.
    holder: String,
    /// When the holder took it.
    since: Timestamp,
    /// When it runs out unless it is renewed.
    until: Timestamp,
}

/// What was seen of all locks.
#[derive(Debug, Default)]
struct Seen {
    /// By name and form.
    locks: BTreeMap<(String, &'static str), Held>,
    /// Who took which lock over from whom.
    changes: Vec<String>,
    /// Where two held one lock.
    faults: Vec<String>,
}

impl Seen {
    /// Takes a new version of a lock.
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

/// What a Lease or a ConfigMap says of who holds it; nothing where it is no lock.
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

/// A watch of all locks, from its start on.
pub(crate) struct Locks {
    seen: Arc<Mutex<Seen>>,
    /// End when dropped.
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

    /// The locks that are held by a pod whose name begins so.
    pub(crate) fn of(&self, pod: &str) -> Vec<String> {
        let seen = self.seen.lock();
        let held = seen
            .locks
            .iter()
            .filter(|(_, held)| held.holder.starts_with(pod));
        held.map(|((name, form), _)| format!("{name} ({form})"))
            .collect()
    }

    /// Who took locks over; fails where two held one.
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
        "it had run out"
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
