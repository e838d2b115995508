//! ConfigMaps in which replicas share the state of an object or a workload: their names, labels and
//! formats.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectList, ObjectMeta, PostParams, Preconditions};

use navarch_api::object::ObjectRef;
use navarch_base::digest::sha256_hex;
use navarch_base::state_format::{self, FormatError, KEY};
use navarch_kubernetes::is_conflict_or_gone;
use navarch_net::backoff::Backoff;

use super::cluster::Cluster;

/// Number of ConfigMaps in a page of a list.
const PAGE: u32 = 1_024;
/// Maximum number of pages that are read: a limit for the memory that whoever writes ConfigMaps
/// into the control plane's namespace can occupy.
const MAX_PAGES: usize = 16;
/// How long a replica that starts tries to list what is stored.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Delays between its attempts.
const START_RETRY: Backoff = Backoff::jittered(Duration::from_millis(200), Duration::from_secs(2));

/// What a store has.
#[derive(Debug)]
pub struct Stored<T, K = ObjectRef> {
    /// The state that was read, by the object or workload that it is about.
    pub readable: BTreeMap<K, T>,
    /// Why the other ConfigMaps were not read, by name.
    pub unreadable: UnreadableMaps,
}

/// Why ConfigMaps were not read, by name. Their state is not known, and they are not replaced.
pub type UnreadableMaps = BTreeMap<String, UnreadableMap>;

/// Why a ConfigMap was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableMap {
    /// It has another format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// An entry is missing or invalid.
    #[error("{0} is missing or invalid")]
    Entry(&'static str),
}

/// Errors of storing the state of an object.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A write conflict: read the other replica's version first.
    #[error("another replica changed the stored state concurrently")]
    Stale,
    /// A version cannot be encoded as JSON.
    #[error("failed to encode the stored state")]
    Json(#[from] serde_json::Error),
    /// The ConfigMap was not read, so that it must not be replaced.
    #[error("ConfigMap {map} was not read and is left unchanged: {reason}")]
    Unreadable {
        /// The name of the ConfigMap.
        map: String,
        /// Why it was not read.
        reason: UnreadableMap,
    },
    /// A request to the API server failed.
    #[error("{}", navarch_kubernetes::InWords(.0))]
    Api(kube::Error),
}

impl StoreError {
    /// Whether the rights of the control plane do not allow the request.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 403)
    }

    /// Whether the API server has rejected this one state for what it is, such as a ConfigMap that
    /// somebody has made immutable.
    #[must_use]
    pub fn is_about_content(&self) -> bool {
        let codes = [400, 413, 422];
        matches!(self, Self::Api(kube::Error::Api(status)) if codes.contains(&status.code))
    }
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        if is_conflict_or_gone(&error) {
            Self::Stale
        } else {
            Self::Api(error)
        }
    }
}

/// Why a replica starts without what is stored.
#[derive(Debug, thiserror::Error)]
pub enum NotListed {
    /// The rights do not allow it.
    #[error(transparent)]
    Forbidden(StoreError),
    /// All attempts failed.
    #[error("not within {START_TIMEOUT:?}; the last attempt: {}", .0.as_deref().unwrap_or("no response"))]
    TimedOut(Option<String>),
}

