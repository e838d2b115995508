//! The spans of a change.

use jiff::Timestamp;
use navarch_otlp::{Ids, Span, SpanId, Status, attribute};
use navarch_push::worker::ChangedObject;
use navarch_xds::change_progress::{Answer, ChangeResponse};
use tokio::time::Instant;

use super::DescribeInput;
use super::open::{OpenTrace, ReachedProxy};

/// Maximum length of a client's error message in a span.
const MAX_WORDS: usize = 512;

/// One moment by the wall clock and by the monotonic one: all times of a trace are computed from
/// it, so that they stay ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) wall: Timestamp,
    pub(super) steady: Instant,
}

/// Spans of one trace.
struct Trace<'a> {
    clock: &'a Clock,
    ids: &'a Ids,
    open: &'a OpenTrace,
    describe_input: DescribeInput,
    /// The first is the root.
    spans: Vec<Span>,
}

impl Clock {
    pub(super) fn now() -> Self {
        Self {
            wall: Timestamp::now(),
            steady: Instant::now(),
        }
    }

    /// A time as nanoseconds since 1970.
    fn nanoseconds(&self, moment: Instant) -> u64 {
        let ago = i128::try_from(self.steady.saturating_duration_since(moment).as_nanos())
            .unwrap_or_default();
        let after = i128::try_from(moment.saturating_duration_since(self.steady).as_nanos())
            .unwrap_or_default();
        u64::try_from(self.wall.as_nanosecond() - ago + after).unwrap_or_default()
    }
}

/// The spans of a trace: the change, and below it the watch event of each object, the snapshot, the
/// translation, and the responses and answers of each proxy. `describe_input` names inputs if no
/// object changed.
pub(super) fn of(
    open: &OpenTrace,
    clock: &Clock,
    ids: &Ids,
    describe_input: DescribeInput,
) -> Vec<Span> {
    let mut trace = Trace {
        clock,
        ids,
        open,
        describe_input,
        spans: Vec::new(),
    };

    let change = &open.change;
    let received_at = change.received_at.unwrap_or(change.began).min(change.began);
    let root = trace.add("change", None, [received_at, change.published()]);

    for object in &change.objects {
        let span = trace.add(
            "watch event",
            Some(root),
            [
                object.received_at.unwrap_or(received_at).min(change.began),
                change.began,
            ],
        );
        trace.describe(span, |span| set_object_attributes(span, object));
    }

    if change.objects.is_empty() && change.received_at.is_some() {
        trace.add("watch event", Some(root), [received_at, change.began]);
    }

    trace.add("snapshot", Some(root), [change.began, change.in_force()]);
    let translation = trace.add(
        "translation",
        Some(root),
        [change.in_force(), change.published()],
    );

    trace.describe(translation, |span| {
        span.attributes
            .push(attribute("navarch.results.computed", change.stats.computed));
        span.attributes.push(attribute(
            "navarch.collections.published",
            change.stats.published,
        ));
    });

    for proxy in open.proxies.values() {
        proxy
            .responses
            .values()
            .for_each(|response| trace.add_response(root, proxy, response));
    }

    trace.describe_change();
    trace.spans
}

