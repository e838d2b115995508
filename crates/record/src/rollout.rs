//! Encoding of rollout orders.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_push::rollout::{RolloutOrder, RolloutProgress};
use serde_json::Value;

use super::format::{RolloutLine, RolloutProgress as RecordedProgress};

/// Encodes an order, without the serial of its rollout: orders are replayed in sequence.
pub(crate) fn written<E>(
    order: &RolloutOrder,
    object: impl Fn(&AnyObject) -> Result<Value, E>,
) -> Result<RolloutLine, E> {
    let texts = |chosen: &BTreeSet<Arc<str>>| chosen.iter().map(ToString::to_string).collect();
    Ok(match order {
        RolloutOrder::Stage { at, chosen, .. } => RolloutLine::Stage(*at, texts(chosen)),
        RolloutOrder::Stop { reason, .. } => RolloutLine::Stop(reason.to_string()),
        RolloutOrder::Complete { .. } => RolloutLine::Complete,
        RolloutOrder::Restore {
            new,
            before,
            progress,
        } => {
            let progress = match progress {
                RolloutProgress::Waiting => RecordedProgress::Waiting,
                RolloutProgress::Stage { at, chosen } => {
                    RecordedProgress::Stage(*at, texts(chosen))
                }
                RolloutProgress::Stopped(reason) => RecordedProgress::Stopped(reason.to_string()),
            };
            RolloutLine::Restore(
                object(new)?,
                before.as_ref().map(object).transpose()?,
                progress,
            )
        }
    })
}

/// Decodes an order.
pub(crate) fn read<E>(
    line: RolloutLine,
    object: impl Fn(Value) -> Result<AnyObject, E>,
) -> Result<RolloutOrder, E> {
    let names = |chosen: Vec<String>| Arc::new(chosen.into_iter().map(Arc::from).collect());
    Ok(match line {
        RolloutLine::Stage(at, chosen) => RolloutOrder::Stage {
            serial: None,
            at,
            chosen: names(chosen),
        },
        RolloutLine::Stop(reason) => RolloutOrder::Stop {
            serial: None,
            reason: reason.into(),
        },
        RolloutLine::Complete => RolloutOrder::Complete { serial: None },
        RolloutLine::Restore(new, before, progress) => {
            let progress = match progress {
                RecordedProgress::Waiting => RolloutProgress::Waiting,
                RecordedProgress::Stage(at, chosen) => RolloutProgress::Stage {
                    at,
                    chosen: names(chosen),
                },
                RecordedProgress::Stopped(reason) => RolloutProgress::Stopped(reason.into()),
            };

            let before = before.map(&object).transpose()?;
            RolloutOrder::Restore {
                new: object(new)?,
                before,
                progress,
            }
        }
    })
}
