//! The objects that store locks: Leases, or ConfigMaps where istiod uses them
//! (`pilot/pkg/leaderelection`, and `k8sresourcelock` below it). Both control planes then contend
//! for the same lock.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Error};
use navarch_api::object::LOCK_RECORD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster::Cluster;

/// The annotation of a Lease with the revision of its holder.
const HOLDER_KEY: &str = "leader.istio.io/holder-key";
/// Placeholder of an unreadable holder: the lock is free once it is not renewed.
const UNREADABLE: &str = "?";

/// The kind of a lock object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockKind {
    /// The annotation of a ConfigMap.
    ConfigMap,
    Lease,
}

/// The record of a lock (`LeaderElectionRecord`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    /// The holder; empty if the lock is free.
    pub(super) holder_identity: String,
    /// The holder's priority; empty without priorities.
    pub(super) holder_key: String,
    pub(super) lease_duration_seconds: i32,
    /// When it was acquired.
    pub(super) acquire_time: Option<Time>,
    /// When it was renewed last.
    pub(super) renew_time: Option<Time>,
    /// Number of changes of the holder.
    pub(super) leader_transitions: i32,
}

/// The objects of one kind in a namespace.
#[derive(Clone, Debug)]
pub(super) struct LockObjects {
    api: Api<DynamicObject>,
    kind: LockKind,
}

/// A lock's object as it was read.
#[derive(Clone, Debug)]
pub(super) struct LockObject {
    object: DynamicObject,
    pub(super) record: Record,
}

impl LockObject {
    /// Its `resourceVersion`; `None` if it is not stored yet.
    pub(super) fn version(&self) -> Option<&str> {
        self.object.metadata.resource_version.as_deref()
    }
}

impl LockObjects {
    pub(super) fn new(cluster: &Cluster, namespace: &str, kind: LockKind) -> Self {
        let resource = match kind {
            LockKind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            LockKind::Lease => ApiResource::erase::<Lease>(&()),
        };
        Self {
            api: Api::namespaced_with(cluster.0.clone(), namespace, &resource),
            kind,
        }
    }

    /// The object with this name, if it exists.
    ///
    /// # Errors
    /// If the request fails.
    pub(super) async fn get(&self, name: &str) -> Result<Option<LockObject>, Error> {
        let object = self.api.get_opt(name).await?;
        Ok(object.map(|object| self.read(object)))
    }

    /// Creates the object with this name.
    ///
    /// # Errors
    /// If the request fails, or the object exists already.
    pub(super) async fn create(&self, name: &str, record: Record) -> Result<LockObject, Error> {
        let resource = match self.kind {
            LockKind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            LockKind::Lease => ApiResource::erase::<Lease>(&()),
        };
        let object = self.written(DynamicObject::new(name, &resource), &record)?;
        Ok(self.read(self.api.create(&PostParams::default(), &object).await?))
    }

    /// Writes a record into an object with the version that was read: one of two concurrent writers
    /// fails.
    ///
    /// # Errors
    /// If the request fails, or the object has changed.
    pub(super) async fn replace(
        &self,
        name: &str,
        held: &LockObject,
        record: Record,
    ) -> Result<LockObject, Error> {
        let object = self.written(held.object.clone(), &record)?;
        Ok(self.read(
            self.api
                .replace(name, &PostParams::default(), &object)
                .await?,
        ))
    }

    /// Reads the record of an object.
    fn read(&self, object: DynamicObject) -> LockObject {
        let annotation = |name: &str| {
            object
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(name))
        };

        let record = match self.kind {
            LockKind::ConfigMap => annotation(LOCK_RECORD)
                .map_or(Ok(Record::default()), |text| serde_json::from_str(text)),
            LockKind::Lease => spec(&object).map(|spec| Record {
                holder_identity: spec.holder_identity.unwrap_or_default(),
                holder_key: annotation(HOLDER_KEY).cloned().unwrap_or_default(),
                lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
                acquire_time: spec.acquire_time.map(|time| Time(time.0)),
                renew_time: spec.renew_time.map(|time| Time(time.0)),
                leader_transitions: spec.lease_transitions.unwrap_or_default(),
            }),
        };

        let record = record.unwrap_or_else(|_| Record {
            holder_identity: UNREADABLE.to_owned(),
            ..Record::default()
        });
        LockObject { object, record }
    }

    fn written(&self, mut object: DynamicObject, record: &Record) -> Result<DynamicObject, Error> {
        let annotations = object.metadata.annotations.get_or_insert_default();

        match self.kind {
            LockKind::ConfigMap => {
                let text = serde_json::to_string(record).map_err(Error::SerdeError)?;
                annotations.insert(LOCK_RECORD.to_owned(), text);
            }
            LockKind::Lease => {
                match record.holder_key.as_str() {
                    "" => annotations.remove(HOLDER_KEY),
                    key => annotations.insert(HOLDER_KEY.to_owned(), key.to_owned()),
                };

                let spec = LeaseSpec {
                    holder_identity: Some(record.holder_identity.clone()),
                    lease_duration_seconds: Some(record.lease_duration_seconds),
                    acquire_time: record.acquire_time.as_ref().map(|time| MicroTime(time.0)),
                    renew_time: record.renew_time.as_ref().map(|time| MicroTime(time.0)),
                    lease_transitions: Some(record.leader_transitions),
                    ..spec(&object).unwrap_or_default()
                };

                let spec = serde_json::to_value(spec).map_err(Error::SerdeError)?;

                if let Value::Object(data) = &mut object.data {
                    data.insert("spec".to_owned(), spec);
                } else {
                    object.data = serde_json::json!({ "spec": spec });
                }
            }
        }

        Ok(object)
    }
}

