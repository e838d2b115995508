//! Changes that reach proxies in stages: while one is under way some proxies see the new version of an object, the others the one
//! before.
//!
//! ```text
//! Change::Put ─▶ the new version is kept aside ─▶ stage by stage more proxies see it ─▶ it takes the place of the one before
//!                                                  └─ stopped: nobody sees it until the object is edited
//! ```
//!
//! Whether a proxy sees the new version is one more question asked of it (`SeesNew`): those that answer alike share all that is
//! made of the object, and where nothing is under way nothing is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::fact::FactKey;
use super::query::{ProxyQuery, Query};
use super::view::View;
use super::world::Change;
use navarch_api::any_object::AnyObject;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::rollout::{RolloutPlan, RolloutSettings, Share, is_staged};
use navarch_store::{Discovery, Objects};

/// The name by which the control plane asks for the statuses of objects, which are those of new versions from the first stage on.
pub const STATUS_CLIENT: &str = "status.navarch";

/// A change of an object that does not hold for all proxies.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// How it is to reach proxies.
    pub plan: RolloutPlan,
    /// Tells it from others of the object.
    pub serial: u64,
    /// `metadata.generation` of the new version.
    pub generation: i64,
    /// The generation that the other proxies see; `None` where they see no such object.
    pub before: Option<i64>,
    /// How far it has come.
    pub progress: RolloutProgress,
    /// Of the object: two objects' stages begin with different proxies.
    seed: u64,
}

/// How far a rollout has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutProgress {
    /// No proxy sees the new version yet.
    Waiting,
    /// A stage of the plan.
    Stage {
        /// Which, from 0.
        at: usize,
        /// Names of proxies that see the new version beside those of the stage's share: one at least of each workload.
        chosen: Arc<BTreeSet<Arc<str>>>,
    },
    /// No proxy sees the new version any more, for this reason.
    Stopped(Arc<str>),
}

/// What becomes of a rollout. Where another has begun since, the order is for nobody.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutOrder {
    /// It is at a stage.
    Stage {
        /// Of which rollout; `None` of whichever there is.
        serial: Option<u64>,
        /// Which stage, from 0.
        at: usize,
        /// As in [`RolloutProgress::Stage`].
        chosen: Arc<BTreeSet<Arc<str>>>,
    },
    /// No proxy sees the new version until the object is edited.
    Stop {
        /// Of which rollout; `None` of whichever there is.
        serial: Option<u64>,
        /// Why.
        reason: Arc<str>,
    },
    /// All see the new version.
    Complete {
        /// Of which rollout; `None` of whichever there is.
        serial: Option<u64>,
    },
    /// It was under way before the process began, or is elsewhere: between these versions, so far.
    Restore {
        /// The new version. It counts if the object is like this.
        new: AnyObject,
        /// The one before.
        before: Option<AnyObject>,
        /// How far it had come.
        progress: RolloutProgress,
    },
}

/// All rollouts.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollouts {
    /// Whether changes are staged. Not while the first reading comes in.
    is_on: bool,
    all: OrdMap<ObjectRef, Arc<Rollout>>,
    /// The new versions.
    new: Objects,
    /// Those to be restored once their objects come in.
    awaited: BTreeMap<ObjectRef, (AnyObject, Option<AnyObject>, RolloutProgress)>,
    /// What went within the batch, as it was: it may come back.
    gone: BTreeMap<ObjectRef, Gone>,
    /// The last serial.
    serial: u64,
    /// Objects of which proxies may see another version since facts were last told.
    touched: BTreeSet<ObjectRef>,
    /// Rollouts whose stage is another since facts were last told.
    moved: BTreeSet<ObjectRef>,
}

/// An object that went.
#[derive(Clone, Debug)]
struct Gone {
    before: Option<AnyObject>,
    rollout: Option<(Arc<Rollout>, Option<AnyObject>)>,
}

/// The objects on which versions are put in force, and those that changed by it.
pub(super) struct InForce<'a> {
    pub(super) objects: &'a mut Discovery,
    pub(super) changed: &'a mut BTreeSet<ObjectRef>,
}

