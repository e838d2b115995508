//! The record of a rejected object that all replicas share: its contents, and which of them may be
//! overwritten.
//!
//! A decision is made once, and an operator's release wins over all others: so what a replica writes
//! depends on what is stored at that moment, and not on what it has read before.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectMeta;
use navarch_push::quarantine::turnout::Turnout;
use navarch_push::quarantine::votes::Votes;
use navarch_status::{KeptQuarantine, QuarantineOutcome, ReplicaVotes, StoreError};

/// Why a decision is not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStored {
    /// An operator or another replica has decided, about this version or a later one.
    #[error("another decision was stored before")]
    Superseded,
    /// The ConfigMap cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The answers of the proxies of all replicas.
#[derive(Debug)]
pub(super) struct SharedVotes {
    pub(super) votes: Votes,
    /// Whether the answers of all replicas are known.
    pub(super) is_complete: bool,
}

/// Who of the clients of the other replicas has come and gone.
#[derive(Debug)]
pub(super) struct SharedTurnout {
    pub(super) turnout: Turnout,
    /// Whether all replicas have reported it.
    pub(super) is_complete: bool,
}

impl NotStored {
    /// Whether the rights of the control plane do not allow writes.
    pub(super) fn is_forbidden(&self) -> bool {
        match self {
            Self::Superseded => false,
            Self::Store(error) => error.is_forbidden(),
        }
    }

    /// Whether another replica or an operator was first: what they have stored is followed.
    pub(super) fn is_concurrent(&self) -> bool {
        matches!(self, Self::Superseded | Self::Store(StoreError::Stale))
    }
}

/// Whether the stored state is of this version of an object.
pub(super) fn is_of(kept: &KeptQuarantine, object: &AnyObject) -> bool {
    let meta = object.meta();
    kept.generation == meta.generation && kept.uid == meta.uid
}

/// Whether the stored state is of a later version of an object than `meta`, or of an object that was
/// created under its name later.
pub(super) fn is_later(kept: &KeptQuarantine, meta: &ObjectMeta) -> bool {
    if kept.uid == meta.uid {
        return kept.generation > meta.generation;
    }

    // Creation times have the resolution of a second, and earlier releases store none.
    kept.created.is_some() && kept.created > meta.created
}

/// Whether a judgement has begun, and is not made.
pub(super) fn is_undecided(kept: &KeptQuarantine) -> bool {
    kept.outcome.is_none() && !kept.votes.is_empty()
}

/// Maximum time since the last report of a judgement that a replica goes on with. Judgements take
/// 40 s at most, and a replica reports each change of the answers.
const ABANDONED_TTL: SignedDuration = SignedDuration::from_mins(5);

/// Whether no replica has reported answers for so long that none goes on with the judgement.
pub(super) fn is_abandoned(kept: &KeptQuarantine, now: Timestamp) -> bool {
    let mut reports = kept.votes.values();
    reports.all(|report| now.duration_since(report.at).abs() > ABANDONED_TTL)
}

/// The sum of the own answers and those that the other replicas have stored. It is not complete
/// while one has not reported, or the replicas are not known.
pub(super) fn sum_of(
    own_name: &str,
    replicas: Option<&BTreeSet<String>>,
    kept: Option<&KeptQuarantine>,
    own: &Votes,
) -> SharedVotes {
    let mut sum = SharedVotes {
        votes: own.clone(),
        is_complete: replicas.is_some(),
    };

    for replica in replicas.into_iter().flatten() {
        if replica == own_name {
            continue;
        }
        let stored = kept.and_then(|kept| kept.votes.get(replica));
        match stored.and_then(|stored| Votes::from_json(&stored.votes)) {
            Some(reported) => {
                sum.votes.add(&reported.votes);
                sum.is_complete &= !reported.is_partial;
            }
            None => sum.is_complete = false,
        }
    }
    sum
}

