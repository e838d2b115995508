//! How far the migration of a namespace has come.

use std::fmt;

use navarch_api::printable::escape;
use navarch_migration::{State, sidecars_of, waiting};
use serde::Serialize;

use super::mesh::Mesh;
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
        let done = state.map_or(0, |state| state.done.len());
        let steps = state.into_iter().flat_map(|state| {
            state.steps.iter().enumerate().map(move |(index, step)| {
                let begun = state.begun.as_ref().filter(|_| index == done);
                let progress = match state.done.get(index) {
                    Some(_) => StepProgress::Done,
                    None if begun.is_some() => StepProgress::Begun,
                    None if index == done => StepProgress::Next,
                    None => StepProgress::Left,
                };
                StepStatus {
                    number: index + 1,
                    title: step.title.clone(),
                    progress,
                    time: state
                        .done
                        .get(index)
                        .or(begun)
                        .map(|step| step.time.clone()),
                }
            })
        });
        let drift = state
            .into_iter()
            .flat_map(|state| &state.done)
            .flat_map(|step| drift(mesh, step));

        Self {
            namespace: namespace.to_owned(),
            steps: steps.collect(),
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
