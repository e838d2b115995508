//! Encoding of rollout commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_push::rollout::{RolloutCommand, RolloutProgress};
use serde_json::Value;

use super::format::{RolloutLine, RolloutProgress as RecordedProgress};

/// Encodes a command, without the serial of its rollout: commands are replayed in sequence.
pub(crate) fn written<E>(
    command: &RolloutCommand,
    object: impl Fn(&AnyObject) -> Result<Value, E>,
) -> Result<RolloutLine, E> {
    let texts = |chosen: &BTreeSet<Arc<str>>| chosen.iter().map(ToString::to_string).collect();
    Ok(match command {
        RolloutCommand::Stage { at, chosen, .. } => RolloutLine::Stage(*at, texts(chosen)),
        RolloutCommand::Stop { reason, .. } => RolloutLine::Stop(reason.to_string()),
        RolloutCommand::Complete { .. } => RolloutLine::Complete,
        RolloutCommand::Restore {
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

/// Decodes a command.
pub(crate) fn read<E>(
    line: RolloutLine,
    object: impl Fn(Value) -> Result<AnyObject, E>,
) -> Result<RolloutCommand, E> {
    let names = |chosen: Vec<String>| Arc::new(chosen.into_iter().map(Arc::from).collect());
    Ok(match line {
        RolloutLine::Stage(at, chosen) => RolloutCommand::Stage {
            serial: None,
            at,
            chosen: names(chosen),
        },
        RolloutLine::Stop(reason) => RolloutCommand::Stop {
            serial: None,
            reason: reason.into(),
        },
        RolloutLine::Complete => RolloutCommand::Complete { serial: None },
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
            RolloutCommand::Restore {
                new: object(new)?,
                before,
                progress,
            }
        }
    })
}