/// The sum of what the other replicas have stored about who has come and gone. It is not complete
/// while one has not reported, or the replicas are not known.
pub(super) fn turnout_of(
    own_name: &str,
    replicas: Option<&BTreeSet<String>>,
    kept: Option<&KeptQuarantine>,
) -> SharedTurnout {
    let mut sum = SharedTurnout {
        turnout: Turnout::default(),
        is_complete: replicas.is_some(),
    };

    let others = replicas.into_iter().flatten();
    for replica in others.filter(|replica| *replica != own_name) {
        let stored = kept.and_then(|kept| kept.votes.get(replica));
        let turnout = stored.and_then(|stored| stored.turnout.as_ref());
        match turnout.and_then(Turnout::from_json) {
            Some(turnout) => sum.turnout.add(turnout),
            None => sum.is_complete = false,
        }
    }
    sum
}

/// How long the report of a replica that does not run is kept at least: this replica may not know
/// yet that it does.
const ENDED_TTL: SignedDuration = SignedDuration::from_mins(1);

/// Removes the reports of replicas that have ended.
pub(super) fn remove_ended(
    reports: &mut BTreeMap<String, ReplicaVotes>,
    running: &BTreeSet<String>,
    now: Timestamp,
) {
    reports.retain(|replica, report| {
        running.contains(replica) || now.duration_since(report.at).abs() < ENDED_TTL
    });
}

/// How often an object was judged again before the judgement that is stored about it. Later
/// judgements have higher numbers.
pub(super) fn rejudged_of(kept: &KeptQuarantine) -> u32 {
    let jury = match &kept.outcome {
        Some(QuarantineOutcome::Quarantined { jury, .. }) => jury.as_ref(),
        Some(QuarantineOutcome::Released { .. }) | None => None,
    };

    // Earlier releases store it there alone.
    let number = jury.and_then(|jury| jury.get("rejudged")?.as_u64());
    let number = number.and_then(|number| u32::try_from(number).ok());
    kept.rejudged.max(number.unwrap_or_default())
}

/// What is stored in place of `kept` when a quarantine is decided.
///
/// # Errors
/// If another replica or an operator has decided.
pub(super) fn decided(
    kept: KeptQuarantine,
    outcome: QuarantineOutcome,
    rejudged: u32,
) -> Result<KeptQuarantine, NotStored> {
    if kept.outcome.is_some() {
        return Err(NotStored::Superseded);
    }
    Ok(KeptQuarantine {
        outcome: Some(outcome),
        rejudged: kept.rejudged.max(rejudged),
        ..kept
    })
}

/// What is stored in place of `kept` when those who decided are no majority any more; `rejudged` is
/// how often the object is judged again, with this time. `None` if another replica has stored that.
///
/// # Errors
/// If an operator has ended the quarantine, or another judgement was made since.
pub(super) fn judged_again(
    kept: KeptQuarantine,
    rejudged: u32,
) -> Result<Option<KeptQuarantine>, NotStored> {
    let is_later = rejudged_of(&kept) >= rejudged;
    let votes = match &kept.outcome {
        Some(QuarantineOutcome::Released { .. }) => return Err(NotStored::Superseded),
        Some(QuarantineOutcome::Quarantined { .. }) if is_later => {
            return Err(NotStored::Superseded);
        }
        None if is_later => return Ok(None),
        Some(QuarantineOutcome::Quarantined { .. }) => BTreeMap::new(),
        None => kept.votes.clone(),
    };

    Ok(Some(KeptQuarantine {
        votes,
        outcome: None,
        rejudged,
        ..kept
    }))
}

