//! Problems of what users wrote, and their places.

use std::fmt;
use std::sync::Arc;

use navarch_api::decode::Subject;
use navarch_api::field_error::FieldError;
use navarch_api::validation::Verdict;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    /// Its path. Other sources name themselves, as `xds://host:port`.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the problem is not in a certain line.
    pub line: usize,
}

/// One problem. It does not stop anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: FilePosition,
    /// The object with the problem, as far as it could be read.
    pub subject: Subject,
    /// The kind of problem.
    pub fault: ProblemKind,
}

/// Kinds of problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The object is rejected. Its previous version stays in force.
    Rejected(FieldError),
    /// The object has a field that its kind does not define; the field is ignored.
    UnknownField(String),
    /// The kind is not read; the object is ignored.
    UnknownKind,
    /// The object is already defined elsewhere, and that definition is in force until it is
    /// removed.
    Duplicate {
        /// The place of that definition.
        holder: FilePosition,
    },
    /// The place cannot be read at all. Its previous content stays in force.
    Unreadable(String),
    /// A value is probably not intended, though it is valid.
    Warning(FieldError),
}

/// Maximum number of reported faults of one sort per object.
const MAX_FAULTS_PER_SORT: usize = 10;

/// The faults of an object: unknown fields, then errors, then warnings. Reports a few of each sort,
/// and the number of the others.
pub(super) fn faults_of(unknown_fields: Vec<String>, verdict: Verdict) -> Vec<ProblemKind> {
    let mut faults = Vec::new();
    let warn = |more: String| ProblemKind::Warning(FieldError::new("", more));
    let reject = |more: String| ProblemKind::Rejected(FieldError::new("", more));
    add(
        &mut faults,
        unknown_fields.into_iter().map(ProblemKind::UnknownField),
        "unknown fields",
        warn,
    );

    add(
        &mut faults,
        verdict
            .errors
            .into_iter()
            .map(|error| ProblemKind::Rejected(error.into())),
        "errors",
        reject,
    );

    add(
        &mut faults,
        verdict
            .warnings
            .into_iter()
            .map(|warning| ProblemKind::Warning(warning.into())),
        "warnings",
        warn,
    );

    faults
}

/// Adds a few of the `new` faults, and the number of the others.
fn add(
    faults: &mut Vec<ProblemKind>,
    mut new: impl ExactSizeIterator<Item = ProblemKind>,
    what: &str,
    more: impl Fn(String) -> ProblemKind,
) {
    faults.extend(new.by_ref().take(MAX_FAULTS_PER_SORT));
    if new.len() > 0 {
        faults.push(more(format!("and {} more {what}", new.len())));
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Problem {
    /// `mesh/a.yaml:7: VirtualService shop/reviews: spec.hosts: …`. An object of the Kubernetes API
    /// is named by its place alone: `k8s://VirtualService/shop/reviews: spec.hosts: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        let object = match self.place.file.split_once("://") {
            Some(("k8s", object)) => Some(object),
            Some(("xds", place)) => place.split_once('/').map(|(_, object)| object),
            Some(_) | None => None,
        };
        let object = object.map(|object| object.replacen('/', " ", 1));
        if self.subject != Subject::default()
            && object.is_none_or(|object| object != self.subject.to_string())
        {
            write!(f, "{}: ", self.subject)?;
        }
        self.fault.fmt(f)
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) | Self::Warning(error) => error.fmt(f),
            Self::UnknownField(path) => write!(f, "unknown field \"{path}\""),
            Self::UnknownKind => f.write_str("unsupported kind"),
            Self::Duplicate { holder } => {
                write!(f, "is already defined in {holder}, which takes precedence")
            }
            Self::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
        }
    }
}
