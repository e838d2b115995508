//! Open connections: what was counted for each, so that only the increase is added.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::families::METRICS;

/// Maximum number of tracked connections; others are counted when they end.
const MAX_CONNECTIONS: usize = 16_384;
/// Idle time after which a connection is removed if there is no room: the entry of its end was
/// lost.
const IDLE_TIMEOUT: Duration = Duration::from_hours(1);
/// Minimum interval between searches for idle connections.
const SWEEP_PAUSE: Duration = Duration::from_secs(10);

/// Labels by metric; `None` if a metric is dropped or does not apply to the entry.
pub(super) type Rendered = [Option<Arc<str>>; METRICS];

/// The bytes of a connection since its begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteCounts {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// What was counted for a connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The labels of its first entry.
    pub(super) rendered: Arc<Rendered>,
    pub(super) bytes: ByteCounts,
    heard: Instant,
}

/// Open connections by Envoy's id.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: HashMap<Bytes, Connection>,
    swept: Option<Instant>,
}

impl Connections {
    /// Removes a connection.
    pub(super) fn take(&mut self, id: &[u8]) -> Option<Connection> {
        self.by_id.remove(id)
    }

    /// Tracks a connection. Returns whether there was room.
    pub(super) fn keep(
        &mut self,
        id: &Bytes,
        rendered: Arc<Rendered>,
        bytes: ByteCounts,
        now: Instant,
    ) -> bool {
        if id.is_empty() {
            return false;
        }

        if self.by_id.len() >= MAX_CONNECTIONS
            && self.swept.is_none_or(|swept| now >= swept + SWEEP_PAUSE)
        {
            self.swept = Some(now);
            self.by_id
                .retain(|_, connection| now.duration_since(connection.heard) < IDLE_TIMEOUT);
        }
        let has_room = self.by_id.len() < MAX_CONNECTIONS;

        if has_room {
            self.by_id.insert(
                id.clone(),
                Connection {
                    rendered,
                    bytes,
                    heard: now,
                },
            );
        }

        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_a_lost_end_are_evicted() {
        let mut connections = Connections::default();
        let begin = Instant::now();
        let none: Arc<Rendered> = Arc::default();
        let bytes = ByteCounts {
            received: 1,
            sent: 1,
        };

        for number in 0..MAX_CONNECTIONS {
            assert!(connections.keep(&number.to_string().into(), none.clone(), bytes, begin));
        }
        assert!(!connections.keep(&Bytes::from("more"), none.clone(), bytes, begin));
        assert!(
            connections.take(b"0").is_some()
                && connections.keep(&Bytes::from("more"), none.clone(), bytes, begin)
        );
        assert!(
            !connections.keep(&Bytes::new(), none.clone(), bytes, begin),
            "without an id"
        );
        assert!(connections.keep(&Bytes::from("later"), none, bytes, begin + IDLE_TIMEOUT));
        assert_eq!(connections.by_id.len(), 1);
    }
}
