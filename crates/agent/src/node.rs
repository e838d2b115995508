//! The proxy's node: identity and metadata that Envoy sends to the control plane.

mod keys;
mod metadata;

pub use metadata::{MetadataError, MetadataInput, NodeIdentity, gather};
pub use navarch_bootstrap::addresses::{AddressMode, Addresses, Interface};
pub use navarch_bootstrap::node::{Locality, Node};
