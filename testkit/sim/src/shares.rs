//! The shares of rollouts: no proxy has a new version before its stage, and stages last.
//!
//! What is stored for all replicas decides: a ConfigMap for each rollout, with the new version and
//! the stage. Each version of a VirtualService has a header of its own, which routes that are built
//! from it contain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use navarch_api::encode::encode_value;
use navarch_api::object::Kind;
use navarch_api::rollout::{Share, Stages};
use navarch_push::rollout::{Rollout, RolloutProgress};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::api_server::ApiServer;
use crate::proxy::{Held, Replicas, Spec, Type};
use crate::story::Story;
use crate::world::VERSION_HEADER;

/// The prefix of the ConfigMaps of rollouts.
const PREFIX: &str = "navarch-rollout-";
/// How often the stages are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause of all rollouts of the simulated users.
const PAUSE: Duration = Duration::from_secs(20);
/// A rollout that is stored later than this before a replica has read everything may be unknown to
/// it.
const READING: Duration = Duration::from_secs(2);
/// Within this time a replica that reaches the API server stores that a change waits, unless
/// requests fail there.
const STORING: Duration = Duration::from_secs(10);

/// Follows the rollouts of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    story: Story,
    server: ApiServer,
    replicas: Replicas,
    seen: Arc<Mutex<Seen>>,
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    /// The stages of each new version that is rolled out, by the value of its header.
    stages: BTreeMap<String, SeenStage>,
    /// Since when new versions wait for their rollouts at replicas that can store this, which must
    /// happen within [`STORING`].
    waits: BTreeMap<String, Instant>,
    /// The proxies that were at some time to have a new version.
    entitled: BTreeSet<(String, String)>,
    /// The replicas that have read everything.
    synced: BTreeSet<String>,
    /// The versions that a replica had read when it had read everything, and of whose rollout
    /// nothing was stored, or had to be: it cannot know that there is one.
    unknowable: BTreeSet<String>,
}

/// A stage of a rollout; `None` while it waits.
#[derive(Clone, Copy, Debug)]
struct SeenStage {
    at: Option<usize>,
    since: Instant,
    /// When the rollout was first seen.
    begun: Instant,
}

/// A rollout at a stage that does not reach all proxies, as it is stored.
#[derive(Debug)]
struct StoredRollout {
    /// The value of the header of its new version.
    version: String,
    /// `None` while it waits.
    at: Option<usize>,
}

impl Shares {
    pub(crate) fn new(story: &Story, server: &ApiServer, replicas: &Replicas) -> Self {
        Self {
            story: story.clone(),
            server: server.clone(),
            replicas: replicas.clone(),
            seen: Arc::default(),
        }
    }

