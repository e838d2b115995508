//! Decides when a rollout advances: a pure function of its observed state.

use std::time::Duration;

/// How long proxies of other namespaces than the object's and the root namespace hold a stage that
/// they have not acknowledged, and all proxies one that none of them can say anything about. An honest
/// proxy acknowledges within seconds, or is about to be replaced.
pub(super) const MAX_LIMITED_WAIT: Duration = Duration::from_mins(10);

/// The observed state of a rollout at a stage.
#[derive(Clone, Debug)]
pub(super) struct StageView<'a> {
    /// Whether the stage is the last.
    pub(super) is_last: bool,
    /// How long it has been at the stage.
    pub(super) at_stage: Duration,
    /// Minimum duration of a stage.
    pub(super) pause: Duration,
    /// How long ago its first stage began, and how long it may last.
    pub(super) life: Duration,
    pub(super) max_life: Duration,
    /// Whether an operator has paused it.
    pub(super) is_paused: bool,
    /// Number of proxies that have not acknowledged the new version yet, and hold it until they
    /// do.
    pub(super) pending: usize,
    /// Number of those that hold it for [`MAX_LIMITED_WAIT`] at most.
    pub(super) pending_for_a_time: usize,
    /// Number of proxies that had rejected what the new version may be in before, if there is no
    /// evidence of others; they hold it for [`MAX_LIMITED_WAIT`] at most.
    pub(super) without_evidence: usize,
    /// A proxy that rejected it, with its error, if that does not decide.
    pub(super) contested: Option<&'a str>,
    /// The same of one that holds it for [`MAX_LIMITED_WAIT`] at most.
    pub(super) contested_for_a_time: Option<&'a str>,
    /// Why proxies that decide rejected it.
    pub(super) rejected: Option<&'a str>,
    /// Why other replicas block it, if they do.
    pub(super) held: Option<&'a str>,
    /// The condition for advancing.
    pub(super) query: Query<'a>,
}

