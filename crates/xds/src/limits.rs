//! Limits per client, named after istiod's settings.

use std::time::Duration;

use crate::session::push_ring::DEFAULT_PUSH_HISTORY;

/// Limits per client, and the keepalive settings of connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `PILOT_MAX_REQUESTS_PER_SECOND`: streams that may begin per second. Zero, the default, is no
    /// limit: istiod needs one to limit concurrent work, which is scheduled fairly among clients
    /// here.
    pub streams_per_second: f64,
    /// `ISTIO_GPRC_MAXRECVMSGSIZE`: maximum size of one request in bytes. Default 4 MiB; 16 MiB in
    /// ambient mode.
    pub request_bytes: usize,
    /// `ISTIO_GPRC_MAXSTREAMS`: maximum number of streams on one connection. Default 100,000.
    pub streams_per_connection: u32,
    /// `--keepaliveInterval`: time without activity after which a client gets a PING. Default 30 s.
    pub keepalive_interval: Duration,
    /// `--keepaliveTimeout`: time within which the client must acknowledge the PING. Default 10 s.
    pub keepalive_timeout: Duration,
    /// `--keepaliveMaxServerConnectionAge`: maximum age of a connection, with a jitter of 10%.
    /// Default 30 min, as in Istio's chart; `None` is no limit.
    pub max_age: Option<Duration>,
    /// How long streams may go on when their connection has reached its maximum age. Default 10 s.
    pub max_age_grace: Duration,
    /// Timeout for the first request of a stream. Default 10 s.
    pub first_request: Duration,
    /// Timeout for the rest of a request after its first bytes. Default 30 s.
    pub request_rest: Duration,
    /// `NAVARCH_MAX_UNAUTHENTICATED_NAMES`: resource names that a stream of an unauthenticated
    /// client may subscribe to. Default 50,000.
    pub unproved_names: usize,
    /// `NAVARCH_PUSH_HISTORY`: responses in the history of each stream, about 100 bytes each.
    /// Default 20; at most [`Limits::MAX_PUSH_HISTORY`].
    pub push_history: usize,
}

impl Limits {
    /// The maximum history of a stream: 100 kB.
    pub const MAX_PUSH_HISTORY: usize = 1000;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams_per_second: 0.0,
            request_bytes: 4 << 20,
            streams_per_connection: 100_000,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_age: Some(Duration::from_mins(30)),
            max_age_grace: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            request_rest: Duration::from_secs(30),
            unproved_names: 50_000,
            push_history: DEFAULT_PUSH_HISTORY,
        }
    }
}
