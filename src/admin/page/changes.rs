//! `/debug/view/changes`: the last changes, updated live, each from the event to the last ACK.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::rows::Rows;
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use crate::admin::why::other_input;
use navarch_push::worker::PushRecord;
use navarch_xds::connections::PushInfo;

/// Maximum number of causes shown per change.
const MAX_CAUSES: usize = 8;

/// The answers of proxies to a change.
#[derive(Debug, Default, PartialEq, Eq)]
struct ProxyResponses {
    /// Proxies that acknowledged all responses for it.
    taken: usize,
    /// Proxies that rejected one of them.
    rejected: usize,
    /// Proxies that have not answered all of them.
    waiting: usize,
    /// Proxies that were not sent it, and have not answered an older response, which may delay it.
    behind: usize,
    /// When the first response was sent and when the last was answered.
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

/// The last changes, newest first.
pub(in crate::admin) async fn changes(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let rows = Rows::from_parameters(&parameters);
    let looked = state.push.inspect(move |inspect| {
        let records: Vec<PushRecord> = rows.of(inspect.pushes.iter().rev().cloned());
        (records, inspect.pushes.len())
    });
    let Ok((records, total)) = looked.await else {
        return reply::ended();
    };
    let now = Timestamp::now();
    // Read after the records, so that responses for all of them are included.
    let sent = state.connections.all_pushes();
    let shown: Vec<Value> = records
        .iter()
        .map(|record| row(record, &sent, now))
        .collect();
    reply::json(&parameters, &rows.answer(total, &shown))
}

/// A row of the table of changes.
fn row(record: &PushRecord, sent: &[Vec<PushInfo>], now: Timestamp) -> Value {
    let began = before(now, record.began.elapsed());
    let answers = answers(record.revision, began, sent);
    let since = |moment: Option<Timestamp>| {
        moment.map(|moment| (moment.duration_since(began).as_secs_f64() * 1000.0).max(0.0))
    };
    let objects: Vec<Value> = record
        .objects
        .iter()
        .take(MAX_CAUSES)
        .map(|object| json!({ "name": object.name.to_string(), "generation": object.generation }))
        .collect();

    // Other inputs are listed only if no object changed; otherwise they are consequences of the
    // objects.
    let others = record
        .changed
        .iter()
        .filter(|_| record.objects.is_empty())
        .filter_map(other_input)
        .take(MAX_CAUSES);

    json!({
        "revision": record.revision,
        "at": began.to_string(),
        "objects": objects,
        "others": others.collect::<Vec<_>>(),
        "facts": record.facts,
        "results": record.stats.computed,
        "tookMs": record.took.as_secs_f64() * 1000.0,
        "published": record.stats.published,
        "taken": answers.taken,
        "refused": answers.rejected,
        "waiting": answers.waiting,
        "behind": answers.behind,
        "firstSentMs": since(answers.first),
        "lastAnswerMs": since(answers.last),
    })
}

/// The answers of proxies to the change of this revision, which began at that time.
fn answers(revision: u64, began: Timestamp, sent: &[Vec<PushInfo>]) -> ProxyResponses {
    let mut all = ProxyResponses::default();

    for stream in sent {
        let is_of = |one: &&PushInfo| {
            one.changes
                .is_some_and(|[first, last]| (first..=last).contains(&revision))
        };
        let mut some = false;
        let mut rejected = false;
        let mut waits = false;

        for one in stream.iter().filter(is_of) {
            some = true;
            rejected |= one.answer.is_some_and(|(_, is_taken)| !is_taken);
            waits |= one.answer.is_none();
            all.first = Some(all.first.map_or(one.at, |first| first.min(one.at)));
            let answered = one.answer.map(|(after, _)| later(one.at, after));
            all.last = all.last.max(answered);
        }

        match (some, rejected, waits) {
            (false, ..) => {
                all.behind += usize::from(
                    stream
                        .iter()
                        .any(|push| push.answer.is_none() && push.at <= began),
                );
            }
            (true, true, _) => all.rejected += 1,
            (true, false, true) => all.waiting += 1,
            (true, false, false) => all.taken += 1,
        }
    }

    all
}

/// The time that is `elapsed` before `moment`.
fn before(moment: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    moment.saturating_sub(elapsed).unwrap_or(Timestamp::MIN)
}

/// The time that is `elapsed` after `moment`.
fn later(moment: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_push::resource::ResourceType;

    fn sent(second: i64, changes: Option<[u64; 2]>, answer: Option<(u64, bool)>) -> PushInfo {
        PushInfo {
            resource_type: ResourceType::Cluster,
            at: Timestamp::from_second(second).unwrap(),
            changes,
            answers: false,
            count: 1,
            removed: 0,
            bytes: 1,
            answer: answer.map(|(after, taken)| (Duration::from_secs(after), taken)),
        }
    }

    #[test]
    fn a_proxy_is_counted_once_by_its_worst_state() {
        let streams = [
            vec![
                sent(10, Some([1, 3]), Some((5, true))),
                sent(11, Some([3, 3]), Some((1, true))),
            ],
            vec![
                sent(12, Some([2, 4]), Some((9, true))),
                sent(12, Some([3, 3]), None),
            ],
            vec![
                sent(13, Some([3, 3]), Some((1, false))),
                sent(13, Some([3, 3]), None),
            ],
            vec![sent(1, Some([4, 9]), None), sent(2, None, None)],
        ];

        let moment = |second| Some(Timestamp::from_second(second).unwrap());
        let expected = ProxyResponses {
            taken: 1,
            rejected: 1,
            waiting: 1,
            behind: 1,
            first: moment(10),
            last: moment(21),
        };

        let began = Timestamp::from_second(9).unwrap();
        assert_eq!(answers(3, began, &streams), expected);
        assert_eq!(
            answers(20, Timestamp::UNIX_EPOCH, &streams),
            ProxyResponses::default()
        );
    }
}
