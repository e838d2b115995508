//! Generates `docs/configuration.md`: every flag of every command, and every environment variable;
//! and the generated parts of `docs/operations.md`.
//!
//! Flags come from the definitions that command lines are parsed with. Variables are described in
//! tables (`control_plane_variables`, and `agent` here), and tests verify that these contain all
//! variables that are read, with their defaults, and no others. The agent's variables are found in
//! its sources.

mod agent;
mod commands;
mod control_plane;
mod operations;
mod table;
mod tests;

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::istiod_variables::{ISTIOD, REMOVED_VARIABLES};
use super::{Arguments, istiod_variables};
use table::{Section, Variable, table};

/// The start of the page.
const HEAD: &str = "\
# Flags and environment variables

This page is made from the code (`REWRITE=1 cargo test -p navarch --lib reference`); a test fails where it is out of date.

A flag takes precedence over a variable. `--name value` and `--name=value` are the same, durations are Go's (`1m30s`), switches take `true`
and `false`, and every command has `--help`. A default in the form of `code` can be set as it stands.

A variable that is set to nothing is unset, unless its line says otherwise. So is, with a warning in the log, a number, duration or
switch that cannot be read; `NAVARCH_STRICT_ENVIRONMENT=true` keeps the control plane from starting with one. Lists, names of kinds and
rules that cannot be read always do. The control plane's log names what it was given and does not obey.

";

/// The description of the agent's commands.
const AGENT: &str = "\
## pilot-agent

The same commands are those of `navarch agent`. `proxy`, `request` and `wait` pass over flags that they do not know; the others reject
them.

";

/// The page. `is_read` returns whether the control plane reads a variable.
fn page(is_read: impl Fn(&str) -> bool) -> String {
    let mut page = HEAD.to_owned();
    commands::of_navarch(&Arguments::command(), "##", &mut page);
    page.push_str(AGENT);
    commands::of_agent(&mut page);
    page.push_str("## Variables of the control plane\n\n");

    for section in control_plane::SECTIONS {
        let read: Vec<_> = section
            .variables()
            .filter(|variable| is_read(variable.name))
            .collect();
        push_read(*section, &read, &mut page);
    }

    page.push_str("### Not read\n\nVariables of istiod that have no effect.\n\n");
    let mut unread: Vec<_> = all(control_plane::SECTIONS)
        .filter(|variable| !is_read(variable.name))
        .collect();
    unread.sort_by_key(|variable| variable.name);
    push_unread(&unread, &[ISTIOD, REMOVED_VARIABLES].concat(), &mut page);

    page.push_str("## Variables of the agent\n\nThose that set flags of istio-iptables are listed with the flags.\n\n");

    for section in agent::SECTIONS {
        let read: Vec<_> = section.variables().collect();
        push_read(*section, &read, &mut page);
    }
    page.trim_end().to_owned() + "\n"
}

/// The variables of all sections.
fn all(sections: &'static [Section]) -> impl Iterator<Item = Variable> {
    sections.iter().flat_map(|section| section.variables())
}

/// Adds a table of variables that are read.
fn push_read(section: Section, variables: &[Variable], page: &mut String) {
    let row = |variable: &Variable| {
        [
            format!("`{}`", variable.name),
            variable.shown_default(),
            variable.effect.to_owned(),
        ]
    };
    let rows: Vec<_> = variables.iter().map(row).collect();
    page.push_str(&format!("### {}\n\n", section.title));
    page.push_str(&table(["variable", "default", "what it does"], &rows));
}

/// Adds a table of variables of istiod that are not read, with the behaviour instead. `usual` has
/// the value of each that matches the behaviour here.
fn push_unread(variables: &[Variable], usual: &[(&str, Option<&str>)], page: &mut String) {
    let row = |variable: &Variable| {
        let value = usual
            .iter()
            .find(|(name, _)| *name == variable.name)
            .and_then(|(_, value)| *value);
        let here = match (value, variable.instead) {
            (Some(value), _) => format!("as with `{value}`"),
            (None, Some(instead)) => instead.to_owned(),
            (None, None) => panic!(
                "{}: what happens instead? A fourth column must say",
                variable.name
            ),
        };

        [
            format!("`{}`", variable.name),
            variable.shown_default(),
            variable.effect.to_owned(),
            here,
        ]
    };

    let rows: Vec<_> = variables.iter().map(row).collect();
    let columns = [
        "variable",
        "istiod's default",
        "what it does in istiod",
        "here",
    ];
    page.push_str(&table(columns, &rows));
}

/// The names of variables that occur more than once.
fn repeated(variables: impl Iterator<Item = Variable>) -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    variables
        .map(|variable| variable.name)
        .filter(|name| !seen.insert(*name))
        .collect()
}

/// Whether istiod reads a variable, or did so in earlier releases.
fn is_istiods(name: &str) -> bool {
    ISTIOD
        .iter()
        .chain(REMOVED_VARIABLES)
        .any(|(known, _)| *known == name)
        || istiod_variables::FORMER.contains(&name)
}
