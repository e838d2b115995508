//! How the cost of a list grows with its length, for every list that users of a namespace can
//! write: `tests/growth.rs` has a limit, `benches/growth.rs` prints the figures.

pub mod cases;
pub mod measure;
