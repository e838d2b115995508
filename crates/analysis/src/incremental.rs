//! Incremental analysis: after changes of objects, only analyzers with changed input run again.

use std::collections::{BTreeMap, BTreeSet};

use crate::analyzer;
use crate::context::Context;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::message::{self, Message};

/// The last findings of each analyzer.
#[derive(Debug, Default)]
pub struct Incremental {
    /// By the names of analyzers.
    runs: BTreeMap<&'static str, Run>,
}

/// A run of an analyzer.
#[derive(Debug, Default)]
struct Run {
    messages: Vec<Message>,
    read: BTreeSet<Kind>,
}

impl Incremental {
    /// Runs the analyzers that read a kind with `changed` objects, and those that have not run yet.
    /// Where the settings of the mesh change, [`Kind::MeshNetworks`] does, and all run.
    pub fn update(&mut self, context: &Context, changed: &BTreeSet<Kind>) {
        let is_all = changed.contains(&Kind::MeshNetworks);

        for analyzer in analyzer::all() {
            let known = self.runs.get(analyzer.name);
            if !is_all && known.is_some_and(|run| run.read.is_disjoint(changed)) {
                continue;
            }

            context.take_read_kinds();

            match analyzer.run_on(context) {
                Some(messages) => {
                    self.runs.insert(
                        analyzer.name,
                        Run {
                            messages,
                            read: context.take_read_kinds(),
                        },
                    );
                }
                // It runs once what it lacks is there.
                None => drop(self.runs.remove(analyzer.name)),
            }
        }
    }

    /// All findings, the worst first, without those that the annotations of objects suppress.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let filter = Filter::default();
        let all = self.runs.values().flat_map(|run| &run.messages);
        let mut messages: Vec<_> = all
            .filter(|message| filter.includes(message))
            .cloned()
            .collect();
        message::sort(&mut messages);
        messages
    }
}
