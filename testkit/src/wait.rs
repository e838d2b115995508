//! Waits for conditions.

use std::cell::RefCell;
use std::fmt::{self, Debug};
use std::time::Duration;

/// Default timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until a condition is true.
///
/// # Panics
/// On a timeout of a minute, with the description.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    until_within(TIMEOUT, what, condition).await;
}

/// Like [`until`], with this timeout.
///
/// # Panics
/// On a timeout, with the description.
pub async fn until_within<F: Future<Output = bool>>(
    timeout: Duration,
    what: &str,
    condition: impl Fn() -> F,
) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    assert!(
        tokio::time::timeout(timeout, wait).await.is_ok(),
        "timed out after {timeout:?}: {what}"
    );
}

/// Polls until `look` returns the wanted value, and returns it. Before that, `look` returns an
/// `Err` with what it saw, such as an error or another state.
///
/// # Panics
/// On a timeout of a minute, with the description and what was seen last.
pub async fn until_some<T, S: Debug>(what: &str, look: impl AsyncFnMut() -> Result<T, S>) -> T {
    until_some_within(TIMEOUT, what, look).await
}

/// Like [`until_some`], with this timeout.
///
/// # Panics
/// On a timeout, with the description and what was seen last.
#[expect(clippy::panic, reason = "a test fails")]
pub async fn until_some_within<T, S: Debug>(
    timeout: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let last = RefCell::new(None);
    let wait = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(seen) => *last.borrow_mut() = Some(seen),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let found = tokio::time::timeout(timeout, wait).await.ok();
    match (found, last.into_inner()) {
        (Some(found), _) => found,
        (None, Some(seen)) => panic!("timed out after {timeout:?}: {what}; last value: {seen:#?}"),
        (None, None) => panic!("timed out after {timeout:?}: {what}; the first check did not end"),
    }
}

/// A text whose `Debug` output is unchanged, with its line breaks, such as a log.
pub struct Verbatim(pub String);

impl fmt::Debug for Verbatim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Converts a value for [`until_some`]: `Ok` if it is the wanted one.
///
/// # Errors
/// With the value if it is not the wanted one.
pub fn wanted<S>(seen: S, is_wanted: impl FnOnce(&S) -> bool) -> Result<S, S> {
    if is_wanted(&seen) {
        Ok(seen)
    } else {
        Err(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The timeout of a condition that never becomes true.
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn waiting_returns_the_first_found_value() {
        let mut looks = 0;
        let found = until_some("the third look", async || {
            looks += 1;
            wanted(looks, |looks| *looks == 3)
        });
        assert_eq!(found.await, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "timed out after 50ms: the moon is blue; last value: \"grey\"")]
    async fn a_timeout_reports_the_last_observation() {
        until_some_within(SHORT, "the moon is blue", async || Err::<(), _>("grey")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "the first check did not end")]
    async fn a_check_that_hangs_is_reported() {
        until_some_within(SHORT, "an answer", async || {
            std::future::pending::<Result<(), ()>>().await
        })
        .await;
    }
}
