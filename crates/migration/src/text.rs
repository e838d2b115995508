//! Plans as text.

use std::fmt;

use navarch_base::printable::escape;
use serde_json::Value;

use super::edit::{Change, Edit};
use super::plan::{Plan, PlannedStep};

/// How many requests of a step are shown; JSON has more.
const MAX_SHOWN: usize = 6;
/// The longest value that is shown as a whole.
const MAX_VALUE: usize = 160;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Migration of {} to ambient mode: {} steps, {} kinds of requests compared",
            escape(&self.namespaces.join(", ")),
            self.steps.len(),
            self.requests
        )?;
        list(f, "Do first", &self.blockers)?;
        list(f, "Not finished", &self.waiting)?;

        for planned in &self.steps {
            write!(f, "{planned}")?;
        }

        if !self.counterparts.is_empty() {
            writeln!(f, "Without a counterpart in ambient mode")?;
        }
        for one in &self.counterparts {
            let workload = match &one.workload {
                Some(owner) => owner.to_string(),
                None => format!("Namespace {}", one.namespace),
            };
            writeln!(
                f,
                "  {}: {}: {}",
                escape(&workload),
                escape(&one.object),
                escape(&one.reason)
            )?;
        }
        if self.is_refused() {
            writeln!(f, "Refused: no step may be done.")?;
        }
        Ok(())
    }
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if !self.is_judged {
            "not compared: an earlier step is refused".to_owned()
        } else if self.is_refused() {
            format!("REFUSED: {} verdicts would change", self.changed)
        } else if self.has_unjudged() {
            "not judged in part (--accept-unjudged)".to_owned()
        } else {
            "no verdict changes".to_owned()
        };
        writeln!(
            f,
            "Step {}: {} ({outcome})",
            self.number,
            escape(&self.step.title)
        )?;
        writeln!(f, "  {}", escape(&self.step.effect))?;
        for line in edit_lines(&self.step.edits, &self.undo) {
            writeln!(f, "  {line}")?;
        }

        for change in self.changes.iter().take(MAX_SHOWN) {
            writeln!(
                f,
                "  {}: {}",
                change.effect,
                escape(&change.request.to_string())
            )?;
            writeln!(f, "    now it {}", escape(&change.before.to_string()))?;
            writeln!(f, "    then it {}", escape(&change.after.to_string()))?;
        }
        if self.changed > MAX_SHOWN {
            writeln!(f, "  and {} more", self.changed - MAX_SHOWN)?;
        }
        for one in &self.not_judged {
            writeln!(
                f,
                "  not judged: {}: {}",
                escape(&one.what),
                escape(&one.reason)
            )?;
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    lines
        .iter()
        .try_for_each(|line| writeln!(f, "  {}", escape(line)))
}

/// Edits as lines of text, in which texts of objects are escaped. The values before them are those
/// that the edits of `undo` restore.
#[must_use]
pub fn edit_lines(edits: &[Edit], undo: &[Edit]) -> Vec<String> {
    let mut lines = Vec::new();
    for edit in edits {
        let object = edit.object.to_string();
        let object = escape(&object);
        let action = match &edit.change {
            Change::Create { .. } => "create",
            Change::Delete => "delete",
            Change::Patch { .. } => "edit",
        };
        lines.push(format!("{action} {object}"));

        let before = undo.iter().find_map(|undo| match &undo.change {
            Change::Patch { patch } if undo.object == edit.object => Some(patch),
            Change::Patch { .. } | Change::Create { .. } | Change::Delete => None,
        });
        lines.extend(edit.fields(before).iter().map(|field| {
            format!(
                "  {}: {} -> {}",
                escape(&field.field),
                escape(&shown(field.before.as_ref())),
                escape(&shown(field.after.as_ref()))
            )
        }));
    }
    lines
}

/// A value in one line.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return "none".to_owned();
    };
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    if text.chars().count() <= MAX_VALUE {
        return text;
    }
    let start: String = text.chars().take(MAX_VALUE).collect();
    format!("{start}…")
}
