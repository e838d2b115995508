//! Faults of the simulated API server.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use super::requests::{Failure, Request};
use crate::random::Random;

/// A fault of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Breaks the open watches.
    DropWatches {
        /// The plural of the resource; `None` for all.
        resource: Option<String>,
    },
    /// Makes one open watch half-open: nothing arrives on it any more, and it does not break.
    Silence {
        /// The plural of the resource; `None` for any.
        resource: Option<String>,
    },
    /// Forgets the history: watches of older versions get 410.
    Compact,
    /// Requests fail with a status.
    Fail {
        /// The plural of the resource; `None` for all.
        resource: Option<String>,
        /// Such as 500.
        code: u16,
        /// How long.
        lasts: Duration,
    },
    /// Writes fail, while reads and watches go on.
    FailWrites {
        /// The plural of the resource; `None` for all.
        resource: Option<String>,
        /// How they fail.
        how: FailedWrite,
        /// How long.
        lasts: Duration,
    },
    /// Lists of the newest version fail, as a database without a quorum does not answer them, while
    /// watches go on: the cache serves those.
    FailLists {
        /// The plural of the resource; `None` for all.
        resource: Option<String>,
        /// Such as 500.
        code: u16,
        /// How long.
        lasts: Duration,
    },
    /// Streamed lists break in the middle.
    BreakLists {
        /// How long.
        lasts: Duration,
    },
    /// Lists that may be old are some versions old.
    Lag {
        /// How many versions at most.
        versions: u64,
        /// How long.
        lasts: Duration,
    },
    /// Watch events are late.
    Delay {
        /// The longest delay of one event.
        max: Duration,
        /// How long.
        lasts: Duration,
    },
    /// Watch events arrive twice.
    Repeat {
        /// How long.
        lasts: Duration,
    },
    /// Another writer changes some objects just before they are written.
    Conflict {
        /// How many.
        count: u64,
    },
    /// Some writes are applied, and their responses are lost.
    LoseAnswers {
        /// How many.
        count: u64,
    },
}

impl Fault {
    /// What it is, whatever it is limited to and however long it lasts.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DropWatches { .. } => "watches break",
            Self::Silence { .. } => "a watch becomes half-open",
            Self::Compact => "the history is compacted",
            Self::Fail { .. } => "requests fail",
            Self::FailWrites {
                how: FailedWrite::Rejected(_),
                ..
            } => "writes are rejected",
            Self::FailWrites {
                how: FailedWrite::Lost,
                ..
            } => "writes have no response",
            Self::FailLists { .. } => "lists fail",
            Self::BreakLists { .. } => "lists break off",
            Self::Lag { .. } => "lists are old",
            Self::Delay { .. } => "events are late",
            Self::Repeat { .. } => "events arrive twice",
            Self::Conflict { .. } => "writes conflict",
            Self::LoseAnswers { .. } => "responses are lost",
        }
    }
}

/// How a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedWrite {
    /// It is rejected with a status, such as 503.
    Rejected(u16),
    /// It is applied, and the response is lost.
    Lost,
}

impl fmt::Display for FailedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(code) => write!(f, "fail with {code}"),
            Self::Lost => f.write_str("have their responses lost"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |name: &Option<String>| name.clone().unwrap_or_else(|| "all".to_owned());
        match self {
            Self::DropWatches { resource } => write!(f, "watches of {} break", all(resource)),
            Self::Silence { resource } => {
                write!(f, "a watch of {} becomes half-open", all(resource))
            }
            Self::Compact => f.write_str("the history is compacted"),

            Self::Fail {
                resource,
                code,
                lasts,
            } => write!(
                f,
                "requests for {} fail with {code} for {lasts:?}",
                all(resource)
            ),
            Self::FailWrites {
                resource,
                how,
                lasts,
            } => write!(f, "writes of {} {how} for {lasts:?}", all(resource)),

            Self::FailLists {
                resource,
                code,
                lasts,
            } => write!(
                f,
                "lists of the newest {} fail with {code} for {lasts:?}",
                all(resource)
            ),
            Self::BreakLists { lasts } => write!(f, "lists break off for {lasts:?}"),
            Self::Lag { versions, lasts } => {
                write!(f, "lists are up to {versions} versions old for {lasts:?}")
            }
            Self::Delay { max, lasts } => {
                write!(f, "watch events are up to {max:?} late for {lasts:?}")
            }
            Self::Repeat { lasts } => write!(f, "watch events arrive twice for {lasts:?}"),

            Self::Conflict { count } => write!(f, "another writer is faster {count} times"),
            Self::LoseAnswers { count } => write!(f, "the responses to {count} writes are lost"),
        }
    }
}

