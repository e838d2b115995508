//! The store of quarantines that all replicas share: a ConfigMap for each rejected version of an
//! object, with the answers of each replica's proxies and the judgement, so that it is made once,
//! and found again after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster::Cluster;
use super::stored_map::{self, StoreError, Stored, StoredMaps, UnreadableMap};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::encode::encode_value;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::uid::Uid;

/// The format of the ConfigMaps.
const FORMAT: u32 = 1;
/// The label of the ConfigMaps, and the prefix of their names.
const LABEL: &str = "navarch.io/quarantine";
const PREFIX: &str = "navarch-quarantine-";
/// The keys of a ConfigMap's data: the rejected version, the judgement about it, and the version
/// that is served instead.
const REJECTED: &str = "rejected.json";
const OUTCOME: &str = "outcome.json";
const BEFORE: &str = "before.json";
/// Prefix of the keys with the answers of each replica's proxies.
const VOTES: &str = "votes.";

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
        /// If the object's own namespace decided: the number of its workloads that rejected it;
        /// `None` if a release that did not store it decided.
        rejecting: Option<usize>,
        /// The workloads that decided, and how often the object was judged before; `None` if a
        /// release decided that did not store them.
        jury: Option<Value>,
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
    /// The answers, by account and by workload.
    pub votes: Value,
    /// Of a quarantined object: which of the deciders are left here, and who is against them.
    /// Earlier releases store none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnout: Option<Value>,
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
    /// `metadata.creationTimestamp` of the object; `None` if a release that did not store it wrote
    /// the ConfigMap.
    pub created: Option<Timestamp>,
    /// The answers of proxies, by replica.
    pub votes: BTreeMap<String, ReplicaVotes>,
    /// The judgement, once it is made.
    pub outcome: Option<QuarantineOutcome>,
    /// How often this version was judged again, which decides how long another quarantine lasts at
    /// least.
    pub rejudged: u32,
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
    /// Earlier releases store none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    /// Earlier releases store none.
    #[serde(default, skip_serializing_if = "is_zero")]
    rejudged: u32,
}

/// The judgement as it is stored; the version that is served has a key of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
enum StoredOutcome {
    Quarantined {
        message: String,
        others: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rejecting: Option<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        jury: Option<Value>,
    },
    Released {
        reason: String,
    },
}

/// The ConfigMaps of quarantines, which all replicas read and write.
#[derive(Clone, Debug)]
pub struct QuarantineStore {
    maps: StoredMaps,
}

impl QuarantineStore {
    /// The store in the control plane's namespace.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            maps: StoredMaps::new(cluster, namespace, LABEL),
        }
    }

    /// All stored quarantines.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn list(&self) -> Result<Stored<KeptQuarantine>, StoreError> {
        let read = KeptQuarantine::from_config_map;
        self.maps.list(read, |kept| kept.object.clone()).await
    }

    /// Stores a quarantine, unless another replica has changed it since it was read. Returns the
    /// stored version.
    ///
    /// # Errors
    /// If another replica has changed it, or a request to the API server fails.
    pub async fn put(&self, kept: &KeptQuarantine) -> Result<KeptQuarantine, StoreError> {
        Ok(KeptQuarantine {
            version: self.maps.put(&kept.to_config_map()?).await?,
            ..kept.clone()
        })
    }

    /// Deletes a quarantine, unless another replica has changed it since it was read.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub async fn delete(&self, kept: &KeptQuarantine) -> Result<(), StoreError> {
        let name = KeptQuarantine::map_name(&kept.object);
        self.maps.delete(&name, kept.version.clone()).await
    }
}

impl KeptQuarantine {
    /// The name of the ConfigMap of an object.
    #[must_use]
    pub fn map_name(object: &ObjectRef) -> String {
        stored_map::name_of(PREFIX, object)
    }

