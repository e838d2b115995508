//! The dependencies of a result, stored with each result.
//!
//! Most results are small, with a dozen dependencies each. An enum takes 16 bytes
//! per dependency; this encoding takes three with a million results, since ids are consecutive
//! numbers.

use std::sync::Arc;

use super::ids::{FactId, NodeId};

/// A dependency of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dep {
    /// A fact of the snapshot.
    Fact(FactId),
    /// Another result.
    Node(NodeId),
}

/// A list of [`Dep`]s, each encoded as a Protocol Buffers varint: seven bits per byte, lowest bits
/// first, and the high bit set in all bytes but the last.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Deps(Arc<[u8]>);

/// The continuation bit, set in all bytes of a number but the last.
const MORE: u8 = 0x80;

impl Deps {
    /// The number of dependencies. Iterates over all bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.iter().filter(|byte| **byte & MORE == 0).count()
    }

    #[inline]
    pub(crate) fn contains(&self, dep: Dep) -> bool {
        self.iter().any(|other| other == dep)
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Dep> {
        let mut bytes = self.0.iter();
        std::iter::from_fn(move || {
            let mut packed = 0;
            let mut shift = 0;
            loop {
                let byte = *bytes.next()?;
                packed |= u64::from(byte & !MORE) << shift;
                shift += 7;
                if byte & MORE == 0 {
                    return Some(Dep::unpacked(packed));
                }
            }
        })
    }
}

impl FromIterator<Dep> for Deps {
    fn from_iter<I: IntoIterator<Item = Dep>>(deps: I) -> Self {
        let mut bytes = Vec::new();
        for dep in deps {
            let mut packed = dep.packed();
            while packed >= u64::from(MORE) {
                bytes.push(packed.to_le_bytes()[0] | MORE);
                packed >>= 7;
            }
            bytes.push(packed.to_le_bytes()[0]);
        }
        Self(bytes.into())
    }
}

impl Dep {
    /// The varint value: ids are consecutive numbers, far below 2^63.
    #[inline]
    fn packed(self) -> u64 {
        match self {
            Self::Fact(FactId(id)) => (id as u64) << 1,
            Self::Node(NodeId(id)) => id << 1 | 1,
        }
    }

    #[inline]
    fn unpacked(packed: u64) -> Self {
        let id = packed >> 1;
        match packed & 1 {
            0 => Self::Fact(FactId(usize::try_from(id).expect("it was made of one"))),
            _ => Self::Node(NodeId(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_dependencies_round_trip() {
        let ids = (0..64)
            .flat_map(|bits| [(1_u64 << bits) - 1, (1 << bits) / 2])
            .filter(|id| *id < 1 << 63);
        let mut all: Vec<Dep> = ids.map(|id| Dep::Node(NodeId(id))).collect();
        all.extend([0, 1, 63, 64, 8191, 8192, usize::MAX >> 1].map(|id| Dep::Fact(FactId(id))));
        let deps = Deps::from_iter(all.clone());
        assert_eq!(deps.iter().collect::<Vec<_>>(), all);
        assert!(all.iter().all(|dep| deps.contains(*dep)) && !deps.contains(Dep::Node(NodeId(5))));
        assert_eq!(deps.len(), all.len());
        let none = Deps::from_iter([]);
        assert_eq!(
            (none.len(), none.iter().next(), none.contains(all[0])),
            (0, None, false)
        );
    }
}
