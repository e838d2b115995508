//! When a rollout goes on: a function of what is seen, without clocks and proxies.

use std::time::Duration;

/// What is seen of a rollout that is at a stage.
#[derive(Clone, Debug)]
pub(super) struct StageView<'a> {
    /// Whether the stage is the last.
    pub(super) is_last: bool,
    /// How long it has been at the stage.
    pub(super) at_stage: Duration,
    /// How long a stage lasts at the least.
    pub(super) pause: Duration,
    /// Whether an operator has it stay.
    pub(super) is_paused: bool,
    /// How many proxies have not acknowledged the new version yet.
    pub(super) pending: usize,
    /// The first proxy that refused it, with what it said.
    pub(super) refused: Option<&'a str>,
    /// Why other replicas hold it up, if they do.
    pub(super) held: Option<&'a str>,
    /// What must hold before it goes on.
    pub(super) query: Query<'a>,
}

/// What Prometheus says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query<'a> {
    /// Nothing is asked.
    None,
    /// It was not asked at this stage yet.
    Unasked,
    Holds,
    /// It does not hold: this is what came.
    Fails(&'a str),
    /// It could not be asked.
    Unknown(&'a str),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It stays at its stage, for this reason.
    Stay(String),
    /// Prometheus is asked.
    Ask,
    /// The next stage begins.
    Advance,
    /// All stages are done.
    Complete,
    /// Everybody goes back to the version before, for this reason.
    Stop(String),
}

/// What follows from what is seen.
pub(super) fn next(seen: &StageView<'_>) -> Next {
    if let Some(said) = seen.refused {
        return Next::Stop(said.to_owned());
    }
    if let Some(why) = seen.held {
        return Next::Stay(why.to_owned());
    }
    if seen.is_paused {
        return Next::Stay("paused by an operator; navarch rollout promote goes on".to_owned());
    }
    if seen.pending > 0 {
        let proxies = if seen.pending == 1 { "1 proxy".to_owned() } else { format!("{} proxies", seen.pending) };
        return Next::Stay(format!("waits for {proxies} to acknowledge it"));
    }
    if let Some(left) = seen.pause.checked_sub(seen.at_stage).filter(|left| !left.is_zero()) {
        return Next::Stay(format!("waits {} s until its pause is over", left.as_secs_f64().ceil()));
    }
    match seen.query {
        Query::Unasked => Next::Ask,
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
            is_paused: false,
            pending: 0,
            refused: None,
            held: None,
            query: Query::None,
        }
    }

    #[test]
    fn each_thing_that_holds_it_up_is_told_and_each_that_stops_it() {
        let stays = |seen: StageView<'_>, word: &str| {
            let Next::Stay(why) = next(&seen) else { panic!("{word}: it does not stay") };
            assert!(why.contains(word), "{why}");
        };
        assert_eq!(next(&seen()), Next::Advance);
        assert_eq!(next(&StageView { is_last: true, ..seen() }), Next::Complete);
        stays(StageView { pending: 1, ..seen() }, "1 proxy to");
        stays(StageView { pending: 2, is_last: true, ..seen() }, "2 proxies to");
        stays(StageView { at_stage: Duration::from_millis(28_500), ..seen() }, "waits 2 s");
        stays(StageView { is_paused: true, ..seen() }, "promote");
        stays(StageView { held: Some("others wait"), ..seen() }, "others wait");
        stays(StageView { query: Query::Unknown("no connection"), ..seen() }, "no connection");
        assert_eq!(next(&StageView { query: Query::Unasked, ..seen() }), Next::Ask);
        // Not before it counts.
        stays(StageView { query: Query::Unasked, pending: 1, ..seen() }, "1 proxy");
        assert_eq!(next(&StageView { query: Query::Holds, ..seen() }), Next::Advance);
        let Next::Stop(why) = next(&StageView { query: Query::Fails("an empty vector"), ..seen() }) else { panic!() };
        assert!(why.contains("an empty vector"));
        // A refusal counts at once, paused or not.
        let refused =
            StageView { refused: Some("p refused rds: no"), is_paused: true, held: Some("x"), pending: 3, ..seen() };
        assert_eq!(next(&refused), Next::Stop("p refused rds: no".to_owned()));
    }
}