/// A breach of the API server's contract, which proves that the invariants find what it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Watches are not sent deletions.
    LostDeletions,
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostDeletions => f.write_str("lost-deletions"),
        }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lost-deletions" => Ok(Self::LostDeletions),
            _ => Err(format!("unknown fault {text:?}")),
        }
    }
}

/// A fault that ends by itself.
#[derive(Debug)]
struct Timed<T> {
    fault: T,
    until: Instant,
}

impl<T> Timed<T> {
    fn begin(fault: T, lasts: Duration) -> Self {
        Self {
            fault,
            until: Instant::now() + lasts,
        }
    }

    fn is_in_force(&self) -> bool {
        self.until > Instant::now()
    }
}

/// Requests that fail.
#[derive(Debug)]
struct Failing {
    /// The plural of the resource; `None` for all.
    resource: Option<String>,
    code: u16,
}

/// Writes that fail.
#[derive(Debug)]
struct FailingWrites {
    /// The plural of the resource; `None` for all.
    resource: Option<String>,
    how: FailedWrite,
}

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: Vec<Timed<Failing>>,
    failing_writes: Vec<Timed<FailingWrites>>,
    failing_lists: Vec<Timed<Failing>>,
    breaking_lists: Option<Timed<()>>,
    /// How many versions old lists may be.
    lag: Option<Timed<u64>>,
    /// The longest delay of an event.
    delay: Option<Timed<Duration>>,
    repeats: Option<Timed<()>>,
    conflicts: u64,
    lost_answers: u64,
}

impl Faults {
    pub(crate) fn begin(&mut self, fault: &Fault) {
        match fault {
            Fault::DropWatches { .. } | Fault::Silence { .. } | Fault::Compact => {}

            Fault::Fail {
                resource,
                code,
                lasts,
            } => {
                let failing = Failing {
                    resource: resource.clone(),
                    code: *code,
                };
                self.failing.push(Timed::begin(failing, *lasts));
            }
            Fault::FailWrites {
                resource,
                how,
                lasts,
            } => {
                let failing = FailingWrites {
                    resource: resource.clone(),
                    how: *how,
                };
                self.failing_writes.push(Timed::begin(failing, *lasts));
            }
            Fault::FailLists {
                resource,
                code,
                lasts,
            } => {
                let failing = Failing {
                    resource: resource.clone(),
                    code: *code,
                };
                self.failing_lists.push(Timed::begin(failing, *lasts));
            }
            Fault::BreakLists { lasts } => {
                self.breaking_lists = Some(Timed::begin((), *lasts));
            }
            Fault::Lag { versions, lasts } => self.lag = Some(Timed::begin(*versions, *lasts)),
            Fault::Delay { max, lasts } => self.delay = Some(Timed::begin(*max, *lasts)),
            Fault::Repeat { lasts } => self.repeats = Some(Timed::begin((), *lasts)),

            Fault::Conflict { count } => self.conflicts += count,
            Fault::LoseAnswers { count } => self.lost_answers += count,
        }
    }

    /// Whether requests may fail now.
    pub(crate) fn fail_requests(&self) -> bool {
        let mut failing = self.failing.iter().chain(&self.failing_lists);
        let mut failing_writes = self.failing_writes.iter();
        failing.any(Timed::is_in_force)
            || failing_writes.any(Timed::is_in_force)
            || self.conflicts > 0
            || self.lost_answers > 0
    }

