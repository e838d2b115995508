//! The store of learned scopes that all replicas share: a ConfigMap in the control plane's namespace
//! for each workload, with the hosts that it has used.
//!
//! They are there, and not in the workloads' namespaces, so that nobody there needs to be believed,
//! and the control plane needs no further rights. Replicas add hosts; who deletes a ConfigMap, or
//! hosts of one, makes all replicas forget them ([`forgotten`]).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

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
/// Maximum number of ConfigMaps that are created: fewer than a list reads.
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

/// A stored scope.
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
        if now.unreadable.contains_key(&KeptScope::map_name(workload)) {
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
/// out once there are more than [`MAX_WITH_GONE`], so that names which change do not fill the list.
#[must_use]
pub fn to_store<'a>(
    used: impl IntoIterator<Item = (&'a LearnedWorkload, &'a LearnedHosts)>,
    stored: &BTreeMap<LearnedWorkload, KeptScope>,
    unreadable: &UnreadableMaps,
    exists: impl Fn(&Hostname) -> bool,
) -> Vec<KeptScope> {
    let mut workloads = MAX_STORED.saturating_sub(stored.len() + unreadable.len());
    let stored_hosts: usize = stored.values().map(|kept| kept.hosts.len()).sum();
    let mut hosts_left = MAX_STORED_HOSTS.saturating_sub(stored_hosts);
    let mut all = Vec::new();

    for (workload, used) in used {
        let kept = stored.get(workload);
        let known = kept.map(|kept| &kept.hosts);
        let is_new =
            |host: &&Hostname| exists(host) && known.is_none_or(|known| !known.contains(*host));
        let new: LearnedHosts = used.iter().filter(is_new).cloned().collect();
        let has_too_many = known.is_some_and(|known| known.len() > MAX_HOSTS);
        let is_unreadable = || unreadable.contains_key(&KeptScope::map_name(workload));
        if new.is_empty() || has_too_many || is_unreadable() {
            continue;
        }

        let is_created = kept.is_none();
        if new.len() > hosts_left || is_created && workloads == 0 {
            continue;
        }
        hosts_left -= new.len();
        workloads -= usize::from(is_created);

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
/// workloads with pods.
///
/// Those of a namespace that exists and has no pods at all stay: another revision, which discovers
/// other namespaces, or reads a cluster that this replica does not reach, may have them.
#[must_use]
pub fn to_delete(
    stored: &BTreeMap<LearnedWorkload, KeptScope>,
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
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn workload(name: &str) -> LearnedWorkload {
        LearnedWorkload {
            namespace: Namespace::new("shop"),
            account: ServiceAccount::new("default"),
            name: Arc::from(name),
        }
    }

    fn hosts(names: &[&str]) -> LearnedHosts {
        names.iter().map(Hostname::new).collect()
    }

    fn kept(name: &str, names: &[&str]) -> KeptScope {
        KeptScope {
            workload: workload(name),
            hosts: hosts(names),
            version: Some("7".to_owned()),
        }
    }

    fn by_workload(
        all: impl IntoIterator<Item = KeptScope>,
    ) -> BTreeMap<LearnedWorkload, KeptScope> {
        all.into_iter()
            .map(|kept| (kept.workload.clone(), kept))
            .collect()
    }

    fn stored(readable: impl IntoIterator<Item = KeptScope>, unreadable: &[&str]) -> StoredScopes {
        let invalid = |name: &&str| {
            (
                KeptScope::map_name(&workload(name)),
                UnreadableMap::Entry(HOSTS),
            )
        };
        Stored {
            readable: by_workload(readable),
            unreadable: unreadable.iter().map(invalid).collect(),
        }
    }

    #[test]
    fn a_scope_survives_its_config_map() {
        let web = kept("web", &["a.example", "b.example"]);
        let mut map = web.to_config_map().unwrap();
        assert_eq!(KeptScope::from_config_map(&map), Ok(web));

        map.metadata.name = Some("navarch-scope-of-another".to_owned());
        let error = KeptScope::from_config_map(&map);
        assert_eq!(error, Err(UnreadableMap::Entry(WORKLOAD)));
    }

    #[test]
    fn an_edited_config_map_is_read_as_far_as_hosts_are_kept() {
        let mut map = kept("web", &[]).to_config_map().unwrap();
        let lines: String = (0..2 * MAX_HOSTS)
            .map(|at| format!(" h{at} \n\n"))
            .collect();
        map.data.as_mut().unwrap().insert(HOSTS.to_owned(), lines);
        let read = KeptScope::from_config_map(&map).unwrap();
        assert_eq!(read.hosts.len(), MAX_HOSTS + 1);
        assert!(read.hosts.contains("h7"));
    }

    #[test]
    fn the_config_map_of_the_largest_scope_fits_into_the_api_server() {
        let longest = |at: usize| Hostname::new(format!("{at:0>253}"));
        let largest = KeptScope {
            hosts: (0..=MAX_HOSTS).map(longest).collect(),
            ..kept("web", &[])
        };
        let data = largest.to_config_map().unwrap().data.unwrap();
        assert!(data.values().map(String::len).sum::<usize>() < 1 << 20);
    }

    #[test]
    fn deleted_hosts_are_forgotten_but_not_those_that_cannot_be_read() {
        let before = by_workload([
            kept("web", &["a", "b"]),
            kept("gone", &["a"]),
            kept("new-format", &["a"]),
            kept("same", &["a"]),
        ]);
        let now = stored(
            [kept("web", &["b", "c"]), kept("same", &["a"])],
            &["new-format"],
        );
        let expected = [
            (workload("gone"), hosts(&["a"])),
            (workload("web"), hosts(&["a"])),
        ];
        assert_eq!(forgotten(&before, &now), expected);
    }

    #[test]
    fn what_is_used_is_added_to_what_is_stored() {
        let used = BTreeMap::from([
            (workload("web"), hosts(&["b", "gone"])),
            (workload("new"), hosts(&["a"])),
            (workload("same"), hosts(&["a"])),
            (workload("new-format"), hosts(&["a"])),
            (workload("of-gone"), hosts(&["gone"])),
        ]);
        let now = stored(
            [kept("web", &["a", "gone-too"]), kept("same", &["a", "b"])],
            &["new-format"],
        );
        let exists = |host: &Hostname| !host.as_str().starts_with("gone");
        let written = to_store(&used, &now.readable, &now.unreadable, exists);
        let new = KeptScope {
            version: None,
            ..kept("new", &["a"])
        };
        assert_eq!(written, [new, kept("web", &["a", "b", "gone-too"])]);
    }

    #[test]
    fn hosts_without_services_leave_a_long_list() {
        let all: LearnedHosts = (0..MAX_WITH_GONE)
            .map(|at| Hostname::new(format!("h{at}")))
            .collect();
        let long = KeptScope {
            hosts: all,
            ..kept("web", &[])
        };
        let used = BTreeMap::from([(workload("web"), hosts(&["a"]))]);
        let exists = |host: &Hostname| host.as_str() != "h7";
        let written = to_store(&used, &by_workload([long]), &UnreadableMaps::new(), exists);
        assert_eq!(written[0].hosts.len(), MAX_WITH_GONE);
        assert!(written[0].hosts.contains("a") && !written[0].hosts.contains("h7"));
    }

    #[test]
    fn a_list_that_tells_of_too_many_hosts_is_not_written_again() {
        let many = |prefix: &str| -> LearnedHosts {
            let names = (0..MAX_HOSTS).map(|at| Hostname::new(format!("{prefix}{at}")));
            names.collect()
        };
        let stored = KeptScope {
            hosts: many("a"),
            ..kept("web", &[])
        };
        let used = BTreeMap::from([(workload("web"), many("b"))]);
        let none = UnreadableMaps::new();
        let written = to_store(&used, &by_workload([stored]), &none, |_| true);
        assert_eq!(written[0].hosts.len(), MAX_HOSTS + 1);
        let now = by_workload(written);
        assert_eq!(to_store(&used, &now, &none, |_| true), []);
    }

    #[test]
    fn no_more_hosts_are_stored_than_there_is_room() {
        let many: LearnedHosts = (0..MAX_HOSTS - 1)
            .map(|at| Hostname::new(format!("h{at}")))
            .collect();
        let full = MAX_STORED_HOSTS / many.len();
        let stored = (0..full).map(|at| KeptScope {
            hosts: many.clone(),
            ..kept(&at.to_string(), &[])
        });
        let now = by_workload(stored);
        let used = BTreeMap::from([
            (workload("7"), hosts(&["a", "b"])),
            (workload("more"), many),
        ]);
        let written = to_store(&used, &now, &UnreadableMaps::new(), |_| true);
        let names: Vec<&str> = written.iter().map(|kept| &*kept.workload.name).collect();
        assert_eq!(names, ["7"]);
    }

    #[test]
    fn no_more_scopes_are_created_than_are_read() {
        let all = (0..MAX_STORED).map(|at| kept(&at.to_string(), &["a"]));
        let now = by_workload(all);
        let used = BTreeMap::from([
            (workload("more"), hosts(&["a"])),
            (workload("7"), hosts(&["b"])),
        ]);
        let written = to_store(&used, &now, &UnreadableMaps::new(), |_| true);
        assert_eq!(written, [kept("7", &["a", "b"])]);
    }

    #[test]
    fn scopes_of_workloads_that_are_gone_make_room_in_a_crowded_namespace() {
        let of_bank = |kept: KeptScope| KeptScope {
            workload: LearnedWorkload {
                namespace: Namespace::new("bank"),
                ..kept.workload
            },
            ..kept
        };
        let runs = |count: usize| (0..count).map(|at| kept(&format!("run-{at}"), &["a"]));
        let few = by_workload(runs(CROWDED_NAMESPACE));
        assert_eq!(to_delete(&few, || unreachable!(), |_| true), []);

        let elsewhere = runs(3).map(of_bank);
        let many = by_workload(runs(CROWDED_NAMESPACE + 1).chain(elsewhere));
        let last = workload(&format!("run-{CROWDED_NAMESPACE}"));
        let deleted = to_delete(&many, || BTreeSet::from([last.clone()]), |_| true);
        assert_eq!(deleted.len(), CROWDED_NAMESPACE);
        let is_gone =
            |kept: &KeptScope| kept.workload != last && kept.workload.namespace.as_str() == "shop";
        assert!(deleted.iter().all(is_gone));

        // Its pods may be those of another revision, as long as it exists.
        assert_eq!(to_delete(&many, BTreeSet::new, |_| true), []);
        let of_gone_namespace = to_delete(&many, BTreeSet::new, |_| false);
        assert_eq!(of_gone_namespace.len(), CROWDED_NAMESPACE + 1);
    }
}
