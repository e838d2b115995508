//! Whether the pod is ready: Envoy is configured and live, and the agent's own parts are ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::envoy_life::AdminApi;
use crate::local_http::LocalRequest;

/// Timeout of a request to Envoy.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(3);

/// A further readiness condition: the error describes what is missing.
pub type Condition = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The readiness. Once Envoy is configured and live it stays so, and is no longer checked.
pub(super) struct Readiness {
    envoy: Option<AdminApi>,
    /// Further conditions.
    conditions: Vec<Condition>,
    /// Whether Envoy has been ready before.
    was_ready: AtomicBool,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness")
            .field("envoy", &self.envoy)
            .field("was_ready", &self.was_ready)
            .finish_non_exhaustive()
    }
}

impl Readiness {
    /// Nothing is known yet.
    pub(super) fn new(envoy: Option<AdminApi>, conditions: Vec<Condition>) -> Self {
        Self {
            envoy,
            conditions,
            was_ready: AtomicBool::new(false),
        }
    }

    /// Checks readiness; the error describes what is missing.
    pub(super) async fn check(&self) -> Result<(), String> {
        if let Some(envoy) = &self.envoy
            && !self.was_ready.load(Ordering::Relaxed)
        {
            envoy_is_ready(envoy).await?;
            self.was_ready.store(true, Ordering::Relaxed);
            tracing::info!("Envoy is ready");
        }
        self.conditions.iter().try_for_each(|condition| condition())
    }
}

/// Checks Envoy's stats.
async fn envoy_is_ready(envoy: &AdminApi) -> Result<(), String> {
    const FILTER: &str = "/stats?usedonly&filter=\
        ^(cluster_manager\\.cds|listener_manager\\.lds)\\.(update_success|update_rejected)$|\
        ^(server\\.state|listener_manager\\.workers_started)$";
    // Characters that a URL must escape.
    let path = FILTER
        .replace('\\', "%5C")
        .replace('^', "%5E")
        .replace('|', "%7C");
    let answer = LocalRequest::get(&envoy.host, envoy.port, &path, ADMIN_TIMEOUT)
        .send()
        .await;
    let answer = answer.map_err(|error| format!("failed to query Envoy's admin API: {error}"))?;
    verdict(&answer.text())
}

/// Evaluates the stats.
fn verdict(stats: &str) -> Result<(), String> {
    let counter = |name: &str| {
        let line = stats
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| *key == name)?;
        line.1.trim().parse::<u64>().ok()
    };

    let updates = |what: &str| {
        let count = |how: &str| counter(&format!("{what}.update_{how}")).unwrap_or_default();
        (count("success"), count("rejected"))
    };
    let cds = updates("cluster_manager.cds");
    let lds = updates("listener_manager.lds");
    let details = format!(
        "cds updates: {} successful, {} rejected; lds updates: {} successful, {} rejected",
        cds.0, cds.1, lds.0, lds.1
    );

    match (cds.0 > 0, lds.0 > 0, cds.1 + lds.1 > 0) {
        (true, true, _) => {}
        (false, false, _) => {
            return Err(format!(
                "no configuration received from the control plane: {details}"
            ));
        }
        (_, _, true) => {
            return Err(format!(
                "Envoy rejected the configuration of the control plane: {details}"
            ));
        }
        _ => return Err(format!("configuration is incomplete: {details}")),
    }

    match (
        counter("server.state"),
        counter("listener_manager.workers_started"),
    ) {
        (Some(0), Some(1)) => Ok(()),
        (Some(0), _) => Err("Envoy's workers have not started".to_owned()),
        (state, _) => Err(format!("Envoy is not live: {}", state_name(state))),
    }
}

/// The name of a server state.
fn state_name(state: Option<u64>) -> &'static str {
    match state {
        Some(0) => "LIVE",
        Some(1) => "DRAINING",
        Some(2) => "PRE_INITIALIZING",
        Some(3) => "INITIALIZING",
        Some(_) | None => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;

    const READY: &str = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\n\
        listener_manager.workers_started: 1\nserver.state: 0\n";

    #[test]
    fn envoy_is_ready_with_both_configurations_live_and_with_workers() {
        assert_eq!(verdict(READY), Ok(()));
        let reason = |text: &str| verdict(text).unwrap_err();
        assert!(reason(&READY.replace("state: 0", "state: 2")).contains("PRE_INITIALIZING"));
        assert!(reason(&READY.replace("started: 1", "started: 0")).contains("workers"));
        assert!(
            reason(&READY.replace("update_success", "update_rejected"))
                .contains("no configuration")
        );
        assert!(
            reason(&READY.replace("lds.update_success: 2", "lds.update_rejected: 2"))
                .contains("rejected")
        );
        assert!(reason("").contains("no configuration"));
    }
}
