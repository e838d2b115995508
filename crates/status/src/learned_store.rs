//! The store of learned scopes that all replicas share: a ConfigMap in the control plane's namespace
//! for each workload, with the hosts that it has used.
//!
//! They are there, and not in the workloads' namespaces, so that nobody there needs to be believed,
//! and the control plane needs no further rights. Replicas add hosts; who deletes a ConfigMap, or
//! hosts of one, makes all replicas forget them ([`forgotten`]).

mod room;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

use self::room::Room;
use super::cluster::Cluster;
use super::stored_map::{self, StoreError, Stored, StoredMaps, UnreadableMap, UnreadableMaps};
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload, MAX_HOSTS};
use navarch_api::names::{Hostname, Namespace, ServiceAccount};
use navarch_base::digest::sha256_hex;

/// The format of the ConfigMaps.
const FORMAT: u32 = 1;
/// The label of the ConfigMaps, and the prefix of their names.
const LABEL: &str = "navarch.io/learned-scope";
const PREFIX: &str = "navarch-scope-";
/// The keys of a ConfigMap's data: the workload, and its hosts, one a line.
const WORKLOAD: &str = "workload.json";
const HOSTS: &str = "hosts";
/// Maximum number of ConfigMaps that are created, of which each namespace may have a part
/// ([`Room`]): fewer than a list reads.
const MAX_STORED: usize = 10_000;
/// Maximum number of hosts in all of them: with the longest names 60 MB in the API server's database,
/// and in each list.
const MAX_STORED_HOSTS: usize = 250_000;
/// With more ConfigMaps than these, of a namespace or of all, those of workloads that are gone are
/// deleted: names of workloads may be those of single runs, as Jobs have, and would fill the store.
const CROWDED_NAMESPACE: usize = 500;
const CROWDED: usize = MAX_STORED / 2;
/// Up to this number of hosts, those that have no service stay stored.
const MAX_WITH_GONE: usize = MAX_HOSTS / 2;

/// What is stored, by workload.
pub type StoredScopes = Stored<KeptScope, LearnedWorkload>;

/// The hosts of a workload as a ConfigMap has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptScope {
    /// Whose proxies start with the hosts.
    pub workload: LearnedWorkload,
    /// At most one more than [`MAX_HOSTS`].
    pub hosts: LearnedHosts,
    /// The `resourceVersion` of the ConfigMap; `None` if there is none yet.
    pub version: Option<String>,
}

/// The workload as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadEntry {
    namespace: String,
    service_account: String,
    name: String,
}

/// The ConfigMaps of learned scopes.
#[derive(Clone, Debug)]
pub struct LearnedScopeStore {
    maps: StoredMaps,
}

impl LearnedScopeStore {
    /// The store in the control plane's namespace.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            maps: StoredMaps::new(cluster, namespace, LABEL),
        }
    }

    /// All stored scopes.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn list(&self) -> Result<StoredScopes, StoreError> {
        let read = KeptScope::from_config_map;
        self.maps.list(read, |kept| kept.workload.clone()).await
    }

    /// Stores a scope, unless another replica has changed it since it was read. Returns the stored
    /// version.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn put(&self, kept: &KeptScope) -> Result<KeptScope, StoreError> {
        Ok(KeptScope {
            version: self.maps.put(&kept.to_config_map()?).await?,
            ..kept.clone()
        })
    }

    /// Takes over the ConfigMap of a scope that cannot be created, as there is one of its name. Lists
    /// do not have it if it has lost its label, and then it gets it again, with the hosts of both.
    /// Returns what is stored now; `None` if it has the label, since another replica was first, or is
    /// gone.
    ///
    /// # Errors
    /// If it is not the scope of this workload, another replica changes it, or a request to the API
    /// server fails.
    pub async fn adopt(&self, scope: &KeptScope) -> Result<Option<KeptScope>, StoreError> {
        let map = KeptScope::map_name(&scope.workload);
        let Some(found) = self.maps.get(&map).await? else {
            return Ok(None);
        };
        match scope.joined_with_unlabelled(&found) {
            Ok(Some(joined)) => self.put(&joined).await.map(Some),
            Ok(None) => Ok(None),
            Err(reason) => Err(StoreError::Unreadable { map, reason }),
        }
    }

    /// Deletes a scope, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn delete(&self, kept: &KeptScope) -> Result<(), StoreError> {
        let name = KeptScope::map_name(&kept.workload);
        self.maps.delete(&name, kept.version.clone()).await
    }
}

