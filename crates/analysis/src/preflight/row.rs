//! The rows of the report about an installation.

use std::fmt;

use navarch_base::printable::escape;
use serde::Serialize;

/// How many rows of one outcome are shown as text; JSON has all.
const MAX_SHOWN: usize = 24;

/// What replacing the control plane means for something, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Something must be done before.
    DoFirst,
    /// It has no effect in Navarch.
    NoEffect,
    /// It stays as it is.
    Same,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What replacing the control plane means for it.
    pub outcome: Outcome,
    /// The object, such as `Deployment istio-system/istiod`.
    pub object: String,
    /// The field of the object, the flag or the variable; empty for the whole object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Why.
    pub reason: String,
    /// What to do; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

impl Row {
    /// A row about an object, without something to do.
    #[must_use]
    pub fn new(outcome: Outcome, object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            outcome,
            object: object.into(),
            field: String::new(),
            reason: reason.into(),
            action: String::new(),
        }
    }

    /// The same row about a field of the object.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            ..self
        }
    }

    /// The same row with something to do.
    #[must_use]
    pub fn then(self, action: impl Into<String>) -> Self {
        Self {
            action: action.into(),
            ..self
        }
    }
}

impl fmt::Display for Row {
    /// One line, or two if there is something to do. Names and texts of others add no lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", escape(&self.object))?;
        if !self.field.is_empty() {
            write!(f, " {}", escape(&self.field))?;
        }
        writeln!(f, ": {}", escape(&self.reason))?;
        if !self.action.is_empty() {
            writeln!(f, "      next: {}", escape(&self.action))?;
        }
        Ok(())
    }
}

/// What replacing a control plane changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// The Deployment of the control plane.
    pub control_plane: String,
    /// The rows, by outcome.
    pub rows: Vec<Row>,
}

impl Preflight {
    /// Rows about a control plane, in any order. Equal rows are kept once.
    #[must_use]
    pub fn new(control_plane: String, rows: Vec<Row>) -> Self {
        let mut kept: Vec<Row> = Vec::new();
        for row in rows {
            if !kept.contains(&row) {
                kept.push(row);
            }
        }

        kept.sort_by_key(|row| row.outcome);
        Self {
            control_plane,
            rows: kept,
        }
    }

    /// Whether something must be done first.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.of(Outcome::DoFirst).next().is_some()
    }

    /// The rows of an outcome.
    pub fn of(&self, outcome: Outcome) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.outcome == outcome)
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", escape(&self.control_plane))?;
        for (outcome, title) in [
            (Outcome::DoFirst, "Do first"),
            (Outcome::NoEffect, "No effect in Navarch"),
            (Outcome::Same, "The same"),
        ] {
            let count = self.of(outcome).count();
            if count == 0 {
                continue;
            }

            writeln!(f, "{title} ({count}):")?;
            for row in self.of(outcome).take(MAX_SHOWN) {
                row.fmt(f)?;
            }
            if count > MAX_SHOWN {
                writeln!(f, "  and {} more: -o json has all", count - MAX_SHOWN)?;
            }
        }

        if !self.is_blocked() {
            writeln!(f, "Nothing must be done first.")?;
        }
        Ok(())
    }
}
