//! The log of a source's events, one by one, at debug level.
//!
//! Each object has a version there, `@v0` when it is new, which counts its changes. Versions are
//! kept only while the events are logged, and only for the objects that exist: an object whose
//! first logged event is a change has `@v1`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SourceEvent;
use navarch_api::object::ObjectRef;

/// Logs the events of one source, or of one of its parts.
pub(super) struct EventLog {
    /// The name of the source.
    source: Arc<str>,
    /// Whether events are logged at the moment.
    is_enabled: fn() -> bool,
    write: fn(&Line<'_>),
    /// The version of each object, from 0.
    versions: BTreeMap<ObjectRef, u64>,
}

/// One logged event.
pub(super) struct Line<'a> {
    /// The name of the source.
    pub(super) source: &'a str,
    /// What happened: `Added`, `Updated`, `Deleted` or `FullSync`.
    pub(super) event: &'static str,
    /// The object with its version; `None` for events without an object.
    pub(super) object: Option<String>,
}

/// An [`EventLog`] of the source with this name; its events belong to the log scope of the module
/// that creates it.
macro_rules! event_log {
    ($source:expr) => {
        $crate::event_log::EventLog::new(
            $source,
            || tracing::enabled!(tracing::Level::DEBUG),
            |line: &$crate::event_log::Line<'_>| {
                let object = line.object.as_deref();
                tracing::debug!(source = line.source, object, "{}", line.event);
            },
        )
    };
}

pub(super) use event_log;

impl EventLog {
    /// A log without events.
    pub(super) fn new(source: Arc<str>, is_enabled: fn() -> bool, write: fn(&Line<'_>)) -> Self {
        Self {
            source,
            is_enabled,
            write,
            versions: BTreeMap::new(),
        }
    }

    /// Logs the events of a batch, if they are logged at the moment. It must be called for every
    /// batch: otherwise versions would stay when the level changes.
    pub(super) fn record(&mut self, batch: &[SourceEvent]) {
        if !(self.is_enabled)() {
            // Without the changes that are not logged, the versions would be wrong.
            self.versions = BTreeMap::new();
            return;
        }

        for event in batch {
            self.record_event(event);
        }
    }

    fn record_event(&mut self, event: &SourceEvent) {
        let (event, object) = match event {
            SourceEvent::Added(object) => {
                let reference = object.object_ref();
                let line = versioned(&reference, 0);
                self.versions.insert(reference, 0);
                ("Added", Some(line))
            }
            SourceEvent::Updated(object) => {
                let reference = object.object_ref();
                let before = self.versions.get(&reference).copied().unwrap_or_default();
                let version = before.saturating_add(1);
                let line = versioned(&reference, version);
                self.versions.insert(reference, version);
                ("Updated", Some(line))
            }
            SourceEvent::Deleted(reference) => {
                let version = self.versions.remove(reference).unwrap_or_default();
                ("Deleted", Some(versioned(reference, version)))
            }
            SourceEvent::FullSync => ("FullSync", None),
            SourceEvent::MeshConfig(_)
            | SourceEvent::MeshNetworks(_)
            | SourceEvent::Keys(..)
            | SourceEvent::Problems { .. } => return,
        };

        (self.write)(&Line {
            source: &self.source,
            event,
            object,
        });
    }
}

/// An object with its version, such as `VirtualService shop/reviews@v2`.
fn versioned(reference: &ObjectRef, version: u64) -> String {
    format!("{reference}@v{version}")
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::conformance::namespace;
    use navarch_api::any_object::AnyObject;
    use navarch_api::decode::{Outcome, decode_value};

    thread_local! {
        static ENABLED: Cell<bool> = const { Cell::new(true) };
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn log() -> EventLog {
        ENABLED.set(true);
        EventLog::new(
            Arc::from("test://"),
            || ENABLED.get(),
            |line| {
                let object = line.object.as_deref().unwrap_or("-");
                LINES.with_borrow_mut(|lines| lines.push(format!("{} {object}", line.event)));
            },
        )
    }

    /// The lines since the last call.
    fn lines() -> Vec<String> {
        LINES.take()
    }

    fn object(name: &str) -> AnyObject {
        let Outcome::Read { object, .. } = decode_value(&namespace(name, "l")).1 else {
            panic!("a namespace is read")
        };
        object
    }

    #[test]
    fn versions_count_the_changes_of_an_object_and_end_with_it() {
        let mut log = log();
        log.record(&[
            SourceEvent::Added(object("a")),
            SourceEvent::Added(object("b")),
            SourceEvent::FullSync,
        ]);
        log.record(&[SourceEvent::Updated(object("a"))]);
        log.record(&[
            SourceEvent::Updated(object("a")),
            SourceEvent::Deleted(object("a").object_ref()),
            SourceEvent::Added(object("a")),
        ]);

        assert_eq!(
            lines(),
            [
                "Added Namespace a@v0",
                "Added Namespace b@v0",
                "FullSync -",
                "Updated Namespace a@v1",
                "Updated Namespace a@v2",
                "Deleted Namespace a@v2",
                "Added Namespace a@v0",
            ]
        );
        assert_eq!(log.versions.len(), 2);
        log.record(&[SourceEvent::Deleted(object("b").object_ref())]);
        assert_eq!(log.versions.len(), 1);
    }

    #[test]
    fn without_debug_level_nothing_is_logged_or_kept() {
        let mut log = log();
        log.record(&[SourceEvent::Added(object("a"))]);
        ENABLED.set(false);
        log.record(&[SourceEvent::Updated(object("a"))]);
        assert_eq!(lines(), ["Added Namespace a@v0"]);
        assert!(log.versions.is_empty());

        // Earlier changes are unknown.
        ENABLED.set(true);
        log.record(&[SourceEvent::Updated(object("a"))]);
        log.record(&[SourceEvent::Deleted(object("b").object_ref())]);
        assert_eq!(
            lines(),
            ["Updated Namespace a@v1", "Deleted Namespace b@v0"]
        );
    }

    #[test]
    fn a_problem_of_a_place_is_not_an_event_of_an_object() {
        let mut log = log();
        log.record(&[SourceEvent::Problems {
            place: Arc::from("a.yaml"),
            problems: Vec::new(),
        }]);
        assert_eq!(lines(), Vec::<String>::new());
    }
}
