//! Keeps learned scopes: what workloads have used is stored in the cluster, and restored from there
//! at the start. Without a cluster it is kept in memory alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Config;
use super::boot::Boot;
use navarch_api::learned_scope::LearnedWorkload;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::context::PushContext;
use navarch_push::learned::LearnedChange;
use navarch_push::mesh_state::Change;
use navarch_push::worker::{Ended, PushHandle};
use navarch_remotes::ManagedClusters;
use navarch_status::{
    Cluster, KeptScope, LearnedScopeStore, StoreError, StoredScopes, UnreadableMaps, forgotten,
    list_at_start, to_delete, to_store,
};

/// Interval at which what is stored is read and written, with learned scopes and without any.
const INTERVAL: Duration = Duration::from_secs(5);
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// What each stored scope adds to the interval: each round reads all of them, so that a replica reads
/// at most 200 in a second, however many there are.
const INTERVAL_OF_SCOPE: Duration = Duration::from_millis(5);
/// Maximum number of scopes that a round writes, and deletes, for each second of the interval; others
/// follow in the next rounds.
const WRITES_PER_SECOND: u64 = 6;
/// How long all remote clusters are synced before scopes of workloads without pods are deleted: pods
/// that were read are in the snapshot once changes are no longer debounced.
const SYNCED_FOR: Duration = Duration::from_mins(1);
/// Maximum number of ConfigMaps that are not replaced of which the log has a warning.
const MAX_WARNED: usize = 100;

/// The scopes that are stored, as this replica read them last.
pub(super) struct Keeper {
    push: PushHandle,
    store: LearnedScopeStore,
    kept: BTreeMap<LearnedWorkload, KeptScope>,
    unreadable: UnreadableMaps,
    /// The namespace of the scope that was written last.
    last: Option<Namespace>,
    /// Why the last round failed.
    failed: Option<String>,
    /// ConfigMaps with the names of scopes that are left unchanged, of which the log has a warning.
    warned: BTreeSet<String>,
    remotes: SyncedRemotes,
}

/// The remote clusters, and since when all of them are synced.
struct SyncedRemotes {
    clusters: ManagedClusters,
    since: Option<Instant>,
}

impl SyncedRemotes {
    /// Whether the pods of all clusters are known. A cluster that is away at the start has none yet,
    /// and its workloads would be taken for gone.
    fn have_all_pods(&mut self, now: Instant) -> bool {
        if !self.clusters.are_synced() {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) >= SYNCED_FOR
    }
}

/// Restores learned scopes, before proxies are served. `None` if they are not stored, as objects do
/// not come from the Kubernetes API.
pub(super) async fn restore(
    client: Option<&kube::Client>,
    config: &Config,
    push: &PushHandle,
    clusters: &ManagedClusters,
) -> Result<Option<Keeper>, Ended> {
    let client = client.filter(|_| config.settings.discover_configuration);
    let Some(client) = client else {
        return Ok(None);
    };

    let namespace = config.settings.system_namespace.as_str();
    let mut keeper = Keeper {
        push: push.clone(),
        store: LearnedScopeStore::new(&Cluster(client.clone()), namespace),
        kept: BTreeMap::new(),
        unreadable: UnreadableMaps::new(),
        last: None,
        failed: None,
        warned: BTreeSet::new(),
        remotes: SyncedRemotes {
            clusters: clusters.clone(),
            since: None,
        },
    };

    let store = &keeper.store;
    match list_at_start(|| store.list()).await {
        Ok(stored) => _ = keeper.follow(stored).await?,
        Err(error) => tracing::warn!(
            %error,
            "failed to read learned scopes; sidecars request clusters on demand until they are read"
        ),
    }

    Ok(Some(keeper))
}

/// Keeps learned scopes from now on.
pub(super) fn start(keeper: Option<Keeper>, boot: &mut Boot) {
    if let Some(keeper) = keeper {
        let stop = boot.stop.clone();
        boot.spawn("learned scopes", keeper.run(stop));
    }
}

