//! What becomes of requests, and how two verdicts differ.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use navarch_answers::ASSUMED_VALID_TOKEN;
use navarch_answers::why::WhyNot;
use serde::{Deserialize, Serialize};

use super::requests::RequestKind;

/// The largest difference of a destination's share, in thousandths, that is rounding.
const ROUNDING: u64 = 10;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// It reaches its destinations.
    Passes {
        /// Each address with its share in thousandths.
        destinations: BTreeMap<String, u64>,
    },
    /// A route responds itself.
    Responds {
        /// The status, and the location of a redirect.
        response: String,
    },
    /// It is denied, or it fails.
    Refused {
        /// Why, at the first destination that refuses it.
        reason: String,
        /// The destinations that do not refuse it.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        except: BTreeSet<String>,
    },
    /// The verdict depends on something that is not known.
    NotJudged {
        /// What is not known.
        reason: String,
    },
}

/// How a step changes a verdict, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// A request that was refused passes.
    Opened,
    /// A request that passed is refused.
    Broken,
    /// A request reaches other destinations, or gets another response.
    Rerouted,
    /// One of the verdicts is not known.
    NotJudged,
}

/// A request whose verdict a step changes, or may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictChange {
    /// Who sends what to whom.
    pub request: RequestKind,
    /// How its verdict changes.
    pub effect: Effect,
    /// The verdict before the step.
    pub before: Verdict,
    /// The verdict after the step.
    pub after: Verdict,
}

impl Verdict {
    /// The verdict of a walk.
    pub(crate) fn of(answer: WhyNot) -> Self {
        if let Some(response) = answer.response {
            return Self::Responds { response };
        }

        let unknown = answer
            .unknown
            .into_iter()
            // The signature of a token is no part of a verdict.
            .find(|unknown| unknown.as_str() != ASSUMED_VALID_TOKEN);
        if let Some(reason) = answer.reason {
            let mut except: BTreeSet<String> = answer.destinations.into_keys().collect();
            except.retain(|destination| !answer.refused_at.contains(destination));
            if let Some(reason) = unknown.filter(|_| !except.is_empty()) {
                return Self::NotJudged { reason };
            }
            let reason = match answer.advice {
                Some(advice) => format!("{reason} ({advice})"),
                None => reason,
            };
            return Self::Refused { reason, except };
        }
        match unknown {
            Some(reason) => Self::NotJudged { reason },
            None => Self::Passes {
                destinations: answer.destinations,
            },
        }
    }

    /// How this verdict, before a step, differs from another one after it.
    fn effect(&self, after: &Self) -> Option<Effect> {
        match (self, after) {
            (Self::NotJudged { .. }, _) | (_, Self::NotJudged { .. }) => Some(Effect::NotJudged),

            (Self::Refused { except, .. }, Self::Refused { except: others, .. }) => {
                if !others.is_subset(except) {
                    Some(Effect::Opened)
                } else if except.len() > others.len() {
                    Some(Effect::Broken)
                } else {
                    None
                }
            }
            (Self::Refused { .. }, Self::Passes { .. } | Self::Responds { .. }) => {
                Some(Effect::Opened)
            }
            (Self::Passes { .. } | Self::Responds { .. }, Self::Refused { .. }) => {
                Some(Effect::Broken)
            }
            (
                Self::Passes { destinations },
                Self::Passes {
                    destinations: others,
                },
            ) => (!are_close(destinations, others)).then_some(Effect::Rerouted),
            (Self::Responds { response }, Self::Responds { response: other }) => {
                (response != other).then_some(Effect::Rerouted)
            }
            (Self::Passes { .. }, Self::Responds { .. })
            | (Self::Responds { .. }, Self::Passes { .. }) => Some(Effect::Rerouted),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passes { destinations } => {
                let shares: Vec<String> = destinations
                    .iter()
                    .map(|(address, share)| format!("{address} {}.{} %", share / 10, share % 10))
                    .collect();
                write!(f, "passes to {}", shares.join(", "))
            }
            Self::Responds { response } => write!(f, "is answered with {response}"),
            Self::Refused { reason, except } if except.is_empty() => {
                write!(f, "is refused: {reason}")
            }
            Self::Refused { reason, except } => {
                let except: Vec<&str> = except.iter().map(String::as_str).collect();
                write!(f, "is refused, except at {}: {reason}", except.join(", "))
            }
            Self::NotJudged { reason } => write!(f, "is not judged: {reason}"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opened => "would be let in",
            Self::Broken => "would be refused",
            Self::Rerouted => "would go elsewhere",
            Self::NotJudged => "not judged",
        })
    }
}

