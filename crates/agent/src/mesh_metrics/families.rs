//! The metrics by name and labels, and their Prometheus exposition.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::histogram::Histogram;

/// Idle time after which a label set may be removed to make room.
const IDLE: Duration = Duration::from_mins(15);
/// Minimum interval between searches for idle label sets.
const SWEEP_PAUSE: Duration = Duration::from_secs(10);
/// Number of label sets per part of the exposition.
const PAGE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Requests,
    /// Duration of requests in milliseconds.
    Duration,
    /// Received bytes.
    RequestBytes,
    /// Sent bytes.
    ResponseBytes,
    /// Received gRPC messages.
    RequestMessages,
    /// Sent gRPC messages.
    ResponseMessages,
    /// Opened connections.
    Opened,
    /// Closed connections.
    Closed,
    /// Bytes sent to the client of a connection.
    Sent,
    /// Bytes received from the client of a connection.
    Received,
}

pub(super) const METRICS: usize = 10;
/// All metrics in order, with the name after `istio_` and the help text.
pub(super) const ALL: [(Metric, &str, &str); METRICS] = [
    (
        Metric::Requests,
        "requests_total",
        "Requests that the proxy handled",
    ),
    (
        Metric::Duration,
        "request_duration_milliseconds",
        "Milliseconds that requests took",
    ),
    (
        Metric::RequestBytes,
        "request_bytes",
        "Bytes of requests, headers included",
    ),
    (
        Metric::ResponseBytes,
        "response_bytes",
        "Bytes of responses, headers included",
    ),
    (
        Metric::RequestMessages,
        "request_messages_total",
        "gRPC messages that clients sent",
    ),
    (
        Metric::ResponseMessages,
        "response_messages_total",
        "gRPC messages that servers sent",
    ),
    (
        Metric::Opened,
        "tcp_connections_opened_total",
        "TCP connections that were opened",
    ),
    (
        Metric::Closed,
        "tcp_connections_closed_total",
        "TCP connections that were closed",
    ),
    (
        Metric::Sent,
        "tcp_sent_bytes_total",
        "Bytes that TCP connections sent to clients",
    ),
    (
        Metric::Received,
        "tcp_received_bytes_total",
        "Bytes that TCP connections received from clients",
    ),
];
/// Further metrics: names, types and help texts.
const FURTHER_METRICS: [(&str, &str, &str); 3] = [
    (BUILD, "gauge", "The release of the proxy"),
    (
        LABEL_SETS,
        "gauge",
        "Label sets of the mesh metrics that are derived from access logs",
    ),
    (
        DROPPED,
        "counter",
        "Values that were not counted because there are too many label sets",
    ),
];
/// The name of Istio's metric for releases.
const BUILD: &str = "istio_build";
const LABEL_SETS: &str = "navarch_mesh_metrics_label_sets";
const DROPPED: &str = "navarch_mesh_metrics_dropped_total";

/// The handles of an entry's label sets by metric; `None` if a metric is dropped or was not counted
/// yet.
pub(super) type Handles = [Option<u32>; METRICS];

#[derive(Clone, Debug)]
enum Value {
    Count(u64),
    Histogram(Box<Histogram>),
}

/// A label set with its value.
#[derive(Clone, Debug)]
struct Set {
    labels: Arc<str>,
    value: Value,
    used: Instant,
}

/// A metric with all of its label sets.
#[derive(Debug, Default)]
struct MetricFamily {
    by_labels: HashMap<Arc<str>, u32>,
    /// Indexes are stable while they are in use.
    sets: Vec<Option<Set>>,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Families {
    families: [MetricFamily; METRICS],
    limit: usize,
    /// Number of label sets.
    count: usize,
    /// Number of values that were dropped because of the limit.
    dropped: u64,
    /// Time of the last search for idle label sets.
    swept: Option<Instant>,
    /// The proxy's release, once there is a log; Istio's filter exposes it, too.
    pub(super) release: Option<Arc<str>>,
}

/// The position within an exposition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    metric: usize,
    set: usize,
}

impl Cursor {
    /// Whether nothing was written yet.
    pub(super) fn is_begin(self) -> bool {
        self.metric == 0 && self.set == 0
    }
}

impl Metric {
    pub(super) fn place(self) -> usize {
        self as usize
    }

    /// The Prometheus type.
    fn kind(self) -> &'static str {
        match self.zero() {
            Value::Count(_) => "counter",
            Value::Histogram(_) => "histogram",
        }
    }

    /// The initial value.
    fn zero(self) -> Value {
        match self {
            Self::Duration | Self::RequestBytes | Self::ResponseBytes => {
                Value::Histogram(Box::default())
            }
            Self::Requests
            | Self::RequestMessages
            | Self::ResponseMessages
            | Self::Opened
            | Self::Closed
            | Self::Sent
            | Self::Received => Value::Count(0),
        }
    }
}

