//! Draining: Envoy lets clients go, and the agent waits for it.

use std::time::Duration;

use tokio::time::sleep;

use crate::local_http::{HttpError, Question};

/// How often connections are counted while Envoy drains.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// How often counting may fail before it is given up.
const MAX_FAILURES: u32 = 5;

/// Envoy's admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminApi {
    /// The loopback address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How Envoy is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainPlan {
    /// Envoy's admin API.
    pub admin: AdminApi,
    /// Whether inbound listeners alone are drained: a sidecar's application may still call others.
    pub inbound_only: bool,
    /// How long it drains (`terminationDrainDuration`).
    pub duration: Duration,
    /// Whether instead it drains until no connection is left (`EXIT_ON_ZERO_ACTIVE_CONNECTIONS`), and the least time that
    /// it drains then (`MINIMUM_DRAIN_DURATION`).
    pub until_unused: Option<Duration>,
    /// Ports of listeners whose connections are the mesh's own.
    pub own_ports: Vec<u16>,
}

/// What Envoy does when it has drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// It keeps running.
    GoOn,
    /// It closes its listeners.
    Close,
}

impl AdminApi {
    /// Asks the admin API; `None` unless Envoy answers with success.
    async fn ask(&self, question: Question) -> Result<String, HttpError> {
        let answer = question.ask().await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}

impl DrainPlan {
    /// Tells Envoy to drain.
    pub(super) async fn drain(&self, afterwards: Afterwards) {
        let inbound = if self.inbound_only { "inboundonly&" } else { "" };
        let stay = match afterwards {
            Afterwards::GoOn => "&skip_exit",
            Afterwards::Close => "",
        };
        let path = format!("/drain_listeners?{inbound}graceful{stay}");
        let question = Question::post(&self.admin.host, self.admin.port, &path, Duration::from_secs(5));
        match self.admin.ask(question).await {
            Ok(_) => tracing::info!(inbound_only = self.inbound_only, "draining Envoy"),
            Err(error) => tracing::warn!(%error, "failed to start draining Envoy"),
        }
    }

    /// Drains as long as planned.
    pub(super) async fn drain_and_wait(&self) {
        self.drain(Afterwards::Close).await;
        match self.until_unused {
            None => sleep(self.duration).await,
            Some(least) => {
                sleep(least).await;
                self.wait_until_unused().await;
            }
        }
    }

    /// Waits until Envoy has no connection, or cannot tell.
    async fn wait_until_unused(&self) {
        let mut failures = 0;
        while failures < MAX_FAILURES {
            sleep(COUNT_INTERVAL).await;
            let path = "/stats?usedonly&filter=downstream_cx_active$";
            let question = Question::get(&self.admin.host, self.admin.port, path, Duration::from_secs(2));
            match self.admin.ask(question).await {
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

/// The connections of all listeners but Envoy's and the mesh's own; `None` where nothing is counted.
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
    // Workers count what their listener has counted already.
    let counted = |name: &str| name.starts_with("listener.") && !name.contains("worker_") && !own(name);
    let counts = lines.filter_map(|line| line.rsplit_once(':')).filter(|(name, _)| counted(name));
    Some(counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum())
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
