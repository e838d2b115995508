//! Writes the recording on a thread of its own: reporting an event never blocks.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};

use navarch_api::settings::Settings;
use navarch_push::engine::ProxyId;
use navarch_push::observer::{Event, PushObserver};
use navarch_push::resource::ResourceType;

use super::journal::Journal;
use super::metrics::Metrics;
use super::ring::Ring;

/// Interval at which events are written.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Delay after a failure before a new segment is started.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum number of unwritten items (changes, collections and the like): some hundred bytes each.
const MAX_PENDING: usize = 1 << 20;

/// Where and how much `--record` writes, and what its headers contain.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// The directory of the record.
    pub dir: PathBuf,
    /// Maximum total size in bytes.
    pub max_size: u64,
    /// Settings from flags and environment.
    pub settings: Settings,
    /// The version of the program.
    pub version: &'static str,
    /// The metrics to update.
    pub metrics: Metrics,
    /// The wall clock.
    pub clock: fn() -> Timestamp,
}

/// Writes all events, until it is shut down.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the recorder shares with its thread.
#[derive(Debug)]
struct Shared {
    clock: fn() -> Timestamp,
    queue: Mutex<Queue>,
    ended: Condvar,
}

/// Events that are not written yet.
#[derive(Debug, Default)]
struct Queue {
    events: Vec<(Timestamp, Event)>,
    /// ACKs. They are the majority of all events and are written in batches.
    taken: Vec<(ProxyId, ResourceType)>,
    weight: usize,
    /// The queue has overflowed: further events are discarded.
    is_overrun: bool,
    is_ended: bool,
}

/// The state of the writer thread.
struct Writer {
    config: RecorderConfig,
    journal: Journal,
    /// The segments on disk; `None` after a failure.
    ring: Option<Ring>,
    /// When a new segment is started after a failure.
    retry_at: Timestamp,
    /// Whether the failure was logged.
    has_logged: bool,
}

impl Recorder {
    /// Starts the recorder. Write failures are logged and retried.
    ///
    /// # Errors
    /// When the thread cannot be spawned.
    pub fn start(config: RecorderConfig) -> io::Result<Arc<Self>> {
        let clock = config.clock;
        let shared = Arc::new(Shared {
            clock,
            queue: Mutex::default(),
            ended: Condvar::new(),
        });
        let of_thread = shared.clone();
        let journal = Journal::new(config.settings.clone(), config.version, clock());

        let writer = Writer {
            config,
            journal,
            ring: None,
            retry_at: Timestamp::UNIX_EPOCH,
            has_logged: false,
        };

        let thread = std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&of_thread))?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Writes pending events, and ends.
    pub fn end(&self) {
        self.shared.queue.lock().is_ended = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of it was logged.
            _ = thread.join();
        }
    }
}

impl PushObserver for Recorder {
    fn observe(&self, event: Event) {
        if let Event::Taken(proxy, resource_type) = event {
            let mut queue = self.shared.queue.lock();
            if queue.reserve(1) {
                queue.taken.push((proxy, resource_type));
            }
            return;
        }
        let now = (self.shared.clock)();
        let mut queue = self.shared.queue.lock();
        if queue.reserve(weight(&event)) {
            queue.events.push((now, event));
        }
    }
}

impl Queue {
    /// Whether an event of this weight fits in the queue; adds its weight if so.
    fn reserve(&mut self, weight: usize) -> bool {
        if self.is_overrun || self.is_ended {
            return false;
        }
        self.weight += weight;
        self.is_overrun = self.weight > MAX_PENDING && self.weight > weight;
        true
    }
}

/// The weight of an event in the queue.
fn weight(event: &Event) -> usize {
    1 + match event {
        Event::Applied {
            changes, published, ..
        } => changes.len() + published.len(),
        Event::Subscribed { published, .. } | Event::Recomputed(published) => published.len(),
        Event::Connected(..)
        | Event::Gone(_)
        | Event::Unsubscribed(..)
        | Event::Synced
        | Event::Taken(..)
        | Event::Rejected(..) => 0,
    }
}

impl Writer {
    fn run(mut self, shared: &Shared) {
        loop {
            let mut queue = shared.queue.lock();
            if !queue.is_ended {
                shared.ended.wait_for(&mut queue, WRITE_INTERVAL);
            }

            let events = std::mem::take(&mut queue.events);
            let is_overrun = queue.is_overrun;
            let taken = std::mem::take(&mut queue.taken);
            queue.weight = 0;
            let is_ended = queue.is_ended;
            drop(queue);
            self.write(events, &taken, (shared.clock)());
            if is_overrun {
                self.stop_after_overrun((shared.clock)());
            }

            if is_ended || is_overrun {
                if let Some(Err(error)) = self.ring.as_mut().map(Ring::finish) {
                    self.fail(&error, (shared.clock)());
                }
                return;
            }
        }
    }

