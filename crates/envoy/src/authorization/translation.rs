//! The inputs and the error of translations, shared by a rule and its parts.

use super::trust_domains::TrustDomains;
use super::{Peers, Transport};

/// Inputs of a rule's translation besides the rule.
pub(super) struct Translation<'a> {
    /// The traffic that rules are evaluated on.
    pub(super) transport: Transport,
    /// How peers are identified.
    pub(super) peers: Peers,
    /// Whether an unsupported clause removes the whole rule; otherwise only the clause is removed.
    pub(super) narrows: bool,
    /// The policy's namespace.
    pub(super) namespace: &'a str,
    /// The mesh's trust domain.
    pub(super) domains: &'a TrustDomains,
}

/// A clause is unsupported: it is about HTTP for a connection, or its value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsupported;
