//! Where replicas keep what becomes of changes that reach proxies in stages: a ConfigMap for each, so that they agree, and know after
//! a restart which version was in force.

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

/// The label by which the ConfigMaps are found.
const LABEL: &str = "navarch.io/rollout";
/// The keys of a ConfigMap's data: the version that is to come, the one before, and how far it has come.
const NEW: &str = "new.json";
const BEFORE: &str = "before.json";
const STATE: &str = "state.json";
/// How the keys begin that say until when a replica has proxies that have not taken the stage.
const WAITS: &str = "waits.";
/// The most ConfigMaps that are read: there are 16 changes on their way at the most, and those that were stopped.
const MAX_CONFIG_MAPS: u32 = 1_024;

/// How far a change has come, for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum KeptState {
    /// It is at a stage, from 0.
    Stage {
        /// Which.
        at: usize,
        /// Whether an operator has it stay.
        paused: bool,
    },
    /// All proxies have the version before, for this reason.
    Stopped {
        /// Why.
        reason: String,
    },
    /// All proxies have the new version.
    Complete {
        /// Since when: soon after nobody needs to know.
        since: Timestamp,
    },
}

/// What is kept of one change.
#[derive(Clone, Debug)]
pub struct KeptRollout {
    /// The new version.
    pub new: AnyObject,
    /// The one before; `None` where there was none.
    pub before: Option<AnyObject>,
    /// How far it has come.
    pub state: KeptState,
    /// Replicas with proxies that have not taken the stage, each with when it last said so.
    pub waits: BTreeMap<String, Timestamp>,
    /// The version of the ConfigMap; `None` where there is none yet.
    pub version: Option<String>,
}

/// The ConfigMaps.
#[derive(Clone, Debug)]
pub struct RolloutStore {
    maps: Api<ConfigMap>,
}

/// Why something could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another replica was faster: what it wrote must be read first.
    #[error("another replica changed the rollout concurrently")]
    Stale,
    /// A version has no form in JSON.
    #[error("failed to encode the rollout")]
    Json(#[from] serde_json::Error),
    /// The API server did not take it.
    #[error("{}", navarch_kubernetes::InWords(.0))]
    Api(kube::Error),
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        // There is one already, or another than was read.
        let is_stale = matches!(&error, kube::Error::Api(status) if status.code == 409 || status.code == 404);
        if is_stale { Self::Stale } else { Self::Api(error) }
    }
}

impl KeptRollout {
    /// Kind, namespace and name of what is changed.
    #[must_use]
    pub fn name(&self) -> ObjectRef {
        self.new.object_ref()
    }

    /// Whether another replica than this has said within a time that proxies of its have not taken the stage.
    #[must_use]
    pub fn is_waited_for(&self, replica: &str, now: Timestamp, within: Duration) -> bool {
        let is_fresh = |at: &Timestamp| now.duration_since(*at).unsigned_abs() < within;
        self.waits.iter().any(|(who, at)| who != replica && is_fresh(at))
    }
}

impl RolloutStore {
    /// In the control plane's namespace.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        Self { maps: Api::namespaced(cluster.0.clone(), namespace) }
    }

    /// All that is kept. What cannot be read is left out.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn list(&self) -> Result<BTreeMap<ObjectRef, KeptRollout>, StoreError> {
        let with = ListParams::default().labels(LABEL).limit(MAX_CONFIG_MAPS);
        let maps = self.maps.list(&with).await.map_err(StoreError::Api)?;
        let mut all = BTreeMap::new();
        for map in maps {
            match read(&map) {
                Some(kept) => _ = all.insert(kept.name(), kept),
                None => tracing::warn!(name = map.metadata.name, "failed to decode the ConfigMap of a rollout"),
            }
        }
        Ok(all)
    }

    /// Writes one down, unless another replica has changed it since it was read. Gives it as it is kept.
    ///
    /// # Errors
    /// When another replica was faster, or the API server does not take it.
    pub async fn put(&self, kept: &KeptRollout) -> Result<KeptRollout, StoreError> {
        let name = map_name(&kept.name());
        let map = written(kept, &name)?;
        let params = PostParams::default();
        let map = match &kept.version {
            Some(_) => self.maps.replace(&name, &params, &map).await?,
            None => self.maps.create(&params, &map).await?,
        };
        Ok(KeptRollout { version: map.metadata.resource_version, ..kept.clone() })
    }

    /// Forgets one, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn delete(&self, kept: &KeptRollout) -> Result<(), StoreError> {
        let preconditions = Preconditions { resource_version: kept.version.clone(), uid: None };
        let with = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        Ok(self.maps.delete(&map_name(&kept.name()), &with).await.map(drop)?)
    }
}

