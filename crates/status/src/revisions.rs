//! Which objects are of which revision of the control plane.

mod tags;

pub(crate) use tags::{DEFAULT_VALIDATOR, Tag, Tags};