impl Keeper {
    /// Reads and writes until `stop` is cancelled.
    async fn run(mut self, stop: CancellationToken) {
        let work = async {
            self.push.wait_synced().await?;
            loop {
                tokio::time::sleep(self.interval()).await;
                self.round().await?;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            ended = work => {
                let ended: Result<(), Ended> = ended;
                if let Err(error) = ended {
                    tracing::debug!(%error, "learned scopes are no longer stored");
                }
            }
        }
    }

    /// The time until the next round.
    fn interval(&self) -> Duration {
        let scopes = self.kept.len().max(self.push.context().learned.len());
        interval_of(scopes)
    }

    /// How many scopes a round writes.
    fn writes(&self) -> usize {
        let writes = self.interval().as_secs() * WRITES_PER_SECOND;
        usize::try_from(writes).unwrap_or(usize::MAX)
    }

    /// Reads what is stored, and adds what is used and not stored.
    async fn round(&mut self) -> Result<(), Ended> {
        let stored = match self.store.list().await {
            Ok(stored) => stored,
            Err(error) => {
                self.note(&error, "failed to read learned scopes");
                return Ok(());
            }
        };

        if self.follow(stored).await? {
            // The snapshot still has what was deleted.
            return Ok(());
        }
        let context = self.push.context();
        let mut kept = self.write(&context).await;
        let goes_on = kept.as_ref().err().is_none_or(StoreError::is_about_content);
        if goes_on && self.remotes.have_all_pods(Instant::now()) {
            let deleted = self.delete(&context).await;
            kept = kept.and(deleted);
        }
        match kept {
            Ok(()) => self.failed = None,
            Err(error) => self.note(&error, "failed to store learned scopes"),
        }
        Ok(())
    }

    /// Takes over what is stored: further hosts are learned, deleted ones are forgotten. Returns
    /// whether any were deleted.
    async fn follow(&mut self, mut stored: StoredScopes) -> Result<bool, Ended> {
        stored.log_unreadable(&self.unreadable);
        let context = self.push.context();
        let deleted = forgotten(&self.kept, &stored);
        let has_deleted = !deleted.is_empty();
        let mut changes: Vec<Change> = deleted
            .into_iter()
            .map(|(workload, hosts)| Change::Learned(workload, LearnedChange::Forget(hosts)))
            .collect();

        for (workload, kept) in &stored.readable {
            let known = context.learned.get(workload);
            if known.is_none_or(|known| !kept.hosts.is_subset(known)) {
                let added = LearnedChange::Add(kept.hosts.clone());
                changes.push(Change::Learned(workload.clone(), added));
            }
        }

        stored.keep_unreadable(std::mem::take(&mut self.kept));
        self.kept = stored.readable;
        self.unreadable = stored.unreadable;
        if !changes.is_empty() {
            self.push.change(changes).await?;
        }
        Ok(has_deleted)
    }

    /// Stores hosts that are used and not stored. Where another replica was first, the next round reads
    /// its version; the other scopes do not wait for that, nor for one that the API server rejects.
    async fn write(&mut self, context: &PushContext) -> Result<(), StoreError> {
        let used = context
            .learned
            .iter()
            .map(|(workload, hosts)| (workload, &**hosts));
        let exists = |host: &Hostname| context.directory.namespaces_of_host.contains_key(host);
        let unstored = to_store(used, &self.kept, &self.unreadable, exists);
        let unstored = in_turn(unstored, self.last.as_ref());
        let mut rejected = Ok(());

        for scope in unstored.into_iter().take(self.writes()) {
            self.last = Some(scope.workload.namespace.clone());
            match self.put(&scope).await {
                Ok(()) => {}
                Err(error) if error.is_about_content() => rejected = Err(error),
                Err(error) => return Err(error),
            }
        }
        rejected
    }

    /// Stores a scope, unless another replica was first.
    async fn put(&mut self, scope: &KeptScope) -> Result<(), StoreError> {
        match self.store.put(scope).await {
            Ok(kept) => self.take_over(kept),
            Err(StoreError::Stale) if scope.version.is_none() => return self.adopt(scope).await,
            Err(StoreError::Stale) => tracing::debug!(workload = %scope.workload, "stale"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes over the ConfigMap of a scope that cannot be created, if nobody sees it as it has lost its
    /// label. One that is not the scope's is left unchanged, with a warning: nothing can be stored for
    /// the workload until it is deleted or renamed.
    async fn adopt(&mut self, scope: &KeptScope) -> Result<(), StoreError> {
        let map = KeptScope::map_name(&scope.workload);
        let workload = &scope.workload;
        match self.store.adopt(scope).await {
            Ok(Some(kept)) => {
                tracing::warn!(map, %workload, "the ConfigMap of a learned scope had lost its label, and has it again");
                self.take_over(kept);
            }
            Ok(None) | Err(StoreError::Stale) => tracing::debug!(%workload, "stale"),
            Err(error @ StoreError::Unreadable { .. }) => {
                if self.warned.len() < MAX_WARNED && self.warned.insert(map.clone()) {
                    tracing::warn!(map, %workload, %error, "a learned scope is not stored");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A scope is stored.
    fn take_over(&mut self, kept: KeptScope) {
        self.warned.remove(&KeptScope::map_name(&kept.workload));
        self.kept.insert(kept.workload.clone(), kept);
    }

    /// Deletes what is stored for workloads that are gone, where there is much. All replicas forget it
    /// with the next list.
    async fn delete(&self, context: &PushContext) -> Result<(), StoreError> {
        let exists = |namespace: &Namespace| {
            let name = NamespacedName::new("", namespace.as_str());
            context.objects.namespaces.get(&name).is_some()
        };
        let gone = to_delete(&self.kept, &self.unreadable, || running(context), exists);
        for scope in gone.iter().take(self.writes()) {
            match self.store.delete(scope).await {
                Ok(()) | Err(StoreError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Logs an error, unless it was the last one, too.
    fn note(&mut self, error: &StoreError, what: &str) {
        let error = error.to_string();
        if self.failed.as_ref() != Some(&error) {
            tracing::warn!(error, "{what}; they are kept in memory");
        }
        self.failed = Some(error);
    }
}

/// Scopes in the order in which they are written: one of each namespace, then a second one of each,
/// and so on, from the namespace after the `last` one on. A namespace whose workloads learn all the
/// time thus does not hold back the others.
fn in_turn(scopes: Vec<KeptScope>, last: Option<&Namespace>) -> Vec<KeptScope> {
    let mut written: BTreeMap<Namespace, usize> = BTreeMap::new();
    let mut ordered = BTreeMap::new();
    for scope in scopes {
        let namespace = scope.workload.namespace.clone();
        let turn = written.entry(namespace.clone()).or_default();
        let had_turn = last.is_some_and(|last| namespace <= *last);
        ordered.insert((*turn, had_turn, namespace), scope);
        *turn += 1;
    }
    ordered.into_values().collect()
}

/// The workloads with pods, in all clusters.
fn running(context: &PushContext) -> BTreeSet<LearnedWorkload> {
    let directory = &context.directory;
    let remotes = directory.remotes.values();
    let of_remotes = remotes.flat_map(|remote| remote.workloads.values());
    let all = directory.workloads.values().chain(of_remotes);
    all.map(|workload| LearnedWorkload {
        namespace: workload.namespace.clone(),
        account: workload.service_account.clone(),
        name: workload.name.clone(),
    })
    .collect()
}

/// The time between two rounds with this number of scopes.
fn interval_of(scopes: usize) -> Duration {
    if scopes == 0 {
        return IDLE_INTERVAL;
    }
    let scopes = u32::try_from(scopes).unwrap_or(u32::MAX);
    INTERVAL.saturating_add(INTERVAL_OF_SCOPE.saturating_mul(scopes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use navarch_api::learned_scope::LearnedHosts;
    use navarch_api::names::{ClusterId, ServiceAccount};
    use navarch_remotes::SyncStatus;

    use super::*;

    fn scope(namespace: &str, name: &str) -> KeptScope {
        KeptScope {
            workload: LearnedWorkload {
                namespace: Namespace::new(namespace),
                account: ServiceAccount::new("default"),
                name: Arc::from(name),
            },
            hosts: LearnedHosts::new(),
            version: None,
        }
    }

    #[test]
    fn namespaces_write_in_turn() {
        let all = ["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"];
        let scopes = || {
            let parts = all.iter().filter_map(|text| text.split_once('/'));
            parts.map(|(namespace, name)| scope(namespace, name))
        };
        let order = |last: Option<&str>| -> Vec<String> {
            let last = last.map(Namespace::new);
            let ordered = in_turn(scopes().collect(), last.as_ref());
            let workloads = ordered.into_iter().map(|scope| scope.workload);
            let text =
                |workload: LearnedWorkload| format!("{}/{}", workload.namespace, workload.name);
            workloads.map(text).collect()
        };
        assert_eq!(order(None), ["a/1", "b/1", "c/1", "a/2", "c/2", "a/3"]);
        let after_a = ["b/1", "c/1", "a/1", "c/2", "a/2", "a/3"];
        assert_eq!(order(Some("a")), after_a);
    }

    #[test]
    fn nothing_is_deleted_until_remote_clusters_have_been_synced_for_a_while() {
        let clusters = ManagedClusters::default();
        clusters.set_listed();
        let mut remotes = SyncedRemotes {
            clusters: clusters.clone(),
            since: None,
        };
        let east = ClusterId::new("east");
        let place = || "istio-system/east".to_owned();
        let begun = Instant::now();
        let after = |minutes: u32| begun + SYNCED_FOR * minutes;

        clusters.set(&east, Some((place(), SyncStatus::Timeout)));
        assert!(!remotes.have_all_pods(begun));
        assert!(!remotes.have_all_pods(after(9)), "it is away");
        clusters.set(&east, Some((place(), SyncStatus::Synced)));
        assert!(
            !remotes.have_all_pods(after(9)),
            "its pods are on their way"
        );
        assert!(remotes.have_all_pods(after(10)));

        clusters.set(&east, Some((place(), SyncStatus::Syncing)));
        assert!(!remotes.have_all_pods(after(11)));
        clusters.set(&east, None);
        assert!(!remotes.have_all_pods(after(12)));
        assert!(remotes.have_all_pods(after(13)));
    }

    #[test]
    fn rounds_become_rarer_with_more_scopes() {
        assert_eq!(interval_of(0), IDLE_INTERVAL);
        assert_eq!(interval_of(1), INTERVAL + INTERVAL_OF_SCOPE);
        assert_eq!(interval_of(10_000), Duration::from_secs(55));
        assert!(interval_of(usize::MAX) > interval_of(10_000));
    }
}
