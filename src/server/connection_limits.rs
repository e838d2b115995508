//! Connection limits of the ports.

use navarch_net::port::PortLimits;

/// Default maximum of connections of an xDS port: more than one control plane serves.
const DEFAULT_XDS_CONNECTIONS: usize = 32_768;
/// Default maximum of the webhooks' port. API servers need a handful.
const DEFAULT_WEBHOOK_CONNECTIONS: usize = 1024;
/// Default maximum of the ports of health, metrics and debug pages.
const DEFAULT_HTTP_CONNECTIONS: usize = 512;
/// Default maximum of concurrent TLS handshakes of a port.
const DEFAULT_HANDSHAKES: usize = 1024;
/// Connections that a large mesh needs: lower limits are logged.
const MIN_CONNECTIONS: usize = 5000;

/// Connection limits of the ports. Beyond a limit, the idlest connection of the client that has the
/// most is closed, so that small limits block no client for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// `NAVARCH_MAX_XDS_CONNECTIONS`: on each of the ports 15010 and 15012. Default 32,768, or 3 of
    /// 8 files that the process may have open.
    pub xds: usize,
    /// `NAVARCH_MAX_WEBHOOK_CONNECTIONS`: on port 15017. Default 1,024, or 1 of 24 files.
    pub webhooks: usize,
    /// `NAVARCH_MAX_HTTP_CONNECTIONS`: on each of the ports 8080 and 15014. Default 512, or 1 of 48
    /// files.
    pub http: usize,
    /// `NAVARCH_MAX_TLS_HANDSHAKES`: those of the connections on each of the ports 15012 and 15017
    /// that have not finished their TLS handshake. Default 1,024, or a fifth of the port's
    /// connections.
    pub handshakes: Option<usize>,
}

impl ConnectionLimits {
    /// The defaults for a limit of open files. A sixth is left for files and for connections that
    /// Navarch itself opens.
    #[must_use]
    pub fn of_files(files: usize) -> Self {
        let share = |of_48: usize, most: usize| (files.saturating_mul(of_48) / 48).clamp(16, most);
        Self {
            xds: share(18, DEFAULT_XDS_CONNECTIONS),
            webhooks: share(2, DEFAULT_WEBHOOK_CONNECTIONS),
            http: share(1, DEFAULT_HTTP_CONNECTIONS),
            handshakes: None,
        }
    }

    /// Logs the limits, and warns if they are unreachable or low.
    pub(super) fn log(&self, files: usize) {
        let Self {
            xds,
            webhooks,
            http,
            ..
        } = *self;

        let all = 2 * xds + webhooks + 2 * http;
        if all > files {
            tracing::warn!(
                files,
                all,
                "connection limits exceed the limit of open files (RLIMIT_NOFILE)"
            );
        }

        if xds < MIN_CONNECTIONS {
            tracing::warn!(
                files,
                xds,
                "few connections allowed per xDS port: raise the limit of open files (RLIMIT_NOFILE)"
            );
        }

        tracing::info!(files, xds, webhooks, http, "connection limits per port");
    }

    pub(super) fn tls(&self, connections: usize) -> PortLimits {
        let handshakes = self
            .handshakes
            .unwrap_or_else(|| (connections / 5).clamp(8, DEFAULT_HANDSHAKES));
        PortLimits {
            connections,
            handshakes: Some(handshakes),
            loopback: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_kept_under_the_limit_of_files() {
        for files in [1024, 4096, 20_000, 1 << 20] {
            let limits = ConnectionLimits::of_files(files);
            assert!(
                2 * limits.xds + limits.webhooks + 2 * limits.http <= files - files / 6,
                "{files}: {limits:?}"
            );
        }
        assert!(
            ConnectionLimits::of_files(20_000).xds >= 5000,
            "load tests open this number from one address"
        );
        assert_eq!(
            ConnectionLimits::of_files(usize::MAX).xds,
            DEFAULT_XDS_CONNECTIONS
        );
    }
}
