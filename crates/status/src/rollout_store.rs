//! The store of rollouts that all replicas share: a ConfigMap for each, so that replicas agree, and
//! find the previous version after a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster::Cluster;
use super::stored_map::{self, StoreError, Stored, StoredMaps, UnreadableMap};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::encode::encode_value;
use navarch_api::object::ObjectRef;

/// The format of the ConfigMaps.
const FORMAT: u32 = 1;
/// The label of the ConfigMaps, and the prefix of their names.
const LABEL: &str = "navarch.io/rollout";
const PREFIX: &str = "navarch-rollout-";
/// The keys of a ConfigMap's data: the new version, the previous one, and the state.
const NEW: &str = "new.json";
const BEFORE: &str = "before.json";
const STATE: &str = "state.json";
/// Prefix of the keys of replicas with proxies that have not acknowledged the stage.
const WAITS: &str = "waits.";

/// The shared state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum SharedState {
    /// It waits for a slot: all proxies have the previous version.
    Waiting,
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
    /// The size of the ConfigMap's data; 0 until it is read or stored.
    pub bytes: usize,
}

/// The ConfigMaps of rollouts, which all replicas read and write.
#[derive(Clone, Debug)]
pub struct RolloutStore {
    maps: StoredMaps,
}

impl KeptRollout {
    /// Kind, namespace and name of the changed object.
    #[must_use]
    pub fn name(&self) -> ObjectRef {
        self.new.object_ref()
    }

    /// The name of the ConfigMap of an object.
    #[must_use]
    pub fn map_name(object: &ObjectRef) -> String {
        stored_map::name_of(PREFIX, object)
    }

    /// Converts the rollout to its ConfigMap.
    ///
    /// # Errors
    /// If a version of the object cannot be encoded as JSON.
    pub fn to_config_map(&self) -> Result<ConfigMap, serde_json::Error> {
        let text = |object: &AnyObject| encode_value(object).map(|value| value.to_string());
        let mut data = BTreeMap::from([
            (NEW.to_owned(), text(&self.new)?),
            (STATE.to_owned(), serde_json::to_string(&self.state)?),
        ]);
        if let Some(before) = &self.before {
            data.insert(BEFORE.to_owned(), text(before)?);
        }

        data.extend(
            self.waits
                .iter()
                .map(|(replica, at)| (format!("{WAITS}{replica}"), at.to_string())),
        );

        let name = Self::map_name(&self.name());
        let version = self.version.clone();
        Ok(stored_map::config_map(name, LABEL, data, FORMAT, version))
    }

    /// Reads a ConfigMap.
    ///
    /// # Errors
    /// If it is of a later release, or invalid.
    pub fn from_config_map(map: &ConfigMap) -> Result<Self, UnreadableMap> {
        let none = BTreeMap::new();
        let data = map.data.as_ref().unwrap_or(&none);
        stored_map::check_format(data, FORMAT)?;

        let object = |key: &'static str| -> Result<AnyObject, UnreadableMap> {
            let text = data.get(key).ok_or(UnreadableMap::Entry(key))?;
            let value: Value = serde_json::from_str(text).map_err(|_| UnreadableMap::Entry(key))?;
            match decode_value(&value) {
                (_, Outcome::Read { object, .. }) => Ok(object),
                (_, Outcome::Ignored | Outcome::Rejected(_)) => Err(UnreadableMap::Entry(key)),
            }
        };

        let before = match data.contains_key(BEFORE) {
            true => Some(object(BEFORE)?),
            false => None,
        };
        let state = data
            .get(STATE)
            .and_then(|text| serde_json::from_str(text).ok());
        let wait = |(key, at): (&String, &String)| {
            Some((key.strip_prefix(WAITS)?.to_owned(), at.parse().ok()?))
        };

        Ok(Self {
            new: object(NEW)?,
            before,
            state: state.ok_or(UnreadableMap::Entry(STATE))?,
            waits: data.iter().filter_map(wait).collect(),
            version: map.metadata.resource_version.clone(),
            bytes: size(map),
        })
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
            maps: StoredMaps::new(cluster, namespace, LABEL),
        }
    }

    /// All stored rollouts.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn list(&self) -> Result<Stored<KeptRollout>, StoreError> {
        let read = KeptRollout::from_config_map;
        self.maps.list(read, KeptRollout::name).await
    }

    /// Stores a rollout, unless another replica has changed it since it was read. Returns the
    /// stored version.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn put(&self, kept: &KeptRollout) -> Result<KeptRollout, StoreError> {
        let map = kept.to_config_map()?;
        Ok(KeptRollout {
            bytes: size(&map),
            version: self.maps.put(&map).await?,
            ..kept.clone()
        })
    }

    /// Deletes a rollout, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn delete(&self, kept: &KeptRollout) -> Result<(), StoreError> {
        let name = KeptRollout::map_name(&kept.name());
        self.maps.delete(&name, kept.version.clone()).await
    }
}

/// The size of a ConfigMap's data.
fn size(map: &ConfigMap) -> usize {
    let entries = map.data.iter().flatten();
    entries.map(|(key, text)| key.len() + text.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::testing::object;

    fn rule(host: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
             metadata: {{name: v, namespace: shop, uid: u, generation: 3, annotations: {{navarch.io/rollout: 5%}}}}\n\
             spec: {{hosts: [{host}], http: [{{timeout: 1s, route: [{{destination: {{host: a}}}}]}}]}}\n"
        );
        object(&yaml)
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
                bytes: 0,
            };
            let back = KeptRollout::from_config_map(&kept.to_config_map().unwrap()).unwrap();
            assert!(back.new.same_effect(&kept.new) && back.new.meta().generation == 3);
            assert_eq!(back.before.is_some(), kept.before.is_some());
            assert!(back.bytes > 100, "{}", back.bytes);
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
