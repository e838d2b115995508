//! The store of rollouts that all replicas share: a ConfigMap for each, so that replicas agree, and
//! find the previous version after a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster::Cluster;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::digest::sha256_hex;
use navarch_api::encode::encode_value;
use navarch_api::object::ObjectRef;

/// The label of the ConfigMaps.
const LABEL: &str = "navarch.io/rollout";
/// The keys of a ConfigMap's data: the new version, the previous one, and the state.
const NEW: &str = "new.json";
const BEFORE: &str = "before.json";
const STATE: &str = "state.json";
/// Prefix of the keys of replicas with proxies that have not acknowledged the stage.
const WAITS: &str = "waits.";
/// Maximum number of ConfigMaps that are read: there are at most 128 rollouts in progress, and
/// the stopped ones.
const MAX_CONFIG_MAPS: u32 = 1_024;

/// The shared state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum SharedState {
    /// It is at a stage, from 0.
    Stage {
        /// The index of the stage.
        at: usize,
        /// Whether an operator has paused it.
        paused: bool,
    },
    /// Stopped: all proxies have the previous version, for this reason.
    Stopped {
        /// Text for operators, such as `aborted by an operator`.
        reason: String,
    },
    /// All proxies have the new version.
    Complete {
        /// When it completed: the state is deleted soon after.
        since: Timestamp,
    },
}

/// A stored rollout.
#[derive(Clone, Debug)]
pub struct KeptRollout {
    /// The new version.
    pub new: AnyObject,
    /// The previous version; `None` if there was none.
    pub before: Option<AnyObject>,
    /// `state.json` of the ConfigMap, which all replicas follow.
    pub state: SharedState,
    /// Replicas with proxies that have not acknowledged the stage, each with the time of its
    /// report.
    pub waits: BTreeMap<String, Timestamp>,
    /// The `resourceVersion` of the ConfigMap; `None` if there is none yet.
    pub version: Option<String>,
}

/// The ConfigMaps.
#[derive(Clone, Debug)]
pub struct RolloutStore {
    maps: Api<ConfigMap>,
}

/// Errors of storing a rollout.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A write conflict: read the other replica's version first.
    #[error("another replica changed the rollout concurrently")]
    Stale,
    /// A version cannot be encoded as JSON.
    #[error("failed to encode the rollout")]
    Json(#[from] serde_json::Error),
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
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        // It exists already, or has changed since it was read.
        let is_stale =
            matches!(&error, kube::Error::Api(status) if status.code == 409 || status.code == 404);
        if is_stale {
            Self::Stale
        } else {
            Self::Api(error)
        }
    }
}

impl KeptRollout {
    /// Kind, namespace and name of the changed object.
    #[must_use]
    pub fn name(&self) -> ObjectRef {
        self.new.object_ref()
    }

    /// Whether another replica has recently reported proxies that have not acknowledged the stage.
    #[must_use]
    pub fn is_waited_for(&self, replica: &str, now: Timestamp, within: Duration) -> bool {
        let is_fresh = |at: &Timestamp| now.duration_since(*at).unsigned_abs() < within;
        self.waits
            .iter()
            .any(|(other, at)| other != replica && is_fresh(at))
    }
}

impl RolloutStore {
    /// The store in the control plane's namespace.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(cluster.0.clone(), namespace),
        }
    }

    /// All stored rollouts. Invalid ones are skipped.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn list(&self) -> Result<BTreeMap<ObjectRef, KeptRollout>, StoreError> {
        let with = ListParams::default().labels(LABEL).limit(MAX_CONFIG_MAPS);
        let maps = self.maps.list(&with).await.map_err(StoreError::Api)?;
        let mut all = BTreeMap::new();
        for map in maps {
            match read(&map) {
                Some(kept) => _ = all.insert(kept.name(), kept),
                None => tracing::warn!(
                    name = map.metadata.name,
                    "failed to decode the ConfigMap of a rollout"
                ),
            }
        }
        Ok(all)
    }

    /// Stores a rollout, unless another replica has changed it since it was read. Returns the
    /// stored version.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn put(&self, kept: &KeptRollout) -> Result<KeptRollout, StoreError> {
        let name = map_name(&kept.name());
        let map = written(kept, &name)?;
        let params = PostParams::default();
        let map = match &kept.version {
            Some(_) => self.maps.replace(&name, &params, &map).await?,
            None => self.maps.create(&params, &map).await?,
        };
        Ok(KeptRollout {
            version: map.metadata.resource_version,
            ..kept.clone()
        })
    }

    /// Deletes a rollout, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn delete(&self, kept: &KeptRollout) -> Result<(), StoreError> {
        let preconditions = Preconditions {
            resource_version: kept.version.clone(),
            uid: None,
        };
        let with = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        Ok(self
            .maps
            .delete(&map_name(&kept.name()), &with)
            .await
            .map(drop)?)
    }
}

