//! What is wrong with what users wrote, and where.

use std::fmt;
use std::sync::Arc;

use crate::api::decode::Subject;
use crate::api::field_error::FieldError;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1; 0 where no line is meant.
    pub line: usize,
}

/// One thing that is wrong. It stops nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// The object that it is about, as far as it can be told.
    pub subject: Subject,
    /// What it is.
    pub fault: Fault,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The object cannot be accepted. What stood there before stays in force.
    Rejected(FieldError),
    /// The object has a field that its kind does not know; it counts for nothing.
    UnknownField(String),
    /// The kind is none that is read here; the object counts for nothing.
    UnknownKind,
    /// The object is defined elsewhere already, and that definition holds until it goes.
    Duplicate {
        /// Where.
        holder: Place,
    },
    /// The place cannot be read at all. What stood there before stays in force.
    Unreadable(String),
    /// Something there is probably not meant, though it is valid.
    Warning(FieldError),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

impl fmt::Display for Problem {
    /// `mesh/a.yaml:7: VirtualService shop/reviews: spec.hosts: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if self.subject != Subject::default() {
            write!(f, "{}: ", self.subject)?;
        }
        self.fault.fmt(f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) | Self::Warning(error) => error.fmt(f),
            Self::UnknownField(path) => write!(f, "unknown field \"{path}\""),
            Self::UnknownKind => f.write_str("kind is not read here"),
            Self::Duplicate { holder } => write!(f, "is defined in {holder} already, which holds"),
            Self::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
        }
    }
}
