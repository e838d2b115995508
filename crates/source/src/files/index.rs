//! Which file defines which object, which definition is in force, and what changed.
//!
//! If an object is defined more than once, the first definition is in force, by path and then by
//! position in the file, until it is removed. So the objects in force depend on the files alone,
//! never on the order in which they were read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::slots::{Contents, Slot};
use crate::problem::{FilePosition, Problem, ProblemKind};
use crate::{Batch, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::Subject;
use navarch_api::object::ObjectRef;

/// The hash of a file's bytes.
pub(super) type Hash = [u8; 32];

/// One definition of an object. The smallest is in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    file: Arc<str>,
    /// The index of the object in the file, from 0.
    position: usize,
}

#[derive(Debug, Default)]
struct File {
    contents: Contents,
    /// The hash of its bytes; `None` if it could not be read.
    hash: Option<Hash>,
    /// Whether the file is missing at the moment, and perhaps for good.
    vanishing: bool,
}

/// All files of a source, and the state that was sent.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The files by path.
    files: BTreeMap<Arc<str>, File>,
    /// All definitions of each object.
    claims: BTreeMap<ObjectRef, BTreeSet<Claim>>,
    /// The objects as they were sent.
    published: BTreeMap<ObjectRef, AnyObject>,
    /// The problems as they were sent, by place.
    reported_problems: BTreeMap<Arc<str>, Vec<Problem>>,
    /// Problems of places that are not files, by place.
    other_problems: BTreeMap<Arc<str>, Vec<Problem>>,
    /// Objects whose definitions changed since the last `take_changes`.
    touched: BTreeSet<ObjectRef>,
    /// Places whose problems may have changed since the last `take_changes`.
    touched_places: BTreeSet<Arc<str>>,
}

impl Index {
    /// The contents of a file when it was last read; empty if it was not read.
    pub(super) fn contents(&self, file: &str) -> Contents {
        self.files
            .get(file)
            .map(|file| file.contents.clone())
            .unwrap_or_default()
    }

    /// The hash of a file when it was last read.
    pub(super) fn hash(&self, file: &str) -> Option<Hash> {
        self.files.get(file).and_then(|file| file.hash)
    }

    /// Whether the file was read before.
    pub(super) fn contains(&self, file: &str) -> bool {
        self.files.contains_key(file)
    }

    /// Records that a file is missing at the moment, or is back unchanged. While one of two
    /// definitions may be about to be removed, the duplicate is not reported.
    pub(super) fn set_missing(&mut self, file: &str, vanishing: bool) {
        if let Some(file) = self.files.get_mut(file) {
            file.vanishing = vanishing;
        }
    }

    /// Replaces the contents of a file.
    pub(super) fn put(&mut self, file: &Arc<str>, contents: Contents, hash: Option<Hash>) {
        self.withdraw(file);

        for slot in &contents.slots {
            let claim = Claim {
                file: file.clone(),
                position: slot.position,
            };
            self.claims
                .entry(slot.reference.clone())
                .or_default()
                .insert(claim);
            self.touched.insert(slot.reference.clone());
        }

        self.files.insert(
            file.clone(),
            File {
                contents,
                hash,
                vanishing: false,
            },
        );
    }

    /// Removes a file and its objects.
    pub(super) fn remove(&mut self, file: &Arc<str>) {
        self.withdraw(file);
        self.files.remove(file);
    }

    /// Sets the problems of a place that is not a file.
    pub(super) fn set_problem(&mut self, place: &Arc<str>, reason: Option<String>) {
        self.touched_places.insert(place.clone());

        match reason {
            Some(reason) => {
                let place = FilePosition {
                    file: place.clone(),
                    line: 0,
                };
                let problem = Problem {
                    place: place.clone(),
                    subject: Subject::default(),
                    fault: ProblemKind::Unreadable(reason),
                };
                self.other_problems.insert(place.file, vec![problem]);
            }
            None => {
                self.other_problems.remove(place);
            }
        }
    }

