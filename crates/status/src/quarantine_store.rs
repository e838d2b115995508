//! The store of quarantines that all replicas share: a ConfigMap for each rejected version of an
//! object, with the answers of each replica's proxies and the judgement, so that it is made once,
//! and found again after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster::Cluster;
use super::rollout_store::StoreError;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::digest::sha256_hex;
use navarch_api::encode::encode_value;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::uid::Uid;

/// The label of the ConfigMaps.
const LABEL: &str = "navarch.io/quarantine";
/// The keys of a ConfigMap's data: the rejected version, the judgement about it, and the version
/// that is served instead.
const REJECTED: &str = "rejected.json";
const OUTCOME: &str = "outcome.json";
const BEFORE: &str = "before.json";
/// Prefix of the keys with the answers of each replica's proxies.
const VOTES: &str = "votes.";
/// Maximum number of ConfigMaps that are read.
const MAX_CONFIG_MAPS: u32 = 1_024;

/// The judgement about a rejected version.
#[derive(Clone, Debug, PartialEq)]
pub enum QuarantineOutcome {
    /// It is quarantined.
    Quarantined {
        /// Who rejected it, with an excerpt of a proxy's error message.
        message: String,
        /// If other namespaces than the object's decided: the accounts that it reached, as
        /// `namespace/name`.
        others: Option<Vec<NamespacedName>>,
        /// The version that is served instead; `None` if there is none.
        before: Option<AnyObject>,
    },
    /// It is in force until it is edited, for this reason.
    Released {
        /// Text for operators, such as `released by an operator`.
        reason: String,
    },
}

/// The answers of the proxies of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaVotes {
    /// When they were written.
    pub at: Timestamp,
    /// The answers, by account.
    pub votes: Value,
}

/// A stored quarantine, or the votes about one.
#[derive(Clone, Debug)]
pub struct KeptQuarantine {
    /// Kind, namespace and name of the rejected object.
    pub object: ObjectRef,
    /// `metadata.generation` of the rejected version.
    pub generation: i64,
    /// `metadata.uid` of the object.
    pub uid: Uid,
    /// The answers of proxies, by replica.
    pub votes: BTreeMap<String, ReplicaVotes>,
    /// The judgement, once it is made.
    pub outcome: Option<QuarantineOutcome>,
    /// The `resourceVersion` of the ConfigMap; `None` if there is none yet.
    pub version: Option<String>,
}

/// The rejected version as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RejectedVersion {
    group: String,
    kind: String,
    namespace: String,
    name: String,
    generation: i64,
    uid: String,
}

/// The judgement as it is stored; the version that is served has a key of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
enum StoredOutcome {
    Quarantined {
        message: String,
        others: Option<Vec<String>>,
    },
    Released {
        reason: String,
    },
}

/// The ConfigMaps.
#[derive(Clone, Debug)]
pub struct QuarantineStore {
    maps: Api<ConfigMap>,
}

impl QuarantineStore {
    /// The store in the control plane's namespace.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(cluster.0.clone(), namespace),
        }
    }

    /// All stored quarantines. Invalid ones are skipped.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn list(&self) -> Result<BTreeMap<ObjectRef, KeptQuarantine>, StoreError> {
        let with = ListParams::default().labels(LABEL).limit(MAX_CONFIG_MAPS);
        let maps = self.maps.list(&with).await.map_err(StoreError::Api)?;
        let mut all = BTreeMap::new();

        for map in maps {
            match read(&map) {
                Some(kept) => _ = all.insert(kept.object.clone(), kept),
                None => tracing::warn!(
                    name = map.metadata.name,
                    "failed to decode the ConfigMap of a quarantine"
                ),
            }
        }

        Ok(all)
    }

    /// Stores a quarantine, unless another replica has changed it since it was read. Returns the
    /// stored version.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn put(&self, kept: &KeptQuarantine) -> Result<KeptQuarantine, StoreError> {
        let name = map_name(&kept.object);
        let map = written(kept, &name)?;
        let params = PostParams::default();
        let map = match &kept.version {
            Some(_) => self.maps.replace(&name, &params, &map).await?,
            None => self.maps.create(&params, &map).await?,
        };
        Ok(KeptQuarantine {
            version: map.metadata.resource_version,
            ..kept.clone()
        })
    }

    /// Deletes a quarantine, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn delete(&self, kept: &KeptQuarantine) -> Result<(), StoreError> {
        let preconditions = Preconditions {
            resource_version: kept.version.clone(),
            uid: None,
        };
        let with = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        self.maps.delete(&map_name(&kept.object), &with).await?;
        Ok(())
    }
}

/// The name of the ConfigMap of an object.
fn map_name(object: &ObjectRef) -> String {
    let hash = sha256_hex(format!(
        "{}/{}/{}",
        object.kind.as_str(),
        object.name.namespace,
        object.name.name
    ));
    format!(
        "navarch-quarantine-{}",
        hash.get(..16).expect("a SHA-256 has 64 hexadecimal digits")
    )
}