/// The name of the ConfigMap of an object.
fn map_name(name: &ObjectRef) -> String {
    let hash = sha256_hex(format!(
        "{}/{}/{}",
        name.kind.as_str(),
        name.name.namespace,
        name.name.name
    ));
    format!(
        "navarch-rollout-{}",
        hash.get(..16).expect("a SHA-256 has 64 hexadecimal digits")
    )
}

/// Converts a rollout to a ConfigMap.
fn written(kept: &KeptRollout, name: &str) -> Result<ConfigMap, serde_json::Error> {
    let text = |object: &AnyObject| encode_value(object).map(|value| value.to_string());
    let mut data = BTreeMap::from([
        (NEW.to_owned(), text(&kept.new)?),
        (STATE.to_owned(), serde_json::to_string(&kept.state)?),
    ]);
    if let Some(before) = &kept.before {
        data.insert(BEFORE.to_owned(), text(before)?);
    }

    data.extend(
        kept.waits
            .iter()
            .map(|(replica, at)| (format!("{WAITS}{replica}"), at.to_string())),
    );
    let labels = BTreeMap::from([(LABEL.to_owned(), "true".to_owned())]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        resource_version: kept.version.clone(),
        ..ObjectMeta::default()
    };

    Ok(ConfigMap {
        data: Some(data),
        metadata,
        ..ConfigMap::default()
    })
}

fn read(map: &ConfigMap) -> Option<KeptRollout> {
    let data = map.data.as_ref()?;
    let object = |key: &str| -> Option<AnyObject> {
        let value: Value = serde_json::from_str(data.get(key)?).ok()?;
        if let (_, Outcome::Read { object, .. }) = decode_value(&value) {
            Some(object)
        } else {
            None
        }
    };

    let before = match data.contains_key(BEFORE) {
        true => Some(object(BEFORE)?),
        false => None,
    };
    let wait = |(key, at): (&String, &String)| {
        Some((key.strip_prefix(WAITS)?.to_owned(), at.parse().ok()?))
    };

    Some(KeptRollout {
        new: object(NEW)?,
        before,
        state: serde_json::from_str(data.get(STATE)?).ok()?,
        waits: data.iter().filter_map(wait).collect(),
        version: map.metadata.resource_version.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::decode::{Format, decode_documents};

    fn rule(host: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
             metadata: {{name: v, namespace: shop, uid: u, generation: 3, annotations: {{navarch.io/rollout: 5%}}}}\n\
             spec: {{hosts: [{host}], http: [{{timeout: 1s, route: [{{destination: {{host: a}}}}]}}]}}\n"
        );
        match decode_documents(&yaml, Format::Yaml).remove(0).outcome {
            Outcome::Read { object, .. } => object,
            other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stored_rollout_decodes_to_the_same() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();

        for (before, state) in [
            (
                Some(rule("old")),
                SharedState::Stage {
                    at: 1,
                    paused: true,
                },
            ),
            (
                None,
                SharedState::Stopped {
                    reason: "no".to_owned(),
                },
            ),
            (None, SharedState::Complete { since: now }),
        ] {
            let waits = [("istiod-1".to_owned(), now)].into();
            let kept = KeptRollout {
                new: rule("new"),
                before,
                state,
                waits,
                version: Some("7".to_owned()),
            };
            let back = read(&written(&kept, "x").unwrap()).unwrap();
            assert!(back.new.same_effect(&kept.new) && back.new.meta().generation == 3);
            assert_eq!(back.before.is_some(), kept.before.is_some());
            assert!(
                back.before
                    .iter()
                    .zip(&kept.before)
                    .all(|(back, kept)| back.same_effect(kept))
            );
            assert_eq!(
                (&back.state, &back.waits, &back.version),
                (&kept.state, &kept.waits, &kept.version)
            );
            let within = Duration::from_secs(15);
            let later = now + jiff::SignedDuration::from_secs(14);
            assert!(
                kept.is_waited_for("istiod-2", later, within)
                    && !kept.is_waited_for("istiod-1", later, within)
            );
            assert!(!kept.is_waited_for(
                "istiod-2",
                now + jiff::SignedDuration::from_secs(16),
                within
            ));
        }
    }
}
