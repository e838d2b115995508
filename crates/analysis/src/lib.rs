//! Finds what is probably not meant in Istio's configuration, as `istioctl analyze` does: its
//! analyzers, codes, levels and words.
//!
//! ```text
//! files ────────▶ Reader ─▶ Context (objects by kind, name and label) ─▶ analyzers ─▶ messages ─▶ Filter ─▶ sorted, each once
//! API servers ─▶ Resource ┘                                                └─▶ Incremental: those whose input changed
//! ```
//!
//! All message types are in one table ([`messages`]); each family of analyzers is in one file.

pub mod analyzer;
mod analyzers;
mod context;
mod filter;
mod glob;
mod hosts;
mod in_mesh;
mod incremental;
mod kind;
mod label_selector;
mod labels;
pub mod live;
mod message;
pub mod messages;
mod parameters;
pub mod preflight;
mod read;
mod resource;
#[cfg(test)]
mod tests;

pub use context::{Context, Mesh};
pub use filter::{Filter, Suppression};
pub use incremental::Incremental;
pub use kind::Kind;
pub use message::{EXPLANATIONS, Message};
pub use messages::Level;
pub use read::{Reader, Unreadable};
pub use resource::{Key, Resource};
