//! Optional writes for which the control plane has no right, as under the roles of Istio's own
//! charts, which lack Events and the status of some kinds.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_kubernetes::InWords;
use parking_lot::Mutex;

/// The code of a call without the right to it.
const FORBIDDEN: u16 = 403;

/// What was denied, so that each is logged once. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denials(Arc<Mutex<BTreeSet<&'static str>>>);

impl Denials {
    /// Whether a write failed because of a missing right. Logs the first such failure of `what`, a
    /// resource such as `events`.
    pub(crate) fn covers(&self, what: &'static str, error: &kube::Error) -> bool {
        if !matches!(error, kube::Error::Api(status) if status.code == FORBIDDEN) {
            return false;
        }
        if self.0.lock().insert(what) {
            tracing::warn!(what, error = %InWords(error), "no right to write this, so it is not written; logged once");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16) -> kube::Error {
        let status = Status {
            code,
            ..Status::default()
        };
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn only_a_missing_right_is_a_denial() {
        let denials = Denials::default();

        assert!(denials.covers("events", &answer(403)));
        assert!(denials.covers("events", &answer(403)));
        assert!(!denials.covers("events", &answer(409)));
        assert_eq!(*denials.0.lock(), BTreeSet::from(["events"]));
    }
}
