//! The report of a replica for the others: which of its proxies lack roots that are being
//! distributed, those of Navarch's own CA ([`super::keeper`]) or of another authority ([`super::external`]).
//!
//! Each replica reports at its start, and rarely while nothing happens. While a root is being
//! distributed it reports which of its proxies lack the root, even if none does. So a replica that
//! takes the next step waits for the reports of all others, but not for one that has stopped.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::root_store::short;
use super::rotation::Missing;
use navarch_base::digest::sha256_hex;
use navarch_base::state_format::{self, FormatError};

/// The format of a report. `format` and `at` are in all later formats, too: a report that cannot be
/// read otherwise is waited for until it is too old.
const FORMAT: u32 = 1;
/// A replica without a report for this long during a rotation counts as stopped, and its proxies as
/// reconnected elsewhere.
const REPLICA_TTL: Duration = Duration::from_secs(60);
/// Interval of a replica's reports while a root is being distributed and nothing changes.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of heartbeats outside of rotations.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_hours(1);
/// A replica without a heartbeat for this long is removed.
const HEARTBEAT_TTL: Duration = Duration::from_hours(3);
/// Maximum number of named proxies; the record must stay small.
const MAX_NAMED_PROXIES: usize = 20;
/// Maximum length of their names, in characters.
const MAX_NAME_CHARS: usize = 160;
/// Maximum size of a report. Clients choose the names of proxies: if the reports of all replicas
/// exceeded the 256 KiB that an object may have of annotations, none could be written, and replicas
/// with proxies that lack a root would count as stopped.
const MAX_REPORT_BYTES: usize = 4 << 10;

/// The report of a replica.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    /// [`FORMAT`].
    #[serde(default = "state_format::first")]
    format: u32,
    /// The digest of the roots that the replica trusts.
    roots: String,
    /// The number of its proxies that lack roots.
    missing: usize,
    /// Some of these proxies.
    named: Vec<Missing>,
    /// When the report was written.
    at: Timestamp,
}

/// The fields of a report in every format.
#[derive(Debug, Deserialize)]
struct ReportTime {
    /// When the report was written.
    at: Timestamp,
}

/// A report of any format.
struct ReadReport {
    /// When it was written.
    at: SystemTime,
    /// The report; an error if a later release wrote it.
    content: Result<Report, FormatError>,
}

impl ReadReport {
    /// Whether the replica counts as alive.
    fn is_recent(&self, now: SystemTime) -> bool {
        self.at + REPLICA_TTL >= now
    }

    /// Whether it is known to be about the roots with this digest.
    fn is_of(&self, digest: &str) -> bool {
        let report = self.content.as_ref();
        report.is_ok_and(|report| report.roots == digest)
    }
}

/// The text of a report.
pub(super) fn text(missing: &[Missing], roots: &str, now: SystemTime) -> String {
    let cut = |one: &Missing| Missing {
        who: one.who.chars().take(MAX_NAME_CHARS).collect(),
        why: one.why.clone(),
    };
    let named = missing.iter().take(MAX_NAMED_PROXIES).map(cut).collect();
    let at = Timestamp::try_from(now).unwrap_or(Timestamp::MAX);
    let mut report = Report {
        format: FORMAT,
        roots: sha256_hex(roots),
        missing: missing.len(),
        named,
        at,
    };

    loop {
        let text = json(&report);
        if text.len() <= MAX_REPORT_BYTES || report.named.pop().is_none() {
            return text;
        }
    }
}

fn json(report: &Report) -> String {
    serde_json::to_string(report).expect("texts, numbers and a time have a form in JSON")
}

/// Whether the report is removed. One of a clock that was hours ahead would count as recent for as
/// long; a replica that is alive writes it again.
pub(super) fn is_forgotten(text: &str, now: SystemTime) -> bool {
    serde_json::from_str::<ReportTime>(text).is_ok_and(|report| {
        let at = SystemTime::from(report.at);
        at + HEARTBEAT_TTL < now || now + HEARTBEAT_TTL < at
    })
}