    /// Converts the quarantine to its ConfigMap.
    ///
    /// # Errors
    /// If the version that is served cannot be encoded as JSON.
    pub fn to_config_map(&self) -> Result<ConfigMap, serde_json::Error> {
        let rejected = RejectedVersion {
            group: self.object.kind.group().to_owned(),
            kind: self.object.kind.as_str().to_owned(),
            namespace: self.object.name.namespace.to_string(),
            name: self.object.name.name.to_string(),
            generation: self.generation,
            uid: self.uid.to_string(),
            created: self.created,
            rejudged: self.rejudged,
        };
        let mut data = BTreeMap::from([(REJECTED.to_owned(), serde_json::to_string(&rejected)?)]);

        if let Some(outcome) = &self.outcome {
            let stored = StoredOutcome::from(outcome);
            data.insert(OUTCOME.to_owned(), serde_json::to_string(&stored)?);
        }

        if let Some(QuarantineOutcome::Quarantined {
            before: Some(before),
            ..
        }) = &self.outcome
        {
            data.insert(BEFORE.to_owned(), encode_value(before)?.to_string());
        }

        for (replica, votes) in &self.votes {
            data.insert(format!("{VOTES}{replica}"), serde_json::to_string(votes)?);
        }

        let name = Self::map_name(&self.object);
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

        let rejected: RejectedVersion = data
            .get(REJECTED)
            .and_then(|text| serde_json::from_str(text).ok())
            .ok_or(UnreadableMap::Entry(REJECTED))?;
        let is_kind =
            |kind: &Kind| kind.as_str() == rejected.kind && kind.group() == rejected.group;
        let kind = Kind::ALL.into_iter().find(is_kind);

        let object = ObjectRef {
            kind: kind.ok_or(UnreadableMap::Entry(REJECTED))?,
            name: NamespacedName::new(&rejected.namespace, &rejected.name),
        };
        let stored = data.get(OUTCOME).map(|text| {
            let stored = serde_json::from_str(text).map_err(|_| UnreadableMap::Entry(OUTCOME))?;
            outcome(stored, &object, data)
        });

        let votes = data.iter().filter_map(|(key, text)| {
            let replica = key.strip_prefix(VOTES)?.to_owned();
            Some((replica, serde_json::from_str(text).ok()?))
        });

        Ok(Self {
            outcome: stored.transpose()?,
            object,
            generation: rejected.generation,
            uid: Uid::new(&rejected.uid),
            created: rejected.created,
            votes: votes.collect(),
            rejudged: rejected.rejudged,
            version: map.metadata.resource_version.clone(),
        })
    }
}

/// Whether a number need not be stored.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<&QuarantineOutcome> for StoredOutcome {
    fn from(outcome: &QuarantineOutcome) -> Self {
        match outcome {
            QuarantineOutcome::Quarantined {
                message,
                others,
                rejecting,
                jury,
                ..
            } => Self::Quarantined {
                message: message.clone(),
                rejecting: *rejecting,
                jury: jury.clone(),
                others: others
                    .as_ref()
                    .map(|others| others.iter().map(ToString::to_string).collect()),
            },
            QuarantineOutcome::Released { reason } => Self::Released {
                reason: reason.clone(),
            },
        }
    }
}

/// Reads a judgement.
///
/// # Errors
/// If it is invalid.
fn outcome(
    stored: StoredOutcome,
    object: &ObjectRef,
    data: &BTreeMap<String, String>,
) -> Result<QuarantineOutcome, UnreadableMap> {
    let account = |text: String| -> Result<NamespacedName, UnreadableMap> {
        let parts = text.split_once('/');
        let (namespace, name) = parts.ok_or(UnreadableMap::Entry(OUTCOME))?;
        Ok(NamespacedName::new(namespace, name))
    };

    match stored {
        StoredOutcome::Released { reason } => Ok(QuarantineOutcome::Released { reason }),
        StoredOutcome::Quarantined {
            message,
            others,
            rejecting,
            jury,
        } => {
            let before = previous_version(object, data)?;
            let others =
                others.map(|all| all.into_iter().map(account).collect::<Result<Vec<_>, _>>());
            Ok(QuarantineOutcome::Quarantined {
                message,
                others: others.transpose()?,
                rejecting,
                jury,
                before,
            })
        }
    }
}

