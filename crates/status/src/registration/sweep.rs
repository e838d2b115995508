//! Periodically finds WorkloadEntries without a connection, and workloads that must be registered
//! again.

use futures_util::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::MissedTickBehavior;

use super::entry_state::Cleanup;
use super::{Claim, Registrar, annotations, entries, entry_state};
use navarch_api::object::NamespacedName;

/// Page size of a list.
const PAGE: u32 = 500;
/// Interval of the sweep, in grace periods.
const SWEEPS_PER_GRACE: u32 = 10;
/// Interval of cleanups: 20 per second.
const DELETE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

impl Registrar {
    /// Runs until shutdown: deletes entries that other control planes left behind, and registers
    /// workloads whose group was deleted with its entries and created again.
    pub async fn run(self) {
        let groups = Api::<PartialObjectMeta<DynamicObject>>::all_with(
            self.0.cluster.0.clone(),
            &entries::groups(),
        );
        let mut events =
            std::pin::pin!(watcher(groups, watcher::Config::default()).default_backoff());
        let round = self.0.config.grace.max(std::time::Duration::from_millis(1)) * SWEEPS_PER_GRACE;
        let mut rounds = tokio::time::interval_at(tokio::time::Instant::now() + round, round);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);

        let mut known = std::collections::BTreeMap::new();

        loop {
            tokio::select! {
                () = self.0.stop.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(Event::Apply(group) | Event::InitApply(group))) => {
                        let namespace = group.namespace().unwrap_or_default();
                        let name = NamespacedName::new(&namespace, &group.name_any());
                        let uid = group.uid();
                        if known.insert(name.clone(), uid.clone()) != Some(uid) {
                            self.register_anew(&name).await;
                        }
                    }
                    Some(Ok(Event::Delete(group))) => {
                        let namespace = group.namespace().unwrap_or_default();
                        known.remove(&NamespacedName::new(&namespace, &group.name_any()));
                    }
                    Some(Ok(Event::Init | Event::InitDone)) => {}
                    // Without the CustomResourceDefinition there are no objects; the watch keeps
                    // retrying.
                    Some(Err(error)) => tracing::debug!(%error, "failed to watch WorkloadGroups"),
                    None => break,
                },
                _ = rounds.tick() => tokio::select! {
                    () = self.0.stop.cancelled() => break,
                    () = self.sweep() => {}
                },
            }
        }

        self.ended().await;
    }

    /// Registers the workloads of a group that are connected here.
    async fn register_anew(&self, group: &NamespacedName) {
        let is_of = |claim: &Claim| matches!(claim, Claim::Group(name) if *name == *group.name);
        let present: Vec<_> = self.0.present.lock().values().cloned().collect();
        for here in present {
            if here.workload.namespace == group.namespace
                && is_of(&here.workload.claim)
                && let Err(error) = self.write_connected(&here.workload, here.at).await
            {
                self.0.metrics.failed.inc();
                tracing::warn!(proxy = %here.workload.proxy, %error, "failed to register a workload");
            }
        }
    }

    /// Checks all entries.
    async fn sweep(&self) {
        let entries = entries::all(&self.0.cluster);
        let mut page = ListParams::default().limit(PAGE);

        loop {
            let found = match entries.list(&page).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(%error, "failed to list WorkloadEntries");
                    return;
                }
            };

            for entry in &found.items {
                if self.cleanup(entry).is_some() {
                    let name = NamespacedName::new(
                        &entry.namespace().unwrap_or_default(),
                        &entry.name_any(),
                    );
                    if let Err(error) = self.clean_up(&name, entry).await {
                        tracing::debug!(%name, %error, "failed to clean up a WorkloadEntry");
                    }
                    tokio::time::sleep(DELETE_INTERVAL).await;
                }
            }

            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => return,
            }
        }
    }

    /// Cleans up an entry whose grace period may be over.
    pub(super) async fn clean(&self, name: &NamespacedName) -> Result<(), kube::Error> {
        match entries::get(&self.0.cluster, name).await? {
            Some(entry) => self.clean_up(name, &entry).await,
            None => Ok(()),
        }
    }

    /// The cleanup of an entry now.
    fn cleanup(&self, entry: &DynamicObject) -> Option<Cleanup> {
        entry_state::cleanup(
            &annotations(entry),
            entry.data.get("status"),
            Timestamp::now(),
            self.0.config.grace,
            self.0.config.longest,
        )
    }

    /// Performs the cleanup of an entry.
    async fn clean_up(
        &self,
        name: &NamespacedName,
        entry: &DynamicObject,
    ) -> Result<(), kube::Error> {
        let cluster = &self.0.cluster;
        match self.cleanup(entry) {
            None => Ok(()),
            Some(Cleanup::Delete) => {
                entries::delete(cluster, name, entry).await?;
                self.0.metrics.deleted.inc();
                tracing::info!(%name, "deleted the WorkloadEntry of a workload that disconnected");
                Ok(())
            }
            Some(Cleanup::Forget) => {
                let conditions = entry_state::without_health(entry.data.get("status"));
                entries::write_conditions(cluster, name, entry, &conditions).await
            }
        }
    }
}
