//! The log of remarks on ignored configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of remarks that are logged per round.
const LOGGED_REMARKS: usize = 100;

/// Logs remarks on ignored configuration; beyond [`LOGGED_REMARKS`] only the number.
pub(super) fn log_remarks(remarks: &BTreeSet<Arc<str>>) {
    for remark in remarks.iter().take(LOGGED_REMARKS) {
        tracing::warn!(%remark, "configuration skipped");
    }
    let more = remarks.len().saturating_sub(LOGGED_REMARKS);
    if more > 0 {
        tracing::warn!(
            more,
            "more configuration skipped; /debug/push_status lists all of it"
        );
    }
}
