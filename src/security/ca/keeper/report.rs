//! What replicas tell each other of their proxies while a root is being distributed.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::rotation::Missing;
use crate::api::digest::sha256_hex;

/// A replica that has told nothing for so long is gone, and its proxies are somewhere else.
const FRESH: Duration = Duration::from_secs(60);
/// How many are named; the record must stay small.
const NAMED: usize = 20;

/// What a replica tells.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    /// The roots that it trusts, as a digest.
    roots: String,
    /// How many of its proxies lack some.
    missing: usize,
    /// Some of them.
    named: Vec<Missing>,
    /// When it told so.
    at: Timestamp,
}

/// What a replica tells of its proxies.
pub(super) fn text(missing: &[Missing], roots: &str, now: SystemTime) -> String {
    let named = missing.iter().take(NAMED).cloned().collect();
    let at = Timestamp::try_from(now).unwrap_or(Timestamp::MAX);
    let report = Report { roots: sha256_hex(roots), missing: missing.len(), named, at };
    serde_json::to_string(&report).unwrap_or_default()
}

/// Who is missing by the word of other replicas.
pub(super) fn of_others(reports: &BTreeMap<String, String>, own: &str, roots: &str, now: SystemTime) -> Vec<Missing> {
    let wanted = sha256_hex(roots);
    let mut missing = Vec::new();
    for (replica, text) in reports.iter().filter(|(replica, _)| !own.starts_with(replica.as_str())) {
        let Ok(report) = serde_json::from_str::<Report>(text) else { continue };
        if SystemTime::from(report.at) + FRESH < now {
            continue;
        }
        let replica = || format!("replica {replica}");
        if report.roots != wanted {
            missing.push(Missing { who: replica(), why: "it does not trust the roots itself yet".to_owned() });
            continue;
        }
        let unnamed = report.missing.saturating_sub(report.named.len());
        missing.extend(report.named);
        if unnamed > 0 {
            missing.push(Missing { who: replica(), why: format!("{unnamed} more of its proxies lack them") });
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_believed_while_they_are_there() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let web = Missing { who: "web-1.shop".to_owned(), why: "late".to_owned() };
        let reports = |text: String| BTreeMap::from([("b".to_owned(), text)]);
        let lacking = reports(text(std::slice::from_ref(&web), "roots", now));
        assert_eq!(of_others(&lacking, "a", "roots", now), std::slice::from_ref(&web));
        assert_eq!(of_others(&lacking, "b", "roots", now), [], "one's own is not asked");
        assert_eq!(of_others(&lacking, "a", "roots", now + FRESH * 2), [], "it is gone");
        assert_eq!(of_others(&lacking, "a", "other roots", now)[0].who, "replica b");
        assert_eq!(of_others(&reports(text(&vec![web; 25], "roots", now)), "a", "roots", now).len(), 21);
    }
}
