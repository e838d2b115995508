//! Recording (`--record`).

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use navarch_push::observer::PushObserver;
use navarch_record::{Metrics, Recorder, RecorderConfig};

use super::Config;
use super::boot::Boot;

/// Settings of the recording of inputs and responses.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// `--record`: the directory of the recording.
    pub dir: PathBuf,
    /// `--record-max-size`: maximum size in bytes.
    pub max_size: u64,
}

/// The recorder, if recording is enabled.
#[derive(Debug)]
pub(super) struct Recording(Option<Arc<Recorder>>);

impl Recording {
    /// Starts recording, if enabled.
    pub(super) fn start(config: &Config, boot: &mut Boot) -> std::io::Result<Self> {
        let Some(record) = &config.record else {
            return Ok(Self(None));
        };
        let recorder = Recorder::start(RecorderConfig {
            dir: record.dir.clone(),
            max_size: record.max_size,
            settings: config.settings.clone(),
            version: config.build.version,
            metrics: boot.register(Metrics::register),
            clock: Timestamp::now,
        })?;
        Ok(Self(Some(recorder)))
    }

    /// The hooks of the push thread and of streams.
    pub(super) fn observer(&self) -> Option<Arc<dyn PushObserver>> {
        self.0
            .clone()
            .map(|recorder| recorder as Arc<dyn PushObserver>)
    }

    /// Flushes and closes the recording.
    pub(super) fn end(&self) {
        if let Some(recorder) = &self.0 {
            recorder.end();
        }
    }
}
