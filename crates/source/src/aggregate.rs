//! Merges several sources. If two have an object of the same name, the first source in order wins,
//! and the other object is reported as a duplicate until the first one is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt, StreamMap};

use super::problem::{FilePosition, Problem, ProblemKind};
use super::{Batch, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::Subject;
use navarch_api::object::ObjectRef;

/// Several sources, in order of precedence.
#[derive(Debug)]
pub struct Aggregate {
    /// The name of each in problems, such as `k8s://`, and its batches.
    sources: Vec<(Arc<str>, mpsc::Receiver<Batch>)>,
}

impl Aggregate {
    /// From the names and batches of sources.
    #[must_use]
    pub fn new(sources: Vec<(Arc<str>, mpsc::Receiver<Batch>)>) -> Self {
        Self { sources }
    }

    /// Forwards events until all sources have ended or the receiver is closed. Reports a full sync
    /// once all sources are in sync.
    pub async fn run(self, events: mpsc::Sender<Batch>) {
        let mut state = Merged {
            names: Vec::new(),
            holders: BTreeMap::new(),
            unsynced: self.sources.len(),
        };
        let mut batches = StreamMap::new();

        for (index, (name, source)) in self.sources.into_iter().enumerate() {
            state.names.push(name);
            batches.insert(index, ReceiverStream::new(source));
        }

        while let Some((source, batch)) = batches.next().await {
            let mut merged = Batch::new();
            batch
                .into_iter()
                .for_each(|event| state.apply(source, event, &mut merged));
            if !merged.is_empty() && events.send(merged).await.is_err() {
                return;
            }
        }
    }
}

/// The objects of all sources.
struct Merged {
    /// The names of the sources.
    names: Vec<Arc<str>>,
    /// The sources of each object, by name; the first one wins.
    holders: BTreeMap<ObjectRef, BTreeMap<usize, AnyObject>>,
    /// Number of sources that are not in sync.
    unsynced: usize,
}

impl Merged {
    fn apply(&mut self, source: usize, event: SourceEvent, batch: &mut Batch) {
        match event {
            SourceEvent::Added(object) | SourceEvent::Updated(object) => {
                self.put(source, object, batch)
            }
            SourceEvent::Deleted(name) => self.remove(source, &name, batch),
            SourceEvent::FullSync => {
                self.unsynced = self.unsynced.saturating_sub(1);
                if self.unsynced == 0 {
                    batch.push(SourceEvent::FullSync);
                }
            }
            other @ (SourceEvent::MeshConfig(_)
            | SourceEvent::MeshNetworks(_)
            | SourceEvent::Keys(..)
            | SourceEvent::Problems { .. }) => {
                batch.push(other);
            }
        }
    }

    /// Adds or replaces an object of a source.
    fn put(&mut self, source: usize, object: AnyObject, batch: &mut Batch) {
        let name = object.object_ref();
        let holders = self.holders.entry(name.clone()).or_default();
        let before = holders.first_key_value().map(|(_, object)| object.clone());
        let known = holders.insert(source, object).is_some();
        let now = holders.first_key_value().map(|(_, object)| object.clone());
        if !known && holders.len() > 1 {
            self.send_duplicates(&name, batch);
        }
        send_change(&name, before, now, batch);
    }

    fn remove(&mut self, source: usize, name: &ObjectRef, batch: &mut Batch) {
        let Some(holders) = self.holders.get_mut(name) else {
            return;
        };
        let before = holders.first_key_value().map(|(_, object)| object.clone());
        let was_duplicate = holders.len() > 1;
        holders.remove(&source);
        let now = holders.first_key_value().map(|(_, object)| object.clone());
        if holders.is_empty() {
            self.holders.remove(name);
        }
        if was_duplicate {
            self.send_duplicates(name, batch);
        }
        send_change(name, before, now, batch);
    }

    /// Sends the duplicate problems of an object for each source.
    fn send_duplicates(&self, name: &ObjectRef, batch: &mut Batch) {
        let holders = self.holders.get(name);
        let first = holders.and_then(|holders| holders.keys().next().copied());
        let holder = first.and_then(|first| self.names.get(first));

        for (index, source) in self.names.iter().enumerate() {
            let place: Arc<str> = Arc::from(format!("{source} ({name})"));
            let in_vain =
                first != Some(index) && holders.is_some_and(|holders| holders.contains_key(&index));
            let problem = holder.filter(|_| in_vain).map(|holder| Problem {
                place: FilePosition {
                    file: place.clone(),
                    line: 0,
                },
                subject: Subject {
                    api_version: name.kind.group().to_owned(),
                    kind: name.kind.to_string(),
                    namespace: name.name.namespace.to_string(),
                    name: name.name.name.to_string(),
                },
                fault: ProblemKind::Duplicate {
                    holder: FilePosition {
                        file: holder.clone(),
                        line: 0,
                    },
                },
            });

            batch.push(SourceEvent::Problems {
                place,
                problems: problem.into_iter().collect(),
            });
        }
    }
}

/// Sends the change of the winning object, if any.
fn send_change(
    name: &ObjectRef,
    before: Option<AnyObject>,
    now: Option<AnyObject>,
    batch: &mut Batch,
) {
    match (before, now) {
        (None, Some(now)) => batch.push(SourceEvent::Added(now)),
        (Some(before), Some(now)) if before.same_output(&now) => {}
        (Some(_), Some(now)) => batch.push(SourceEvent::Updated(now)),
        (Some(_), None) => batch.push(SourceEvent::Deleted(name.clone())),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::namespace;
    use navarch_api::decode::{Outcome, decode_value};

    /// A namespace with a label.
    fn object(label: &str) -> AnyObject {
        let Outcome::Read { object, .. } = decode_value(&namespace("shop", label)).1 else {
            panic!("a namespace is read")
        };
        object
    }

    #[test]
    fn the_first_source_takes_precedence_until_it_removes_the_object() {
        let mut merged = Merged {
            names: vec![Arc::from("fs:///a"), Arc::from("k8s://")],
            holders: BTreeMap::new(),
            unsynced: 2,
        };

        let mut applied = |source, event| {
            let mut batch = Batch::new();
            merged.apply(source, event, &mut batch);
            let brief = |event: SourceEvent| match event {
                SourceEvent::Added(object) => format!("+{}", object.meta().labels["l"]),
                SourceEvent::Updated(object) => format!("~{}", object.meta().labels["l"]),
                SourceEvent::Deleted(_) => "-".to_owned(),
                SourceEvent::Problems { place, problems } => format!("{place}: {}", problems.len()),
                SourceEvent::FullSync => "synced".to_owned(),
                SourceEvent::MeshConfig(_)
                | SourceEvent::MeshNetworks(_)
                | SourceEvent::Keys(..) => String::new(),
            };
            batch.into_iter().map(brief).collect::<Vec<_>>().join(", ")
        };

        let name = object("k").object_ref();
        assert_eq!(applied(1, SourceEvent::Added(object("k"))), "+k");
        assert_eq!(applied(1, SourceEvent::FullSync), "");
        let duplicate = "fs:///a (Namespace shop): 0, k8s:// (Namespace shop): 1";
        assert_eq!(
            applied(0, SourceEvent::Added(object("f"))),
            format!("{duplicate}, ~f")
        );

        assert_eq!(applied(0, SourceEvent::FullSync), "synced");
        assert_eq!(applied(1, SourceEvent::Updated(object("l"))), "");
        let well = "fs:///a (Namespace shop): 0, k8s:// (Namespace shop): 0";
        assert_eq!(
            applied(0, SourceEvent::Deleted(name.clone())),
            format!("{well}, ~l")
        );
        assert_eq!(applied(1, SourceEvent::Deleted(name)), "-");
    }
}
