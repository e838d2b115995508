//! The state of list and watch of one kind, and its transitions.

use std::time::Duration;

use super::stream::StreamError;
use navarch_api::decode::ServerStatus;

/// The state of list and watch of one kind: a state machine without time or sockets, see
/// [`WatchState::after`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchState {
    pub(super) next: WatchRequest,
    /// The API version in use, as an index into the supported ones.
    pub(super) version: usize,
    /// Whether the server is requested to stream the existing objects as events of a watch (since
    /// Kubernetes 1.32); otherwise they are listed, until a request succeeds.
    pub(super) streams_lists: bool,
}

/// The next request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchRequest {
    /// A list of any version that the server has (`resourceVersion=0`).
    ListAny,
    /// A consistent list of the newest version, because the version of the server's cache was too
    /// old.
    ListConsistent,
    /// A watch for changes after this `resourceVersion` of the collection.
    WatchFrom(String),
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum WatchOutcome {
    /// The response ended regularly.
    Ended,
    Failed(StreamError),
}

/// What to do before the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Send the next request at once.
    None,
    /// Back off, and wait at least this long.
    Failure { least: Duration, reason: String },
    /// The request is forbidden.
    Forbidden(String),
    /// No version of the kind is served: wait until its definition changes.
    Missing,
}

impl WatchState {
    /// Begins with a list of any version.
    pub(super) fn new() -> Self {
        Self {
            next: WatchRequest::ListAny,
            version: 0,
            streams_lists: true,
        }
    }

    /// The state after an outcome. `versions` is the number of supported API versions of the kind.
    pub(super) fn after(&self, outcome: WatchOutcome, versions: usize) -> (Self, Pause) {
        let failure = |least, reason| Pause::Failure { least, reason };
        match outcome {
            WatchOutcome::Ended => (
                Self {
                    streams_lists: true,
                    ..self.clone()
                },
                Pause::None,
            ),
            WatchOutcome::Failed(StreamError::Rejected(status)) => self.rejected(&status, versions),
            WatchOutcome::Failed(
                error
                @ (StreamError::Broken(_) | StreamError::Silent(_) | StreamError::TooLarge(_)),
            ) => (self.clone(), failure(Duration::ZERO, error.to_string())),
        }
    }

    /// The state after an error status.
    fn rejected(&self, status: &ServerStatus, versions: usize) -> (Self, Pause) {
        let with = |next: &WatchRequest| Self {
            next: next.clone(),
            ..self.clone()
        };
        let least = Duration::from_secs(u64::from(status.retry_after_seconds()));
        let failure = Pause::Failure {
            least,
            reason: status.to_string(),
        };

        match status.code {
            404 if self.version + 1 < versions => (
                Self {
                    version: self.version + 1,
                    next: WatchRequest::ListAny,
                    ..self.clone()
                },
                Pause::None,
            ),
            // All versions have been tried; the next attempt starts with the best again.
            404 => (
                Self {
                    version: 0,
                    next: WatchRequest::ListAny,
                    ..self.clone()
                },
                Pause::Missing,
            ),
            // The version is too old; a watch can only continue from a new list.
            410 if self.next == WatchRequest::ListConsistent => (self.clone(), failure),
            410 => (with(&WatchRequest::ListConsistent), Pause::None),
            401 | 403 => (self.clone(), Pause::Forbidden(status.to_string())),
            // An older server does not support streamed lists, and a new server cannot stream one
            // before its cache has the objects of the kind; plain lists always work.
            400 | 422 | 429
                if self.streams_lists && !matches!(self.next, WatchRequest::WatchFrom(_)) =>
            {
                (
                    Self {
                        streams_lists: false,
                        ..self.clone()
                    },
                    Pause::None,
                )
            }
            // The version is from before the server was restored to an older state.
            _ if status.is_version_too_large() => (with(&WatchRequest::ListConsistent), failure),
            _ => (self.clone(), failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rejection(code: u16) -> WatchOutcome {
        let body = json!({ "message": "no", "code": code, "details": { "retryAfterSeconds": 2 } })
            .to_string();
        WatchOutcome::Failed(StreamError::Rejected(ServerStatus::of_answer(
            code,
            body.as_bytes(),
        )))
    }

    #[test]
    fn each_outcome_has_its_next_step() {
        let start = WatchState::new();
        let at = |next: WatchRequest| WatchState {
            next,
            ..WatchState::new()
        };
        let since = || at(WatchRequest::WatchFrom("7".to_owned()));
        let failure = || Pause::Failure {
            least: Duration::from_secs(2),
            reason: "no (500)".to_owned(),
        };

        // In order: a watch that ends goes on where it was.
        assert_eq!(
            since().after(WatchOutcome::Ended, 1),
            (since(), Pause::None)
        );
        assert_eq!(since().after(rejection(500), 1), (since(), failure()));
        let broken = StreamError::Broken("reset".to_owned());
        let pause = Pause::Failure {
            least: Duration::ZERO,
            reason: "reset".to_owned(),
        };

        assert_eq!(
            since().after(WatchOutcome::Failed(broken), 1),
            (since(), pause)
        );

        // Gone: the kind is listed again, after a pause if the list is gone, too.
        assert_eq!(
            since().after(rejection(410), 1),
            (at(WatchRequest::ListConsistent), Pause::None)
        );
        assert!(matches!(
            at(WatchRequest::ListConsistent).after(rejection(410), 1),
            (_, Pause::Failure { .. })
        ));

        // Missing: the versions in turn, then patience.
        let second = WatchState {
            version: 1,
            ..WatchState::new()
        };
        assert_eq!(
            since().after(rejection(404), 2),
            (second.clone(), Pause::None)
        );

        assert_eq!(
            second.after(rejection(404), 2),
            (WatchState::new(), Pause::Missing)
        );

        // Forbidden: what is held stays.
        assert_eq!(
            since().after(rejection(403), 2),
            (since(), Pause::Forbidden("no (403)".to_owned()))
        );

        // An old server.
        let old = WatchState {
            streams_lists: false,
            ..WatchState::new()
        };
        assert_eq!(start.after(rejection(422), 1), (old.clone(), Pause::None));
        assert_eq!(start.after(rejection(429), 1), (old.clone(), Pause::None));
        assert!(matches!(
            old.after(rejection(400), 1),
            (_, Pause::Failure { .. })
        ));

        assert_eq!(
            WatchState {
                next: WatchRequest::WatchFrom("7".to_owned()),
                ..old
            }
            .after(WatchOutcome::Ended, 1),
            (since(), Pause::None)
        );
    }

    #[test]
    fn a_too_large_resource_version_causes_a_consistent_relist() {
        let body =
            json!({ "message": "m", "details": { "causes": [{ "reason": "ResourceVersionTooLarge" }] } }).to_string();
        let too_large = WatchOutcome::Failed(StreamError::Rejected(ServerStatus::of_answer(
            504,
            body.as_bytes(),
        )));
        let (state, pause) = WatchState {
            next: WatchRequest::WatchFrom("9".to_owned()),
            ..WatchState::new()
        }
        .after(too_large, 1);
        assert_eq!(state.next, WatchRequest::ListConsistent);
        assert!(matches!(pause, Pause::Failure { .. }));
    }
}