/// The name of the ConfigMap of an object.
fn map_name(name: &ObjectRef) -> String {
    let hash = sha256_hex(format!("{}/{}/{}", name.kind.as_str(), name.name.namespace, name.name.name));
    format!("navarch-rollout-{}", hash.get(..16).expect("a SHA-256 has 64 hexadecimal digits"))
}

/// One as a ConfigMap.
fn written(kept: &KeptRollout, name: &str) -> Result<ConfigMap, serde_json::Error> {
    let text = |object: &AnyObject| encode_value(object).map(|value| value.to_string());
    let mut data =
        BTreeMap::from([(NEW.to_owned(), text(&kept.new)?), (STATE.to_owned(), serde_json::to_string(&kept.state)?)]);
    if let Some(before) = &kept.before {
        data.insert(BEFORE.to_owned(), text(before)?);
    }
    data.extend(kept.waits.iter().map(|(replica, at)| (format!("{WAITS}{replica}"), at.to_string())));
    let labels = BTreeMap::from([(LABEL.to_owned(), "true".to_owned())]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        resource_version: kept.version.clone(),
        ..ObjectMeta::default()
    };
    Ok(ConfigMap { data: Some(data), metadata, ..ConfigMap::default() })
}

/// What a ConfigMap says.
fn read(map: &ConfigMap) -> Option<KeptRollout> {
    let data = map.data.as_ref()?;
    let object = |key: &str| -> Option<AnyObject> {
        let value: Value = serde_json::from_str(data.get(key)?).ok()?;
        if let (_, Outcome::Read { object, .. }) = decode_value(&value) { Some(object) } else { None }
    };
    let before = match data.contains_key(BEFORE) {
        true => Some(object(BEFORE)?),
        false => None,
    };
    let wait = |(key, at): (&String, &String)| Some((key.strip_prefix(WAITS)?.to_owned(), at.parse().ok()?));
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
    fn what_is_kept_is_read_as_it_was() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (before, state) in [
            (Some(rule("old")), KeptState::Stage { at: 1, paused: true }),
            (None, KeptState::Stopped { reason: "no".to_owned() }),
            (None, KeptState::Complete { since: now }),
        ] {
            let waits = [("istiod-1".to_owned(), now)].into();
            let kept = KeptRollout { new: rule("new"), before, state, waits, version: Some("7".to_owned()) };
            let back = read(&written(&kept, "x").unwrap()).unwrap();
            assert!(back.new.same_effect(&kept.new) && back.new.meta().generation == 3);
            assert_eq!(back.before.is_some(), kept.before.is_some());
            assert!(back.before.iter().zip(&kept.before).all(|(back, kept)| back.same_effect(kept)));
            assert_eq!((&back.state, &back.waits, &back.version), (&kept.state, &kept.waits, &kept.version));
            let within = Duration::from_secs(15);
            let later = now + jiff::SignedDuration::from_secs(14);
            assert!(kept.is_waited_for("istiod-2", later, within) && !kept.is_waited_for("istiod-1", later, within));
            assert!(!kept.is_waited_for("istiod-2", now + jiff::SignedDuration::from_secs(16), within));
        }
    }
}
