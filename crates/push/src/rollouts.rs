//! The staged rollouts of the mesh state: which changes they hold back, and what each step changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::change::Change;
use super::context::object_facts;
use super::fact::FactKey;
use super::name_parts::part_of;
use super::rollout::{Rollout, RolloutCommand, RolloutProgress, mixed};
use navarch_api::any_object::AnyObject;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::rollout::{RolloutPlan, RolloutSettings, is_staged};
use navarch_store::{Discovery, Objects};

/// The staged changes of a mesh state.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollouts {
    /// Whether changes are staged: false until the initial state is complete.
    is_on: bool,
    all: OrdMap<ObjectRef, Arc<Rollout>>,
    /// The versions that only the chosen proxies see.
    new: Objects,
    /// Rollouts to resume when their objects arrive.
    awaited: BTreeMap<ObjectRef, RestoredRollout>,
    /// Objects removed within the batch, which may be added again.
    gone: BTreeMap<ObjectRef, RemovedObject>,
    /// How many rollouts have begun.
    serial: u64,
    /// Objects whose version may have changed for some proxies since changed facts were last
    /// reported.
    touched: BTreeSet<ObjectRef>,
    /// Rollouts whose stage has changed since changed facts were last reported.
    moved: BTreeSet<ObjectRef>,
}

/// A rollout to resume, as in [`RolloutCommand::Restore`].
#[derive(Clone, Debug)]
struct RestoredRollout {
    new: AnyObject,
    before: Option<AnyObject>,
    progress: RolloutProgress,
}

#[derive(Clone, Debug)]
struct RemovedObject {
    before: Option<AnyObject>,
    rollout: Option<(Arc<Rollout>, Option<AnyObject>)>,
}

/// The objects in force, and the names of those that rollouts changed.
pub(super) struct CurrentObjects<'a> {
    pub(super) objects: &'a mut Discovery,
    pub(super) changed: &'a mut BTreeSet<ObjectRef>,
}

impl Rollouts {
    /// The state of a snapshot; further changes are not staged.
    pub(super) fn of(all: &OrdMap<ObjectRef, Arc<Rollout>>, new: &Objects) -> Self {
        Self {
            all: all.clone(),
            new: new.clone(),
            ..Self::default()
        }
    }

    pub(super) fn all(&self) -> &OrdMap<ObjectRef, Arc<Rollout>> {
        &self.all
    }

    pub(super) fn new_versions(&self) -> &Objects {
        &self.new
    }