impl Families {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            families: Default::default(),
            limit,
            count: 0,
            dropped: 0,
            swept: None,
            release: None,
        }
    }

    /// The handle of a label set, which is inserted if there is room.
    pub(super) fn place(&mut self, metric: Metric, labels: &Arc<str>, now: Instant) -> Option<u32> {
        let family = self.families.get_mut(metric.place())?;
        if let Some(place) = family.by_labels.get(labels) {
            return Some(*place);
        }

        if self.count >= self.limit {
            return None;
        }

        self.count += 1;
        let set = Some(Set {
            labels: labels.clone(),
            value: metric.zero(),
            used: now,
        });

        let place = match family.free.pop() {
            Some(place) => {
                *family.sets.get_mut(place as usize)? = set;
                place
            }
            None => {
                family.sets.push(set);
                u32::try_from(family.sets.len() - 1).ok()?
            }
        };

        family.by_labels.insert(labels.clone(), place);
        Some(place)
    }

    /// Adds to a counter or observes in a histogram. Without a handle, the value is counted as
    /// dropped.
    pub(super) fn add(&mut self, metric: Metric, place: Option<u32>, amount: u64, now: Instant) {
        let family = self.families.get_mut(metric.place());
        let set = family
            .zip(place)
            .and_then(|(family, place)| family.sets.get_mut(place as usize)?.as_mut());
        match set {
            Some(set) => {
                set.used = now;
                match &mut set.value {
                    Value::Count(count) => *count = count.saturating_add(amount),
                    Value::Histogram(histogram) => histogram.observe(amount),
                }
            }
            None => self.dropped += 1,
        }
    }

    /// Removes idle label sets if there is no room. Returns whether earlier handles may be invalid.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        if self.count < self.limit || self.swept.is_some_and(|swept| now < swept + SWEEP_PAUSE) {
            return false;
        }

        self.swept = Some(now);
        let before = self.count;

        for family in &mut self.families {
            for (place, set) in family.sets.iter_mut().enumerate() {
                if let Some(idle) = set.take_if(|set| now.duration_since(set.used) >= IDLE) {
                    family.by_labels.remove(&idle.labels);
                    family.free.extend(u32::try_from(place));
                    self.count -= 1;
                }
            }
        }

        tracing::warn!(
            limit = self.limit,
            freed = before - self.count,
            "the mesh metrics reached the limit of label sets"
        );

        self.count < before
    }

    /// The next part of the exposition.
    pub(super) fn page(&self, cursor: &mut Cursor) -> Option<String> {
        while let Some(((metric, name, help), family)) =
            ALL.get(cursor.metric).zip(self.families.get(cursor.metric))
        {
            let mut text = String::new();
            let page = family
                .sets
                .iter()
                .enumerate()
                .skip(cursor.set)
                .filter_map(|(place, set)| Some((place, set.as_ref()?)));
            let mut next = None;
            for (place, set) in page.take(PAGE) {
                if cursor.set == 0 && next.is_none() {
                    text.push_str(&head(&format!("istio_{name}"), metric.kind(), help));
                }
                set.write(&mut text, name);
                next = Some(place + 1);
            }

            match next {
                Some(set) => {
                    cursor.set = set;
                    return Some(text);
                }
                None => {
                    *cursor = Cursor {
                        metric: cursor.metric + 1,
                        set: 0,
                    }
                }
            }
        }

        // The agent's own metrics are a part of their own at the end.
        let is_last = cursor.metric == METRICS;
        cursor.metric = METRICS + 1;
        is_last.then(|| self.own_metrics())
    }

    /// Number of label sets, and of dropped values.
    fn own_metrics(&self) -> String {
        let lines = FURTHER_METRICS.iter().filter_map(|(name, kind, help)| {
            let line = match *name {
                BUILD => format!(
                    "{BUILD}{{component=\"proxy\",tag=\"{}\"}} 1\n",
                    self.release.as_deref()?
                ),
                LABEL_SETS => format!("{LABEL_SETS} {}\n", self.count),
                _ => format!("{DROPPED} {}\n", self.dropped),
            };
            Some(head(name, kind, help) + &line)
        });
        lines.collect()
    }
}

/// The `# HELP` and `# TYPE` lines of a metric.
fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// The `# HELP` and `# TYPE` lines of all metrics, even those without values.
pub(super) fn heads() -> String {
    let of_mesh = ALL
        .iter()
        .map(|(metric, name, help)| head(&format!("istio_{name}"), metric.kind(), help));
    of_mesh
        .chain(
            FURTHER_METRICS
                .iter()
                .map(|(name, kind, help)| head(name, kind, help)),
        )
        .collect()
}

impl Set {
    /// Writes all lines of a label set.
    fn write(&self, text: &mut String, name: &str) {
        let Self { labels, value, .. } = self;

        // Writing to a `String` never fails.
        let _ = match value {
            Value::Count(count) => writeln!(text, "istio_{name}{{{labels}}} {count}"),
            Value::Histogram(histogram) => {
                for (bound, count) in histogram.cumulative() {
                    let _ = writeln!(
                        text,
                        "istio_{name}_bucket{{{labels},le=\"{bound}\"}} {count}"
                    );
                }
                let Histogram { sum, count, .. } = &**histogram;
                writeln!(
                    text,
                    "istio_{name}_bucket{{{labels},le=\"+Inf\"}} {count}\nistio_{name}_sum{{{labels}}} {sum}\n\
                     istio_{name}_count{{{labels}}} {count}"
                )
            }
        };
    }
}