/// The record in place of `kept` when a quarantine ends until the next edit, though no operator has
/// ordered that; the object was judged again `rejudged` times before. `None` if an end is stored.
///
/// # Errors
/// If another judgement was made since.
pub(super) fn ended(
    kept: KeptQuarantine,
    reason: &str,
    rejudged: u32,
) -> Result<Option<KeptQuarantine>, NotStored> {
    if matches!(kept.outcome, Some(QuarantineOutcome::Released { .. })) {
        return Ok(None);
    }
    if rejudged_of(&kept) > rejudged {
        return Err(NotStored::Superseded);
    }

    let reason = reason.to_owned();
    Ok(Some(KeptQuarantine {
        votes: BTreeMap::new(),
        outcome: Some(QuarantineOutcome::Released { reason }),
        ..kept
    }))
}

#[cfg(test)]
mod tests {
    use navarch_api::names::Namespace;
    use navarch_api::object::{Kind, NamespacedName, ObjectRef};
    use navarch_api::uid::Uid;
    use navarch_push::quarantine::instance::{Instance, Mark};
    use navarch_push::quarantine::votes::{Answer, VoteCounter, Voter};

    use super::*;

    /// What is stored about an object.
    fn kept(reports: Vec<(String, ReplicaVotes)>) -> KeptQuarantine {
        KeptQuarantine {
            object: ObjectRef {
                kind: Kind::VirtualService,
                name: NamespacedName::new("shop", "v"),
            },
            generation: 1,
            uid: Uid::default(),
            created: None,
            votes: reports.into_iter().collect(),
            outcome: None,
            rejudged: 0,
            version: None,
        }
    }

    #[test]
    fn who_comes_and_goes_at_the_other_live_replicas_is_summed_up() {
        let instance = |pod: &str| Instance {
            workload: NamespacedName::new("shop", pod),
            mark: Mark::Uid(pod.into()),
        };
        let report = |replica: &str, decider: &str, opponent: &str| {
            let turnout = Turnout {
                deciders: [instance(decider)].into(),
                opponents: [instance(opponent)].into(),
                strangers: 1,
                reaches_outside: replica == "istiod-3",
                ..Turnout::default()
            };
            let report = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: Votes::default().to_json(&Namespace::new("shop")),
                turnout: Some(turnout.to_json()),
            };
            (replica.to_owned(), report)
        };
        let kept = kept(vec![
            report("istiod-1", "own", "own"),
            report("istiod-2", "a", "c"),
            report("istiod-3", "b", "c"),
            report("istiod-9", "ended", "ended"),
        ]);
        let replicas = ["istiod-1", "istiod-2", "istiod-3"].map(str::to_owned);

