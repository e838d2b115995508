//! Faults of the simulated API server.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use super::requests::Failure;
use crate::random::Random;

/// A fault of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Breaks the open watches.
    DropWatches {
        /// The plural of the resource; `None` for all.
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |name: &Option<String>| name.clone().unwrap_or_else(|| "all".to_owned());
        match self {
            Self::DropWatches { resource } => write!(f, "watches of {} break", all(resource)),
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

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: Vec<Timed<Failing>>,
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
            Fault::DropWatches { .. } | Fault::Compact => {}

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
            Fault::Lag { versions, lasts } => self.lag = Some(Timed::begin(*versions, *lasts)),
            Fault::Delay { max, lasts } => self.delay = Some(Timed::begin(*max, *lasts)),
            Fault::Repeat { lasts } => self.repeats = Some(Timed::begin((), *lasts)),

            Fault::Conflict { count } => self.conflicts += count,
            Fault::LoseAnswers { count } => self.lost_answers += count,
        }
    }

    /// The failure of a request.
    pub(crate) fn failure(&mut self, resource: &str) -> Option<Failure> {
        self.failing.retain(Timed::is_in_force);
        let concerns = |failing: &&Timed<Failing>| {
            let only = failing.fault.resource.as_ref();
            only.is_none_or(|only| only == resource)
        };
        let failing = self.failing.iter().find(concerns)?;

        let code = failing.fault.code;
        let mut failure = Failure::new(code, "ServiceUnavailable", "the server is unavailable");
        if code == 429 {
            failure.reason = "TooManyRequests";
            failure.retry_after = Some(1);
        }
        Some(failure)
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
    pub(crate) fn lost_answer(&mut self, client: &str) -> Option<Failure> {
        if self.lost_answers == 0 {
            return None;
        }
        self.lost_answers -= 1;
        Some(Failure::new(
            504,
            "Timeout",
            format!("the response to {client} was lost"),
        ))
    }
}