    /// The failure of a request.
    pub(crate) fn failure(&mut self, request: &Request) -> Option<Failure> {
        let resource = request.resource.plural.as_str();
        self.failing.retain(Timed::is_in_force);
        self.failing_lists.retain(Timed::is_in_force);
        let concerns = |failing: &&Timed<Failing>| {
            let only = failing.fault.resource.as_ref();
            only.is_none_or(|only| only == resource)
        };
        let lists = self.failing_lists.iter().filter(|_| lists_newest(request));
        if let Some(failing) = self.failing.iter().chain(lists).find(concerns) {
            return Some(failure(failing.fault.code));
        }

        let is_write = request.method != Method::GET;
        match self.failed_write(resource) {
            Some(FailedWrite::Rejected(code)) if is_write => Some(failure(code)),
            Some(FailedWrite::Rejected(_) | FailedWrite::Lost) | None => None,
        }
    }

    /// How writes of a resource fail.
    fn failed_write(&mut self, resource: &str) -> Option<FailedWrite> {
        self.failing_writes.retain(Timed::is_in_force);
        let concerns = |failing: &&Timed<FailingWrites>| {
            let only = failing.fault.resource.as_ref();
            only.is_none_or(|only| only == resource)
        };
        let failing = self.failing_writes.iter().find(concerns)?;
        Some(failing.fault.how)
    }

    /// The number of objects after which a list of so many breaks off; `None` if it does not.
    pub(crate) fn list_breaks_after(
        &mut self,
        objects: usize,
        random: &mut Random,
    ) -> Option<usize> {
        let breaks = self.breaking_lists.as_ref().is_some_and(Timed::is_in_force);
        (breaks && random.happens(700)).then(|| random.index(objects + 1))
    }

    /// Whether another writer changes the object just before a write.
    pub(crate) fn conflicts(&mut self, random: &mut Random) -> bool {
        let happens = self.conflicts > 0 && random.happens(500);
        self.conflicts -= u64::from(happens);
        happens
    }

    /// How many versions old a list is.
    pub(crate) fn lag(&mut self, random: &mut Random) -> u64 {
        match &self.lag {
            Some(lag) if lag.is_in_force() => random.below(lag.fault + 1),
            _ => 0,
        }
    }

    pub(crate) fn event_delay(&mut self, random: &mut Random) -> Duration {
        match &self.delay {
            Some(delay) if delay.is_in_force() => random.millis(
                0,
                u64::try_from(delay.fault.as_millis()).unwrap_or_default(),
            ),
            _ => Duration::ZERO,
        }
    }

    /// Whether an event is sent twice.
    pub(crate) fn repeats(&mut self, random: &mut Random) -> bool {
        self.repeats.as_ref().is_some_and(Timed::is_in_force) && random.happens(500)
    }

    /// The failure of a write that was applied.
    pub(crate) fn lost_answer(&mut self, client: &str, resource: &str) -> Option<Failure> {
        if self.failed_write(resource) != Some(FailedWrite::Lost) {
            if self.lost_answers == 0 {
                return None;
            }
            self.lost_answers -= 1;
        }
        Some(Failure::new(
            504,
            "Timeout",
            format!("the response to {client} was lost"),
        ))
    }
}

/// Whether a request lists the newest objects, which the database must be asked for.
fn lists_newest(request: &Request) -> bool {
    let is_list = request.method == Method::GET && request.name.is_empty() && !request.query.watch;
    is_list && request.query.resource_version.as_deref() != Some("0")
}

/// The failure with a status.
fn failure(code: u16) -> Failure {
    let mut failure = Failure::new(code, "ServiceUnavailable", "the server is unavailable");
    if code == 429 {
        failure.reason = "TooManyRequests";
        failure.retry_after = Some(1);
    }
    failure
}