    /// The events for all changes since the last call.
    pub(super) fn take_changes(&mut self) -> Batch {
        let mut batch = Batch::new();
        for reference in std::mem::take(&mut self.touched) {
            let claims = self.claims.get(&reference);
            let files = claims.into_iter().flatten().map(|claim| claim.file.clone());
            self.touched_places.extend(files);
            let object = claims
                .and_then(BTreeSet::first)
                .and_then(|claim| self.object(claim))
                .cloned();
            batch.extend(self.publish(reference, object));
        }

        for place in std::mem::take(&mut self.touched_places) {
            let problems = self.problems(&place);
            let reported = self
                .reported_problems
                .get(&place)
                .map_or(&[][..], Vec::as_slice);
            if problems == reported {
                continue;
            }

            if problems.is_empty() {
                self.reported_problems.remove(&place);
            } else {
                self.reported_problems
                    .insert(place.clone(), problems.clone());
            }

            batch.push(SourceEvent::Problems { place, problems });
        }

        batch
    }

    /// Removes the definitions of a file.
    fn withdraw(&mut self, file: &Arc<str>) {
        self.touched_places.insert(file.clone());
        let Some(old) = self.files.get_mut(file) else {
            return;
        };

        for slot in std::mem::take(&mut old.contents).slots {
            if let Some(claims) = self.claims.get_mut(&slot.reference) {
                claims.remove(&Claim {
                    file: file.clone(),
                    position: slot.position,
                });
                // The remaining definitions may be in force now, so the problems of their files may
                // have changed.
                self.touched_places
                    .extend(claims.iter().map(|claim| claim.file.clone()));
                if claims.is_empty() {
                    self.claims.remove(&slot.reference);
                }
            }

            self.touched.insert(slot.reference);
        }
    }

    /// The event for the difference between the sent and the current object, if any.
    fn publish(&mut self, reference: ObjectRef, holds: Option<AnyObject>) -> Option<SourceEvent> {
        match (self.published.get(&reference), holds) {
            (None, None) => None,
            (None, Some(object)) => {
                self.published.insert(reference, object.clone());
                Some(SourceEvent::Added(object))
            }
            (Some(published), Some(object)) if published.same_output(&object) => None,
            (Some(_), Some(object)) => {
                self.published.insert(reference, object.clone());
                Some(SourceEvent::Updated(object))
            }
            (Some(_), None) => {
                self.published.remove(&reference);
                Some(SourceEvent::Deleted(reference))
            }
        }
    }

    /// The object of a definition.
    fn object(&self, claim: &Claim) -> Option<&AnyObject> {
        self.files
            .get(&claim.file)?
            .contents
            .at(claim.position)
            .map(|slot| &slot.object)
    }

    fn problems(&self, place: &Arc<str>) -> Vec<Problem> {
        let mut problems = self.other_problems.get(place).cloned().unwrap_or_default();
        let Some(file) = self.files.get(place) else {
            return problems;
        };

        // The scan and the read may have found the same problem.
        problems.extend(
            file.contents
                .problems
                .iter()
                .filter(|problem| !problems.contains(problem))
                .cloned()
                .collect::<Vec<_>>(),
        );

        if !file.vanishing {
            problems.extend(self.duplicates(place, &file.contents));
        }

        problems.sort_by_key(|problem| problem.place.line);
        problems
    }

    /// The objects of a file for which another definition is in force.
    fn duplicates(&self, place: &Arc<str>, contents: &Contents) -> Vec<Problem> {
        let duplicate = |slot: &Slot| {
            let holder = self.claims.get(&slot.reference)?.first()?;
            let file = self
                .files
                .get(&holder.file)
                .filter(|file| !file.vanishing)?;
            if holder.file == *place && holder.position == slot.position {
                return None;
            }

            let line = file.contents.at(holder.position)?.line;
            let kind = slot.reference.kind;
            let subject = Subject {
                api_version: String::new(),
                kind: kind.as_str().to_owned(),
                namespace: slot.reference.name.namespace.as_str().to_owned(),
                name: slot.reference.name.name.to_string(),
            };

            Some(Problem {
                place: FilePosition {
                    file: place.clone(),
                    line: slot.line,
                },
                subject,
                fault: ProblemKind::Duplicate {
                    holder: FilePosition {
                        file: holder.file.clone(),
                        line,
                    },
                },
            })
        };

        contents.slots.iter().filter_map(duplicate).collect()
    }
}

#[cfg(test)]
mod tests;