/// The result of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query<'a> {
    /// There is no query.
    None,
    /// There was no query at this stage yet.
    Pending,
    Holds,
    /// The condition does not hold: the result.
    Fails(&'a str),
    /// The query failed.
    Unknown(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Stay at the stage, for this reason.
    Stay(String),
    /// Evaluate the condition: query Prometheus.
    Query,
    /// Begin the next stage.
    Advance,
    /// Complete the rollout.
    Complete,
    /// Roll back, for this reason.
    Stop(String),
}

/// How much longer proxies that hold a stage for a limited time do so, if it has lasted for
/// `at_stage`; `None` if they no longer do.
pub(super) fn limited_wait_left(at_stage: Duration) -> Option<Duration> {
    MAX_LIMITED_WAIT
        .checked_sub(at_stage)
        .filter(|left| !left.is_zero())
}

/// A number of proxies in words.
fn proxies(count: usize) -> String {
    match count {
        1 => "1 proxy".to_owned(),
        count => format!("{count} proxies"),
    }
}

/// Why proxies that hold the stage for a limited time do so, if they do.
fn held_for_a_time(seen: &StageView<'_>) -> Option<String> {
    let left = limited_wait_left(seen.at_stage)?.as_secs_f64().ceil();

    if let Some(contested) = seen.contested_for_a_time {
        return Some(format!(
            "{contested}; this alone does not stop it: it goes on in {left} s, at once with navarch rollout promote, \
             and is stopped by navarch rollout abort"
        ));
    }
    if seen.pending_for_a_time > 0 {
        let proxies = proxies(seen.pending_for_a_time);
        return Some(format!(
            "waits for {proxies} outside its namespace to acknowledge it, at most {left} s"
        ));
    }
    (seen.without_evidence > 0).then(|| {
        let proxies = proxies(seen.without_evidence);
        format!(
            "there is no evidence that proxies accept it: {proxies} had rejected the same resources before; waits \
             for one to acknowledge it, at most {left} s"
        )
    })
}

/// Decides from the observed state.
pub(super) fn next(seen: &StageView<'_>) -> Next {
    if let Some(message) = seen.rejected {
        return Next::Stop(message.to_owned());
    }

    if seen.life >= seen.max_life {
        let days = seen.max_life.as_secs() / 86_400;
        return Next::Stop(format!("it was not complete after {days} days"));
    }

    if let Some(why) = seen.held {
        return Next::Stay(why.to_owned());
    }

    if seen.is_paused {
        return Next::Stay(
            "paused by an operator; continue with navarch rollout promote".to_owned(),
        );
    }

    if let Some(contested) = seen.contested {
        return Next::Stay(format!(
            "{contested}; this alone does not stop it: continue with navarch rollout promote, or stop it with navarch \
             rollout abort"
        ));
    }

    if seen.pending > 0 {
        let proxies = proxies(seen.pending);
        return Next::Stay(format!("waits for {proxies} to acknowledge it"));
    }

    if let Some(why) = held_for_a_time(seen) {
        return Next::Stay(why);
    }

    if let Some(left) = seen
        .pause
        .checked_sub(seen.at_stage)
        .filter(|left| !left.is_zero())
    {
        return Next::Stay(format!(
            "waits {} s for the end of its pause",
            left.as_secs_f64().ceil()
        ));
    }

    match seen.query {
        Query::Pending => Next::Query,
        Query::Fails(what) => Next::Stop(format!("its query does not hold: {what}")),
        Query::Unknown(why) => Next::Stay(format!("waits for Prometheus: {why}")),
        Query::None | Query::Holds if seen.is_last => Next::Complete,
        Query::None | Query::Holds => Next::Advance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> StageView<'static> {
        StageView {
            is_last: false,
            at_stage: Duration::from_secs(30),
            pause: Duration::from_secs(30),
            life: Duration::from_secs(60),
            max_life: Duration::from_secs(86_400),
            is_paused: false,
            pending: 0,
            pending_for_a_time: 0,
            without_evidence: 0,
            contested: None,
            contested_for_a_time: None,
            rejected: None,
            held: None,
            query: Query::None,
        }
    }

    /// Checks that the rollout waits, for a reason with this word.
    fn stays(seen: &StageView<'_>, word: &str) {
        let Next::Stay(why) = next(seen) else {
            panic!("{word}: it does not stay")
        };
        assert!(why.contains(word), "{why}");
    }

    #[test]
    fn a_rollout_waits_for_proxies_its_pause_and_other_rollouts() {
        assert_eq!(next(&seen()), Next::Advance);
        assert_eq!(
            next(&StageView {
                is_last: true,
                ..seen()
            }),
            Next::Complete
        );

        stays(
            &StageView {
                pending: 1,
                ..seen()
            },
            "1 proxy to",
        );

        stays(
            &StageView {
                pending: 2,
                is_last: true,
                ..seen()
            },
            "2 proxies to",
        );

        stays(
            &StageView {
                at_stage: Duration::from_millis(28_500),
                ..seen()
            },
            "waits 2 s",
        );

        stays(
            &StageView {
                is_paused: true,
                ..seen()
            },
            "promote",
        );

        stays(
            &StageView {
                held: Some("others wait"),
                ..seen()
            },
            "others wait",
        );
    }

    #[test]
    fn proxies_of_other_namespaces_hold_a_stage_for_a_limited_time() {
        let mute = StageView {
            pending_for_a_time: 1,
            ..seen()
        };
        stays(&mute, "waits for 1 proxy outside its namespace");
        stays(&mute, "at most 570 s");

        let rejecting = StageView {
            contested_for_a_time: Some("x.evil rejected rds"),
            ..mute.clone()
        };
        stays(&rejecting, "x.evil rejected rds; this alone");

        for view in [mute, rejecting] {
            let late = StageView {
                at_stage: MAX_LIMITED_WAIT,
                ..view
            };
            assert_eq!(next(&late), Next::Advance);

            // Those of its own namespace still hold it.
            let own = StageView {
                pending: 1,
                ..late.clone()
            };
            stays(&own, "waits for 1 proxy to acknowledge it");
            let contested = StageView {
                contested: Some("gateway rejected rds"),
                ..late
            };
            stays(&contested, "gateway rejected rds");
        }
    }

    #[test]
    fn a_stage_without_evidence_waits_for_a_limited_time_and_says_so() {
        let blind = StageView {
            without_evidence: 2,
            ..seen()
        };
        stays(&blind, "no evidence that proxies accept it: 2 proxies");
        stays(&blind, "at most 570 s");

        let late = StageView {
            at_stage: MAX_LIMITED_WAIT,
            ..blind
        };
        assert_eq!(next(&late), Next::Advance);
    }

    #[test]
    fn its_query_is_asked_when_nothing_else_is_pending_and_decides() {
        stays(
            &StageView {
                query: Query::Unknown("no connection"),
                ..seen()
            },
            "no connection",
        );

        assert_eq!(
            next(&StageView {
                query: Query::Pending,
                ..seen()
            }),
            Next::Query
        );

        // Not before it counts.
        stays(
            &StageView {
                query: Query::Pending,
                pending: 1,
                ..seen()
            },
            "1 proxy",
        );

        assert_eq!(
            next(&StageView {
                query: Query::Holds,
                ..seen()
            }),
            Next::Advance
        );

        let Next::Stop(why) = next(&StageView {
            query: Query::Fails("an empty vector"),
            ..seen()
        }) else {
            panic!()
        };

        assert!(why.contains("an empty vector"));
    }

    #[test]
    fn the_maximum_life_and_a_rejection_stop_a_rollout_that_waits() {
        let Next::Stop(why) = next(&StageView {
            life: Duration::from_secs(86_400),
            is_paused: true,
            held: Some("x"),
            ..seen()
        }) else {
            panic!()
        };
        assert!(why.contains("1 days"), "{why}");

        // A contested rejection leaves the decision to operators.
        stays(
            &StageView {
                contested: Some("p rejected rds"),
                pending: 1,
                ..seen()
            },
            "p rejected rds; this alone",
        );

        // A rejection counts at once, also while paused.
        let rejected = StageView {
            rejected: Some("p rejected rds: no"),
            is_paused: true,
            held: Some("x"),
            pending: 3,
            ..seen()
        };

        assert_eq!(next(&rejected), Next::Stop("p rejected rds: no".to_owned()));
    }
}
