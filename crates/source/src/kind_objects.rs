//! The sent objects of one kind, and the events that bring the receiver up to date with a server.

use std::sync::Arc;

use crate::kubernetes::scope::{KubernetesScope, Tags};
use crate::problem::{FilePosition, Problem, ProblemKind, faults_of};
use crate::{Batch, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, StoredObject, Subject};
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::validation::validate_any;

/// The objects of one kind as they were sent.
#[derive(Debug)]
pub(super) struct KindObjects {
    kind: Kind,
    /// The name of the source in problems: `k8s://`, `xds://host:port/`.
    source: Arc<str>,
    objects: NamedTable<SentObject>,
    /// The number of the current pass over all objects.
    round: u32,
    /// The tags of this revision.
    tags: Tags,
}

#[derive(Debug)]
struct SentObject {
    last_valid: LastValid,
    /// Whether problems of it were sent.
    unhealthy: bool,
    /// The last pass in which it was seen.
    seen: u32,
}

/// The last valid version of an object.
#[derive(Debug)]
enum LastValid {
    /// The object as it was sent.
    Object(AnyObject),
    /// There never was a valid version, so no object was sent.
    Nothing(NamespacedName),
}

impl HasName for SentObject {
    fn name(&self) -> &NamespacedName {
        match &self.last_valid {
            LastValid::Object(object) => &object.meta().key,
            LastValid::Nothing(name) => name,
        }
    }
}

impl KindObjects {
    /// No objects yet.
    pub(super) fn new(kind: Kind, source: Arc<str>) -> Self {
        Self {
            kind,
            source,
            objects: NamedTable::default(),
            round: 0,
            tags: Tags::default(),
        }
    }

    /// Number of objects in force.
    pub(super) fn len(&self) -> usize {
        self.objects
            .iter()
            .filter(|entry| matches!(entry.last_valid, LastValid::Object(_)))
            .count()
    }

    /// Sets the tags of this revision. Objects that were sent before are not filtered again.
    pub(super) fn set_tags(&mut self, tags: Tags) {
        self.tags = tags;
    }

    /// Begins a pass over all objects, until [`KindObjects::end_round`].
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Ends a pass over all objects: objects that were not seen in it are deleted.
    pub(super) fn end_round(&mut self, batch: &mut Batch) {
        let unseen = self
            .objects
            .iter()
            .filter(|entry| entry.seen != self.round)
            .map(|entry| entry.name().clone());
        let mut unseen: Vec<_> = unseen.collect();
        unseen.sort();
        for name in unseen {
            self.remove(&name, batch);
        }
    }

    /// Adds or updates an object.
    pub(super) fn put(&mut self, stored: StoredObject, scope: &KubernetesScope, batch: &mut Batch) {
        match stored.outcome {
            Outcome::Read {
                object,
                unknown_fields,
            } if scope.is_ours(self.kind, object.meta(), &self.tags) => {
                let verdict = validate_any(&object);
                let is_valid = verdict.is_valid();
                let faults = faults_of(unknown_fields, verdict);
                if is_valid {
                    self.put_object(object, faults, batch);
                } else {
                    self.put_broken(&subject(self.kind, &object.meta().key()), faults, batch);
                }
            }
            // An object of another revision counts as deleted.
            Outcome::Read { object, .. } => self.remove(&object.meta().key(), batch),
            Outcome::Rejected(error) => {
                self.put_broken(&stored.subject, vec![ProblemKind::Rejected(error)], batch)
            }
            // A kind without subscription.
            Outcome::Ignored => {}
        }
    }

    /// Adds or updates a valid object; `faults` are its unknown fields and warnings.
    fn put_object(&mut self, object: AnyObject, faults: Vec<ProblemKind>, batch: &mut Batch) {
        let unhealthy = !faults.is_empty();
        let known = self.objects.get_mut(&object.meta().key);
        if unhealthy || known.as_ref().is_some_and(|entry| entry.unhealthy) {
            batch.push(problems(
                &self.source,
                &subject(self.kind, &object.meta().key),
                faults,
            ));
        }

        let Some(entry) = known else {
            batch.push(SourceEvent::Added(object.clone()));
            self.objects.put(SentObject {
                last_valid: LastValid::Object(object),
                unhealthy,
                seen: self.round,
            });
            return;
        };

        entry.seen = self.round;
        entry.unhealthy = unhealthy;

        match &entry.last_valid {
            LastValid::Nothing(_) => batch.push(SourceEvent::Added(object.clone())),
            // The sent object stays: replacing it by an equal one would hold everything twice after
            // a relist.
            LastValid::Object(before) if before.same_output(&object) => {
                return;
            }
            LastValid::Object(_) => batch.push(SourceEvent::Updated(object.clone())),
        }

        entry.last_valid = LastValid::Object(object);
    }