impl Rollout {
    /// The share of proxies that see the new version; `None` where none does.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        match &self.progress {
            RolloutProgress::Stage { at, .. } => self.plan.stages.shares().get(*at).copied(),
            RolloutProgress::Waiting | RolloutProgress::Stopped(_) => None,
        }
    }

    /// Whether the proxy of this name sees the new version. The proxies that did at a stage do at the next.
    #[must_use]
    pub fn is_seen_by(&self, proxy: &str) -> bool {
        let RolloutProgress::Stage { chosen, .. } = &self.progress else { return false };
        let share = self.share();
        share.is_some_and(|share| share.holds(self.rank(proxy))) || chosen.contains(proxy) || proxy == STATUS_CLIENT
    }

    /// The place of a proxy in the order in which proxies come to see the new version; the same in every process.
    #[must_use]
    pub fn rank(&self, proxy: &str) -> u64 {
        mixed(proxy.as_bytes(), self.seed)
    }

    /// Whether an order for the rollout of this serial is for this one.
    fn takes(&self, serial: Option<u64>) -> bool {
        serial.is_none_or(|serial| serial == self.serial) && !self.is_stopped()
    }

    /// Whether it has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.progress, RolloutProgress::Stopped(_))
    }
}

/// Whether a proxy sees the new version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeesNew(pub(super) ObjectRef);

impl Query for SeesNew {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let context = view.read(FactKey::Rollout(self.0.clone()));
        match context.rollouts.get(&self.0).map(|rollout| (rollout, rollout.share())) {
            None | Some((_, None)) => false,
            Some((_, Some(Share::ALL))) => true,
            Some((rollout, Some(_))) => rollout.is_seen_by(&view.proxy().name()),
        }
    }
}

impl ProxyQuery for SeesNew {}

impl Rollouts {
    /// As in a snapshot, where nothing is staged any more.
    pub(super) fn of(all: &OrdMap<ObjectRef, Arc<Rollout>>, new: &Objects) -> Self {
        Self { all: all.clone(), new: new.clone(), ..Self::default() }
    }

    /// All of them.
    pub(super) fn all(&self) -> &OrdMap<ObjectRef, Arc<Rollout>> {
        &self.all
    }

    /// The new versions.
    pub(super) fn new_versions(&self) -> &Objects {
        &self.new
    }

    /// The change to be made in the place of one that comes in, if any.
    pub(super) fn admit(
        &mut self,
        change: Change,
        in_force: &mut InForce<'_>,
        settings: &RolloutSettings,
    ) -> Option<Change> {
        match change {
            Change::Put(object) => self.admit_put(object, in_force, settings).map(Change::Put),
            Change::Removed(name) => {
                self.remove(&name, in_force);
                Some(Change::Removed(name))
            }
            Change::Stages => {
                self.is_on = true;
                self.awaited.clear();
                None
            }
            // What proxies refuse of a version that some of them see is that version.
            Change::Quarantine(name, said) => match self.all.get(&name).map(|rollout| rollout.serial) {
                Some(serial) => {
                    self.order(name, RolloutOrder::Stop { serial: Some(serial), reason: said }, in_force, settings)
                }
                None => Some(Change::Quarantine(name, said)),
            },
            Change::Rollout(name, order) => self.order(name, Arc::unwrap_or_clone(order), in_force, settings),
            other @ (Change::Remote(..)
            | Change::Mesh(_)
            | Change::Networks(_)
            | Change::SecretReader(..)
            | Change::Keys(..)
            | Change::TrustBundle(_)
            | Change::GatewayHost(..)) => Some(other),
        }
    }

