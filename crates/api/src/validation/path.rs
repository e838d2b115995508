//! The path of a value in an object, for validation.

use std::fmt;

/// A path in an object, chained through the callers' frames so that only a finding builds its text.
///
/// Written as `spec.http[0].route`; keys of maps are not changed, even if they contain dots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    /// The parent of this path; `None` at the root.
    parent: Option<&'a Path<'a>>,
    /// The last step.
    step: PathSegment<'a>,
}

#[derive(Clone, Copy, Debug)]
enum PathSegment<'a> {
    /// A field, or a key of a map.
    Field(&'a str),
    /// An index of a list.
    Item(usize),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub(super) const fn root(name: &'a str) -> Self {
        Self {
            parent: None,
            step: PathSegment::Field(name),
        }
    }

    /// A field of this value, or a value of this map.
    pub(super) const fn field(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            step: PathSegment::Field(name),
        }
    }

    /// An element of this list.
    pub(super) const fn item(&'a self, index: usize) -> Self {
        Self {
            parent: Some(self),
            step: PathSegment::Item(index),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            fmt::Display::fmt(parent, f)?;
        }
        match self.step {
            PathSegment::Field(name) if self.parent.is_none() => f.write_str(name),
            PathSegment::Field(name) => write!(f, ".{name}"),
            PathSegment::Item(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_from_the_root() {
        let spec = Path::root("spec");
        let http = spec.field("http");
        let route = http.item(2);
        let labels = route.field("labels");
        assert_eq!(
            labels.field("app.kubernetes.io/name").to_string(),
            "spec.http[2].labels.app.kubernetes.io/name"
        );
    }
}