impl KeptScope {
    /// The name of the ConfigMap of a workload.
    #[must_use]
    pub fn map_name(workload: &LearnedWorkload) -> String {
        let LearnedWorkload {
            namespace,
            account,
            name,
        } = workload;
        let hash = sha256_hex(format!("{namespace}/{account}/{name}"));
        let hash = hash.get(..16);
        let hash = hash.expect("a SHA-256 has 64 hexadecimal digits");
        format!("{PREFIX}{hash}")
    }

    /// Converts the scope to its ConfigMap.
    ///
    /// # Errors
    /// If the workload cannot be encoded as JSON.
    pub fn to_config_map(&self) -> Result<ConfigMap, serde_json::Error> {
        let workload = WorkloadEntry {
            namespace: self.workload.namespace.to_string(),
            service_account: self.workload.account.to_string(),
            name: self.workload.name.to_string(),
        };
        let hosts: String = self.hosts.iter().map(|host| format!("{host}\n")).collect();
        let data = BTreeMap::from([
            (WORKLOAD.to_owned(), serde_json::to_string(&workload)?),
            (HOSTS.to_owned(), hosts),
        ]);
        let name = Self::map_name(&self.workload);
        let version = self.version.clone();
        Ok(stored_map::config_map(name, LABEL, data, FORMAT, version))
    }

    /// Reads a ConfigMap. Empty lines and further hosts than are kept are left out.
    ///
    /// # Errors
    /// If it is of a later release, or invalid, or has another name than that of its workload.
    pub fn from_config_map(map: &ConfigMap) -> Result<Self, UnreadableMap> {
        let none = BTreeMap::new();
        let data = map.data.as_ref().unwrap_or(&none);
        stored_map::check_format(data, FORMAT)?;

        let text = |key: &'static str| data.get(key).ok_or(UnreadableMap::Entry(key));
        let entry: WorkloadEntry =
            serde_json::from_str(text(WORKLOAD)?).map_err(|_| UnreadableMap::Entry(WORKLOAD))?;
        let workload = LearnedWorkload {
            namespace: Namespace::new(&entry.namespace),
            account: ServiceAccount::new(&entry.service_account),
            name: entry.name.into(),
        };
        if map.metadata.name != Some(Self::map_name(&workload)) {
            return Err(UnreadableMap::Entry(WORKLOAD));
        }

        let lines = text(HOSTS)?.lines().map(str::trim);
        Ok(Self {
            workload,
            hosts: lines
                .filter(|line| !line.is_empty())
                .take(MAX_HOSTS + 1)
                .map(Hostname::new)
                .collect(),
            version: map.metadata.resource_version.clone(),
        })
    }

    /// This scope with the hosts of a ConfigMap of its name, which it is to replace; `None` if that one
    /// has the label.
    fn joined_with_unlabelled(&self, map: &ConfigMap) -> Result<Option<Self>, UnreadableMap> {
        let labels = map.metadata.labels.as_ref();
        if labels.is_some_and(|labels| labels.contains_key(LABEL)) {
            return Ok(None);
        }

        let mut joined = Self::from_config_map(map)?;
        let room = (MAX_HOSTS + 1).saturating_sub(joined.hosts.len());
        let new = self.hosts.difference(&joined.hosts).take(room);
        let new: Vec<Hostname> = new.cloned().collect();
        joined.hosts.extend(new);
        Ok(Some(joined))
    }
}

impl StoredScopes {
    /// Keeps what was stored `before` of ConfigMaps that cannot be read now: who deletes or mends one of
    /// them then makes replicas forget its hosts, as of any other.
    pub fn keep_unreadable(&mut self, before: BTreeMap<LearnedWorkload, KeptScope>) {
        let kept = before
            .into_iter()
            .filter(|(workload, _)| is_unreadable(workload, &self.unreadable));
        self.readable.extend(kept);
    }
}

/// Whether the ConfigMap of a workload was not read.
fn is_unreadable(workload: &LearnedWorkload, unreadable: &UnreadableMaps) -> bool {
    // The name costs a hash.
    !unreadable.is_empty() && unreadable.contains_key(&KeptScope::map_name(workload))
}

