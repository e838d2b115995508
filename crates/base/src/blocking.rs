//! Work that blocks its thread, such as reading a file, and where such work runs.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinError;

/// Whether the work runs on the thread that requests it: see [`run_inline`].
static RUNS_INLINE: AtomicBool = AtomicBool::new(false);

/// Runs all later work of this process that has threads of its own on the thread that requests it,
/// before the request returns. For simulations: on another thread its end would come sooner or later
/// than that of other tasks, as the machine decides. The stack of the requesting thread must be
/// large enough.
pub fn run_inline() {
    RUNS_INLINE.store(true, Ordering::Relaxed);
}

/// Whether [`run_inline`] was called.
#[must_use]
pub fn runs_inline() -> bool {
    RUNS_INLINE.load(Ordering::Relaxed)
}

/// Runs work on a thread of the runtime's pool.
///
/// # Errors
/// If it panics.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if runs_inline() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_result_is_that_of_the_work_and_a_panic_is_an_error() {
        assert_eq!(run(|| 7).await.unwrap(), 7);
        assert!(run(|| panic!("a defect")).await.is_err());
    }
}
