//! The invariants of a simulation at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use navarch_push::engine::EngineSizes;
use navarch_push::rollout::RolloutProgress;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::agent::Agent;
use crate::api_server::{ApiServer, Write};
use crate::host;
use crate::leaders;
use crate::proxy::{Check, Held, Proxy, Replicas};
use crate::replica::Replica;
use crate::story::Story;
use crate::tell;

/// The name of the fresh replica.
const FRESH: &str = "fresh";
/// How long a fresh replica may take to read everything.
const FRESH_START: Duration = Duration::from_secs(60);
/// How long proxies of a fresh replica take until they hold all resources.
const FRESH_SYNC: Duration = Duration::from_secs(60);

/// Writes of one object by one replica in a minute. The report of a stage, of which there is one
/// every five seconds, and the status of proxies, one in three seconds, are the most frequent.
const MAX_WRITES_PER_MINUTE: usize = 40;

/// Watches that may be opened again just then.
const MAX_OVERLAPPING_WATCHES: usize = 5;

/// The clients of an engine within the process, which have no stream: writers of statuses.
const MAX_INTERNAL_CLIENTS: usize = 2;

/// A simulation at rest.
pub(crate) struct Rest<'a> {
    pub(crate) story: &'a Story,
    pub(crate) server: &'a ApiServer,
    pub(crate) proxies: &'a [Proxy],
    pub(crate) replicas: &'a Replicas,
}