/// The hosts that were stored `before` and are not stored `now`, by workload: somebody has deleted
/// them. What could not be read now is not taken for deleted.
#[must_use]
pub fn forgotten(
    before: &BTreeMap<LearnedWorkload, KeptScope>,
    now: &StoredScopes,
) -> Vec<(LearnedWorkload, LearnedHosts)> {
    let mut all = Vec::new();
    for (workload, kept) in before {
        if is_unreadable(workload, &now.unreadable) {
            continue;
        }
        let gone: LearnedHosts = match now.readable.get(workload) {
            Some(stored) => kept.hosts.difference(&stored.hosts).cloned().collect(),
            None => kept.hosts.clone(),
        };
        if !gone.is_empty() {
            all.push((workload.clone(), gone));
        }
    }
    all
}

/// The scopes to store: those of workloads that use hosts which are not stored.
///
/// Stored hosts of which this replica has no service stay, as another replica may have it: one of
/// another revision, or one that reads a remote cluster which this one does not reach. They are left
/// out once there are more than `MAX_WITH_GONE`, so that names which change do not fill the list.
///
/// A namespace stores no more than its share of the room; what is stored already stays.
#[must_use]
pub fn to_store<'a>(
    used: impl IntoIterator<Item = (&'a LearnedWorkload, &'a LearnedHosts)>,
    stored: &BTreeMap<LearnedWorkload, KeptScope>,
    unreadable: &UnreadableMaps,
    exists: impl Fn(&Hostname) -> bool,
) -> Vec<KeptScope> {
    let mut room = Room::beside(stored, unreadable);
    let mut all = Vec::new();

    for (workload, used) in used {
        let kept = stored.get(workload);
        let known = kept.map(|kept| &kept.hosts);
        let is_new =
            |host: &&Hostname| exists(host) && known.is_none_or(|known| !known.contains(*host));
        let new: LearnedHosts = used.iter().filter(is_new).cloned().collect();
        let has_too_many = known.is_some_and(|known| known.len() > MAX_HOSTS);
        if new.is_empty() || has_too_many || is_unreadable(workload, unreadable) {
            continue;
        }

        let is_created = kept.is_none();
        let new = room.take(&workload.namespace, is_created, new);
        if new.is_empty() {
            continue;
        }

        let mut hosts = new;
        hosts.extend(known.into_iter().flatten().cloned());
        if hosts.len() > MAX_WITH_GONE {
            hosts.retain(&exists);
        }
        all.push(KeptScope {
            workload: workload.clone(),
            hosts: hosts.into_iter().take(MAX_HOSTS + 1).collect(),
            version: kept.and_then(|kept| kept.version.clone()),
        });
    }

    all
}

/// The scopes to delete: those of workloads without pods, where there are many. `running` returns the
/// workloads with pods. ConfigMaps that were not read stay: they have changed since.
///
/// Those of a namespace that exists and has no pods at all stay: another revision, which discovers
/// other namespaces, or reads a cluster that this replica does not reach, may have them.
#[must_use]
pub fn to_delete(
    stored: &BTreeMap<LearnedWorkload, KeptScope>,
    unreadable: &UnreadableMaps,
    running: impl FnOnce() -> BTreeSet<LearnedWorkload>,
    exists: impl Fn(&Namespace) -> bool,
) -> Vec<KeptScope> {
    let mut by_namespace: BTreeMap<&Namespace, Vec<&KeptScope>> = BTreeMap::new();
    for (workload, kept) in stored {
        by_namespace
            .entry(&workload.namespace)
            .or_default()
            .push(kept);
    }
    by_namespace.retain(|_, all| stored.len() > CROWDED || all.len() > CROWDED_NAMESPACE);
    if by_namespace.is_empty() {
        return Vec::new();
    }

    let running = running();
    let inhabited: BTreeSet<&Namespace> =
        running.iter().map(|running| &running.namespace).collect();
    by_namespace.retain(|namespace, _| inhabited.contains(namespace) || !exists(namespace));
    let candidates = by_namespace.into_values().flatten();
    candidates
        .filter(|kept| !running.contains(&kept.workload))
        .filter(|kept| !is_unreadable(&kept.workload, unreadable))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