    /// An object comes in: gives it, unless it is kept aside or says nothing new.
    fn admit_put(
        &mut self,
        object: AnyObject,
        in_force: &mut InForce<'_>,
        settings: &RolloutSettings,
    ) -> Option<AnyObject> {
        let name = object.object_ref();
        self.come_back(&name, in_force);
        let plan = RolloutPlan::of(name.kind, object.meta(), settings)
            .filter(|_| self.is_on && in_force.objects.counts(&name));
        let before = in_force.objects.seen().any(&name);
        if let Some(rollout) = self.all.get(&name).cloned() {
            let new = self.new.any(&name);
            let is_same = new.as_ref().is_some_and(|new| new.same_content(&object));
            let is_alike = new.is_some_and(|new| new.same_effect(&object)) && plan.as_ref() == Some(&rollout.plan);
            if is_same || is_alike {
                let rollout = Rollout { generation: object.meta().generation, ..(*rollout).clone() };
                self.all.insert(name.clone(), Arc::new(rollout));
                self.new.put_any(object);
                if !is_same {
                    self.touched.insert(name);
                }
                return None;
            }
            self.end(&name);
        } else if let Some((new, before, progress)) = self.awaited.remove(&name) {
            let plan = RolloutPlan::of(name.kind, object.meta(), settings);
            if let Some(plan) = plan.filter(|_| is_version(&new, &object)) {
                set(&name, before.clone(), in_force);
                self.begin(name, object, plan, before.as_ref(), progress);
                return None;
            }
        }
        let says_the_same = || before.as_ref().is_some_and(|before| before.same_effect(&object));
        match plan {
            Some(plan) if !says_the_same() => {
                self.begin(name, object, plan, before.as_ref(), RolloutProgress::Waiting);
                None
            }
            Some(_) | None => Some(object),
        }
    }

    /// Keeps a new version aside.
    fn begin(
        &mut self,
        name: ObjectRef,
        new: AnyObject,
        plan: RolloutPlan,
        before: Option<&AnyObject>,
        progress: RolloutProgress,
    ) {
        self.serial += 1;
        let (kind, namespace) = (name.kind.as_str().as_bytes(), name.name.namespace.as_str().as_bytes());
        let seed = [kind, namespace, name.name.name.as_bytes(), new.meta().uid.to_string().as_bytes()]
            .into_iter()
            .fold(0, |seed, part| mixed(part, seed));
        let (generation, before) = (new.meta().generation, before.map(|before| before.meta().generation));
        let rollout = Rollout { plan, serial: self.serial, generation, before, progress, seed };
        self.all.insert(name.clone(), Arc::new(rollout));
        self.new.put_any(new);
        self.touched.insert(name);
    }

    /// Ends a rollout; gives the new version.
    fn end(&mut self, name: &ObjectRef) -> Option<AnyObject> {
        self.all.remove(name)?;
        self.touched.insert(name.clone());
        let new = self.new.any(name);
        self.new.remove_ref(name.kind, &name.name);
        new
    }

    /// An object goes.
    fn remove(&mut self, name: &ObjectRef, in_force: &InForce<'_>) {
        if !is_staged(name.kind) {
            return;
        }
        let before = in_force.objects.seen().any(name);
        let rollout = self.all.get(name).cloned();
        let rollout = rollout.map(|rollout| (rollout, self.end(name)));
        if before.is_some() || rollout.is_some() {
            self.gone.insert(name.clone(), Gone { before, rollout });
        }
    }

    /// An object that went within the batch was read anew: it never went.
    fn come_back(&mut self, name: &ObjectRef, in_force: &mut InForce<'_>) {
        let Some(Gone { before, rollout }) = self.gone.remove(name) else { return };
        if before.is_some() {
            set(name, before, in_force);
        }
        if let Some((rollout, Some(new))) = rollout {
            self.all.insert(name.clone(), rollout);
            self.new.put_any(new);
        }
    }