impl Trace<'_> {
    /// Adds a span, and returns its ID.
    fn add(&mut self, name: &str, parent: Option<SpanId>, moments: [Instant; 2]) -> SpanId {
        let id = self.ids.span();
        let mut span = Span::internal(name, moments.map(|moment| self.clock.nanoseconds(moment)));
        span.trace_id = self.open.id.bytes();
        span.span_id = id.bytes();
        span.parent_span_id = parent.map(SpanId::bytes).unwrap_or_default();
        self.spans.push(span);
        id
    }

    /// Edits a span that was just added.
    fn describe(&mut self, id: SpanId, describe: impl FnOnce(&mut Span)) {
        let id = id.bytes();
        if let Some(span) = self.spans.iter_mut().rev().find(|span| span.span_id == id) {
            describe(span);
        }
    }

    /// Adds the responses to one proxy, and below them its answers.
    fn add_response(&mut self, root: SpanId, proxy: &ReachedProxy, response: &ChangeResponse) {
        let whose = [
            attribute("navarch.proxy", &*proxy.name),
            attribute("navarch.stream", &*proxy.stream),
            attribute("navarch.type", response.resource_type.short_name()),
        ];
        let published = self.open.change.published().min(response.at);
        let send = self.add("send", Some(root), [published, response.at]);
        self.describe(send, |span| {
            span.attributes.extend(whose.clone());
            span.attributes
                .push(attribute("navarch.resources", i64::from(response.count)));
            span.attributes.push(attribute(
                "navarch.resources.removed",
                i64::from(response.removed),
            ));
            span.attributes
                .push(attribute("navarch.bytes", i64::from(response.bytes)));

            let [first, last] = response.changes;
            if first != last {
                let revisions = format!("{first} to {last}");
                span.attributes
                    .push(attribute("navarch.revisions", revisions));
            }
        });

        let Some(Answer {
            after,
            is_taken,
            message,
        }) = &response.answer
        else {
            return;
        };

        let name = if *is_taken { "ACK" } else { "NACK" };
        let answer = self.add(name, Some(send), [response.at, response.at + *after]);
        self.describe(answer, |span| {
            span.attributes.extend(whose);
            if !is_taken {
                let message = message.as_deref().unwrap_or_default();
                let (message, _) = message.split_at(message.floor_char_boundary(MAX_WORDS));
                span.status = Some(Status::error(message.to_owned()));
            }
        });
    }

    /// Sets the attributes of the root span.
    fn describe_change(&mut self) {
        let OpenTrace { change, counts, .. } = self.open;
        let end = self
            .spans
            .iter()
            .map(|span| span.end_time_unix_nano)
            .max()
            .unwrap_or_default();

        let Some(root) = self.spans.first_mut() else {
            return;
        };

        root.end_time_unix_nano = end;

        if let Some(first) = change.objects.first() {
            set_object_attributes(root, first);
            let names: Vec<String> = change
                .objects
                .iter()
                .map(|object| object.name.to_string())
                .collect();
            root.attributes.push(attribute("navarch.objects", names));
        } else {
            let inputs = change.inputs.iter().filter_map(self.describe_input);
            let inputs: Vec<String> = inputs.collect();
            root.attributes.push(attribute("navarch.inputs", inputs));
        }

        let numbers = [
            (
                "navarch.revision",
                usize::try_from(change.revision).unwrap_or(usize::MAX),
            ),
            ("navarch.inputs.count", change.count),
            (
                "navarch.proxies.sent",
                counts.sent.max(self.open.proxies.len()),
            ),
            ("navarch.proxies.left_out", self.open.skipped()),
            ("navarch.proxies.rejected", counts.rejected),
            ("navarch.proxies.unanswered", counts.unanswered),
            ("navarch.proxies.unsent", counts.unsent),
        ];

        root.attributes
            .extend(numbers.map(|(key, number)| attribute(key, number)));

        if counts.rejected > 0 {
            root.status = Some(Status::error(format!(
                "proxies that rejected it: {}",
                counts.rejected
            )));
        }
    }
}

fn set_object_attributes(span: &mut Span, object: &ChangedObject) {
    let ChangedObject {
        name, generation, ..
    } = object;
    span.attributes.extend([
        attribute("navarch.object.kind", name.kind.as_str()),
        attribute("navarch.object.namespace", name.name.namespace.as_str()),
        attribute("navarch.object.name", &*name.name.name),
    ]);
    match generation {
        Some(generation) => span
            .attributes
            .push(attribute("navarch.object.generation", *generation)),
        None => span
            .attributes
            .push(attribute("navarch.object.removed", true)),
    }
}
