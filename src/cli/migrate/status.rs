//! How far the migration of a namespace has come.

use std::fmt;

use navarch_base::printable::escape;
use navarch_migration::{DoneStep, State, edit_lines, sidecars_of, waiting};
use serde::Serialize;

use super::super::mesh::Mesh;
use super::work::drift;

/// How many pods are listed as text; JSON has all.
const MAX_PODS: usize = 20;

/// The state of a migration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    namespace: String,
    steps: Vec<StepStatus>,
    /// Edits of others since steps were done.
    drift: Vec<String>,
    /// What the cluster has not finished.
    waiting: Vec<String>,
    /// The pods that have sidecars.
    with_sidecars: Vec<String>,
}

/// A step of the recorded plan.
#[derive(Debug, Serialize)]
struct StepStatus {
    number: usize,
    title: String,
    progress: StepProgress,
    /// When it was done, or begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// The edits that were done, or begun.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edits: Vec<String>,
}

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StepProgress {
    Done,
    Begun,
    Next,
    Left,
}

impl Status {
    /// The state of a namespace with this record.
    pub(super) fn of(mesh: &Mesh, namespace: &str, state: Option<&State>) -> Self {
        let drift = state
            .into_iter()
            .flat_map(|state| &state.done)
            .flat_map(|step| drift(mesh, step));

        Self {
            namespace: namespace.to_owned(),
            steps: state.map(steps).unwrap_or_default(),
            drift: drift.collect(),
            waiting: waiting(&mesh.objects, namespace),
            with_sidecars: sidecars_of(&mesh.objects, namespace)
                .map(|name| name.name.clone())
                .collect(),
        }
    }

    /// Whether others have edited something, or a step was begun and not finished.
    pub(super) fn needs_attention(&self) -> bool {
        let has_begun = self
            .steps
            .iter()
            .any(|step| step.progress == StepProgress::Begun);
        has_begun || !self.drift.is_empty()
    }
}

impl StepStatus {
    /// That of a step which was done or begun.
    fn of(number: usize, step: &DoneStep, progress: StepProgress) -> Self {
        Self {
            number,
            title: step.title.clone(),
            progress,
            time: Some(step.time.clone()),
            edits: edit_lines(&step.edits, &step.undo),
        }
    }
}

/// The steps of a record: those that were done or begun, as they were, and the planned ones behind
/// them.
fn steps(state: &State) -> Vec<StepStatus> {
    let done = state.done.iter().map(|step| (step, StepProgress::Done));
    let begun = state.begun.iter().map(|step| (step, StepProgress::Begun));
    let mut all: Vec<StepStatus> = done
        .chain(begun)
        .zip(1..)
        .map(|((step, progress), number)| StepStatus::of(number, step, progress))
        .collect();

    let passed = all.len();
    for (index, step) in state.steps.iter().enumerate().skip(passed) {
        let is_next = index == passed && state.begun.is_none();
        all.push(StepStatus {
            number: index + 1,
            title: step.title.clone(),
            progress: if is_next {
                StepProgress::Next
            } else {
                StepProgress::Left
            },
            time: None,
            edits: Vec::new(),
        });
    }
    all
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = escape(&self.namespace);
        if self.steps.is_empty() {
            writeln!(f, "Namespace {namespace}: no step was done")?;
        } else {
            writeln!(f, "Namespace {namespace}")?;
        }
        for step in &self.steps {
            let time = step.time.as_deref().unwrap_or_default();
            writeln!(
                f,
                "  {:<5} step {}: {} {}",
                step.progress,
                step.number,
                escape(&step.title),
                escape(time)
            )?;
            for edit in &step.edits {
                writeln!(f, "          {edit}")?;
            }
        }

        for (title, lines) in [
            ("Edited since", &self.drift),
            ("Not finished", &self.waiting),
        ] {
            for line in lines {
                writeln!(f, "{title}: {}", escape(line))?;
            }
        }
        let pods: Vec<&str> = self
            .with_sidecars
            .iter()
            .map(String::as_str)
            .take(MAX_PODS)
            .collect();
        writeln!(
            f,
            "{} pods have sidecars: {}",
            self.with_sidecars.len(),
            escape(&pods.join(", "))
        )
    }
}

impl fmt::Display for StepProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Done => "done",
            Self::Begun => "begun",
            Self::Next => "next",
            Self::Left => "left",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn steps_that_were_done_or_begun_are_listed_with_their_edits_without_a_plan() {
        let edit = |value: Value| {
            json!({
                "object": { "apiVersion": "v1", "kind": "Namespace", "name": "shop" },
                "action": "patch",
                "patch": { "metadata": { "labels": { "istio.io/use-waypoint": value } } },
            })
        };
        let step = |title: &str| {
            json!({
                "title": title, "time": "now",
                "edits": [edit(json!("evil"))], "undo": [edit(json!(null))],
            })
        };
        let record = json!({
            "format": 1, "steps": [], "done": [step("one\nforged")], "begun": step("two"),
        });
        let state = State::parse(&record.to_string(), "shop").unwrap();
        let status = Status {
            namespace: "shop".to_owned(),
            steps: steps(&state),
            drift: Vec::new(),
            waiting: Vec::new(),
            with_sidecars: Vec::new(),
        };

        assert!(status.needs_attention());
        let edits = "          edit Namespace shop\n            \
                     metadata.labels.[istio.io/use-waypoint]: none -> evil\n";
        assert_eq!(
            status.to_string(),
            format!(
                "Namespace shop\n  done  step 1: one\\nforged now\n{edits}  begun step 2: two \
                 now\n{edits}0 pods have sidecars: \n"
            )
        );
    }
}
