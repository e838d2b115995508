//! Gauge items of results in force.
//!
//! Translators record them while they compute; they are stored and dropped with the result. Unlike
//! a remark, a notice has no text: it is a subject of a gauge.

use std::sync::Arc;

/// An item that is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// A subject of a gauge, which counts each subject once.
    Subject {
        /// The gauge's name.
        gauge: &'static str,
        /// The counted subject.
        subject: Arc<str>,
    },
    /// A patch of an EnvoyFilter that changed something.
    Patched {
        /// The EnvoyFilter: `namespace/name`.
        filter: Arc<str>,
        /// The target of the patch.
        kind: &'static str,
    },
    /// A failed lookup. It is counted each time that a result newly records it.
    Failed {
        /// The kind of lookup.
        what: Unavailable,
        /// The name that was looked up, or the proxy.
        subject: Arc<str>,
    },
}

/// The kind of a failed lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unavailable {
    /// A key, certificate or root for a proxy.
    Secret,
    /// The cluster of a provider's service, with the kind of the provider.
    Provider(&'static str),
    /// The services that a proxy serves, with the reason.
    Targets(&'static str),
}