impl Rest<'_> {
    /// Nothing is written but what is renewed.
    pub(crate) fn check_writes(&self, before: usize) {
        let writes = self.server.writes();
        let late = writes.get(before..).unwrap_or_default();
        let mut unexpected: BTreeMap<String, usize> = BTreeMap::new();
        for write in late.iter().filter(|write| !is_renewal(write)) {
            *unexpected.entry(write.to_string()).or_default() += 1;
        }
        for (write, count) in unexpected {
            self.story.violated(
                "nothing writes at rest",
                &format!("{write} ({count} times)"),
            );
        }
    }

    /// No replica writes an object more often than a limit allows, at any time.
    pub(crate) fn check_write_rates(&self) {
        let mut times: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
        for write in self.server.writes() {
            let stored = write.stored;
            times.entry(write.to_string()).or_default().push(stored);
        }

        for (write, times) in times {
            let is_too_often = times
                .windows(MAX_WRITES_PER_MINUTE + 1)
                .any(|times| match times {
                    [first, .., last] => *last - *first < Duration::from_mins(1),
                    _ => false,
                });
            if is_too_often {
                self.story.violated(
                    "writes are limited",
                    &format!("{write}: more than {MAX_WRITES_PER_MINUTE} in a minute"),
                );
            }
        }
    }

    /// No proxy gets a response, but for what it has rejected: that is sent again after pauses, in
    /// case it was rejected for a passing reason.
    pub(crate) fn check_responses(&self, before: &[u64]) {
        for (proxy, before) in self.proxies.iter().zip(before) {
            let more = proxy.accepted_responses() - before;
            if more > 0 {
                self.story.violated(
                    "nothing is sent at rest",
                    &format!("{} got {more} responses", proxy.spec.name),
                );
            }
            let ends = proxy.agent().map(Agent::certificate_ends);
            if ends.is_some_and(|ends| ends.is_none_or(|ends| ends <= host::wall_clock())) {
                self.story.violated(
                    "every agent has a valid certificate at rest",
                    &proxy.spec.name,
                );
            }
            if !proxy.is_connected() {
                self.story
                    .violated("every proxy is connected at rest", &proxy.spec.name);
            }
        }
    }

    /// Each proxy holds what a fresh process sends, now and `before` it reconnected.
    pub(crate) async fn compare_with_fresh(
        &self,
        before: &[Held],
        seed: u64,
        settings: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let held: Vec<Held> = self.proxies.iter().map(Proxy::held).collect();
        let objects = self.server.all();
        let sizes = self.sizes().await;
        let watches = self.server.watches();

        // It takes their locks, so that it writes what it finds wrong.
        for replica in self.replicas.lock().iter() {
            replica.stop();
        }
        let fresh = Arc::new(Replica::start(
            FRESH,
            self.server,
            settings,
            seed,
            self.story,
        )?);

        let mut waited = Duration::ZERO;
        while !fresh.is_synced() {
            sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
            if waited > FRESH_START {
                self.story
                    .violated("a fresh replica starts", "it does not sync");
                return Ok(());
            }
        }

        let replicas: Replicas = Arc::new(Mutex::new(vec![fresh.clone()]));
        let check: Check = Arc::new(|_, _| {});
        let twins: Vec<Proxy> = self
            .proxies
            .iter()
            .map(|proxy| {
                let spec = (*proxy.spec).clone();
                Proxy::start(spec, &replicas, seed, self.story, check.clone())
            })
            .collect();
        sleep(FRESH_SYNC).await;

        self.compare_held(before, &twins);
        self.compare_held(&held, &twins);
        if let Some(twin) = twins.iter().find(|twin| twin.responses() == 0) {
            bail!("the fresh replica sends nothing to {}", twin.spec.name);
        }

        let rejects = twins.iter().any(|twin| !twin.rejected_types().is_empty());
        self.compare_objects(&objects, &self.server.all(), rejects);
        if let Some(parts) = fresh.parts()
            && let Ok(fresh) = parts.push.inspect(|inspect| inspect.engine.sizes()).await
        {
            self.compare_sizes(&sizes, fresh);
        }
        self.compare_watches(&watches, &self.server.watches());
        tell!(self.story, "simulation", "ends");
        Ok(())
    }

    /// Each proxy holds what its twin at a fresh process holds.
    fn compare_held(&self, held: &[Held], twins: &[Proxy]) {
        for (held, twin) in held.iter().zip(twins) {
            let mut expected = twin.held();
            // What no earlier version of an object mends: the proxy keeps what it held.
            for kind in twin.rejected_types() {
                expected.take_over(kind, held);
            }
            for difference in held.difference(&expected) {
                self.story.violated(
                    "each proxy holds what a fresh process sends",
                    &format!("{}: {difference}", twin.spec.name),
                );
            }
        }
    }

    /// A fresh process finds nothing to write. If proxies reject resources, those of the fresh one
    /// have never accepted any, and its counts of proxies differ.
    fn compare_objects(
        &self,
        before: &BTreeMap<String, Value>,
        after: &BTreeMap<String, Value>,
        rejects: bool,
    ) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names.into_iter().filter(|name| is_settled_object(name)) {
            let stable = |objects: &BTreeMap<String, Value>| {
                let object = without_times(objects.get(name)?);
                Some(if rejects {
                    without_counts(object)
                } else {
                    object
                })
            };
            let is = stable(before);
            let should = stable(after);
            if is != should {
                let text = |object: Option<Value>| match object {
                    Some(object) => object.get("status").unwrap_or(&object).to_string(),
                    None => "missing".to_owned(),
                };
                self.story.violated(
                    "all objects are as a fresh process writes them",
                    &format!("{name} is {}, should be {}", text(is), text(should)),
                );
            }
        }
    }

    /// The sizes of the engines' tables, by replica.
    pub(crate) async fn sizes(&self) -> BTreeMap<String, EngineSizes> {
        let replicas = self.replicas.lock().clone();
        let mut sizes = BTreeMap::new();
        let mut all_streams = 0;

        for replica in replicas {
            let Some(parts) = replica.parts() else {
                continue;
            };
            let streams = parts.ads.connections().count();
            all_streams += streams;

            if let Ok(size) = parts.push.inspect(|inspect| inspect.engine.sizes()).await {
                self.check_clients(replica.name(), size.subscribers, streams);
                sizes.insert(replica.name().to_owned(), size);
            }
        }

        if all_streams != self.proxies.len() {
            self.story.violated(
                "each proxy has one stream",
                &format!("{all_streams} streams of {} proxies", self.proxies.len()),
            );
        }
        sizes
    }

    /// An engine has no clients but those with a stream.
    fn check_clients(&self, replica: &str, clients: usize, streams: usize) {
        if clients > streams + MAX_INTERNAL_CLIENTS {
            self.story.violated(
                "tables are as large as those of a fresh process",
                &format!("{replica} has {clients} proxies and {streams} streams"),
            );
        }
    }

    /// No table is larger than that of a fresh process, to which all proxies are connected.
    fn compare_sizes(&self, sizes: &BTreeMap<String, EngineSizes>, fresh: EngineSizes) {
        for (name, size) in sizes {
            let tables = [
                ("results", size.results, fresh.results),
                ("facts", size.facts, fresh.facts),
                (
                    "attribute values",
                    size.attribute_values,
                    fresh.attribute_values,
                ),
            ];
            for (table, is, should) in tables {
                // Its sweep may be due later.
                if is > should + should / 20 + 20 {
                    self.story.violated(
                        "tables are as large as those of a fresh process",
                        &format!("{name} has {is} {table}, a fresh process {should}"),
                    );
                }
            }
        }
    }

    /// Each lock that was ever taken has a holder that runs.
    pub(crate) fn check_leaders(&self) {
        let running: BTreeSet<String> = self
            .replicas
            .lock()
            .iter()
            .map(|replica| replica.name().to_owned())
            .collect();
        for lock in leaders::locks() {
            if !leaders::holder(&lock).is_some_and(|holder| running.contains(&holder)) {
                self.story.violated(
                    "each lock has a holder at rest",
                    &format!("{lock} has none"),
                );
            }
        }
    }

    /// No rollout is under way.
    pub(crate) fn check_rollouts(&self) {
        for replica in self.replicas.lock().iter() {
            let Some(parts) = replica.parts() else {
                continue;
            };
            for (name, rollout) in &parts.push.context().rollouts {
                if !matches!(rollout.progress, RolloutProgress::Stopped(_)) {
                    self.story.violated(
                        "rollouts end",
                        &format!("{}: {name} is at {:?}", replica.name(), rollout.progress),
                    );
                }
            }
        }
    }

    /// No replica has more watches than the fresh one, which leads everything.
    fn compare_watches(&self, before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) {
        let fresh = now.get(FRESH).copied().unwrap_or_default();
        let running = self.replicas.lock().clone();
        for replica in running {
            let watches = before.get(replica.name()).copied().unwrap_or_default();
            // One that ends may overlap with its successor.
            if watches > fresh + MAX_OVERLAPPING_WATCHES {
                self.story.violated(
                    "tables are as large as those of a fresh process",
                    &format!(
                        "{} has {watches} watches, a fresh process {fresh}",
                        replica.name()
                    ),
                );
            }
        }
    }

    /// All replicas agree on quarantines and rollouts.
    pub(crate) fn check_agreement(&self) {
        let replicas = self.replicas.lock().clone();
        let mut all = replicas
            .iter()
            .map(|replica| (replica.name(), Decisions::of(replica)));
        let Some((first, expected)) = all.next() else {
            return;
        };

        for (name, decided) in all {
            if decided != expected {
                self.story.violated(
                    "replicas agree on quarantines and rollouts",
                    &format!("{first} has {expected:?}, {name} has {decided:?}"),
                );
            }
        }
    }

    /// No two ServiceEntries have one address.
    pub(crate) fn check_addresses(&self) {
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for entry in self.server.list("networking.istio.io", "ServiceEntry") {
            let text = |pointer| {
                entry
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
            let addresses = entry.pointer("/status/addresses").and_then(Value::as_array);
            for address in addresses.into_iter().flatten() {
                let host = address.get("host").and_then(Value::as_str);
                let value = address.get("value").and_then(Value::as_str);
                let owner = format!("{name} {}", host.unwrap_or_default());
                let other = owners.insert(value.unwrap_or_default().to_owned(), owner.clone());
                if let Some(other) = other {
                    self.story.violated(
                        "each host has addresses of its own",
                        &format!("{address} is of {owner} and {other}"),
                    );
                }
            }
        }
    }
}