    /// The change to apply in place of an incoming one, if any.
    pub(super) fn admit(
        &mut self,
        change: Change,
        in_force: &mut CurrentObjects<'_>,
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

            // If proxies reject an object during its rollout, they reject the new version.
            Change::Quarantine(name, message) => {
                match self.all.get(&name).map(|rollout| rollout.serial) {
                    Some(serial) => self.run_command(
                        name,
                        RolloutCommand::Stop {
                            serial: Some(serial),
                            reason: message,
                        },
                        in_force,
                        settings,
                    ),
                    None => Some(Change::Quarantine(name, message)),
                }
            }

            // A rollout that began since takes precedence.
            Change::RestoreQuarantine(name, _) if self.all.contains_key(&name) => None,
            Change::Rollout(name, command) => {
                self.run_command(name, Arc::unwrap_or_clone(command), in_force, settings)
            }

            other @ (Change::Remote(..)
            | Change::Mesh(_)
            | Change::Networks(_)
            | Change::SecretReader(..)
            | Change::Keys(..)
            | Change::TrustBundle(_)
            | Change::GatewayHost(..)
            | Change::RestoreQuarantine(..)
            | Change::ReleaseQuarantine(_)
            | Change::FindPeers
            | Change::Learned(..)) => Some(other),
        }
    }

    /// Handles an incoming object: returns it unless it is staged or unchanged.
    fn admit_put(
        &mut self,
        object: AnyObject,
        in_force: &mut CurrentObjects<'_>,
        settings: &RolloutSettings,
    ) -> Option<AnyObject> {
        // At the start, for each object.
        if !self.is_on && self.all.is_empty() && self.awaited.is_empty() && self.gone.is_empty() {
            return Some(object);
        }

        let name = object.object_ref();
        self.undo_removal(&name, in_force);
        let plan = RolloutPlan::of(name.kind, object.meta(), settings)
            .filter(|_| self.is_on && in_force.objects.counts(&name));
        let before = in_force.objects.seen().any(&name);

        if let Some(rollout) = self.all.get(&name).cloned() {
            let new = self.new.any(&name);
            let is_same = new.as_ref().is_some_and(|new| new.same_content(&object));
            let is_alike = new.is_some_and(|new| new.same_effect(&object))
                && plan.as_ref() == Some(&rollout.plan);
            if is_same || is_alike {
                let rollout = Rollout {
                    generation: object.meta().generation,
                    ..(*rollout).clone()
                };
                self.all.insert(name.clone(), Arc::new(rollout));
                let is_sent = self.new.put_any(object);
                if is_sent || !is_same {
                    self.touched.insert(name);
                }
                return None;
            }

            self.end(&name);
        } else if let Some(restored) = self.awaited.remove(&name) {
            let plan = RolloutPlan::of(name.kind, object.meta(), settings);
            if let Some(plan) = plan.filter(|_| is_version(&restored.new, &object)) {
                let RestoredRollout {
                    before, progress, ..
                } = restored;
                set(&name, before.clone(), in_force);
                self.begin(name, object, plan, before.as_ref(), progress);
                return None;
            }
        }

        let says_the_same = || {
            before
                .as_ref()
                .is_some_and(|before| before.same_effect(&object))
        };

        match plan {
            Some(plan) if !says_the_same() => {
                self.begin(
                    name,
                    object,
                    plan,
                    before.as_ref(),
                    RolloutProgress::Waiting,
                );
                None
            }
            Some(_) | None => Some(object),
        }
    }

    /// Starts the rollout of a new version.
    fn begin(
        &mut self,
        name: ObjectRef,
        new: AnyObject,
        plan: RolloutPlan,
        before: Option<&AnyObject>,
        progress: RolloutProgress,
    ) {
        self.serial += 1;
        let kind = name.kind.as_str().as_bytes();
        let namespace = name.name.namespace.as_str().as_bytes();
        let seed = [
            kind,
            namespace,
            name.name.name.as_bytes(),
            new.meta().uid.to_string().as_bytes(),
        ]
        .into_iter()
        .fold(0, |seed, part| mixed(part, seed));

        let rollout = Rollout {
            plan,
            serial: self.serial,
            generation: new.meta().generation,
            before: before.map(|before| before.meta().generation),
            progress,
            seed,
        };

        self.all.insert(name.clone(), Arc::new(rollout));
        self.new.put_any(new);
        self.touched.insert(name);
    }

    /// Ends a rollout; returns the new version.
    fn end(&mut self, name: &ObjectRef) -> Option<AnyObject> {
        self.all.remove(name)?;
        self.touched.insert(name.clone());
        let new = self.new.any(name);
        self.new.remove_ref(name.kind, &name.name);
        new
    }

    /// Handles the removal of an object.
    fn remove(&mut self, name: &ObjectRef, in_force: &CurrentObjects<'_>) {
        if !is_staged(name.kind) {
            return;
        }
        let before = in_force.objects.seen().any(name);
        let rollout = self.all.get(name).cloned();
        let rollout = rollout.map(|rollout| (rollout, self.end(name)));
        if before.is_some() || rollout.is_some() {
            self.gone
                .insert(name.clone(), RemovedObject { before, rollout });
        }
    }

    /// Undoes the removal of an object that is added again in the same batch.
    fn undo_removal(&mut self, name: &ObjectRef, in_force: &mut CurrentObjects<'_>) {
        let Some(RemovedObject { before, rollout }) = self.gone.remove(name) else {
            return;
        };
        if before.is_some() {
            set(name, before, in_force);
        }
        if let Some((rollout, Some(new))) = rollout {
            self.all.insert(name.clone(), rollout);
            self.new.put_any(new);
        }
    }

    /// Executes a command; returns the resulting change, if any.
    fn run_command(
        &mut self,
        name: ObjectRef,
        command: RolloutCommand,
        in_force: &mut CurrentObjects<'_>,
        settings: &RolloutSettings,
    ) -> Option<Change> {
        let rollout = self.all.get(&name).cloned();
        let progress = match command {
            RolloutCommand::Stage { serial, at, chosen } => {
                let rollout = rollout.as_ref().filter(|one| one.is_for_serial(serial))?;
                rollout.plan.stages.shares().get(at)?;
                RolloutProgress::Stage { at, chosen }
            }
            RolloutCommand::Stop { serial, reason } => {
                rollout.as_ref().filter(|one| one.is_for_serial(serial))?;
                RolloutProgress::Stopped(reason)
            }
            RolloutCommand::Complete { serial } => {
                rollout.as_ref().filter(|one| one.is_for_serial(serial))?;
                return self.end(&name).map(Change::Put);
            }
            RolloutCommand::Restore {
                new,
                before,
                progress,
            } => {
                let restored = RestoredRollout {
                    new,
                    before,
                    progress,
                };
                self.restore(name, restored, in_force, settings);
                return None;
            }
        };

        let rollout = Rollout {
            progress,
            ..Arc::unwrap_or_clone(rollout?)
        };
        self.all.insert(name.clone(), Arc::new(rollout));
        self.moved.insert(name);

        None
    }

    /// Resumes a rollout if the object is unchanged; otherwise when it arrives.
    fn restore(
        &mut self,
        name: ObjectRef,
        restored: RestoredRollout,
        in_force: &mut CurrentObjects<'_>,
        settings: &RolloutSettings,
    ) {
        let written = self
            .new
            .any(&name)
            .or_else(|| in_force.objects.seen().any(&name));
        let is_written = written
            .as_ref()
            .is_some_and(|written| is_version(&restored.new, written));
        // The annotation of the current object applies.
        let current = written.as_ref().unwrap_or(&restored.new);
        let plan = RolloutPlan::of(name.kind, current.meta(), settings);

        match (written, plan) {
            (Some(written), Some(plan)) if is_written => {
                let RestoredRollout {
                    before, progress, ..
                } = restored;
                set(&name, before.clone(), in_force);
                self.begin(name, written, plan, before.as_ref(), progress);
            }
            (Some(_) | None, _) if self.is_on => {}
            (Some(_) | None, _) => _ = self.awaited.insert(name, restored),
        }
    }

    /// Ends the batch and returns the changed facts except those of objects in force. Objects of
    /// namespaces that are no longer discovered have no rollout.
    pub(super) fn end_batch(&mut self, in_force: &mut CurrentObjects<'_>) -> Vec<FactKey> {
        self.gone.clear();
        let hidden: Vec<ObjectRef> = self
            .all
            .keys()
            .filter(|name| !in_force.objects.counts(name))
            .cloned()
            .collect();

        for name in hidden {
            if let Some(new) = self.end(&name) {
                in_force.objects.put(new, in_force.changed);
            }
        }

        let moved = std::mem::take(&mut self.moved)
            .into_iter()
            .map(FactKey::Rollout);
        let mut facts: Vec<FactKey> = moved.collect();
        for name in std::mem::take(&mut self.touched) {
            facts.extend(object_facts(&name));
            facts.push(FactKey::Names(name.kind));
            facts.push(FactKey::NamesIn(name.kind, part_of(&name.name)));
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
    let from = ObjectRef {
        kind,
        name: NamespacedName::default(),
    };
    all.range(from..)
        .take_while(move |(name, _)| name.kind == kind)
}

/// Whether an object equals the stored version: it may have been edited and reverted since.
fn is_version(kept: &AnyObject, object: &AnyObject) -> bool {
    kept.meta().generation == object.meta().generation && kept.same_effect(object)
}

/// Sets the version for proxies that do not see the new one.
fn set(name: &ObjectRef, version: Option<AnyObject>, in_force: &mut CurrentObjects<'_>) {
    match version {
        Some(version) => in_force.objects.put(version, in_force.changed),
        None => in_force.objects.remove(name, in_force.changed),
    }
}

#[cfg(test)]
mod tests;