/// The version of an object that is served instead; `None` if there is none.
///
/// # Errors
/// If it is no version of this object: it would be served in place of any other.
fn previous_version(
    object: &ObjectRef,
    data: &BTreeMap<String, String>,
) -> Result<Option<AnyObject>, UnreadableMap> {
    let Some(text) = data.get(BEFORE) else {
        return Ok(None);
    };

    let value: Value = serde_json::from_str(text).map_err(|_| UnreadableMap::Entry(BEFORE))?;
    let (_, Outcome::Read { object: before, .. }) = decode_value(&value) else {
        return Err(UnreadableMap::Entry(BEFORE));
    };
    if before.object_ref() != *object {
        return Err(UnreadableMap::Entry(BEFORE));
    }
    Ok(Some(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::testing::object;

    fn virtual_service() -> AnyObject {
        let yaml = "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
                    metadata: {name: v, namespace: shop, uid: u, generation: 3}\n\
                    spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}\n";
        object(yaml)
    }

    #[test]
    fn another_object_is_not_read_as_the_previous_version() {
        let object = virtual_service();
        let kept = KeptQuarantine {
            object: ObjectRef {
                kind: Kind::VirtualService,
                name: NamespacedName::new("shop", "w"),
            },
            generation: 3,
            uid: object.meta().uid.clone(),
            created: None,
            votes: BTreeMap::new(),
            outcome: Some(QuarantineOutcome::Quarantined {
                message: "rejected".to_owned(),
                others: None,
                rejecting: Some(2),
                jury: None,
                before: Some(object),
            }),
            rejudged: 0,
            version: None,
        };

        let map = kept.to_config_map().unwrap();
        let error = KeptQuarantine::from_config_map(&map).unwrap_err();
        assert!(matches!(error, UnreadableMap::Entry(BEFORE)), "{error}");
    }

    #[test]
    fn a_stored_quarantine_decodes_to_the_same() {
        let object = virtual_service();
        let others = Some(vec![NamespacedName::new("edge", "gateway")]);
        let outcomes = [
            None,
            Some(QuarantineOutcome::Released {
                reason: "released".to_owned(),
            }),
            Some(QuarantineOutcome::Quarantined {
                message: "rejected".to_owned(),
                others,
                rejecting: None,
                jury: None,
                before: Some(object.clone()),
            }),
            Some(QuarantineOutcome::Quarantined {
                message: "rejected".to_owned(),
                others: None,
                rejecting: Some(3),
                jury: Some(serde_json::json!({ "workloads": { "shop/web-1@u": true } })),
                before: None,
            }),
        ];

        for outcome in outcomes {
            let votes = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: serde_json::json!({ "strangers": 1 }),
                turnout: Some(serde_json::json!({ "strangers": 0 })),
            };
            let kept = KeptQuarantine {
                object: object.object_ref(),
                generation: 3,
                uid: object.meta().uid.clone(),
                created: "2025-12-31T00:00:00Z".parse().ok(),
                votes: [("istiod-1".to_owned(), votes)].into(),
                outcome: outcome.clone(),
                rejudged: 2,
                version: Some("7".to_owned()),
            };

            let map = kept.to_config_map().unwrap();
            let back = KeptQuarantine::from_config_map(&map).unwrap();
            assert_eq!(
                (&back.object, back.generation, &back.uid),
                (&kept.object, kept.generation, &kept.uid)
            );
            assert_eq!((&back.votes, &back.version), (&kept.votes, &kept.version));
            assert_eq!((back.rejudged, back.created), (kept.rejudged, kept.created));
            assert_eq!(
                format!("{:?}", back.outcome),
                format!("{outcome:?}"),
                "the outcome"
            );
        }
    }
}
