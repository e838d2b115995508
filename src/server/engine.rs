//! The push thread, and the recording of its inputs and responses.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Config;
use super::boot::Boot;
use super::recording::Recording;
use navarch_ambient::AmbientTranslator;
use navarch_envoy::EnvoyTranslator;
use navarch_process::{GoMetrics, ProcessMetrics};
use navarch_push::ConfigurationMetrics;
use navarch_push::metrics::Metrics;
use navarch_push::view::Translator;
use navarch_push::worker::{self, PushHandle};

/// The push thread, which translates objects to resources.
pub(super) struct Engine {
    pub(super) push: PushHandle,
    /// Ended after all streams, as it also records their responses.
    pub(super) recording: Recording,
}

impl Engine {
    /// Starts the push thread; it has no objects yet.
    pub(super) fn start(config: &Config, boot: &mut Boot) -> std::io::Result<Self> {
        let recording = Recording::start(config, boot)?;
        let metrics = boot.register(Metrics::register);
        let translator = Arc::new(AmbientTranslator(EnvoyTranslator));
        let push = start_pushes(config, translator, metrics, &recording, boot.pushes_in_task)?;

        boot.register(|metrics| {
            metrics.register_collector(Box::new(ConfigurationMetrics {
                current: push.current(),
                tells_patches: config.settings.envoy_filter_stats,
            }));
            metrics.register_collector(Box::new(ProcessMetrics::new(config.build.version)));
            metrics.register_collector(Box::new(GoMetrics::new(Handle::current())));
        });

        Ok(Self { push, recording })
    }
}

/// Starts the computation of pushes, on a thread of its own or in a task. Both end with the last
/// handle.
#[expect(
    clippy::disallowed_methods,
    reason = "like the thread, the task outlives the shutdown of the tasks that use it"
)]
fn start_pushes(
    config: &Config,
    translator: Arc<dyn Translator>,
    metrics: Metrics,
    recording: &Recording,
    in_task: bool,
) -> std::io::Result<PushHandle> {
    let settings = config.settings.clone();
    let debounce = config.debounce;
    let observer = recording.observer();

    if in_task {
        let (push, work) = worker::prepare(settings, debounce, translator, metrics, observer);
        drop(tokio::spawn(work));
        return Ok(push);
    }

    let (push, _) = worker::start_watched(settings, debounce, translator, metrics, observer)?;
    Ok(push)
}
