//! Draining: Envoy closes connections, and the agent waits until it has.

use std::time::Duration;

use tokio::time::sleep;

use super::admin::AdminApi;
use crate::local_http::LocalRequest;

/// Interval at which connections are counted while Envoy drains.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive errors after which counting is aborted.
const MAX_FAILURES: u32 = 5;

/// How Envoy is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainPlan {
    /// Envoy's admin API.
    pub admin: AdminApi,
    /// Whether only inbound listeners are drained: a sidecar's application may still send requests.
    pub inbound_only: bool,
    /// The drain duration (`terminationDrainDuration`).
    pub duration: Duration,
    /// The minimum drain duration (`MINIMUM_DRAIN_DURATION`), if Envoy drains until no connection
    /// is left instead (`EXIT_ON_ZERO_ACTIVE_CONNECTIONS`).
    pub until_unused: Option<Duration>,
    /// Ports of listeners whose connections belong to the mesh itself.
    pub own_ports: Vec<u16>,
}

/// What Envoy does after draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterDrain {
    /// It keeps running.
    GoOn,
    /// It closes its listeners.
    Close,
}

impl DrainPlan {
    /// Starts draining.
    pub(super) async fn drain(&self, afterwards: AfterDrain) {
        let inbound = if self.inbound_only {
            "inboundonly&"
        } else {
            ""
        };

        let stay = match afterwards {
            AfterDrain::GoOn => "&skip_exit",
            AfterDrain::Close => "",
        };
        let path = format!("/drain_listeners?{inbound}graceful{stay}");
        let question = LocalRequest::post(
            &self.admin.host,
            self.admin.port,
            &path,
            Duration::from_secs(5),
        );

        match self.admin.send(question).await {
            Ok(_) => tracing::info!(inbound_only = self.inbound_only, "draining Envoy"),
            Err(error) => tracing::warn!(%error, "failed to start draining Envoy"),
        }
    }

    /// Drains for the configured time.
    pub(super) async fn drain_and_wait(&self) {
        self.drain(AfterDrain::Close).await;
        match self.until_unused {
            None => sleep(self.duration).await,
            Some(least) => {
                sleep(least).await;
                self.wait_until_unused().await;
            }
        }
    }

    /// Waits until Envoy has no connections, or counting fails.
    async fn wait_until_unused(&self) {
        let mut failures = 0;
        while failures < MAX_FAILURES {
            sleep(COUNT_INTERVAL).await;
            let path = "/stats?usedonly&filter=downstream_cx_active$";
            let question = LocalRequest::get(
                &self.admin.host,
                self.admin.port,
                path,
                Duration::from_secs(2),
            );

            match self.admin.send(question).await {
                Ok(stats) => match active_connections(&stats, &self.own_ports) {
                    None | Some(0) => return,
                    Some(connections) => {
                        tracing::info!(connections, "waiting for Envoy's connections to close");
                        failures = 0;
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to count Envoy's connections");
                    failures += 1;
                }
            }
        }
    }
}

/// Number of connections of all listeners except those of Envoy and of the mesh; `None` if the
/// stats contain none.
fn active_connections(stats: &str, own_ports: &[u16]) -> Option<u64> {
    let mut lines = stats.lines().filter(|line| !line.is_empty()).peekable();
    lines.peek()?;
    let own = |name: &str| {
        name.starts_with("listener.envoy_internal_")
            || name.starts_with("listener.admin.")
            || own_ports.iter().any(|port| {
                ["0.0.0.0", "[__]", "__"]
                    .iter()
                    .any(|any| name == format!("listener.{any}_{port}.downstream_cx_active"))
            })
    };

    // The worker stats repeat those of their listener.
    let counted =
        |name: &str| name.starts_with("listener.") && !name.contains("worker_") && !own(name);
    let counts = lines
        .filter_map(|line| line.rsplit_once(':'))
        .filter(|(name, _)| counted(name));

    Some(
        counts
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_others_count() {
        let stats = "http.x.downstream_cx_active: 9\nlistener.0.0.0.0_15021.downstream_cx_active: 1\n\
            listener.admin.main_thread.downstream_cx_active: 1\nlistener.0.0.0.0_15006.worker_0.downstream_cx_active: 2\n\
            listener.0.0.0.0_15006.downstream_cx_active: 2\nlistener.envoy_internal_main.downstream_cx_active: 4\n";
        assert_eq!(active_connections(stats, &[15021, 15090]), Some(2));
        assert_eq!(active_connections("", &[]), None);
    }
}
