//! The objects of the simulated API server, with all their versions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::resources::Resource;

/// Namespace and name; the namespace is empty for cluster-scoped objects.
pub(crate) type Name = (String, String);

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) resource: Resource,
    pub(crate) name: Name,
    /// The object before; `None` if it is new.
    pub(crate) before: Option<Value>,
    /// The object after; `None` if it was deleted.
    pub(crate) after: Option<Value>,
}

/// Why a write was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    NotFound,
    Exists,
    Conflict,
}

/// What a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status of objects that have a status subresource.
    Main,
    /// The status alone.
    Status,
}

/// All objects, and their history.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    version: u64,
    current: BTreeMap<Resource, BTreeMap<Name, Value>>,
    history: Vec<Change>,
    /// Watches of versions before this one are rejected: the history is compacted.
    oldest: u64,
    /// Number of objects ever created, for UIDs.
    created: u64,
}

impl Objects {
    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The oldest version that a watch may start from.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Forgets the history up to the newest version.
    pub(crate) fn compact(&mut self) {
        self.oldest = self.version;
    }

    /// Frees the history, and the Events, which a real server deletes after an hour.
    pub(crate) fn free_history(&mut self) {
        self.compact();
        self.history = Vec::new();
        self.current
            .retain(|resource, _| resource.plural != "events");
    }

    /// The objects all of whose owners are gone, or whose namespace is.
    pub(crate) fn orphans(&self) -> Vec<(Resource, Name)> {
        let uid = |object: &Value| object.get("uid").and_then(Value::as_str).map(str::to_owned);
        let owners = |object: &Value| metadata(object, "ownerReferences").as_array().cloned();
        let all: BTreeSet<String> = self
            .all()
            .filter_map(|(.., object)| uid(object.get("metadata")?))
            .collect();
        let is_gone = |owner: &Value| uid(owner).is_none_or(|uid| !all.contains(&uid));
        let has_no_owner =
            |object: &Value| owners(object).is_some_and(|owners| owners.iter().all(is_gone));

        let namespaces: BTreeSet<&String> = self
            .all()
            .filter(|(resource, ..)| resource.plural == "namespaces")
            .map(|(_, (_, name), _)| name)
            .collect();
        let is_outside =
            |(namespace, _): &Name| !namespace.is_empty() && !namespaces.contains(namespace);
        self.all()
            .filter(|(_, name, object)| has_no_owner(object) || is_outside(name))
            .map(|(resource, name, _)| (resource.clone(), name.clone()))
            .collect()
    }

    /// The object with this name.
    pub(crate) fn get(&self, resource: &Resource, name: &Name) -> Option<&Value> {
        self.current.get(resource)?.get(name)
    }

    /// The objects of a resource.
    pub(crate) fn of(&self, resource: &Resource) -> impl Iterator<Item = (&Name, &Value)> {
        self.current.get(resource).into_iter().flatten()
    }