    fn write(
        &mut self,
        events: Vec<(Timestamp, Event)>,
        taken: &[(ProxyId, ResourceType)],
        now: Timestamp,
    ) {
        if self.ring.is_none() && now >= self.retry_at {
            self.begin(now);
        }

        if events.is_empty() && taken.is_empty() {
            return;
        }

        let mut lines = Vec::new();

        for (at, event) in events {
            lines.clear();
            let noted = self.journal.note(at, event, &mut lines);
            self.append(noted.map(|()| lines.as_slice()), at);
        }

        lines.clear();
        let noted = self.journal.note_taken(now, taken, &mut lines);
        self.append(noted.map(|()| lines.as_slice()), now);
        let flushed = self.ring.as_mut().map(Ring::flush);
        if let Some(Err(error)) = flushed {
            self.fail(&error, now);
        }
    }

    /// Notes in the recording that the events from here on are missing, and counts a failure.
    fn stop_after_overrun(&mut self, now: Timestamp) {
        let mut lines = Vec::new();
        let noted = Journal::note_lost(now, "the disk is too slow", &mut lines);
        self.append(noted.map(|()| lines.as_slice()), now);
        let dir = self.config.dir.display();
        tracing::error!(%dir, "recording stopped: the disk is too slow; restart to record again");
        self.config.metrics.failures.inc();
        self.config.metrics.active.set(0);
    }

    /// Writes lines, and starts the next segment if the current one is full.
    fn append(&mut self, lines: io::Result<&[u8]>, now: Timestamp) {
        let Some(ring) = &mut self.ring else { return };
        let appended = lines.and_then(|lines| {
            ring.append(lines)?;
            Ok(u64::try_from(lines.len()).unwrap_or_default())
        });
        match appended {
            Ok(bytes) => {
                self.config.metrics.bytes.inc_by(bytes);
                if ring.is_full() {
                    self.begin(now);
                }
            }
            // Lines that do not fit are part of the initial state of the next segment.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.begin(now),
            Err(error) => self.fail(&error, now),
        }
    }

    /// Begins a segment.
    fn begin(&mut self, now: Timestamp) {
        match self.try_begin(now) {
            Ok(()) if self.has_logged => {
                self.has_logged = false;
                tracing::info!(dir = %self.config.dir.display(), "recording resumed");
            }
            Ok(()) => {}
            Err(error) => return self.fail(&error, now),
        }
        self.config.metrics.active.set(1);
    }

    fn try_begin(&mut self, now: Timestamp) -> io::Result<()> {
        let ring = match &mut self.ring {
            Some(ring) => ring,
            None => self
                .ring
                .insert(Ring::open(&self.config.dir, self.config.max_size)?),
        };
        let journal = &mut self.journal;
        let segment = ring.next();
        let mut bytes = 0;
        ring.begin(|out| {
            let mut counted = Counted { out, bytes: 0 };
            journal.begin(segment, now, &mut counted)?;
            bytes = counted.bytes;
            Ok(())
        })?;
        self.config.metrics.bytes.inc_by(bytes);
        Ok(())
    }

    /// Suspends recording after a failure.
    fn fail(&mut self, error: &io::Error, now: Timestamp) {
        self.ring = None;
        self.retry_at = now.checked_add(RETRY_DELAY).unwrap_or(Timestamp::MAX);
        self.config.metrics.failures.inc();
        self.config.metrics.active.set(0);
        let dir = self.config.dir.display();
        if !std::mem::replace(&mut self.has_logged, true) {
            tracing::error!(
                %dir, %error,
                "failed to write the recording; proxies are served regardless, retrying every 30 s: set --record to a \
                 writable directory with room for --record-max-size"
            );
        }
    }
}

/// Counts bytes.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.bytes += u64::try_from(bytes.len()).unwrap_or_default();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Line;
    use crate::read::{Segment, segments};

    #[test]
    fn an_overrun_recording_reports_where_it_stops() {
        let dir = tempfile::tempdir().unwrap();
        let config = RecorderConfig {
            dir: dir.path().to_owned(),
            max_size: 1 << 20,
            settings: Settings::default(),
            version: "test",
            metrics: Metrics::default(),
            clock: || Timestamp::UNIX_EPOCH,
        };

        let journal = Journal::new(Settings::default(), "test", Timestamp::UNIX_EPOCH);
        let failures = config.metrics.failures.clone();
        let active = config.metrics.active.clone();
        let mut writer = Writer {
            config,
            journal,
            ring: None,
            retry_at: Timestamp::UNIX_EPOCH,
            has_logged: false,
        };

        writer.write(
            vec![(Timestamp::UNIX_EPOCH, Event::Synced)],
            &[],
            Timestamp::UNIX_EPOCH,
        );
        writer.stop_after_overrun(Timestamp::UNIX_EPOCH);
        writer.ring.as_mut().unwrap().finish().unwrap();
        assert_eq!((failures.get(), active.get()), (1, 0));

        let (_, file) = segments(dir.path()).unwrap().pop().unwrap();
        let mut segment = Segment::open(&file, true).unwrap();
        let lines = std::iter::from_fn(|| segment.next_line().unwrap());
        let Some(Line::Lost(lost)) = lines.last().map(|line| line.line) else {
            panic!("nothing is missing")
        };

        assert_eq!(lost.why, "the disk is too slow");
    }
}