    /// An object is unreadable or invalid: its last valid version stays in force.
    fn put_broken(&mut self, subject: &Subject, faults: Vec<ProblemKind>, batch: &mut Batch) {
        let name = NamespacedName::new(&subject.namespace, &subject.name);
        match self.objects.get_mut(&name) {
            Some(entry) => (entry.seen, entry.unhealthy) = (self.round, true),
            None => {
                _ = self.objects.put(SentObject {
                    last_valid: LastValid::Nothing(name),
                    unhealthy: true,
                    seen: self.round,
                })
            }
        }
        batch.push(problems(&self.source, subject, faults));
    }

    pub(super) fn remove(&mut self, name: &NamespacedName, batch: &mut Batch) {
        let Some((_, entry)) = self.objects.remove(name) else {
            return;
        };
        if matches!(entry.last_valid, LastValid::Object(_)) {
            batch.push(SourceEvent::Deleted(ObjectRef {
                kind: self.kind,
                name: name.clone(),
            }));
        }
        if entry.unhealthy {
            batch.push(problems(
                &self.source,
                &subject(self.kind, name),
                Vec::new(),
            ));
        }
    }
}

/// The subject of an object's problems.
fn subject(kind: Kind, name: &NamespacedName) -> Subject {
    Subject {
        api_version: kind.group().to_owned(),
        kind: kind.as_str().to_owned(),
        namespace: name.namespace.to_string(),
        name: name.name.to_string(),
    }
}

/// The place of an object's problems: `k8s://VirtualService/shop/reviews`.
fn place(source: &str, subject: &Subject) -> Arc<str> {
    let parts = [&subject.kind, &subject.namespace, &subject.name];
    let parts: Vec<&str> = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(String::as_str)
        .collect();
    Arc::from(format!("{source}{}", parts.join("/")))
}

/// All problems of an object.
fn problems(source: &str, subject: &Subject, faults: Vec<ProblemKind>) -> SourceEvent {
    let file = place(source, subject);
    let problem = |fault| Problem {
        place: FilePosition {
            file: file.clone(),
            line: 0,
        },
        subject: subject.clone(),
        fault,
    };
    SourceEvent::Problems {
        place: file.clone(),
        problems: faults.into_iter().map(problem).collect(),
    }
}

/// The problem of a kind as a whole; `None` clears it.
pub(super) fn kind_problem(source: &str, kind: Kind, reason: Option<String>) -> SourceEvent {
    let subject = Subject {
        api_version: kind.group().to_owned(),
        kind: kind.as_str().to_owned(),
        ..Subject::default()
    };
    problems(
        source,
        &subject,
        reason.map(ProblemKind::Unreadable).into_iter().collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use navarch_api::decode::decode_stored;

    /// A VirtualService as an API server sends it.
    fn stored(name: &str, spec: Value, version: &str) -> StoredObject {
        decode_stored(&json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": { "name": name, "namespace": "shop", "resourceVersion": version }, "spec": spec,
        }))
    }

    /// The events in brief.
    fn brief(batch: Batch) -> Vec<String> {
        let one = |event| match event {
            SourceEvent::Added(object) => format!("+{}", object.meta().key()),
            SourceEvent::Updated(object) => format!("~{}", object.meta().key()),
            SourceEvent::Deleted(name) => format!("-{}", name.name),
            SourceEvent::Problems { place, problems } => format!("{place}: {}", problems.len()),
            SourceEvent::FullSync
            | SourceEvent::MeshConfig(_)
            | SourceEvent::MeshNetworks(_)
            | SourceEvent::Keys(..) => String::new(),
        };
        batch.into_iter().map(one).collect()
    }

    #[test]
    fn a_relist_reports_only_differences() {
        let mut held = KindObjects::new(Kind::VirtualService, "k8s://".into());
        let scope = KubernetesScope::default();
        let mut round = |objects: Vec<StoredObject>| {
            let mut batch = Batch::new();
            held.begin_round();
            objects
                .into_iter()
                .for_each(|object| held.put(object, &scope, &mut batch));
            held.end_round(&mut batch);
            brief(batch)
        };

        let hosts = |host: &str| json!({ "hosts": [host], "http": [{ "route": [{ "destination": { "host": host } }] }] });
        assert_eq!(
            round(vec![
                stored("a", hosts("a"), "1"),
                stored("b", hosts("b"), "2")
            ]),
            ["+shop/a", "+shop/b"]
        );

        assert_eq!(
            round(vec![
                stored("b", hosts("b"), "3"),
                stored("a", hosts("x"), "4")
            ]),
            ["~shop/a"]
        );

        let place = "k8s://VirtualService/shop/a";
        assert_eq!(
            round(vec![stored("a", json!("broken"), "5")]),
            [format!("{place}: 1"), "-shop/b".to_owned()]
        );
        assert_eq!(
            round(vec![stored("a", hosts("x"), "6")]),
            [format!("{place}: 0")]
        );

        assert_eq!(round(vec![]), ["-shop/a"]);
    }
}
