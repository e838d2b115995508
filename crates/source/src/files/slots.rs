//! The contents of a file: its objects in order, those that are broken now in their last valid
//! version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::problem::{FilePosition, Problem, ProblemKind, faults_of};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Decoded, Outcome, Subject};
use navarch_api::object::ObjectRef;
use navarch_api::validation::validate_any;

/// One object of a file.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The index of the object in the file, from 0; unreadable objects count.
    pub(super) position: usize,
    pub(super) line: usize,
    /// Its kind and name.
    pub(super) reference: ObjectRef,
    /// Its last valid version.
    pub(super) object: AnyObject,
}

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    /// Its objects, in their order.
    pub(super) slots: Vec<Slot>,
    /// The problems of the file itself.
    pub(super) problems: Vec<Problem>,
}

/// The contents that a file had before.
struct PreviousContents<'a> {
    contents: &'a Contents,
    /// The first slot of each object.
    by_reference: BTreeMap<&'a ObjectRef, &'a Slot>,
}

impl<'a> PreviousContents<'a> {
    fn new(contents: &'a Contents) -> Self {
        let slots = contents.slots.iter().rev();
        Self {
            contents,
            by_reference: slots.map(|slot| (&slot.reference, slot)).collect(),
        }
    }
}

impl Contents {
    /// The contents of a file that had the contents `before`.
    pub(super) fn read(file: &Arc<str>, decoded: Vec<Decoded>, before: &Self) -> Self {
        let before = PreviousContents::new(before);

        let named: BTreeSet<ObjectRef> = decoded
            .iter()
            .filter_map(|decoded| decoded.subject.object_ref())
            .collect();
        let mut contents = Self::default();

        for (
            position,
            Decoded {
                line,
                subject,
                outcome,
            },
        ) in decoded.into_iter().enumerate()
        {
            match outcome {
                Outcome::Read {
                    object,
                    unknown_fields,
                } => {
                    let verdict = validate_any(&object);
                    if verdict.is_valid() {
                        contents.slots.push(Slot {
                            position,
                            line,
                            reference: object.object_ref(),
                            object,
                        });
                    } else {
                        contents.keep_last_good(&before, position, line, &subject, &named);
                    }

                    for fault in faults_of(unknown_fields, verdict) {
                        contents.note(file, line, &subject, fault);
                    }
                }
                Outcome::Ignored => contents.note(file, line, &subject, ProblemKind::UnknownKind),
                Outcome::Rejected(error) => {
                    contents.keep_last_good(&before, position, line, &subject, &named);
                    contents.note(file, line, &subject, ProblemKind::Rejected(error));
                }
            }
        }

        contents
    }

    /// Keeps the last valid version of a rejected object, at the object's position and line;
    /// `named` are the objects that the file names now.
    ///
    /// A broken object without a name is assumed to be the previous object at its position, unless
    /// the file now has that one elsewhere.
    fn keep_last_good(
        &mut self,
        before: &PreviousContents<'_>,
        position: usize,
        line: usize,
        subject: &Subject,
        named: &BTreeSet<ObjectRef>,
    ) {
        let last_good = match subject.object_ref() {
            Some(reference) => before.by_reference.get(&reference).copied(),
            None => before
                .contents
                .at(position)
                .filter(|slot| !named.contains(&slot.reference)),
        };
        self.slots.extend(last_good.map(|slot| Slot {
            position,
            line,
            ..slot.clone()
        }));
    }

    /// The contents of an unreadable file: its previous objects.
    pub(super) fn unreadable(file: &Arc<str>, reason: String, before: &Self) -> Self {
        let mut contents = Self {
            slots: before.slots.clone(),
            problems: Vec::new(),
        };
        contents.note(
            file,
            0,
            &Subject::default(),
            ProblemKind::Unreadable(reason),
        );
        contents
    }

    /// The object at a position.
    pub(super) fn at(&self, position: usize) -> Option<&Slot> {
        let found = self
            .slots
            .binary_search_by_key(&position, |slot| slot.position)
            .ok()?;
        self.slots.get(found)
    }

    /// Whether an object of `before` is missing now.
    pub(super) fn has_deletions_since(&self, before: &Self) -> bool {
        let held: BTreeSet<_> = self.slots.iter().map(|slot| &slot.reference).collect();
        before
            .slots
            .iter()
            .any(|slot| !held.contains(&slot.reference))
    }

    /// Records a problem.
    fn note(&mut self, file: &Arc<str>, line: usize, subject: &Subject, fault: ProblemKind) {
        let place = FilePosition {
            file: file.clone(),
            line,
        };
        self.problems.push(Problem {
            place,
            subject: subject.clone(),
            fault,
        });
    }
}
