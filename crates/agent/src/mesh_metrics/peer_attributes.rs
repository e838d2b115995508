//! Attributes of peers as values of labels, in place of the filter state that Istio's own filters
//! write.

use navarch_base::metrics_log::{Peer, PeerAttribute, PeerField, exchanged_label};

use super::labels::UNKNOWN;
use super::peers::Workload;

/// A workload that the control plane has described.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownPeer<'a> {
    pub(super) workload: &'a Workload,
    /// Its exchanged labels, as `name=value,...`.
    pub(super) labels: &'a str,
}

/// The peers of an entry. As in Istio's filters, a sidecar is not a peer of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownPeers<'a> {
    pub(super) upstream: Option<KnownPeer<'a>>,
    pub(super) downstream: Option<KnownPeer<'a>>,
}

impl<'a> KnownPeers<'a> {
    /// The value of an attribute; `unknown` without one.
    pub(super) fn value(&self, attribute: &PeerAttribute) -> &'a str {
        let peer = match attribute.peer {
            Peer::Upstream => self.upstream,
            Peer::Downstream => self.downstream,
        };
        let Some(KnownPeer { workload, labels }) = peer else {
            return UNKNOWN;
        };

        let value: &str = match &attribute.field {
            PeerField::Workload => &workload.name,
            PeerField::Namespace => &workload.namespace,
            PeerField::Cluster => &workload.cluster,
            PeerField::Service => &workload.canonical_name,
            PeerField::Revision => &workload.canonical_revision,
            PeerField::App => &workload.app,
            PeerField::Version => &workload.version,
            PeerField::Label(name) => exchanged_label(labels, name).unwrap_or_default(),
        };

        if value.is_empty() { UNKNOWN } else { value }
    }
}
