//! Connections to the application that are kept between probes
//! (`ENABLE_PROBE_KEEPALIVE_CONNECTIONS`).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use navarch_net::http::ClientConnection;
use parking_lot::Mutex;

/// Maximum number of idle connections: redirects of the application may lead to any of its ports.
const MAX_IDLE: usize = 16;

/// A connection for probes.
pub(super) type ProbeConnection = ClientConnection<Full<Bytes>>;

/// A port of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApplicationPort {
    /// The port's number.
    pub(super) number: u16,
    /// Whether to use TLS.
    pub(super) tls: bool,
}

/// Idle connections to the application, at most one for each of its ports.
pub(super) struct KeptConnections {
    is_enabled: bool,
    idle: Mutex<BTreeMap<ApplicationPort, ProbeConnection>>,
}

impl KeptConnections {
    /// No connections; none will be kept unless this `is_enabled`.
    pub(super) fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            idle: Mutex::default(),
        }
    }

    /// Whether connections are kept.
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// The idle connection to a port, if there is one. The application may have closed it.
    pub(super) fn take(&self, port: ApplicationPort) -> Option<ProbeConnection> {
        self.idle.lock().remove(&port)
    }

    /// Keeps a connection whose last response was read completely.
    pub(super) fn put(&self, port: ApplicationPort, connection: ProbeConnection) {
        if !self.is_enabled || !connection.is_open() {
            return;
        }

        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE || idle.contains_key(&port) {
            idle.insert(port, connection);
        }
    }
}

impl fmt::Debug for KeptConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptConnections")
            .field("is_enabled", &self.is_enabled)
            .finish_non_exhaustive()
    }
}
