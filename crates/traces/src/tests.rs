//! What a trace has of which proxies, and when it is finished.

use std::collections::BTreeMap;

use jiff::Timestamp;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_otlp::{Span, attribute};
use navarch_push::engine::PushStats;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::ResourceType;
use navarch_push::worker::ChangedObject;
use navarch_xds::change_progress::{Answer, ChangeProgress, ChangeResponse};
use tokio::time::Instant;

use super::*;

/// The changes of these tests have objects, so that inputs are not named.
fn no_words(_: &FactKey) -> Option<String> {
    None
}

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// A change of one VirtualService that came at a moment, of revision 7.
fn change(came: Instant) -> TracedChange {
    let name = ObjectRef {
        kind: Kind::VirtualService,
        name: NamespacedName::new("shop", "reviews"),
    };
    TracedChange {
        revision: 7,
        objects: vec![ChangedObject {
            name,
            generation: Some(3),
            received_at: Some(came),
        }],
        inputs: Vec::new(),
        count: 1,
        received_at: Some(came),
        began: came + milliseconds(1),
        taken_in: milliseconds(2),
        took: milliseconds(5),
        stats: PushStats {
            published: 2,
            computed: 4,
            ..PushStats::default()
        },
    }
}

/// A stream that was sent the change so long after it came, and answered so.
fn stream(number: u64, came: Instant, sent: u64, answer: Option<(u64, bool)>) -> ChangeProgress {
    let id = format!("sidecar~10.0.0.1~web-{number}.shop~shop.svc.cluster.local");
    let proxy = Arc::new(Proxy::parse(&id, serde_json::Value::Null, Locality::default()).unwrap());
    let answer = answer.map(|(after, is_taken)| Answer {
        after: milliseconds(after),
        is_taken,
        message: (!is_taken).then(|| Arc::from("no such thing")),
    });
    let resource_type = ResourceType::Route;

    let at = came + milliseconds(sent);
    let response = ChangeResponse {
        number: 1,
        resource_type,
        changes: [6, 7],
        at,
        count: 1,
        removed: 0,
        bytes: 9,
        answer,
    };

    let id = format!("web-{number}.shop-{number}").into();
    ChangeProgress {
        number,
        id,
        proxy,
        responses: vec![response],
        unsent: None,
    }
}