        let sum = turnout_of("istiod-1", Some(&replicas.into()), Some(&kept));
        assert!(sum.is_complete);
        let expected = Turnout {
            deciders: ["a", "b"].map(instance).into(),
            opponents: [instance("c")].into(),
            strangers: 2,
            reaches_outside: true,
            ..Turnout::default()
        };
        assert_eq!(sum.turnout, expected);
    }

    #[test]
    fn the_turnout_is_not_known_while_a_live_replica_has_not_reported_it() {
        let report = |replica: &str, turnout: Option<Turnout>| {
            let report = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: Votes::default().to_json(&Namespace::new("shop")),
                turnout: turnout.map(|turnout| turnout.to_json()),
            };
            (replica.to_owned(), report)
        };
        let replicas: BTreeSet<String> = ["istiod-1", "istiod-2"].map(str::to_owned).into();
        let is_complete = |kept: &KeptQuarantine, replicas| {
            let sum = turnout_of("istiod-1", replicas, Some(kept));
            sum.is_complete
        };

        // A replica without clients reports that as well.
        let nobody = kept(vec![report("istiod-2", Some(Turnout::default()))]);
        assert!(is_complete(&nobody, Some(&replicas)));
        assert!(!is_complete(&nobody, None), "unknown replicas");
        let votes_only = kept(vec![report("istiod-2", None)]);
        assert!(!is_complete(&votes_only, Some(&replicas)));
        assert!(!is_complete(&kept(Vec::new()), Some(&replicas)));
        assert!(!turnout_of("istiod-1", Some(&replicas), None).is_complete);
    }

    #[test]
    fn reports_of_replicas_that_have_ended_are_removed_after_a_time() {
        let stored: BTreeMap<_, _> = ["istiod-1", "istiod-2", "istiod-9"].map(report_of).into();
        let running: BTreeSet<String> = ["istiod-1", "istiod-2"].map(str::to_owned).into();
        let left = |now: &str| {
            let mut reports = stored.clone();
            remove_ended(&mut reports, &running, now.parse().unwrap());
            reports.into_keys().collect::<Vec<_>>()
        };

        assert_eq!(left("2026-01-01T00:00:59Z").len(), 3, "it may be a new one");
        assert_eq!(left("2026-01-01T00:01:00Z"), ["istiod-1", "istiod-2"]);
    }

    /// What is stored of a quarantine after the object was judged again some times.
    fn quarantined(rejudged: u32) -> KeptQuarantine {
        let outcome = QuarantineOutcome::Quarantined {
            message: "rejected by 2 of 2".to_owned(),
            others: None,
            rejecting: Some(2),
            jury: None,
            before: None,
        };
        KeptQuarantine {
            outcome: Some(outcome),
            rejudged,
            ..kept(vec![report_of("istiod-2")])
        }
    }

    /// What is stored after an operator's command.
    fn released(rejudged: u32) -> KeptQuarantine {
        let outcome = QuarantineOutcome::Released {
            reason: "released by an operator".to_owned(),
        };
        KeptQuarantine {
            outcome: Some(outcome),
            rejudged,
            ..kept(Vec::new())
        }
    }

    fn report_of(replica: &str) -> (String, ReplicaVotes) {
        let report = ReplicaVotes {
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            votes: Votes::default().to_json(&Namespace::new("shop")),
            turnout: None,
        };
        (replica.to_owned(), report)
    }

    #[test]
    fn what_is_stored_about_a_recreated_object_is_not_replaced_by_its_predecessor() {
        let meta = |uid: &str, created: &str| ObjectMeta {
            uid: Uid::new(uid),
            created: created.parse().ok(),
            generation: 1,
            ..ObjectMeta::default()
        };
        let old = "2026-01-01T00:00:00Z";
        let new = "2026-01-02T00:00:00Z";
        let stored = |created: Option<Timestamp>| KeptQuarantine {
            uid: Uid::new("b"),
            created,
            ..kept(Vec::new())
        };

        let of_new = stored(new.parse().ok());
        assert!(is_later(&of_new, &meta("a", old)));
        assert!(!is_later(&stored(old.parse().ok()), &meta("c", new)));
        assert!(!is_later(&of_new, &meta("b", new)), "it is the same");
        assert!(
            !is_later(&stored(None), &meta("a", old)),
            "of an earlier release"
        );

        let edited = KeptQuarantine {
            generation: 2,
            ..of_new
        };
        assert!(is_later(&edited, &meta("b", new)));
    }

    #[test]
    fn a_judgement_without_reports_for_minutes_is_abandoned() {
        let begun = kept(vec![report_of("istiod-1"), report_of("istiod-2")]);
        let at = |time: &str| is_abandoned(&begun, time.parse().unwrap());
        assert!(is_undecided(&begun));
        assert!(!at("2026-01-01T00:05:00Z"));
        assert!(at("2026-01-01T00:05:01Z"));

        assert!(!is_undecided(&quarantined(0)));
        assert!(!is_undecided(&kept(Vec::new())), "it is judged again");
    }

    #[test]
    fn a_release_by_an_operator_is_never_overwritten() {
        let is_superseded = |result: Result<Option<KeptQuarantine>, NotStored>| {
            matches!(result, Err(NotStored::Superseded))
        };
        for stored in [released(0), released(1)] {
            assert!(is_superseded(judged_again(stored.clone(), 1)));
            let outcome = quarantined(0).outcome.unwrap();
            assert!(is_superseded(decided(stored.clone(), outcome, 1).map(Some)));
            let ended = ended(stored, "it reaches others", 1).unwrap();
            assert!(ended.is_none(), "it stays, with its reason");
        }
    }

    #[test]
    fn an_end_applies_only_to_the_judgement_that_it_is_of() {
        let again = judged_again(quarantined(2), 3).unwrap().unwrap();
        assert_eq!(
            (again.outcome, again.votes, again.rejudged),
            (None, BTreeMap::new(), 3)
        );
        let end = ended(quarantined(2), "it reaches others", 2)
            .unwrap()
            .unwrap();
        let reason = "it reaches others".to_owned();
        assert_eq!(end.outcome, Some(QuarantineOutcome::Released { reason }));
        assert!(end.votes.is_empty(), "they would only take room");

        // Another replica has judged again before, and perhaps decided once more.
        let open = KeptQuarantine {
            outcome: None,
            ..quarantined(3)
        };
        assert!(judged_again(open.clone(), 3).unwrap().is_none());
        for stored in [open, quarantined(3)] {
            let end = ended(stored, "it reaches others", 2);
            assert!(matches!(end, Err(NotStored::Superseded)));
        }
        let again = judged_again(quarantined(3), 3);
        assert!(matches!(again, Err(NotStored::Superseded)));
        let outcome = quarantined(0).outcome.unwrap();
        let second = decided(quarantined(0), outcome, 0);
        assert!(matches!(second, Err(NotStored::Superseded)));
    }

    #[test]
    fn the_number_of_judgements_is_that_of_any_release() {
        let outcome = QuarantineOutcome::Quarantined {
            message: String::new(),
            others: None,
            rejecting: None,
            jury: Some(serde_json::json!({ "workloads": {}, "rejudged": 4, "isPartial": false })),
            before: None,
        };
        let earlier = KeptQuarantine {
            outcome: Some(outcome),
            ..kept(Vec::new())
        };
        assert_eq!(rejudged_of(&earlier), 4);
        assert_eq!(rejudged_of(&quarantined(5)), 5);
    }

    #[test]
    fn answers_of_all_replicas_count_and_are_awaited() {
        let votes = |pod: &str, answer| {
            let mut counter = VoteCounter::default();
            let voter = Voter {
                account: NamespacedName::new("shop", "web"),
                workload: NamespacedName::new("shop", pod),
                mark: Mark::Unknown,
            };
            counter.add(voter, answer);
            counter.votes()
        };
        let own = votes("web-1", Answer::Rejected);
        let shop = Namespace::new("shop");
        let report = |replica: &str, pod: &str| {
            let report = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: votes(pod, Answer::Accepted).to_json(&shop),
                turnout: None,
            };
            (replica.to_owned(), report)
        };
        let replicas: BTreeSet<String> = ["istiod-1", "istiod-2"].map(str::to_owned).into();
        let sum = |kept: Option<&KeptQuarantine>, replicas| {
            let sum = sum_of("istiod-1", replicas, kept, &own);
            let of_shop = sum.votes.of_namespace(&shop);
            (of_shop.rejected, of_shop.reached, sum.is_complete)
        };

        assert_eq!(sum(None, Some(&replicas)), (1, 1, false));
        let reported = kept(vec![report("istiod-2", "web-2")]);
        assert_eq!(sum(Some(&reported), Some(&replicas)), (1, 2, true));
        assert_eq!(
            sum(Some(&reported), None),
            (1, 1, false),
            "unknown replicas"
        );

        // What this one has stored, and one that has ended, do not count.
        let others = kept(vec![
            report("istiod-1", "web-3"),
            report("istiod-9", "web-4"),
        ]);
        assert_eq!(sum(Some(&others), Some(&replicas)), (1, 1, false));
    }
}