fn spec(object: &DynamicObject) -> Result<LeaseSpec, serde_json::Error> {
    object
        .data
        .get("spec")
        .map_or(Ok(LeaseSpec::default()), |spec| {
            serde_json::from_value(spec.clone())
        })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// The objects of a kind. Sends no request.
    fn objects(kind: LockKind) -> LockObjects {
        let client =
            kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap()))
                .unwrap();
        LockObjects::new(&Cluster(client), "istio-system", kind)
    }

    #[tokio::test]
    async fn lock_objects_round_trip_and_keep_other_fields() {
        let record = Record {
            holder_identity: "istiod-1".to_owned(),
            holder_key: "canary".to_owned(),
            lease_duration_seconds: 30,
            acquire_time: Some(Time(Timestamp::from_second(1_700_000_000).unwrap())),
            renew_time: Some(Time(Timestamp::from_second(1_700_000_030).unwrap())),
            leader_transitions: 2,
        };

        for kind in [LockKind::ConfigMap, LockKind::Lease] {
            let objects = objects(kind);
            let mut object = DynamicObject::new("lock", &ApiResource::erase::<Lease>(&()));
            object.metadata.annotations = Some([("other".to_owned(), "1".to_owned())].into());
            object.metadata.resource_version = Some("7".to_owned());
            let read = objects.read(objects.written(object, &record).unwrap());
            assert_eq!(
                (&read.record, read.version()),
                (&record, Some("7")),
                "{kind:?}"
            );

            assert_eq!(
                read.object.metadata.annotations.as_ref().unwrap()["other"],
                "1"
            );
            let nobody = objects.read(objects.written(read.object, &Record::default()).unwrap());
            assert_eq!(nobody.record, Record::default(), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn locks_have_the_committed_form() {
        let record = Record {
            holder_identity: "istiod-1".to_owned(),
            holder_key: "canary".to_owned(),
            lease_duration_seconds: 30,
            acquire_time: Some(Time(Timestamp::from_second(1_700_000_000).unwrap())),
            renew_time: Some(Time(Timestamp::from_second(1_700_000_030).unwrap())),
            leader_transitions: 2,
        };
        let map = include_str!("../../../tests/corpora/state/leader-config-map.istio.json");
        let lease = include_str!("../../../tests/corpora/state/leader-lease.istio.json");

        for (kind, committed) in [(LockKind::ConfigMap, map), (LockKind::Lease, lease)] {
            let objects = objects(kind);
            let committed: DynamicObject = serde_json::from_str(committed).unwrap();
            assert_eq!(objects.read(committed.clone()).record, record, "{kind:?}");

            let empty = DynamicObject {
                metadata: kube::api::ObjectMeta {
                    name: committed.metadata.name.clone(),
                    ..kube::api::ObjectMeta::default()
                },
                data: Value::default(),
                ..committed.clone()
            };
            let written = objects.written(empty, &record).unwrap();
            assert_eq!(spec(&written).unwrap(), spec(&committed).unwrap());
            let parsed = |object: &DynamicObject| -> Option<Value> {
                let text = object.metadata.annotations.as_ref()?.get(LOCK_RECORD)?;
                serde_json::from_str(text).ok()
            };
            assert_eq!(parsed(&written), parsed(&committed));
            let holder_key = |object: &DynamicObject| {
                let annotations = object.metadata.annotations.clone().unwrap_or_default();
                annotations.get(HOLDER_KEY).cloned()
            };
            assert_eq!(holder_key(&written), holder_key(&committed));
        }
    }

    #[tokio::test]
    async fn records_are_in_istiods_form() {
        let objects = objects(LockKind::ConfigMap);
        let read = |text: &str| {
            let mut object =
                DynamicObject::new("istio-leader", &ApiResource::erase::<ConfigMap>(&()));
            object.metadata.annotations = Some([(LOCK_RECORD.to_owned(), text.to_owned())].into());
            objects.read(object).record
        };

        let istiods = read(
            r#"{"holderIdentity":"istiod-a","holderKey":"default","leaseDurationSeconds":30,"acquireTime":"2026-08-01T10:00:00Z","renewTime":"2026-08-01T10:00:30Z","leaderTransitions":4}"#,
        );
        assert_eq!(
            (
                istiods.holder_identity.as_str(),
                istiods.holder_key.as_str()
            ),
            ("istiod-a", "default")
        );

        assert_eq!(
            (istiods.lease_duration_seconds, istiods.leader_transitions),
            (30, 4)
        );

        // Go writes no time as null, and releases with an empty holder.
        let released = read(
            r#"{"holderIdentity":"","holderKey":"","leaseDurationSeconds":1,"acquireTime":null,"renewTime":null,"leaderTransitions":4}"#,
        );
        assert_eq!(
            (released.holder_identity.as_str(), released.acquire_time),
            ("", None)
        );

        // An unreadable record counts as held until it is not renewed any more.
        assert_eq!(read("{").holder_identity, UNREADABLE);
        let written = objects.written(
            DynamicObject::new("istio-leader", &ApiResource::erase::<ConfigMap>(&())),
            &istiods,
        );
        let written: Value =
            serde_json::from_str(&written.unwrap().metadata.annotations.unwrap()[LOCK_RECORD])
                .unwrap();
        assert_eq!(written["renewTime"], "2026-08-01T10:00:30Z");

        let mut names: Vec<&String> = written.as_object().unwrap().keys().collect();
        names.sort();
        let all = [
            "acquireTime",
            "holderIdentity",
            "holderKey",
            "leaderTransitions",
            "leaseDurationSeconds",
            "renewTime",
        ];

        assert_eq!(names, all);
    }
}
