//! An invalid field of an object: its path and the reason.

use std::fmt;

/// An invalid field, with its path from the object's root and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, such as `spec.ports[0].port`; empty for the whole object.
    pub path: String,
    /// The reason, one clause without a full stop.
    pub reason: String,
}

impl FieldError {
    /// `path` begins at the value that is checked; [`under`](Self::under) puts the parent's field
    /// before it.
    #[must_use]
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }

    /// The same error, as seen from the message that contains this one in its field `parent`.
    ///
    /// Paths are built for errors only, so valid input has no overhead.
    #[must_use]
    pub fn under(self, parent: &str) -> Self {
        let path = match self.path.as_str() {
            "" => parent.to_owned(),
            path if path.starts_with('[') => format!("{parent}{path}"),
            path => format!("{parent}.{path}"),
        };
        Self {
            path,
            reason: self.reason,
        }
    }

    /// The same error, as seen from the list `parent` that contains this one at `index`.
    #[must_use]
    pub fn under_item(self, parent: &str, index: usize) -> Self {
        self.under(&format!("{parent}[{index}]"))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.path, self.reason)
        }
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_from_the_inside_out() {
        let error = FieldError::new("port", "is 0")
            .under_item("ports", 2)
            .under("spec");
        assert_eq!(error.to_string(), "spec.ports[2].port: is 0");
        assert_eq!(
            FieldError::new("[1]", "x")
                .under("a")
                .under_item("b", 0)
                .path,
            "b[0].a[1]"
        );
        assert_eq!(FieldError::new("", "x").under("a").path, "a");
    }
}
