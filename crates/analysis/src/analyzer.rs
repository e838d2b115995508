//! Analyzers and their list.

use std::collections::BTreeSet;

use crate::context::Context;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::message::{self, Message};

/// A check of some kinds of objects.
#[derive(Debug)]
pub struct Analyzer {
    /// The name that istioctl gives it.
    pub name: &'static str,
    /// Its checks.
    pub description: &'static str,
    /// The kinds that it reads. Without one of them it would be wrong, and is skipped.
    pub inputs: &'static [Kind],
    /// Does it.
    pub(crate) run: fn(&Context, &mut Report),
}

/// The messages of analyzers.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Message>);

impl Report {
    /// Notes a finding.
    pub(crate) fn add(&mut self, message: Message) {
        self.0.push(message);
    }
}

/// All analyzers.
pub fn all() -> impl Iterator<Item = &'static Analyzer> {
    crate::analyzers::FAMILIES.iter().copied().flatten()
}

/// The messages, and the analyzers that could not run.
#[derive(Debug)]
pub struct Findings {
    /// The messages, the worst first.
    pub messages: Vec<Message>,
    /// The names of those that ran.
    pub executed: Vec<&'static str>,
    /// The names of those that read kinds which were not read.
    pub skipped: Vec<&'static str>,
}

/// Runs the analyzers of these names, or all if no analyzer has one of the names, and returns the
/// selected messages.
#[must_use]
pub fn analyze(context: &Context, names: &[String], filter: &Filter) -> Findings {
    let mut messages = Vec::new();
    let mut executed = Vec::new();
    let mut skipped = Vec::new();

    for analyzer in named(names) {
        match analyzer.run_on(context) {
            Some(found) => {
                messages.extend(found);
                executed.push(analyzer.name);
            }
            None => skipped.push(analyzer.name),
        }
    }

    messages.retain(|message| filter.includes(message));
    message::sort(&mut messages);
    Findings {
        messages,
        executed,
        skipped,
    }
}

/// The analyzers of these names, or all if no analyzer has one of the names.
fn named(names: &[String]) -> impl Iterator<Item = &'static Analyzer> {
    let is_named = |analyzer: &Analyzer| names.iter().any(|name| name == analyzer.name);
    let any = all().any(is_named);
    all().filter(move |analyzer| !any || is_named(analyzer))
}

/// The kinds that the analyzers of these names read, or all analyzers where none of the names is
/// known.
#[must_use]
pub fn inputs(names: &[String]) -> BTreeSet<Kind> {
    named(names)
        .flat_map(|analyzer| analyzer.inputs)
        .copied()
        .collect()
}

impl Analyzer {
    /// Its messages; none if a kind that it reads is missing.
    pub(crate) fn run_on(&self, context: &Context) -> Option<Vec<Message>> {
        if self
            .inputs
            .iter()
            .any(|kind| context.missing.contains(kind))
        {
            return None;
        }
        let mut report = Report::default();
        (self.run)(context, &mut report);
        Some(report.0)
    }
}
