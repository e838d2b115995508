//! The state that all parts share while they start: tasks and their end, metrics, readiness.

use std::future::Future;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Readiness;
use navarch_net::rejections::Rejections;
use navarch_source::Problems;

/// What a part needs to start. Every part starts its tasks here, so that a task that ends
/// unexpectedly ends the process, and shutdown waits for all of them.
pub(super) struct Boot {
    /// Cancelled at shutdown.
    pub(super) stop: CancellationToken,
    /// Counts connections and requests that ports reject.
    pub(super) rejections: Rejections,
    /// The parts that `/ready` waits for.
    pub(super) readiness: Readiness,
    /// Errors of the sources, by place.
    pub(super) problems: Problems,
    /// The metrics of all parts, until they are exposed.
    metrics: Option<Registry>,
    /// Whether pushes are computed by a task of the runtime, and not by a thread of their own.
    pub(super) pushes_in_task: bool,
    tasks: JoinSet<EndedTask>,
}

struct EndedTask {
    name: &'static str,
    outcome: anyhow::Result<()>,
}

/// What a task may return.
pub(super) trait TaskOutput: Send + 'static {
    /// The error of a task that has failed.
    fn into_outcome(self) -> anyhow::Result<()>;
}

impl TaskOutput for () {
    fn into_outcome(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<E: Into<anyhow::Error> + Send + 'static> TaskOutput for Result<(), E> {
    fn into_outcome(self) -> anyhow::Result<()> {
        self.map_err(Into::into)
    }
}

impl Boot {
    /// Without tasks; the metrics are those of rejections.
    pub(super) fn new() -> Self {
        let mut metrics = Registry::default();
        let rejections = Rejections::register(&mut metrics);

        Self {
            stop: CancellationToken::new(),
            rejections,
            readiness: Readiness::default(),
            problems: Problems::default(),
            metrics: Some(metrics),
            pushes_in_task: false,
            tasks: JoinSet::new(),
        }
    }

    /// Registers metrics, such as by the `register` function of their struct.
    ///
    /// # Panics
    /// If the metrics were taken before: later ones would never be exposed.
    pub(super) fn register<T>(&mut self, register: impl FnOnce(&mut Registry) -> T) -> T {
        let metrics = self.metrics.as_mut();
        register(metrics.expect("metrics are registered before they are exposed"))
    }

    /// All metrics, to expose them; none can be registered afterwards.
    pub(super) fn take_metrics(&mut self) -> Registry {
        self.metrics.take().unwrap_or_default()
    }

    /// Starts a named task, which must not end before [`Self::stop`] is cancelled.
    pub(super) fn spawn<T: TaskOutput>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            EndedTask {
                name,
                outcome: task.await.into_outcome(),
            }
        });
    }

    /// Starts a named task whose future is dropped at shutdown.
    pub(super) fn spawn_until_stop<T: TaskOutput>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            until(&stop, task).await.map_or(Ok(()), T::into_outcome)
        });
    }

    /// Waits for a task that ends before shutdown. The error names it.
    pub(super) async fn unexpected_end(&mut self) -> anyhow::Error {
        let (name, outcome) = match self.tasks.join_next().await {
            Some(Ok(EndedTask { name, outcome })) => (name, outcome),
            Some(Err(error)) => return anyhow::Error::from(error).context("a task failed"),
            None => return anyhow::anyhow!("no task is left"),
        };

        match outcome {
            Err(error) => error.context(format!("{name} failed")),
            Ok(()) => anyhow::anyhow!("{name} ended unexpectedly"),
        }
    }

    /// Cancels [`Self::stop`], and waits at most `grace` for the tasks; later ones are aborted.
    pub(super) async fn shut_down(&mut self, grace: Duration) {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };

        if tokio::time::timeout(grace, all).await.is_err() {
            tracing::warn!(after = ?grace, "some tasks did not end within the shutdown grace period");
            self.tasks.abort_all();
        }
    }
}

/// The future's output, or `None` if `stop` is cancelled first.
pub(super) async fn until<F: Future>(stop: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        output = future => Some(output),
        () = stop.cancelled() => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_before_shutdown_is_named() {
        let mut boot = Boot::new();
        assert_eq!(boot.unexpected_end().await.to_string(), "no task is left");

        boot.spawn_until_stop("waiting", std::future::pending::<()>());
        boot.spawn("pump", async {});
        assert_eq!(
            boot.unexpected_end().await.to_string(),
            "pump ended unexpectedly"
        );

        boot.spawn_until_stop("files", async { Err::<(), _>(io::Error::other("gone")) });
        assert_eq!(
            format!("{:#}", boot.unexpected_end().await),
            "files failed: gone"
        );
    }

    #[tokio::test]
    async fn shutdown_waits_for_tasks_until_its_grace_period_has_passed() {
        let mut boot = Boot::new();
        boot.spawn_until_stop("waiting", std::future::pending::<()>());
        let stop = boot.stop.clone();
        let (sender, ended) = tokio::sync::oneshot::channel();
        boot.spawn("slow", async move {
            stop.cancelled().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = sender.send(());
        });

        boot.shut_down(Duration::from_secs(60)).await;
        assert_eq!(ended.await, Ok(()));

        boot.spawn("stuck", std::future::pending::<()>());
        boot.shut_down(Duration::from_millis(20)).await;
        assert_eq!(boot.unexpected_end().await.to_string(), "a task failed");
    }
}