    /// Looks at the stages again and again.
    pub(crate) async fn run(self, proxies: Vec<String>) {
        loop {
            self.look(&proxies);
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Checks the order and the time of stages, and remembers who is to have new versions.
    fn look(&self, proxies: &[String]) {
        let stored = self.stored();
        let mut seen = self.seen.lock();
        let now = Instant::now();

        for StoredRollout { version, at } in &stored {
            let stage = seen.stages.entry(version.clone()).or_insert(SeenStage {
                at: *at,
                since: now,
                begun: now,
            });
            if stage.at == *at {
                continue;
            }
            let lasted = now - stage.since;
            let is_next = match (stage.at, *at) {
                (None, Some(0)) => true,
                (Some(before), Some(at)) => at == before + 1 && lasted + LOOK_INTERVAL * 2 >= PAUSE,
                (Some(_) | None, _) => false,
            };
            if !is_next {
                let text = format!(
                    "{version} goes from stage {:?} to {at:?} after {lasted:?}",
                    stage.at
                );
                self.story.violated("stages follow each other", &text);
            }
            stage.at = *at;
            stage.since = now;
        }

        let in_force = self.in_force();
        self.note_waiting(&mut seen, &in_force);
        self.note_synced(&mut seen);

        let staged = in_force
            .iter()
            .filter(|(_, rollout)| matches!(rollout.progress, RolloutProgress::Stage { .. }));
        for (version, rollout) in staged {
            for proxy in proxies.iter().filter(|proxy| rollout.is_seen_by(proxy)) {
                seen.entitled.insert((version.clone(), proxy.clone()));
            }
        }
    }

    /// Checks what a proxy holds.
    pub(crate) fn check(&self, spec: &Spec, held: &Held) {
        let rollouts = self.limited();
        if rollouts.is_empty() {
            return;
        }
        let name = format!("{}.{}", spec.name, spec.namespace);
        self.look(std::slice::from_ref(&name));

        for StoredRollout { version, at } in rollouts {
            let mut routes = held.of(Type::Route);
            let has_new = routes.any(|(_, route)| contains(&route.bytes, version.as_bytes()));
            let seen = self.seen.lock();
            let is_entitled = seen.entitled.contains(&(version.clone(), name.clone()));
            if has_new && !is_entitled && !seen.unknowable.contains(&version) {
                self.story.violated(
                    "a stage reaches no more than its share",
                    &format!("{} has {version}, which is at stage {at:?}", spec.name),
                );
            }
        }
    }

    /// Remembers since when versions wait.
    fn note_waiting(&self, seen: &mut Seen, in_force: &[(String, Arc<Rollout>)]) {
        let now = Instant::now();
        let is_disturbed = self.server.fails();
        let waiting = in_force
            .iter()
            .filter(|(_, rollout)| rollout.progress == RolloutProgress::Waiting);

        let since = |version: &String| match seen.waits.get(version) {
            Some(since) if !is_disturbed => *since,
            Some(_) | None => now,
        };
        seen.waits = waiting
            .map(|(version, _)| (version.clone(), since(version)))
            .collect();
    }

    /// Remembers of replicas that have just read everything which rollouts they cannot know.
    fn note_synced(&self, seen: &mut Seen) {
        for replica in self.replicas.lock().iter() {
            let Some(parts) = replica.parts().filter(|parts| parts.push.is_synced()) else {
                continue;
            };
            if !seen.synced.insert(replica.name().to_owned()) {
                continue;
            }

            let context = parts.push.context();
            let read = context.objects.all_of(Kind::VirtualService);
            let versions = read.filter_map(|name| {
                let object = encode_value(&context.objects.any(&name)?).ok()?;
                version_in(&object.to_string())
            });
            let is_unknowable = |version: &String| {
                let stage = seen.stages.get(version);
                !seen.is_to_be_stored(version)
                    && stage.is_none_or(|stage| stage.begun.elapsed() < READING)
            };
            let unknowable: Vec<String> = versions.filter(is_unknowable).collect();
            seen.unknowable.extend(unknowable);
        }
    }

    /// The rollouts at a stage that does not reach all: those that are stored, and those that had to
    /// be.
    fn limited(&self) -> Vec<StoredRollout> {
        let mut rollouts = self.stored();
        let seen = self.seen.lock();
        for version in seen.waits.keys() {
            let is_stored = rollouts.iter().any(|stored| stored.version == *version);
            if !is_stored && seen.is_to_be_stored(version) {
                rollouts.push(StoredRollout {
                    version: version.clone(),
                    at: None,
                });
            }
        }
        rollouts
    }

    /// The stored rollouts at a stage that does not reach all.
    fn stored(&self) -> Vec<StoredRollout> {
        let maps = self.server.named("", "ConfigMap", PREFIX);
        maps.iter().filter_map(StoredRollout::read).collect()
    }

    /// The rollouts that are in force at replicas, with the headers of their new versions; those that
    /// wait only of replicas which reach the API server.
    fn in_force(&self) -> Vec<(String, Arc<Rollout>)> {
        let mut all = Vec::new();
        for replica in self.replicas.lock().iter() {
            let counts = |rollout: &Rollout| match rollout.progress {
                RolloutProgress::Stage { .. } => true,
                RolloutProgress::Waiting => replica.reaches_server(),
                RolloutProgress::Stopped(_) => false,
            };

            let Some(parts) = replica.parts() else {
                continue;
            };
            let context = parts.push.context();
            for (name, rollout) in &context.rollouts {
                if counts(rollout)
                    && let Some(new) = context.new_versions.any(name)
                    && let Ok(new) = encode_value(&new)
                    && let Some(version) = version_in(&new.to_string())
                {
                    all.push((version, rollout.clone()));
                }
            }
        }
        all
    }
}

impl Seen {
    /// Whether a version has waited for so long that this must be stored.
    fn is_to_be_stored(&self, version: &str) -> bool {
        let since = self.waits.get(version);
        since.is_some_and(|since| since.elapsed() >= STORING)
    }
}

impl StoredRollout {
    /// Reads a ConfigMap.
    fn read(map: &Value) -> Option<Self> {
        let text = |name: &str| map.get("data")?.get(name)?.as_str();
        let state: Value = serde_json::from_str(text("state.json")?).ok()?;
        let at = match state.get("state")?.as_str()? {
            "waiting" => None,
            "stage" => Some(usize::try_from(state.get("at")?.as_u64()?).ok()?),
            _ => return None,
        };
        let new: Value = serde_json::from_str(text("new.json")?).ok()?;
        let stages = new
            .pointer("/metadata/annotations/navarch.io~1rollout")?
            .as_str()?;
        let stages = Stages::parse(stages).ok()?;
        let reaches_all = match at {
            Some(at) => *stages.shares().get(at)? == Share::ALL,
            None => false,
        };
        let version = version_in(text("new.json")?)?;
        (!reaches_all).then_some(Self { version, at })
    }
}

/// The value of the version's header in a text that has it as a pair of quoted texts.
fn version_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("\"{VERSION_HEADER}\""))?;
    let value = rest.split('"').nth(1)?;
    Some(value.to_owned())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(stage: usize) -> Value {
        let new = json!({
            "metadata": { "annotations": { "navarch.io/rollout": "25%,100%" } },
            "spec": { "http": [{ "headers": { "request": { "set": { "sim-version": "shop/a@1" } } } }] },
        });
        let state = json!({ "state": "stage", "at": stage, "paused": false });
        json!({ "data": { "new.json": new.to_string(), "state.json": state.to_string() } })
    }

    #[test]
    fn a_stored_rollout_that_does_not_reach_all_has_a_version_and_a_stage() {
        let rollout = StoredRollout::read(&map(0)).unwrap();
        assert_eq!(rollout.version, "shop/a@1");
        assert_eq!(rollout.at, Some(0));
        assert!(StoredRollout::read(&map(1)).is_none());
    }
}
