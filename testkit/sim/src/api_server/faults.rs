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
    /// Breaks the open watches of a resource, a client, or all.
    DropWatches {
        /// The plural of the resource; `None` for all.
        resource: Option<String>,
        /// The client; `None` for all.
        client: Option<String>,
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
            Self::DropWatches { resource, client } => {
                write!(f, "watches of {} of {} break", all(resource), all(client))
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

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: Vec<(Option<String>, u16, Instant)>,
    lagging: Option<(u64, Instant)>,
    delaying: Option<(Duration, Instant)>,
    repeating: Option<Instant>,
    conflicts: u64,
    lost_answers: u64,
}

impl Faults {
    pub(crate) fn begin(&mut self, fault: &Fault) {
        let now = Instant::now();
        match fault {
            Fault::DropWatches { .. } | Fault::Compact => {}
            Fault::Fail {
                resource,
                code,
                lasts,
            } => self.failing.push((resource.clone(), *code, now + *lasts)),
            Fault::Lag { versions, lasts } => self.lagging = Some((*versions, now + *lasts)),
            Fault::Delay { max, lasts } => self.delaying = Some((*max, now + *lasts)),
            Fault::Repeat { lasts } => self.repeating = Some(now + *lasts),
            Fault::Conflict { count } => self.conflicts += count,
            Fault::LoseAnswers { count } => self.lost_answers += count,
        }
    }

    /// The failure of a request.
    pub(crate) fn failure(&mut self, resource: &str) -> Option<Failure> {
        let now = Instant::now();
        self.failing.retain(|(.., until)| *until > now);
        let failing = self
            .failing
            .iter()
            .find(|(only, ..)| only.as_ref().is_none_or(|only| only == resource));
        if let Some((_, code, _)) = failing {
            let mut failure =
                Failure::new(*code, "ServiceUnavailable", "the server is unavailable");
            if *code == 429 {
                failure.reason = "TooManyRequests";
                failure.retry_after = Some(1);
            }
            return Some(failure);
        }

        None
    }

    /// Whether another writer changes the object just before a write.
    pub(crate) fn conflicts(&mut self, random: &mut Random) -> bool {
        let happens = self.conflicts > 0 && random.happens(500);
        self.conflicts -= u64::from(happens);
        happens
    }

    /// How many versions old a list is.
    pub(crate) fn lag(&mut self, random: &mut Random) -> u64 {
        match self.lagging {
            Some((versions, until)) if until > Instant::now() => random.below(versions + 1),
            _ => 0,
        }
    }

    pub(crate) fn event_delay(&mut self, random: &mut Random) -> Duration {
        match self.delaying {
            Some((max, until)) if until > Instant::now() => {
                random.millis(0, u64::try_from(max.as_millis()).unwrap_or_default())
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether an event is sent twice.
    pub(crate) fn repeats(&mut self, random: &mut Random) -> bool {
        self.repeating.is_some_and(|until| until > Instant::now()) && random.happens(500)
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