/// What a store has when a replica starts. One request that fails is no reason to serve what others
/// hold back, so it is repeated for ten seconds.
///
/// # Errors
/// If the rights do not allow the list, or no attempt succeeds.
pub async fn list_at_start<T, K, F>(list: impl Fn() -> F) -> Result<Stored<T, K>, NotListed>
where
    F: Future<Output = Result<Stored<T, K>, StoreError>>,
{
    let mut last = None;
    let mut backoff = START_RETRY;
    let attempts = async {
        loop {
            match list().await {
                Ok(stored) => return Ok(stored),
                Err(error) if error.is_forbidden() => return Err(NotListed::Forbidden(error)),
                Err(error) => last = Some(error.to_string()),
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    };

    let listed = tokio::time::timeout(START_TIMEOUT, attempts).await;
    listed.unwrap_or_else(|_| Err(NotListed::TimedOut(last)))
}

impl<T, K: Ord> Stored<T, K> {
    /// Reads ConfigMaps.
    pub(super) fn of(
        maps: impl IntoIterator<Item = ConfigMap>,
        read: impl Fn(&ConfigMap) -> Result<T, UnreadableMap>,
        key: impl Fn(&T) -> K,
    ) -> Self {
        let mut stored = Self {
            readable: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        };

        for map in maps {
            match read(&map) {
                Ok(state) => _ = stored.readable.insert(key(&state), state),
                Err(error) => {
                    let name = map.metadata.name.unwrap_or_default();
                    stored.unreadable.insert(name, error);
                }
            }
        }

        stored
    }

    /// Logs the ConfigMaps that were not read, except those that were not read `before` for the same
    /// reason.
    pub fn log_unreadable(&self, before: &UnreadableMaps) {
        for (name, error) in &self.unreadable {
            if before.get(name) != Some(error) {
                tracing::error!(
                    name,
                    %error,
                    "failed to read a ConfigMap with state of the control plane; it is left unchanged"
                );
            }
        }
    }
}

/// The ConfigMaps with a label in the control plane's namespace.
#[derive(Clone, Debug)]
pub(super) struct StoredMaps {
    api: Api<ConfigMap>,
    label: &'static str,
}

impl StoredMaps {
    /// Those with this label.
    pub(super) fn new(cluster: &Cluster, namespace: &str, label: &'static str) -> Self {
        Self {
            api: Api::namespaced(cluster.0.clone(), namespace),
            label,
        }
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub(super) async fn list<T, K: Ord>(
        &self,
        read: impl Fn(&ConfigMap) -> Result<T, UnreadableMap>,
        key: impl Fn(&T) -> K,
    ) -> Result<Stored<T, K>, StoreError> {
        let list = |page: ListParams| async move { self.api.list(&page).await };
        let maps = all_pages(self.label, list).await.map_err(StoreError::Api)?;
        Ok(Stored::of(maps, read, key))
    }

    /// The ConfigMap of a name, whatever its labels; `None` if there is none.
    ///
    /// # Errors
    /// If the request to the API server fails.
    pub(super) async fn get(&self, name: &str) -> Result<Option<ConfigMap>, StoreError> {
        Ok(self.api.get_opt(name).await?)
    }

    /// Replaces the ConfigMap of the same name and `resourceVersion`, or creates it if that is not
    /// set. Returns the stored `resourceVersion`.
    ///
    /// # Errors
    /// If another replica has changed or created it, or a request to the API server fails.
    pub(super) async fn put(&self, map: &ConfigMap) -> Result<Option<String>, StoreError> {
        let params = PostParams::default();
        let stored = match (&map.metadata.name, &map.metadata.resource_version) {
            (Some(name), Some(_)) => self.api.replace(name, &params, map).await?,
            _ => self.api.create(&params, map).await?,
        };
        Ok(stored.metadata.resource_version)
    }

    /// Deletes a ConfigMap, unless another replica has changed it since this `resourceVersion`.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub(super) async fn delete(
        &self,
        name: &str,
        version: Option<String>,
    ) -> Result<(), StoreError> {
        let preconditions = Preconditions {
            resource_version: version,
            uid: None,
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        self.api.delete(name, &params).await?;
        Ok(())
    }
}

/// All ConfigMaps with this label, page by page. `list` returns one page.
///
/// # Errors
/// If a page cannot be listed.
pub(super) async fn all_pages<F>(
    label: &str,
    list: impl Fn(ListParams) -> F,
) -> Result<Vec<ConfigMap>, kube::Error>
where
    F: Future<Output = Result<ObjectList<ConfigMap>, kube::Error>>,
{
    let mut page = ListParams::default().labels(label).limit(PAGE);
    let mut maps = Vec::new();

    for _ in 0..MAX_PAGES {
        let found = list(page.clone()).await?;
        maps.extend(found.items);
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => break,
        }
    }

    Ok(maps)
}

/// The name of the ConfigMap of an object.
pub(super) fn name_of(prefix: &str, object: &ObjectRef) -> String {
    let hash = sha256_hex(format!(
        "{}/{}/{}",
        object.kind.as_str(),
        object.name.namespace,
        object.name.name
    ));
    let hash = hash.get(..16);
    format!(
        "{prefix}{}",
        hash.expect("a SHA-256 has 64 hexadecimal digits")
    )
}

/// A ConfigMap with these entries and its format. `version` is the `resourceVersion` that it
/// replaces.
pub(super) fn config_map(
    name: String,
    label: &str,
    mut data: BTreeMap<String, String>,
    format: u32,
    version: Option<String>,
) -> ConfigMap {
    data.insert(KEY.to_owned(), format.to_string());
    let labels = BTreeMap::from([(label.to_owned(), "true".to_owned())]);
    ConfigMap {
        data: Some(data),
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            resource_version: version,
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// Checks the format of a ConfigMap's entries.
///
/// # Errors
/// If it is not one of 1 to `supported`.
pub(super) fn check_format(
    data: &BTreeMap<String, String>,
    supported: u32,
) -> Result<(), FormatError> {
    state_format::check_text(data.get(KEY).map(String::as_str), supported)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use navarch_api::object::{Kind, NamespacedName};

    use super::super::{KeptQuarantine, KeptRollout};
    use super::*;

    fn map(format: &str) -> ConfigMap {
        let data = BTreeMap::from([(KEY.to_owned(), format.to_owned())]);
        ConfigMap {
            data: Some(data),
            metadata: ObjectMeta {
                name: Some(format!("map-{format}")),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    /// A page with one ConfigMap of this format, and the token of the next page.
    fn page(format: &str, next: &str) -> ObjectList<ConfigMap> {
        let list = serde_json::json!({
            "apiVersion": "v1",
            "kind": "ConfigMapList",
            "metadata": { "continue": next },
            "items": [map(format)],
        });
        serde_json::from_value(list).unwrap()
    }

    /// The outcome of a start whose first attempts fail with this code.
    async fn started(code: u16, failures: usize) -> Result<Stored<ConfigMap>, NotListed> {
        let attempts = Cell::new(0);
        list_at_start(|| async {
            attempts.set(attempts.get() + 1);
            if attempts.get() > failures {
                return Ok(Stored {
                    readable: BTreeMap::new(),
                    unreadable: BTreeMap::new(),
                });
            }
            let status = kube::core::Status::failure("no", "Test").with_code(code);
            Err(StoreError::Api(kube::Error::Api(Box::new(status))))
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_starts_repeats_a_failed_list_but_not_a_forbidden_one() {
        assert!(started(503, 2).await.is_ok());
        let forbidden = started(403, 1).await.unwrap_err();
        assert!(matches!(forbidden, NotListed::Forbidden(_)), "{forbidden}");

        let error = started(503, usize::MAX).await.unwrap_err();
        assert!(matches!(error, NotListed::TimedOut(Some(_))), "{error}");
    }

    #[test]
    fn what_is_rejected_for_its_content_says_nothing_about_other_state() {
        for (code, is_about_content) in [(422, true), (413, true), (403, false), (503, false)] {
            let status = kube::core::Status::failure("no", "Test").with_code(code);
            let error = StoreError::from(kube::Error::Api(Box::new(status)));
            assert_eq!(error.is_about_content(), is_about_content, "{code}");
        }
    }

    #[tokio::test]
    async fn maps_of_all_pages_are_listed() {
        let listed = all_pages("label", |wanted| async move {
            assert_eq!(wanted.label_selector.as_deref(), Some("label"));
            match wanted.continue_token.as_deref() {
                None => Ok(page("1", "second")),
                Some("second") => Ok(page("2", "third")),
                Some(_) => Ok(page("3", "")),
            }
        });

        let maps = listed.await.unwrap();
        assert_eq!(maps, ["1", "2", "3"].map(map));
    }

    #[tokio::test]
    async fn a_list_without_an_end_ends_after_the_maximum_number_of_pages() {
        let listed = all_pages("label", |_| async { Ok(page("1", "again")) });
        assert_eq!(listed.await.unwrap().len(), MAX_PAGES);
    }

    #[test]
    fn unreadable_maps_are_listed_with_the_reason() {
        let newer = UnreadableMap::Format(FormatError::Newer {
            found: 2,
            supported: 1,
        });
        let all = || [map("2"), map("1"), map("x")];

        let rollouts = Stored::of(all(), KeptRollout::from_config_map, KeptRollout::name);
        assert!(rollouts.readable.is_empty());
        assert_eq!(
            rollouts.unreadable,
            UnreadableMaps::from([
                ("map-2".to_owned(), newer.clone()),
                ("map-1".to_owned(), UnreadableMap::Entry("new.json")),
                (
                    "map-x".to_owned(),
                    UnreadableMap::Format(FormatError::Invalid("x".to_owned()))
                ),
            ])
        );

        let quarantines = Stored::of(all(), KeptQuarantine::from_config_map, |kept| {
            kept.object.clone()
        });
        assert_eq!(quarantines.unreadable["map-2"], newer);
        assert_eq!(
            quarantines.unreadable["map-1"],
            UnreadableMap::Entry("rejected.json")
        );
    }

    #[test]
    fn objects_have_one_map_of_each_prefix() {
        let object = |namespace: &str| ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new(namespace, "v"),
        };
        let name = KeptRollout::map_name(&object("shop"));
        assert!(name.starts_with("navarch-rollout-"), "{name}");
        assert_ne!(name, KeptRollout::map_name(&object("edge")));
        assert!(KeptQuarantine::map_name(&object("shop")).starts_with("navarch-quarantine-"));
    }
}
