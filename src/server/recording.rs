//! What is recorded (`--record`).

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use navarch_push::witness::Witness;
use navarch_record::{Metrics, Recorder, RecorderConfig};
use prometheus_client::registry::Registry;

use super::Config;

/// Where it is recorded what comes in and what proxies are shown.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// `--record`: the directory of the record.
    pub dir: PathBuf,
    /// `--record-max-size`: the most bytes that it may take.
    pub max_size: u64,
}

/// The recorder, where something is recorded.
#[derive(Debug, Default)]
pub(super) struct Recording(Option<Arc<Recorder>>);

impl Recording {
    /// Starts to record, where that is asked for.
    pub(super) fn start(config: &Config, metrics: &mut Registry) -> std::io::Result<Self> {
        let Some(record) = &config.record else { return Ok(Self(None)) };
        let recorder = Recorder::start(RecorderConfig {
            dir: record.dir.clone(),
            max_size: record.max_size,
            settings: config.settings.clone(),
            version: config.build.version,
            metrics: Metrics::register(metrics),
            clock: Timestamp::now,
        })?;
        Ok(Self(Some(recorder)))
    }

    /// What the push thread and streams call.
    pub(super) fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.0.clone().map(|recorder| recorder as Arc<dyn Witness>)
    }

    /// Writes what is not written, and ends.
    pub(super) fn end(&self) {
        if let Some(recorder) = &self.0 {
            recorder.end();
        }
    }
}