    /// Carries an order out; gives the change that it comes to, if any.
    fn order(
        &mut self,
        name: ObjectRef,
        order: RolloutOrder,
        in_force: &mut InForce<'_>,
        settings: &RolloutSettings,
    ) -> Option<Change> {
        let rollout = self.all.get(&name).cloned();
        let progress = match order {
            RolloutOrder::Stage { serial, at, chosen } => {
                let rollout = rollout.as_ref().filter(|one| one.takes(serial))?;
                rollout.plan.stages.shares().get(at)?;
                RolloutProgress::Stage { at, chosen }
            }
            RolloutOrder::Stop { serial, reason } => {
                rollout.as_ref().filter(|one| one.takes(serial))?;
                RolloutProgress::Stopped(reason)
            }
            RolloutOrder::Complete { serial } => {
                rollout.as_ref().filter(|one| one.takes(serial))?;
                return self.end(&name).map(Change::Put);
            }
            RolloutOrder::Restore { new, before, progress } => {
                self.restore(name, (new, before, progress), in_force, settings);
                return None;
            }
        };
        let rollout = Rollout { progress, ..Arc::unwrap_or_clone(rollout?) };
        self.all.insert(name.clone(), Arc::new(rollout));
        self.moved.insert(name);
        None
    }

    /// Takes a rollout up where it was left, if the object is as it was then; else once it comes in.
    fn restore(
        &mut self,
        name: ObjectRef,
        (new, before, progress): (AnyObject, Option<AnyObject>, RolloutProgress),
        in_force: &mut InForce<'_>,
        settings: &RolloutSettings,
    ) {
        let written = self.new.any(&name).or_else(|| in_force.objects.seen().any(&name));
        let is_written = written.as_ref().is_some_and(|written| is_version(&new, written));
        // What the object says now counts.
        let plan = RolloutPlan::of(name.kind, written.as_ref().unwrap_or(&new).meta(), settings);
        match (written, plan) {
            (Some(written), Some(plan)) if is_written => {
                set(&name, before.clone(), in_force);
                self.begin(name, written, plan, before.as_ref(), progress);
            }
            (Some(_) | None, _) if self.is_on => {}
            (Some(_) | None, _) => _ = self.awaited.insert(name, (new, before, progress)),
        }
    }

    /// Ends the batch: gives the facts that it comes to beside those of objects in force. Objects of namespaces that are not discovered
    /// any more have no rollout.
    pub(super) fn settle(&mut self, in_force: &mut InForce<'_>) -> Vec<FactKey> {
        self.gone.clear();
        let hidden: Vec<ObjectRef> = self.all.keys().filter(|name| !in_force.objects.counts(name)).cloned().collect();
        for name in hidden {
            if let Some(new) = self.end(&name) {
                in_force.objects.put(new, in_force.changed);
            }
        }
        let moved = std::mem::take(&mut self.moved).into_iter().map(FactKey::Rollout);
        let mut facts: Vec<FactKey> = moved.collect();
        for name in std::mem::take(&mut self.touched) {
            facts.extend(super::context::object_facts(&name));
            facts.push(FactKey::Names(name.kind));
            facts.push(FactKey::NamesIn(name.kind, super::name_parts::part_of(&name.name)));
            facts.push(FactKey::Rollout(name));
        }
        facts
    }
}

/// The rollouts of objects of a kind.
pub(super) fn of_kind(
    all: &OrdMap<ObjectRef, Arc<Rollout>>,
    kind: Kind,
) -> impl Iterator<Item = (&ObjectRef, &Arc<Rollout>)> {
    let from = ObjectRef { kind, name: NamespacedName::default() };
    all.range(from..).take_while(move |(name, _)| name.kind == kind)
}

/// Whether an object is in the version that was kept: it may have been edited since and have come back to what it said.
fn is_version(kept: &AnyObject, object: &AnyObject) -> bool {
    kept.meta().generation == object.meta().generation && kept.same_effect(object)
}

/// Puts a version in force for those who do not see the new one.
fn set(name: &ObjectRef, version: Option<AnyObject>, in_force: &mut InForce<'_>) {
    match version {
        Some(version) => in_force.objects.put(version, in_force.changed),
        None => in_force.objects.remove(name, in_force.changed),
    }
}

/// A hash without a key (FNV-1a, and the last step of SplitMix64 so that all bits count): every replica comes to the same.
fn mixed(bytes: &[u8], seed: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
