//! Workloads, distinguished from earlier ones of the same name: a pod of a StatefulSet is replaced
//! under its own name, and decisions of the old one are not those of the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use navarch_api::object::NamespacedName;
use serde_json::{Map, Value};

use crate::engine::ProxyId;

/// Maximum size of the texts of a list for other replicas, some 800 workloads: a ConfigMap, which
/// has room for 1 MiB, holds one list for each replica.
const MAX_LISTED_BYTES: usize = 64 << 10;
/// Maximum number of workloads in a list that is read.
const MAX_LISTED: usize = 8_192;

/// What distinguishes a workload from an earlier one of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It is not known: the workload is the first one of its name that is seen.
    #[default]
    Unknown,
    /// `metadata.uid` of the pod or WorkloadEntry.
    Uid(Arc<str>),
    /// Without a UID, as of objects from a directory: its oldest stream at this replica.
    Stream(ProxyId),
}

/// A workload. Displays as `namespace/name@uid`, or as `namespace/name` without a UID, since
/// streams have no meaning for other replicas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// The pod, or the WorkloadEntry of a machine.
    pub workload: NamespacedName,
    /// What distinguishes it from earlier ones.
    pub mark: Mark,
}

/// A list of workloads as JSON.
pub(super) struct ListedInstances {
    /// By text, each with a flag.
    pub(super) json: Value,
    /// Whether some are missing, because there are too many.
    pub(super) is_partial: bool,
}

impl Instance {
    /// Whether both are one workload. One without a mark, as other replicas list those without a
    /// UID, is the one of its name.
    fn is_same(&self, other: &Self) -> bool {
        let is_marked = self.mark != Mark::Unknown && other.mark != Mark::Unknown;
        self.workload == other.workload && (self.mark == other.mark || !is_marked)
    }

    /// The first one of its name in the order of all.
    fn first_of_name(&self) -> Self {
        Self {
            workload: self.workload.clone(),
            mark: Mark::Unknown,
        }
    }

    /// Reads the text form.
    fn parse(text: &str) -> Option<Self> {
        let (name, mark) = match text.split_once('@') {
            Some((name, uid)) => (name, Mark::Uid(Arc::from(uid))),
            None => (text, Mark::Unknown),
        };
        let (namespace, name) = name.split_once('/')?;
        Some(Self {
            workload: NamespacedName::new(namespace, name),
            mark,
        })
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mark {
            Mark::Uid(uid) => write!(f, "{}@{uid}", self.workload),
            Mark::Unknown | Mark::Stream(_) => write!(f, "{}", self.workload),
        }
    }
}

/// The workload in a set that is the same as another one; `None` if there is none.
pub(super) fn find<'a>(set: &'a BTreeSet<Instance>, one: &Instance) -> Option<&'a Instance> {
    set.get(one).or_else(|| {
        set.range(one.first_of_name()..)
            .take_while(|other| other.workload == one.workload)
            .find(|other| other.is_same(one))
    })
}

/// Like [`find`], among the keys of a map.
pub(super) fn find_key<'a, T>(
    map: &'a BTreeMap<Instance, T>,
    one: &Instance,
) -> Option<&'a Instance> {
    let exact = map.get_key_value(one).map(|(key, _)| key);
    exact.or_else(|| {
        map.range(one.first_of_name()..)
            .map(|(key, _)| key)
            .take_while(|other| other.workload == one.workload)
            .find(|other| other.is_same(one))
    })
}

/// Gives remembered workloads whose mark is not known that of the first one of their name.
pub(super) fn recognize(remembered: &mut BTreeSet<Instance>, present: &BTreeSet<Instance>) {
    let has_unknown = remembered.iter().any(|one| one.mark == Mark::Unknown);
    if !has_unknown {
        return;
    }

    for instance in present {
        if remembered.remove(&instance.first_of_name()) {
            remembered.insert(instance.clone());
        }
    }
}

/// Workloads with a flag each, as far as there is room.
pub(super) fn instances_to_json<'a>(
    instances: impl Iterator<Item = (&'a Instance, &'a bool)>,
) -> ListedInstances {
    let mut listed = Map::new();
    let mut bytes = 0;
    let mut is_partial = false;

    for (instance, flag) in instances {
        let text = instance.to_string();
        bytes += text.len();
        if bytes > MAX_LISTED_BYTES {
            is_partial = true;
            break;
        }
        listed.insert(text, Value::Bool(*flag));
    }

    ListedInstances {
        json: Value::Object(listed),
        is_partial,
    }
}

/// Reads a list of workloads; `None` if it is not valid.
pub(super) fn instances_from_json(value: &Value) -> Option<BTreeMap<Instance, bool>> {
    let listed = value.as_object()?;
    if listed.len() > MAX_LISTED {
        return None;
    }
    let read = |(text, flag): (&String, &Value)| Some((Instance::parse(text)?, flag.as_bool()?));
    listed.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str, mark: Mark) -> Instance {
        Instance {
            workload: NamespacedName::new("shop", name),
            mark,
        }
    }

    #[test]
    fn a_list_reads_as_it_was_written_up_to_its_limit() {
        let uid = Mark::Uid(Arc::from("6f1b"));
        let all = BTreeMap::from([
            (instance("web-1", uid.clone()), true),
            (instance("web-2", Mark::Unknown), false),
        ]);
        let listed = instances_to_json(all.iter());
        assert_eq!(
            listed.json,
            serde_json::json!({ "shop/web-1@6f1b": true, "shop/web-2": false })
        );
        assert!(!listed.is_partial);
        assert_eq!(instances_from_json(&listed.json), Some(all));

        let many: BTreeMap<Instance, bool> = (0..10_000)
            .map(|number| (instance(&format!("web-{number}"), uid.clone()), true))
            .collect();
        let listed = instances_to_json(many.iter());
        assert!(listed.is_partial);
        assert!(listed.json.to_string().len() < 2 * MAX_LISTED_BYTES);
    }

    #[test]
    fn a_workload_without_a_uid_is_the_one_of_its_name() {
        let uid = |text: &str| Mark::Uid(Arc::from(text));
        let all = BTreeSet::from([
            instance("web-1", uid("a")),
            instance("web-1", uid("b")),
            instance("web-2", Mark::Unknown),
        ]);
        let map: BTreeMap<Instance, ()> = all.iter().map(|one| (one.clone(), ())).collect();
        for (name, mark, found) in [
            ("web-1", uid("b"), Some(uid("b"))),
            ("web-1", uid("c"), None),
            ("web-1", Mark::Unknown, Some(uid("a"))),
            ("web-2", uid("c"), Some(Mark::Unknown)),
            ("web-3", uid("a"), None),
        ] {
            let one = instance(name, mark);
            let expected = found.map(|mark| instance(name, mark));
            assert_eq!(find(&all, &one), expected.as_ref(), "{one}");
            assert_eq!(find_key(&map, &one), expected.as_ref(), "{one}");
        }
    }

    #[test]
    fn a_workload_without_a_known_mark_is_the_first_of_its_name() {
        let uid = |text: &str| Mark::Uid(Arc::from(text));
        let mut remembered = BTreeSet::from([
            instance("web-1", Mark::Unknown),
            instance("web-2", uid("a")),
        ]);
        let present = BTreeSet::from([instance("web-1", uid("b")), instance("web-2", uid("c"))]);
        recognize(&mut remembered, &present);

        let expected = BTreeSet::from([instance("web-1", uid("b")), instance("web-2", uid("a"))]);
        assert_eq!(remembered, expected);
    }
}
