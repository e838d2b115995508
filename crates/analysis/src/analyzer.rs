//! What an analyzer is, and the list of them.

use crate::context::Context;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::message::{self, Message};

/// A check of some kinds of objects.
#[derive(Debug)]
pub struct Analyzer {
    /// The name that istioctl gives it.
    pub name: &'static str,
    /// What it checks.
    pub description: &'static str,
    /// The kinds that it reads. Without one of them it would be wrong, and is skipped.
    pub inputs: &'static [Kind],
    /// Does it.
    pub(crate) run: fn(&Context, &mut Report),
}

/// What analyzers found.
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

/// What was found, and which analyzers could not be asked.
#[derive(Debug)]
pub struct Findings {
    /// What was found, the worst first.
    pub messages: Vec<Message>,
    /// The names of those that ran.
    pub executed: Vec<&'static str>,
    /// The names of those that read kinds which were not read.
    pub skipped: Vec<&'static str>,
}

/// Runs the analyzers of these names, or all where none of the names is known, and gives the messages that are wanted.
#[must_use]
pub fn analyze(context: &Context, names: &[String], filter: &Filter) -> Findings {
    let is_named = |analyzer: &Analyzer| names.iter().any(|name| name == analyzer.name);
    let any = all().any(is_named);
    let (mut report, mut executed, mut skipped) = (Report::default(), Vec::new(), Vec::new());
    for analyzer in all().filter(|analyzer| !any || is_named(analyzer)) {
        if !context.has_runtime && analyzer.inputs.iter().any(|kind| kind.is_of_runtime()) {
            skipped.push(analyzer.name);
            continue;
        }
        (analyzer.run)(context, &mut report);
        executed.push(analyzer.name);
    }
    let mut messages = report.0;
    messages.retain(|message| filter.wants(message));
    message::sort(&mut messages);
    Findings { messages, executed, skipped }
}
