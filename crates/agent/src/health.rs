//! Health checks of the application, for workloads without a kubelet: on VMs and plain hosts.

mod probe;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ads::Health;
use navarch_api::mesh::ReadinessProbe;
use probe::ProbeError;

/// Settings of the health checks.
#[derive(Clone, Debug)]
pub struct HealthConfig {
    /// The probe (`readinessProbe` of the proxy config).
    pub probe: ReadinessProbe,
    /// The default host of the probe: the workload's first address, or `localhost`.
    pub host: String,
    /// The agent's status server, whose `/healthz/ready` reports Envoy's readiness: traffic needs
    /// both.
    pub proxy: Option<SocketAddr>,
}

/// Consecutive equal results of a probe.
#[derive(Clone, Copy, Debug)]
struct Streak {
    is_success: bool,
    length: u32,
}

/// Decides by consecutive results of a probe whether the application is ready.
#[derive(Clone, Debug)]
struct ProbeThresholds {
    /// Consecutive successes that make it ready.
    successes: u32,
    /// Consecutive failures that make it not ready.
    failures: u32,
    /// The last results.
    streak: Streak,
    /// The last reported readiness.
    reported: Option<bool>,
}

impl ProbeThresholds {
    /// A counter with the thresholds of a probe.
    fn new(probe: &ReadinessProbe) -> Self {
        let count = |count: i32| u32::try_from(count).unwrap_or(0).max(1);
        let successes = count(probe.success_threshold);
        let failures = count(probe.failure_threshold);
        Self {
            successes,
            failures,
            streak: Streak {
                is_success: true,
                length: 0,
            },
            reported: None,
        }
    }

    /// Counts a result; returns the readiness if it has changed.
    fn add_result(&mut self, is_success: bool) -> Option<bool> {
        let length = if self.streak.is_success == is_success {
            self.streak.length.saturating_add(1)
        } else {
            1
        };
        self.streak = Streak { is_success, length };

        let enough = if is_success {
            self.successes
        } else {
            self.failures
        };
        if length < enough || self.reported == Some(is_success) {
            return None;
        }

        self.reported = Some(is_success);
        Some(is_success)
    }
}

/// The receiver of health changes, and the task that checks the health.
pub fn start(
    config: HealthConfig,
    stop: CancellationToken,
) -> (
    watch::Receiver<Option<Health>>,
    impl Future<Output = ()> + Send + 'static,
) {
    let (sender, receiver) = watch::channel(None);
    let task = async move {
        tokio::select! {
            () = watch_over(config, sender) => {}
            () = stop.cancelled() => {}
        }
    };
    (receiver, task)
}

/// Probes periodically; does not return.
async fn watch_over(config: HealthConfig, sender: watch::Sender<Option<Health>>) {
    let seconds = |count: i32, default: u64| {
        Duration::from_secs(
            u64::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .unwrap_or(default),
        )
    };

    let probe = &config.probe;
    let timeout = seconds(probe.timeout_seconds, 1);
    let period = seconds(probe.period_seconds, 10);
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut thresholds = ProbeThresholds::new(probe);
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);

    loop {
        ticks.tick().await;
        let result = tokio::time::timeout(timeout, probe::run(&config)).await;
        let answer = result
            .unwrap_or(Err(ProbeError::TimedOut(timeout)))
            .map_err(|error| error.to_string());
        tracing::debug!(?answer, "application health checked");
        match (thresholds.add_result(answer.is_ok()), answer) {
            (Some(_), Ok(())) => drop(sender.send_replace(Some(Health::Ready))),
            (Some(_), Err(reason)) => {
                tracing::info!(reason, "the application is not ready");
                sender.send_replace(Some(Health::NotReady(reason)));
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use navarch_api::mesh::TcpHealthCheckConfig;

    #[test]
    fn answers_must_repeat_before_they_are_news() {
        let probe = ReadinessProbe {
            success_threshold: 2,
            failure_threshold: 3,
            ..ReadinessProbe::default()
        };
        let mut thresholds = ProbeThresholds::new(&probe);
        let heard: Vec<_> = [
            true, false, true, true, true, false, false, true, false, false, false, false,
        ]
        .into_iter()
        .map(|good| thresholds.add_result(good))
        .collect();
        let mut expected = vec![None; 12];
        expected[3] = Some(true);
        expected[10] = Some(false);
        assert_eq!(heard, expected);
    }

    #[tokio::test]
    async fn a_port_that_closes_makes_the_workload_unready() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tcp_socket = Some(TcpHealthCheckConfig {
            host: String::new(),
            port: port.into(),
        });
        let probe = ReadinessProbe {
            period_seconds: 1,
            tcp_socket,
            ..ReadinessProbe::default()
        };

        let config = HealthConfig {
            probe,
            host: "127.0.0.1".to_owned(),
            proxy: None,
        };
        let stop = CancellationToken::new();
        let (mut health, task) = start(config, stop.clone());
        let mut running = tokio::task::JoinSet::new();
        running.spawn(task);

        health
            .wait_for(|health| *health == Some(Health::Ready))
            .await
            .unwrap();
        drop(listener);
        health
            .wait_for(|health| matches!(health, Some(Health::NotReady(_))))
            .await
            .unwrap();

        stop.cancel();
        running.join_all().await;
    }
}
