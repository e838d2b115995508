//! Why resources differ: an object that one side alone has applied, an intended difference, or else
//! the field.

use std::collections::BTreeSet;
use std::fmt;

use crate::comparison::Found;
use crate::difference::Change;
use crate::subscriptions::plural;

/// A cause of differences. Differences with the same cause are a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// istiod has applied these objects, Navarch has not.
    OnlyIstiod(BTreeSet<String>),
    /// Navarch has applied these objects, istiod has not.
    OnlyNavarch(BTreeSet<String>),
    /// A field of a type, without the indices of lists.
    Field {
        /// The type, such as `clusters`.
        types: &'static str,
        /// The field; empty for resources as a whole.
        field: String,
        /// How it differs.
        side: Side,
    },
    /// An intended difference.
    Documented {
        /// A short name for scripts, such as `token-keys`.
        id: &'static str,
        /// Why Navarch differs, in a sentence.
        reason: &'static str,
    },
}

/// Which side has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// istiod alone.
    Istiod,
    /// Navarch alone.
    Navarch,
    /// Both, with different values.
    Both,
}

impl Cause {
    /// The cause of a difference.
    #[must_use]
    pub fn of(found: &Found) -> Self {
        if let Some(documented) = found.documented {
            return Self::Documented {
                id: documented.id,
                reason: documented.reason,
            };
        }

        let objects = &found.difference.objects;
        if !objects.only_istiod.is_empty() && objects.only_navarch.is_empty() {
            return Self::OnlyIstiod(objects.only_istiod.clone());
        }
        if !objects.only_navarch.is_empty() && objects.only_istiod.is_empty() {
            return Self::OnlyNavarch(objects.only_navarch.clone());
        }

        let side = match &found.difference.change {
            Change::OnlyIstiod(_) => Side::Istiod,
            Change::OnlyNavarch(_) => Side::Navarch,
            Change::Lengths { .. } | Change::Values { .. } => Side::Both,
        };
        Self::Field {
            types: plural(found.resource_type),
            field: without_indices(&found.difference.path),
            side,
        }
    }

    /// The id of the documented difference that it is, if it is one.
    pub(super) fn documented(&self) -> Option<&'static str> {
        match self {
            Self::Documented { id, .. } => Some(*id),
            Self::OnlyIstiod(_) | Self::OnlyNavarch(_) | Self::Field { .. } => None,
        }
    }

    /// The objects that it names.
    pub(super) fn objects(&self) -> BTreeSet<String> {
        match self {
            Self::OnlyIstiod(objects) | Self::OnlyNavarch(objects) => objects.clone(),
            Self::Field { .. } | Self::Documented { .. } => BTreeSet::new(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyIstiod(objects) => {
                write!(f, "istiod has applied {}, Navarch has not", list(objects))
            }
            Self::OnlyNavarch(objects) => {
                write!(f, "Navarch has applied {}, istiod has not", list(objects))
            }
            Self::Field { types, field, side } => {
                if field.is_empty() {
                    f.write_str(types)?;
                } else {
                    write!(f, "{field} of {types}")?;
                }
                match side {
                    Side::Istiod => f.write_str(" that only istiod sends"),
                    Side::Navarch => f.write_str(" that only Navarch sends"),
                    Side::Both => f.write_str(" with different values"),
                }
            }
            Self::Documented { reason, .. } => f.write_str(reason),
        }
    }
}

/// Names, separated by commas.
fn list(objects: &BTreeSet<String>) -> String {
    let names: Vec<&str> = objects.iter().map(String::as_str).collect();
    names.join(", ")
}

/// `virtualHosts.routes.match` of `.virtualHosts[0].routes[2].match`.
fn without_indices(path: &str) -> String {
    let mut field = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        field.push_str(before);
        // A key may have brackets, too: only a number is an index.
        match after.split_once(']') {
            Some((index, after)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                rest = after;
            }
            Some(_) | None => {
                field.push('[');
                rest = after;
            }
        }
    }
    field.push_str(rest);
    field.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_indices_are_left_out_of_a_field() {
        for (path, field) in [
            ("", ""),
            (
                ".virtualHosts[0].routes[12].match",
                "virtualHosts.routes.match",
            ),
            (
                ".policies.ns[a]-policy[p]-rule",
                "policies.ns[a]-policy[p]-rule",
            ),
            (".open[", "open["),
        ] {
            assert_eq!(without_indices(path), field, "{path}");
        }
    }
}