/// What a replica has in force, of that which all replicas must agree on.
#[derive(Debug, PartialEq, Eq)]
struct Decisions {
    /// The generation of each quarantined object.
    quarantined: BTreeMap<String, i64>,
    /// Generation and progress of each rollout.
    rollouts: BTreeMap<String, String>,
}

impl Decisions {
    /// `None` if the replica has not started.
    fn of(replica: &Replica) -> Option<Self> {
        let context = replica.parts()?.push.context();
        let quarantined = context
            .quarantined
            .iter()
            .map(|(name, quarantined)| (name.to_string(), quarantined.generation))
            .collect();
        let rollouts = context
            .rollouts
            .iter()
            .map(|(name, rollout)| {
                let progress = format!("{} {:?}", rollout.generation, rollout.progress);
                (name.to_string(), progress)
            })
            .collect();

        Some(Self {
            quarantined,
            rollouts,
        })
    }
}

/// Whether an object is neither a lock nor a report of a replica, nor its pod.
fn is_settled_object(name: &str) -> bool {
    let is_report = name.ends_with("-distribution") || name.ends_with("/istio-ca-secret");
    let is_lock = name.starts_with("Lease ") || {
        name.strip_prefix("ConfigMap istio-system/istio-")
            .is_some_and(|rest| !rest.starts_with("ca-"))
    };
    // The fresh process has a name of its own.
    let is_shared = name.starts_with("ConfigMap istio-system/navarch-");
    let is_pod = name.starts_with("Pod istio-system/");
    !is_report && !is_lock && !is_shared && !is_pod && !name.starts_with("Event ")
}

/// An object without the condition that counts proxies.
fn without_counts(mut object: Value) -> Value {
    let conditions = object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    if let Some(conditions) = conditions {
        conditions.retain(|condition| {
            condition.get("type").and_then(Value::as_str) != Some("Reconciled")
        });
    }
    object
}

/// An object without versions and times, which differ by who writes.
fn without_times(object: &Value) -> Value {
    match object {
        Value::Object(members) => {
            let is_stable = |name: &String| {
                !matches!(
                    name.as_str(),
                    "resourceVersion" | "lastTransitionTime" | "lastProbeTime"
                )
            };
            members
                .iter()
                .filter(|(name, _)| is_stable(name))
                .map(|(name, value)| (name.clone(), without_times(value)))
                .collect::<serde_json::Map<String, Value>>()
                .into()
        }
        Value::Array(items) => items.iter().map(without_times).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => object.clone(),
    }
}

/// Whether a write renews what expires.
fn is_renewal(write: &Write) -> bool {
    let is_lock = write.resource == "leases" || write.resource == "configmaps";
    let name = write.name.strip_prefix("istio-system/").unwrap_or_default();
    // The reports of replicas about their proxies are renewed, too.
    let is_report = name.ends_with("-distribution") || name == "istio-ca-secret";
    write.method == "PUT" && (is_lock && name.starts_with("istio-") || is_report)
}
