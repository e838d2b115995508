//! The limits of one client, by the names of istiod's settings.

use std::time::Duration;

use crate::session::push_ring::REMEMBERED;

/// What one client may do, and how the connections are kept alive.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `PILOT_MAX_REQUESTS_PER_SECOND`: streams that may begin per second. Zero, the default, is no limit: where istiod limits
    /// what it works on at once, here clients take turns.
    pub streams_per_second: f64,
    /// `ISTIO_GPRC_MAXRECVMSGSIZE`: bytes of one request. Default 4 MiB; 16 MiB in ambient mode.
    pub request_bytes: usize,
    /// `ISTIO_GPRC_MAXSTREAMS`: streams on one connection. Default 100,000.
    pub streams_per_connection: u32,
    /// `--keepaliveInterval`: quiet after which a client is asked for a sign of life. Default 30 s.
    pub keepalive_interval: Duration,
    /// `--keepaliveTimeout`: how long it may take to give it. Default 10 s.
    pub keepalive_timeout: Duration,
    /// `--keepaliveMaxServerConnectionAge`: how long a connection may live, a tenth more or less. Default 30 min, as Istio's chart
    /// has it; `None` is for ever.
    pub max_age: Option<Duration>,
    /// How long streams of a connection that came of age may go on. Default 10 s.
    pub max_age_grace: Duration,
    /// How long a stream may take to send its first request. Default 10 s.
    pub first_request: Duration,
    /// How long the rest of a request may take once some of it is there. Default 30 s.
    pub request_rest: Duration,
    /// `NAVARCH_MAX_UNAUTHENTICATED_NAMES`: resource names that a stream may watch whose client was not proved to be anybody.
    /// Default 50,000.
    pub unproved_names: usize,
    /// `NAVARCH_PUSH_HISTORY`: responses in the history of each stream: about 100 bytes each. Default 20, and
    /// [`Limits::MAX_PUSH_HISTORY`] at the most.
    pub push_history: usize,
}

impl Limits {
    /// The longest history of a stream: 100 kB.
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
            push_history: REMEMBERED,
        }
    }
}
