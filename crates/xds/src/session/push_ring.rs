//! The last responses of one stream, with the reason of each and the time of the client's answer.
//! For debug pages.

use std::collections::VecDeque;
use std::time::Duration;

use navarch_push::resource::ResourceType;

/// Default number of responses in the history of a stream: less than 2 kB.
pub(crate) const DEFAULT_PUSH_HISTORY: usize = 20;

/// The reason of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The first and the last snapshot whose changes it contains.
    pub(crate) changes: Option<[u64; 2]>,
    /// Whether it is the response to a subscription.
    pub(crate) answers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PushRecord {
    pub(crate) resource_type: ResourceType,
    /// The number in the nonce.
    pub(crate) number: u64,
    pub(crate) reason: Reason,
    /// When it was sent, since the start of the stream.
    pub(crate) at: Duration,
    /// Number of resources.
    pub(crate) count: u32,
    /// Number of removed names.
    pub(crate) removed: u32,
    /// Size of the resources in bytes.
    pub(crate) bytes: u32,
    /// Time until the client's answer, and whether it was an ACK.
    pub(crate) answer: Option<(Duration, bool)>,
}

/// The last responses of a stream, for debug pages.
#[derive(Debug)]
pub(crate) struct PushRing {
    /// Oldest first.
    sent: VecDeque<PushRecord>,
    /// Maximum number of responses.
    most: usize,
}

impl Reason {
    /// Merges the reason of an earlier unsent change.
    pub(crate) fn add(&mut self, other: Self) {
        self.answers |= other.answers;
        self.changes = match (self.changes, other.changes) {
            (Some([first, _]), Some([_, last])) => Some([first, last]),
            (one, other) => one.or(other),
        };
    }
}

impl PushRecord {
    /// Whether this is the nonce of the response, by its last part.
    pub(crate) fn has_nonce(&self, nonce: &str) -> bool {
        let number = nonce.rsplit('.').next();
        number.and_then(|number| number.parse().ok()) == Some(self.number)
    }
}

impl PushRing {
    /// A ring of at most `most` responses; with 0 it is always empty.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            sent: VecDeque::new(),
            most,
        }
    }

    /// Adds a response.
    pub(crate) fn sent(&mut self, sent: PushRecord) {
        if self.most == 0 {
            return;
        }
        if self.sent.len() >= self.most {
            self.sent.pop_front();
        }
        self.sent.reserve_exact(1);
        self.sent.push_back(sent);
    }

    /// Records the client's answer to the response with this nonce; only the first answer counts.
    pub(crate) fn answered(&mut self, nonce: &str, is_taken: bool, now: Duration) {
        let found = self
            .sent
            .iter_mut()
            .rev()
            .find(|sent| sent.answer.is_none() && sent.has_nonce(nonce));
        if let Some(sent) = found {
            sent.answer = Some((now.saturating_sub(sent.at), is_taken));
        }
    }

    /// All responses in the history, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PushRecord> {
        self.sent.iter()
    }

    /// Memory in bytes, including the struct itself.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.sent.capacity() * size_of::<PushRecord>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(number: u64) -> PushRecord {
        let at = Duration::from_secs(number);
        let reason = Reason::default();
        PushRecord {
            resource_type: ResourceType::Cluster,
            number,
            reason,
            at,
            count: 1,
            removed: 0,
            bytes: 9,
            answer: None,
        }
    }

    #[test]
    fn the_last_responses_are_kept_in_less_than_two_kilobytes() {
        let mut ring = PushRing::new(DEFAULT_PUSH_HISTORY);
        (1..100).for_each(|number| ring.sent(sent(number)));
        assert_eq!(
            ring.iter().map(|sent| sent.number).collect::<Vec<_>>(),
            (80..100).collect::<Vec<_>>()
        );
        assert!(ring.bytes() <= 2000, "{}", ring.bytes());
        ring.answered("4.98", false, Duration::from_secs(100));

        ring.answered("4.5", true, Duration::from_secs(100));
        let answers: Vec<_> = ring
            .iter()
            .filter_map(|sent| Some((sent.number, sent.answer?)))
            .collect();
        assert_eq!(answers, [(98, (Duration::from_secs(2), false))]);
        let mut none = PushRing::new(0);
        none.sent(sent(1));

        assert_eq!(
            (none.iter().count(), none.bytes()),
            (0, size_of::<PushRing>())
        );
    }

    #[test]
    fn added_reasons_span_all_changes_and_keep_the_answer() {
        let mut reason = Reason {
            changes: Some([3, 3]),
            answers: false,
        };
        reason.add(Reason {
            changes: None,
            answers: true,
        });

        reason.add(Reason {
            changes: Some([7, 8]),
            answers: false,
        });
        assert_eq!(
            reason,
            Reason {
                changes: Some([3, 8]),
                answers: true
            }
        );
    }
}
