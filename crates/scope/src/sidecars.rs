//! The Sidecars in force for a workload.

use navarch_api::istio::{CaptureMode, Sidecar};
use navarch_api::object::Object;
use navarch_push::context::PushContext;

use super::selector::{Labels, selects};

/// How a Sidecar applies to a workload, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Its selector selects the workload.
    Workload,
    /// It applies to the namespace.
    Namespace,
    /// It applies to all namespaces.
    Mesh,
}

/// The Sidecar that applies to a workload.
#[derive(Debug)]
pub(crate) struct AppliedSidecar<'a> {
    pub(crate) reach: Reach,
    pub(crate) sidecar: &'a Object<Sidecar>,
}

/// The Sidecar that applies to pods with these labels; of several that select them the oldest, as
/// in Istio.
pub(crate) fn applied<'a>(
    context: &'a PushContext,
    namespace: &str,
    labels: &Labels,
) -> Option<AppliedSidecar<'a>> {
    let root = &context.mesh.config.root_namespace;
    let reach = |sidecar: &Object<Sidecar>| {
        let own = sidecar.meta.key.namespace.as_str();
        match &sidecar.spec.workload_selector {
            Some(selector) if own == namespace && selects(&selector.labels, labels) => {
                Some(Reach::Workload)
            }
            Some(_) => None,
            None if own == namespace => Some(Reach::Namespace),
            None if own == root => Some(Reach::Mesh),
            None => None,
        }
    };

    let sidecars = context.objects.sidecars.iter();
    let reaching = sidecars.filter_map(|sidecar| Some((reach(sidecar)?, sidecar)));
    let first = reaching.min_by_key(|(reach, sidecar)| {
        let meta = &sidecar.meta;
        (*reach, meta.created, meta.key.name.clone())
    });
    first.map(|(reach, sidecar)| AppliedSidecar { reach, sidecar })
}

impl AppliedSidecar<'_> {
    /// Its name in texts.
    pub(crate) fn name(&self) -> String {
        let key = &self.sidecar.meta.key;
        format!("Sidecar {}/{}", key.namespace, key.name)
    }

    /// The settings that a Sidecar with hosts alone does not have. A Sidecar that selects a
    /// workload replaces the one of its namespace as a whole.
    pub(crate) fn further_settings(&self) -> Vec<&'static str> {
        let spec = &self.sidecar.spec;
        let has_own_listeners = spec.egress.iter().any(|listener| {
            listener.port.is_some()
                || !listener.bind.is_empty()
                || listener.capture_mode != CaptureMode::default()
        });

        let settings = [
            ("ingress", !spec.ingress.is_empty()),
            ("egress with port, bind or captureMode", has_own_listeners),
            (
                "inboundConnectionPool",
                spec.inbound_connection_pool.is_some(),
            ),
            (
                "outboundTrafficPolicy",
                spec.outbound_traffic_policy.is_some(),
            ),
        ];

        settings
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
            .collect()
    }
}