/// Reads a report; `None` if nobody can.
fn read(text: &str) -> Option<ReadReport> {
    let at = serde_json::from_str::<ReportTime>(text).ok()?.at;
    let content = match state_format::check_json(text.as_bytes(), FORMAT) {
        Ok(()) => Ok(serde_json::from_str::<Report>(text).ok()?),
        Err(error) => Err(error),
    };
    let at = SystemTime::from(at);
    Some(ReadReport { at, content })
}

/// Whether another replica has reported other roots a moment ago: one of the two distributes a root
/// that the other does not know yet.
pub(super) fn others_differ(
    reports: &BTreeMap<String, String>,
    own: &str,
    roots: &str,
    now: SystemTime,
) -> bool {
    let wanted = sha256_hex(roots);
    let own = short(own);
    let others = reports.iter().filter(|(replica, _)| **replica != own);
    let mut others = others.filter_map(|(_, text)| read(text));
    // A report of a later release may be about other roots.
    others.any(|report| report.is_recent(now) && !report.is_of(&wanted))
}

/// The missing proxies in the reports of other replicas, for roots that are trusted since a time. A
/// replica that existed then and has not reported yet counts as missing.
pub(super) fn of_others(
    reports: &BTreeMap<String, String>,
    own: &str,
    roots: &str,
    since: SystemTime,
    now: SystemTime,
) -> Vec<Missing> {
    let wanted = sha256_hex(roots);
    let own = short(own);
    let mut missing = Vec::new();

    for (replica, text) in reports.iter().filter(|(replica, _)| **replica != own) {
        let Some(report) = read(text) else {
            continue;
        };
        let replica = format!("replica {replica}");
        let may_report = since + REPLICA_TTL >= now && report.at + HEARTBEAT_TTL >= now;
        let is_recent = report.is_recent(now);
        let is_of_roots = report.is_of(&wanted);

        match report.content {
            Err(error) if is_recent => missing.push(Missing {
                who: replica,
                why: format!("its report is unreadable: {error}"),
            }),
            Ok(report) if is_recent && is_of_roots => {
                let unnamed = report.missing.saturating_sub(report.named.len());
                missing.extend(report.named);
                if unnamed > 0 {
                    missing.push(Missing {
                        who: replica,
                        why: format!("{unnamed} more of its proxies do not trust them"),
                    });
                }
            }
            Ok(_) if is_recent => missing.push(Missing {
                who: replica,
                why: "the replica itself does not trust the roots yet".to_owned(),
            }),
            Ok(_) | Err(_) if may_report && !is_of_roots => missing.push(Missing {
                who: replica,
                why: "the replica has not reported its proxies yet".to_owned(),
            }),
            Ok(_) | Err(_) => {}
        }
    }

    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    /// Who is missing from the view of `a`, given this report of `b`.
    fn missing(text: String, roots: &str, since: SystemTime, now: SystemTime) -> Vec<Missing> {
        of_others(
            &BTreeMap::from([("b".to_owned(), text)]),
            "a",
            roots,
            since,
            now,
        )
    }

    #[test]
    fn reports_of_other_replicas_are_used_while_they_are_alive() {
        let web = Missing {
            who: "web-1.shop".to_owned(),
            why: "late".to_owned(),
        };
        let lacking = text(std::slice::from_ref(&web), "roots", now());
        assert_eq!(
            missing(lacking.clone(), "roots", now(), now()),
            std::slice::from_ref(&web)
        );

        assert_eq!(
            missing(lacking.clone(), "roots", now(), now() + REPLICA_TTL * 2),
            [],
            "it is gone"
        );
        assert_eq!(
            missing(lacking.clone(), "other roots", now(), now())[0].who,
            "replica b"
        );

        let own = BTreeMap::from([("b".to_owned(), lacking)]);
        assert_eq!(
            of_others(&own, "b", "roots", now(), now()),
            [],
            "one's own is not asked"
        );

        assert_eq!(
            of_others(&own, "b1", "roots", now(), now()).len(),
            1,
            "a name that begins alike is another's"
        );
        assert_eq!(
            missing(text(&vec![web; 25], "roots", now()), "roots", now(), now()).len(),
            21
        );
    }

    #[test]
    fn a_report_is_small_whatever_names_proxies_have() {
        let long = Missing {
            who: "\u{1}".repeat(10_000),
            why: "has not taken it".to_owned(),
        };
        let report = text(&vec![long; 10_000], "roots", now());
        assert!(report.len() <= MAX_REPORT_BYTES, "{} bytes", report.len());

        // Those that are not named are counted.
        let waited = missing(report, "roots", now(), now());
        let why = waited.last().map(|last| last.why.as_str());
        assert!(why.is_some_and(|why| why.starts_with("99")), "{why:?}");
    }

    #[test]
    fn recent_reports_of_others_may_differ() {
        let reports = BTreeMap::from([("b".to_owned(), text(&[], "roots", now()))]);
        let differ = |own, roots, at| others_differ(&reports, own, roots, at);
        assert!(differ("a", "other roots", now()));
        assert!(!differ("a", "roots", now()));
        assert!(!differ("b", "other roots", now()), "one's own");
        assert!(!differ("a", "other roots", now() + REPLICA_TTL * 2));
    }

    #[test]
    fn a_report_of_a_clock_that_was_hours_ahead_is_removed() {
        let ahead = text(&[], "roots", now() + HEARTBEAT_TTL * 2);
        assert!(is_forgotten(&ahead, now()));
        let bit_ahead = text(&[], "roots", now() + REPLICA_TTL);
        assert!(!is_forgotten(&bit_ahead, now()));
    }

    #[test]
    fn a_report_of_a_later_release_is_waited_for_until_it_is_old() {
        let at = Timestamp::try_from(now()).unwrap();
        let later = format!(r#"{{"format":2,"roots":["roots"],"at":"{at}"}}"#);

        let waited = missing(later.clone(), "roots", now(), now());
        assert_eq!(waited[0].who, "replica b");
        assert!(
            waited[0].why.contains("format is 2") && waited[0].why.contains("supports format 1"),
            "{waited:?}"
        );
        assert_eq!(
            missing(later.clone(), "roots", now(), now() + REPLICA_TTL * 2),
            []
        );

        // Its last heartbeat is of before the root, which it may not know yet.
        let since = now() + HEARTBEAT_INTERVAL;
        let waited = missing(later.clone(), "roots", since, since);
        assert_eq!(
            waited[0].why,
            "the replica has not reported its proxies yet"
        );

        let reports = BTreeMap::from([("b".to_owned(), later.clone())]);
        assert!(others_differ(&reports, "a", "roots", now()), "it may");
        assert!(!others_differ(&reports, "a", "roots", since));
        assert!(is_forgotten(&later, now() + HEARTBEAT_TTL * 2));
    }

    #[test]
    fn a_report_has_the_committed_form() {
        let web = Missing {
            who: "web-1.shop".to_owned(),
            why: "has not taken it".to_owned(),
        };
        let committed = include_str!("../../../../tests/corpora/state/ca-replica-report.1.json");

        assert_eq!(text(&[web], "roots", now()), committed.trim_end());
    }

    #[test]
    fn rotation_waits_for_recent_replicas_and_not_for_stopped_ones() {
        let present = || text(&[], "old", now());
        let since = now() + REPLICA_TTL * 10;
        let waited = missing(present(), "old and new", since, since + REPLICA_TTL / 2);
        assert_eq!(
            waited[0].why,
            "the replica has not reported its proxies yet"
        );
        assert_eq!(
            missing(present(), "old and new", since, since + REPLICA_TTL * 2),
            [],
            "it has had its time"
        );

        let later = now() + HEARTBEAT_TTL * 2;
        assert_eq!(
            missing(present(), "old and new", later, later),
            [],
            "it is forgotten"
        );
        assert!(
            is_forgotten(&present(), later)
                && !is_forgotten(&present(), now() + HEARTBEAT_INTERVAL)
        );

        let none_missing = text(&[], "old and new", since);
        assert_eq!(
            missing(none_missing, "old and new", since, since),
            [],
            "it has said that none is missing"
        );
    }
}
