//! Access to the snapshot in force that does not keep the push thread running.

use std::sync::Arc;

use imbl::OrdSet;
use tokio::sync::watch;

use crate::context::PushContext;
use crate::notice::Notice;

/// Access to the snapshot in force. Does not keep the thread running.
#[derive(Clone)]
pub struct CurrentSnapshot {
    pub(super) context: watch::Receiver<Arc<PushContext>>,
    /// The gauge items of results in force.
    pub(super) notices: watch::Receiver<OrdSet<Notice>>,
}

impl CurrentSnapshot {
    /// The snapshot in force.
    #[must_use]
    pub fn context(&self) -> Arc<PushContext> {
        self.context.borrow().clone()
    }

    /// The gauge items of results in force.
    #[must_use]
    pub fn notices(&self) -> OrdSet<Notice> {
        self.notices.borrow().clone()
    }
}

impl std::fmt::Debug for CurrentSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurrentSnapshot")
            .field("notices", &self.notices().len())
            .finish_non_exhaustive()
    }
}
