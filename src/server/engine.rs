//! The push thread, and the recording of its inputs and responses.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Config;
use super::boot::Boot;
use super::configuration_metrics::ConfigurationMetrics;
use super::go_metrics::GoMetrics;
use super::process_metrics::ProcessMetrics;
use super::recording::Recording;
use navarch_ambient::AmbientTranslator;
use navarch_envoy::EnvoyTranslator;
use navarch_push::metrics::Metrics;
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
        let (push, _) = worker::start_watched(
            config.settings.clone(),
            config.debounce,
            translator,
            metrics,
            recording.observer(),
        )?;

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