    /// All resources with objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Resource, &Name, &Value)> {
        self.current.iter().flat_map(|(resource, objects)| {
            objects
                .iter()
                .map(move |(name, object)| (resource, name, object))
        })
    }

    /// The objects of a resource as they were at a version.
    pub(crate) fn at(&self, resource: &Resource, version: u64) -> BTreeMap<Name, Value> {
        let mut objects = self.current.get(resource).cloned().unwrap_or_default();
        for change in self.history.iter().rev() {
            if change.version <= version {
                break;
            }
            if change.resource != *resource {
                continue;
            }
            match &change.before {
                Some(before) => _ = objects.insert(change.name.clone(), before.clone()),
                None => _ = objects.remove(&change.name),
            }
        }
        objects
    }

    /// The changes of a resource after a version.
    pub(crate) fn since(&self, resource: &Resource, version: u64) -> Vec<Change> {
        let first = self
            .history
            .partition_point(|change| change.version <= version);
        let later = self.history.get(first..).unwrap_or_default();
        later
            .iter()
            .filter(|change| change.resource == *resource)
            .cloned()
            .collect()
    }

    /// Creates an object.
    pub(crate) fn create(
        &mut self,
        resource: &Resource,
        name: &Name,
        mut object: Value,
        now: &str,
    ) -> Result<Change, WriteError> {
        if self.get(resource, name).is_some() {
            return Err(WriteError::Exists);
        }

        self.created += 1;
        let uid = format!("00000000-0000-4000-8000-{:012}", self.created);
        set(&mut object, "uid", json!(uid));
        set(&mut object, "creationTimestamp", json!(now));
        set(&mut object, "generation", json!(1));
        Ok(self.commit(resource, name, Some(object)))
    }

    /// Replaces an object, or only its status. Returns no change if it is equal.
    pub(crate) fn replace(
        &mut self,
        resource: &Resource,
        name: &Name,
        part: Part,
        mut object: Value,
    ) -> Result<Option<Change>, WriteError> {
        let before = self.get(resource, name).ok_or(WriteError::NotFound)?;
        let expected = metadata(&object, "resourceVersion").as_str();
        if expected.is_some_and(|expected| {
            !expected.is_empty() && Some(expected) != metadata(before, "resourceVersion").as_str()
        }) {
            return Err(WriteError::Conflict);
        }

        let mut after = before.clone();
        match part {
            Part::Status => {
                if let Some(after) = after.as_object_mut() {
                    let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
                    after.insert("status".to_owned(), status);
                }
            }
            Part::Main => {
                for member in ["uid", "creationTimestamp", "generation", "resourceVersion"] {
                    set(&mut object, member, metadata(before, member).clone());
                }
                if let (Some(status), Some(object)) = (before.get("status"), object.as_object_mut())
                    && has_status_subresource(resource)
                {
                    object.insert("status".to_owned(), status.clone());
                }
                after = object;
            }
        }

        if after == *before {
            return Ok(None);
        }
        if part == Part::Main && content(&after) != content(before) {
            let generation = metadata(before, "generation").as_i64().unwrap_or_default();
            set(&mut after, "generation", json!(generation + 1));
        }
        Ok(Some(self.commit(resource, name, Some(after))))
    }

    /// Deletes an object.
    pub(crate) fn delete(
        &mut self,
        resource: &Resource,
        name: &Name,
    ) -> Result<Change, WriteError> {
        if self.get(resource, name).is_none() {
            return Err(WriteError::NotFound);
        }
        Ok(self.commit(resource, name, None))
    }

    /// Stores an object under the next version.
    fn commit(&mut self, resource: &Resource, name: &Name, after: Option<Value>) -> Change {
        self.version += 1;
        let objects = self.current.entry(resource.clone()).or_default();
        let after = after.map(|mut after| {
            set(
                &mut after,
                "resourceVersion",
                json!(self.version.to_string()),
            );
            after
        });
        let before = match &after {
            Some(after) => objects.insert(name.clone(), after.clone()),
            None => objects.remove(name),
        };

        let change = Change {
            version: self.version,
            resource: resource.clone(),
            name: name.clone(),
            before,
            after,
        };
        self.history.push(change.clone());
        change
    }
}

/// Whether only the subresource changes the status.
fn has_status_subresource(resource: &Resource) -> bool {
    !matches!(
        resource.plural.as_str(),
        "configmaps" | "secrets" | "leases" | "events" | "endpointslices"
    )
}

/// A member of an object's metadata.
pub(crate) fn metadata<'a>(object: &'a Value, member: &str) -> &'a Value {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(member))
        .unwrap_or(&Value::Null)
}

/// Sets a member of an object's metadata.
pub(crate) fn set(object: &mut Value, member: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(member.to_owned(), value);
        }
    }
}

/// What the generation counts: everything but metadata and status.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(content) = content.as_object_mut() {
        content.remove("metadata");
        content.remove("status");
    }
    content
}