/// Converts a quarantine to a ConfigMap.
fn written(kept: &KeptQuarantine, map: &str) -> Result<ConfigMap, serde_json::Error> {
    let rejected = RejectedVersion {
        group: kept.object.kind.group().to_owned(),
        kind: kept.object.kind.as_str().to_owned(),
        namespace: kept.object.name.namespace.to_string(),
        name: kept.object.name.name.to_string(),
        generation: kept.generation,
        uid: kept.uid.to_string(),
    };
    let mut data = BTreeMap::from([(REJECTED.to_owned(), serde_json::to_string(&rejected)?)]);

    if let Some(outcome) = &kept.outcome {
        let stored = match outcome {
            QuarantineOutcome::Quarantined {
                message, others, ..
            } => StoredOutcome::Quarantined {
                message: message.clone(),
                others: others
                    .as_ref()
                    .map(|others| others.iter().map(ToString::to_string).collect()),
            },
            QuarantineOutcome::Released { reason } => StoredOutcome::Released {
                reason: reason.clone(),
            },
        };
        data.insert(OUTCOME.to_owned(), serde_json::to_string(&stored)?);
    }

    if let Some(QuarantineOutcome::Quarantined {
        before: Some(before),
        ..
    }) = &kept.outcome
    {
        data.insert(BEFORE.to_owned(), encode_value(before)?.to_string());
    }

    for (replica, votes) in &kept.votes {
        data.insert(format!("{VOTES}{replica}"), serde_json::to_string(votes)?);
    }

    let labels = BTreeMap::from([(LABEL.to_owned(), "true".to_owned())]);
    let metadata = ObjectMeta {
        name: Some(map.to_owned()),
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

/// Reads a ConfigMap; `None` if it is not valid.
fn read(map: &ConfigMap) -> Option<KeptQuarantine> {
    let data = map.data.as_ref()?;
    let rejected: RejectedVersion = serde_json::from_str(data.get(REJECTED)?).ok()?;
    let outcome = match data.get(OUTCOME) {
        Some(text) => Some(outcome(serde_json::from_str(text).ok()?, data)?),
        None => None,
    };

    let votes = data.iter().filter_map(|(key, text)| {
        let replica = key.strip_prefix(VOTES)?.to_owned();
        Some((replica, serde_json::from_str(text).ok()?))
    });

    let is_kind = |kind: &Kind| kind.as_str() == rejected.kind && kind.group() == rejected.group;
    Some(KeptQuarantine {
        object: ObjectRef {
            kind: Kind::ALL.into_iter().find(is_kind)?,
            name: NamespacedName::new(&rejected.namespace, &rejected.name),
        },
        generation: rejected.generation,
        uid: Uid::new(&rejected.uid),
        votes: votes.collect(),
        outcome,
        version: map.metadata.resource_version.clone(),
    })
}

/// Reads a judgement; `None` if it is not valid.
fn outcome(stored: StoredOutcome, data: &BTreeMap<String, String>) -> Option<QuarantineOutcome> {
    let (message, others) = match stored {
        StoredOutcome::Released { reason } => return Some(QuarantineOutcome::Released { reason }),
        StoredOutcome::Quarantined { message, others } => (message, others),
    };

    let before = match data.get(BEFORE) {
        Some(text) => {
            let value: Value = serde_json::from_str(text).ok()?;
            let (_, Outcome::Read { object, .. }) = decode_value(&value) else {
                return None;
            };
            Some(object)
        }
        None => None,
    };

    let account = |text: String| {
        let (namespace, name) = text.split_once('/')?;
        Some(NamespacedName::new(namespace, name))
    };
    let others = match others {
        Some(others) => Some(others.into_iter().map(account).collect::<Option<_>>()?),
        None => None,
    };

    Some(QuarantineOutcome::Quarantined {
        message,
        others,
        before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::decode::{Format, decode_documents};

    #[test]
    fn a_stored_quarantine_decodes_to_the_same() {
        let yaml = "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
                    metadata: {name: v, namespace: shop, uid: u, generation: 3}\n\
                    spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}\n";
        let Outcome::Read { object, .. } = decode_documents(yaml, Format::Yaml).remove(0).outcome
        else {
            panic!("it is valid")
        };

        let others = Some(vec![NamespacedName::new("edge", "gateway")]);
        let outcomes = [
            None,
            Some(QuarantineOutcome::Released {
                reason: "released".to_owned(),
            }),
            Some(QuarantineOutcome::Quarantined {
                message: "rejected".to_owned(),
                others,
                before: Some(object.clone()),
            }),
            Some(QuarantineOutcome::Quarantined {
                message: "rejected".to_owned(),
                others: None,
                before: None,
            }),
        ];

        for outcome in outcomes {
            let votes = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: serde_json::json!({ "strangers": 1 }),
            };
            let kept = KeptQuarantine {
                object: object.object_ref(),
                generation: 3,
                uid: object.meta().uid.clone(),
                votes: [("istiod-1".to_owned(), votes)].into(),
                outcome: outcome.clone(),
                version: Some("7".to_owned()),
            };

            let map = written(&kept, &map_name(&kept.object)).unwrap();
            let back = read(&map).unwrap();
            assert_eq!(
                (&back.object, back.generation, &back.uid),
                (&kept.object, kept.generation, &kept.uid)
            );
            assert_eq!((&back.votes, &back.version), (&kept.votes, &kept.version));
            assert_eq!(
                format!("{:?}", back.outcome),
                format!("{outcome:?}"),
                "the outcome"
            );
        }
    }
}
