//! Who leads: the log of the elections, of which each lock must have one holder at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use crate::story::Story;
use crate::tell;

/// Where the elections log.
const TARGET: &str = "navarch_status::election";

/// The holders of locks, and where it is told. A process runs one simulation.
static LEADERS: Mutex<Leaders> = Mutex::new(Leaders {
    story: None,
    holders: BTreeMap::new(),
    locks: BTreeSet::new(),
});

struct Leaders {
    story: Option<Story>,
    /// The identity of the holder of each lock.
    holders: BTreeMap<String, String>,
    /// The locks that were ever taken.
    locks: BTreeSet<String>,
}

/// Reads the log of the elections.
struct Elections;

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    lock: String,
    identity: String,
}

/// Follows the elections of this process from now on.
pub(crate) fn watch() {
    let subscriber = Registry::default().with(Elections);
    // Another simulation of the process, or a test, has set one.
    _ = tracing::subscriber::set_global_default(subscriber);
}

/// Tells the elections, and locks with two holders, in a story.
pub(crate) fn tell_to(story: &Story) {
    let mut leaders = LEADERS.lock();
    leaders.story = Some(story.clone());
    leaders.holders.clear();
    leaders.locks.clear();
}

/// The locks that were ever taken.
pub(crate) fn locks() -> BTreeSet<String> {
    LEADERS.lock().locks.clone()
}

/// The holder of a lock.
pub(crate) fn holder(lock: &str) -> Option<String> {
    LEADERS.lock().holders.get(lock).cloned()
}

/// A replica has crashed, and holds nothing.
pub(crate) fn crashed(identity: &str) {
    LEADERS
        .lock()
        .holders
        .retain(|_, holder| holder != identity);
}

impl<S: Subscriber> Layer<S> for Elections {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == TARGET && *metadata.level() == tracing::Level::INFO
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        LEADERS.lock().take(fields);
    }
}

impl Leaders {
    fn take(&mut self, fields: Fields) {
        let Fields {
            message,
            lock,
            identity,
        } = fields;
        let Some(story) = &self.story else { return };
        if message.starts_with("acquired") {
            tell!(story, identity, "leads {lock}");
            self.locks.insert(lock.clone());
            let before = self.holders.insert(lock.clone(), identity.clone());
            if let Some(before) = before.filter(|before| *before != identity) {
                story.violated(
                    "a lock has one holder",
                    &format!("{before} still leads {lock} when {identity} begins to"),
                );
            }
        } else if message.starts_with("lost") && self.holders.get(&lock) == Some(&identity) {
            tell!(story, identity, "no longer leads {lock}");
            self.holders.remove(&lock);
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            "lock" => self.lock = text,
            "identity" => self.identity = text,
            _ => {}
        }
    }
}
