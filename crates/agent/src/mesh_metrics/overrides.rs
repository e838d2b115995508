//! The changes that a Telemetry makes to metrics and their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use navarch_base::metrics_log::{LabelValue, MetricChange, Peer, PeerAttribute, PeerField};
use navarch_base::printable::is_unprintable;

use super::families::{ALL, METRICS};
use super::labels::{Labels, UNKNOWN, is_standard};
use super::peer_attributes::KnownPeers;
use super::wire::{Texts, text};

#[derive(Debug, Default)]
pub(super) struct Overrides {
    by_metric: [Changes; METRICS],
    reads_client_labels: bool,
}

/// The changes of one metric.
#[derive(Debug, Default)]
struct Changes {
    drop: bool,
    remove: BTreeSet<String>,
    set: BTreeMap<String, NewValue>,
}

/// The new value of a label.
#[derive(Clone, Debug)]
enum NewValue {
    /// A fixed value, or that of a tag.
    Given(LabelValue),
    OfPeer(PeerAttribute),
}

impl Overrides {
    /// Changes from the name of a log. As in Istio's filter, only standard labels can be removed,
    /// and a change without a metric applies to all.
    pub(super) fn new(changes: &[MetricChange]) -> Self {
        let mut all: [Changes; METRICS] = Default::default();

        for change in changes {
            for ((_, name, _), of_metric) in ALL.iter().zip(&mut all) {
                if !change.name.is_empty() && change.name != *name {
                    continue;
                }

                if change.drop {
                    of_metric.drop = true;
                    continue;
                }

                of_metric.remove.extend(
                    change
                        .remove
                        .iter()
                        .filter(|label| is_standard(label))
                        .cloned(),
                );

                let given = change
                    .set
                    .iter()
                    .map(|(label, value)| (label, NewValue::Given(value.clone())));
                let of_peers = change
                    .peers
                    .iter()
                    .map(|(label, attribute)| (label, NewValue::OfPeer(attribute.clone())));
                of_metric.set.extend(
                    given
                        .chain(of_peers)
                        .filter_map(|(label, value)| Some((name_of(label)?, value))),
                );
            }
        }

        let reads_client_label = |attribute: &PeerAttribute| {
            attribute.peer == Peer::Downstream && matches!(attribute.field, PeerField::Label(_))
        };
        let mut of_peers = changes.iter().flat_map(|change| change.peers.values());

        Self {
            by_metric: all,
            reads_client_labels: of_peers.any(reads_client_label),
        }
    }

    /// Whether values depend on labels of the client, which no header contains.
    pub(super) fn reads_client_labels(&self) -> bool {
        self.reads_client_labels
    }

    /// The rendered labels of a metric; `None` if it is dropped. `tags` are those of the entry.
    pub(super) fn render(
        &self,
        place: usize,
        labels: &Labels<'_>,
        tags: &Texts,
        peers: &KnownPeers<'_>,
    ) -> Option<Arc<str>> {
        let changes = self.by_metric.get(place).filter(|changes| !changes.drop)?;
        let value_of = |value: &NewValue| match value {
            NewValue::OfPeer(attribute) => peers.value(attribute).to_owned(),
            NewValue::Given(LabelValue::Literal(text)) => text.clone(),
            // As in Istio's filter, an expression without a value is `unknown`.
            NewValue::Given(LabelValue::Tag(tag)) => tags
                .get(tag)
                .map(|value| text(value))
                .filter(|text| !text.is_empty())
                .unwrap_or(UNKNOWN)
                .to_owned(),
        };

        let mut line = String::with_capacity(1024);
        let standard = labels
            .iter()
            .filter(|(label, _)| !changes.remove.contains(*label));
        for (label, value) in standard {
            match changes.set.get(*label) {
                Some(other) => write(&mut line, label, &value_of(other)),
                None => write(&mut line, label, value),
            }
        }

        for (label, value) in changes.set.iter().filter(|(label, _)| !is_standard(label)) {
            write(&mut line, label, &value_of(value));
        }

        Some(line.into())
    }
}

/// A valid Prometheus label name: letters, digits and underscores, not starting with a digit. `le`
/// is reserved for buckets: a duplicate would make the whole page invalid.
fn name_of(label: &str) -> Option<String> {
    let mut name: String = label
        .chars()
        .map(|sign| {
            if sign.is_ascii_alphanumeric() {
                sign
            } else {
                '_'
            }
        })
        .collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    (!name.is_empty() && name != "le").then_some(name)
}

fn write(text: &mut String, label: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }

    text.push_str(label);
    text.push_str("=\"");

    for sign in value.chars() {
        match sign {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            sign if is_unprintable(sign) => {
                // Writing to a `String` never fails.
                let _ = write!(text, "\\\\x{:02x}", u32::from(sign));
            }
            sign => text.push(sign),
        }
    }

    text.push('"');
}