fn look(trace: &mut OpenTrace, streams: &[ChangeProgress]) {
    trace.begin_count();
    streams.iter().for_each(|stream| trace.see(stream));
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// Milliseconds from the begin of the trace to a span's begin and end.
fn times(spans: &[Span], span: &Span) -> [u64; 2] {
    let zero = spans[0].start_time_unix_nano;
    [span.start_time_unix_nano, span.end_time_unix_nano].map(|time| (time - zero) / 1_000_000)
}

#[test]
fn each_step_is_a_child_span_with_its_times() {
    let ids = Ids::default();
    let came = Instant::now();
    let mut trace = OpenTrace::new(ids.trace(), change(came));
    let streams = [
        stream(1, came, 8, Some((20, true))),
        stream(2, came, 9, Some((30, false))),
    ];
    look(&mut trace, &streams);

    let clock = Clock {
        wall: Timestamp::from_second(1_000_000).unwrap(),
        steady: came,
    };
    let spans = spans::of(&trace, &clock, &ids, no_words);
    let root = &spans[0];
    assert_eq!(
        (root.name.as_str(), root.start_time_unix_nano),
        ("change", 1_000_000_000_000_000)
    );

    assert!(spans.iter().all(|span| span.trace_id == root.trace_id));

    for (name, expected) in [
        ("change", [0, 39]),
        ("watch event", [0, 1]),
        ("snapshot", [1, 3]),
        ("translation", [3, 6]),
        ("ACK", [8, 28]),
        ("NACK", [9, 39]),
    ] {
        let [span] = named(&spans, name)
            .try_into()
            .unwrap_or_else(|all| panic!("{name}: {all:?}"));
        assert_eq!(times(&spans, span), expected, "{name}");
    }

    let sends = named(&spans, "send");
    assert_eq!(
        sends
            .iter()
            .map(|span| times(&spans, span))
            .collect::<Vec<_>>(),
        [[6, 8], [6, 9]]
    );

    for name in ["watch event", "snapshot", "translation", "send"] {
        assert!(
            named(&spans, name)
                .iter()
                .all(|span| span.parent_span_id == root.span_id),
            "{name}"
        );
    }

    assert_eq!(named(&spans, "ACK")[0].parent_span_id, sends[0].span_id);
    assert_eq!(named(&spans, "NACK")[0].parent_span_id, sends[1].span_id);
    assert_eq!(
        named(&spans, "NACK")[0].status,
        Some(navarch_otlp::Status::error("no such thing".to_owned()))
    );
    let recorded = |key: &str| root.attributes.iter().find(|one| one.key == key).cloned();
    assert_eq!(
        recorded("navarch.object.name"),
        Some(attribute("navarch.object.name", "reviews"))
    );

    assert_eq!(
        recorded("navarch.object.generation"),
        Some(attribute("navarch.object.generation", 3_i64))
    );
    assert_eq!(
        recorded("navarch.proxies.rejected"),
        Some(attribute("navarch.proxies.rejected", 1_usize))
    );

    assert!(root.status.is_some());
}

#[test]
fn a_span_of_an_early_response_starts_before_it_ends() {
    let ids = Ids::default();
    let came = Instant::now();
    let mut trace = OpenTrace::new(ids.trace(), change(came));
    look(&mut trace, &[stream(1, came, 4, None)]);
    let spans = spans::of(
        &trace,
        &Clock {
            wall: Timestamp::from_second(1).unwrap(),
            steady: came,
        },
        &ids,
        no_words,
    );
    assert_eq!(times(&spans, named(&spans, "send")[0]), [4, 4]);
    assert_eq!(named(&spans, "ACK").len() + named(&spans, "NACK").len(), 0);
}

#[test]
fn traces_list_the_worst_proxies_and_count_the_others() {
    let came = Instant::now();
    let mut trace = OpenTrace::new(Ids::default().trace(), change(came));
    let mut streams: Vec<_> = (0..100)
        .map(|number| stream(number, came, 8, Some((number, true))))
        .collect();
    streams[3] = stream(3, came, 8, Some((1, false)));
    streams[4] = stream(4, came, 8, None);
    look(&mut trace, &streams);

    look(&mut trace, &streams);
    let kept: Vec<u64> = trace.proxies.keys().copied().collect();
    assert_eq!(kept, [3, 4].into_iter().chain(70..100).collect::<Vec<_>>());
    assert_eq!(
        (
            trace.counts.sent,
            trace.counts.rejected,
            trace.counts.unanswered,
            trace.skipped()
        ),
        (100, 1, 1, 68)
    );
}

#[test]
fn a_trace_ends_once_two_looks_find_nothing_on_its_way_or_after_a_time() {
    let came = Instant::now();
    let mut trace = OpenTrace::new(Ids::default().trace(), change(came));
    let done = |trace: &OpenTrace, seconds| trace.is_done(came + Duration::from_secs(seconds));
    let waiting = ChangeProgress {
        unsent: Some(7),
        responses: Vec::new(),
        ..stream(1, came, 8, None)
    };

    let later = ChangeProgress {
        unsent: Some(8),
        responses: Vec::new(),
        ..stream(1, came, 8, None)
    };

    let steps = [
        (waiting, false),
        (stream(1, came, 8, None), false),
        (stream(1, came, 8, Some((1, true))), false),
        (later, true),
    ];

    for (stream, is_done) in steps {
        look(&mut trace, std::slice::from_ref(&stream));
        assert_eq!(done(&trace, 1), is_done, "{stream:?}");
    }

    let mut never = OpenTrace::new(Ids::default().trace(), change(came));
    look(&mut never, &[stream(1, came, 8, None)]);
    assert_eq!((done(&never, 19), done(&never, 21)), (false, true));
    assert_eq!(
        never
            .proxies
            .values()
            .map(|proxy| proxy.responses.clone())
            .map(|all: BTreeMap<_, _>| all.len())
            .sum::<usize>(),
        1
    );
}