/// Whether destinations are the same, with the same shares.
fn are_close(some: &BTreeMap<String, u64>, others: &BTreeMap<String, u64>) -> bool {
    some.keys().eq(others.keys())
        && some
            .values()
            .zip(others.values())
            .all(|(share, other)| share.abs_diff(*other) <= ROUNDING)
}

/// The worst change between the verdicts of the pods of a source before and after a step: each
/// verdict after must be one of those before.
pub(crate) fn change(
    request: &RequestKind,
    before: &[Verdict],
    after: &[Verdict],
) -> Option<VerdictChange> {
    let worst = after
        .iter()
        .filter_map(|after| {
            let effects = before
                .iter()
                .map(|before| (before.effect(after), before, after));
            // `None` is the least: a verdict that stays for one of the pods stays.
            effects.min_by_key(|(effect, _, _)| effect.map(Reverse))
        })
        .filter_map(|(effect, before, after)| Some((effect?, before, after)))
        .min_by_key(|(effect, _, _)| *effect)?;

    let (effect, before, after) = worst;
    Some(VerdictChange {
        request: request.clone(),
        effect,
        before: before.clone(),
        after: after.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(shares: &[(&str, u64)]) -> Verdict {
        Verdict::Passes {
            destinations: shares
                .iter()
                .map(|(address, share)| ((*address).to_owned(), *share))
                .collect(),
        }
    }

    fn refused() -> Verdict {
        Verdict::Refused {
            reason: "a policy".to_owned(),
            except: BTreeSet::new(),
        }
    }

    fn effect(before: &[Verdict], after: &[Verdict]) -> Option<Effect> {
        let request = RequestKind::default();
        change(&request, before, after).map(|change| change.effect)
    }

    #[test]
    fn a_change_is_the_worst_of_the_pods_of_a_source() {
        let direct = || passes(&[("a", 500), ("b", 500)]);
        assert_eq!(effect(&[direct()], &[direct()]), None);
        assert_eq!(
            effect(&[direct()], &[passes(&[("a", 495), ("b", 505)])]),
            None,
            "rounding"
        );

        assert_eq!(
            effect(&[direct()], &[passes(&[("a", 900), ("b", 100)])]),
            Some(Effect::Rerouted)
        );
        assert_eq!(
            effect(&[direct()], &[direct(), refused()]),
            Some(Effect::Broken)
        );
        assert_eq!(
            effect(&[refused()], &[refused(), direct()]),
            Some(Effect::Opened)
        );
        assert_eq!(
            effect(&[refused(), direct()], &[direct()]),
            None,
            "one of the pods had it before"
        );

        let unknown = || Verdict::NotJudged {
            reason: "an address".to_owned(),
        };
        assert_eq!(effect(&[unknown()], &[unknown()]), Some(Effect::NotJudged));
    }

    #[test]
    fn a_refusal_stays_one_whoever_refuses() {
        let other = Verdict::Refused {
            reason: "ztunnel".to_owned(),
            except: BTreeSet::new(),
        };
        assert_eq!(effect(&[refused()], &[other]), None);
        assert_eq!(effect(&[refused()], &[]), None);
    }

    #[test]
    fn a_request_that_some_destinations_refuse_is_compared_at_each() {
        let except = |addresses: &[&str]| Verdict::Refused {
            reason: "a policy".to_owned(),
            except: addresses
                .iter()
                .map(|address| (*address).to_owned())
                .collect(),
        };
        assert_eq!(effect(&[except(&["a"])], &[except(&["a"])]), None);
        assert_eq!(
            effect(&[refused()], &[except(&["a"])]),
            Some(Effect::Opened)
        );
        assert_eq!(
            effect(&[except(&["a"])], &[except(&["b"])]),
            Some(Effect::Opened)
        );
        assert_eq!(
            effect(&[except(&["a"])], &[refused()]),
            Some(Effect::Broken)
        );
    }
}
