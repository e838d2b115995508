//! Tables for data that is held for long and named by users: hash tables whose keys nobody can
//! choose to collide, an index of hashes, and vectors that grow tightly.

#[cfg(any(test, feature = "colliding-names"))]
pub mod colliding_names;
pub mod growth;
pub mod hash;
pub mod hash_index;
