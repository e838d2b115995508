//! Commands with their flags.

use clap::{Arg, Command};
use navarch_agent::cli::COMMANDS;
use navarch_agent::flags::{Flag, FlagValue};
use navarch_agent::iptables::Options;

use super::table::table;

/// Adds a command of `navarch` and its subcommands. `level` is the prefix of its heading.
pub(super) fn of_navarch(command: &Command, level: &str, page: &mut String) {
    of_command(command, command.get_name(), level, page);
}

/// Adds a command with this name.
fn of_command(command: &Command, name: &str, level: &str, page: &mut String) {
    page.push_str(&format!("{level} {name}\n\n"));

    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let about = about.to_string();
        let stop = if about.ends_with('.') { "" } else { "." };
        page.push_str(&format!("{about}{stop}\n\n"));
    }

    let arguments: Vec<_> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .collect();
    let words = arguments
        .iter()
        .filter(|argument| argument.is_positional())
        .map(|argument| row(argument));

    page.push_str(&table(
        ["argument", "default", "what it is"],
        &words.collect::<Vec<_>>(),
    ));
    let mut headings: Vec<_> = arguments
        .iter()
        .map(|argument| argument.get_help_heading())
        .collect();
    headings.dedup();

    for heading in headings {
        if let Some(heading) = heading {
            page.push_str(&format!("{heading}:\n\n"));
        }
        let flags = arguments
            .iter()
            .filter(|argument| !argument.is_positional() && argument.get_help_heading() == heading);
        page.push_str(&table(
            ["flag", "default", "what it does"],
            &flags.map(|flag| row(flag)).collect::<Vec<_>>(),
        ));
    }

    for subcommand in command.get_subcommands() {
        of_command(
            subcommand,
            &format!("{name} {}", subcommand.get_name()),
            &format!("{level}#"),
            page,
        );
    }
}

/// The row of a flag or an argument.
fn row(argument: &Arg) -> [String; 3] {
    let names: Vec<_> = if argument.is_positional() {
        vec![format!("`{}`", value_name(argument))]
    } else {
        let short = argument.get_short().map(|letter| format!("`-{letter}`"));
        let value = argument
            .get_action()
            .takes_values()
            .then(|| format!(" {}", value_name(argument)));
        let long = argument
            .get_long()
            .map(|name| format!("`--{name}{}`", value.unwrap_or_default()));

        let others = argument
            .get_all_aliases()
            .unwrap_or_default()
            .into_iter()
            .map(|name| format!("`--{name}`"));

        short.into_iter().chain(long).chain(others).collect()
    };

    let defaults = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned());
    let default: Vec<_> = defaults
        .filter(|value| !value.is_empty())
        .map(|value| format!("`{value}`"))
        .collect();
    let default = if argument.is_required_set() {
        "required".to_owned()
    } else {
        default.join(", ")
    };

    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    [names.join(", "), default, sentence(&help)]
}

/// The name of an argument's value.
fn value_name(argument: &Arg) -> String {
    match argument.get_value_names() {
        Some([name, ..]) => name.to_string(),
        _ => argument.get_id().to_string().to_uppercase(),
    }
}

/// A text without its final period, as in the rows of other tables.
fn sentence(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

/// Adds the agent's commands.
pub(super) fn of_agent(page: &mut String) {
    for command in COMMANDS {
        let usage = format!("{} {}", command.name, command.arguments);
        page.push_str(&format!("### pilot-agent {}\n\n", command.name));
        page.push_str(&format!(
            "{} `pilot-agent {}`\n\n",
            command.about,
            usage.trim_end()
        ));

        if command.name == "istio-clean-iptables" {
            page.push_str("Flags and variables are those of `istio-iptables`.\n\n");
        } else if command.name == "istio-iptables" {
            let row = |flag: &Flag| {
                let variables: Vec<_> = Options::variables_of(flag.name)
                    .map(|name| format!("`{name}`"))
                    .collect();
                let [name, default, help] = agent_row(flag);
                [name, variables.join(", "), default, help]
            };
            let rows: Vec<_> = command.flags.iter().map(row).collect();
            page.push_str(&table(
                ["flag", "variable", "default", "what it does"],
                &rows,
            ));
        } else {
            let rows: Vec<_> = command.flags.iter().map(agent_row).collect();
            page.push_str(&table(["flag", "default", "what it does"], &rows));
        }
    }
}

/// The row of one of the agent's flags.
fn agent_row(flag: &Flag) -> [String; 3] {
    let letter = flag
        .letter
        .map(|letter| format!("`-{letter}`, "))
        .unwrap_or_default();
    let value = if flag.value == FlagValue::Text {
        " VALUE"
    } else {
        ""
    };

    let default = if flag.default.is_empty() {
        String::new()
    } else {
        format!("`{}`", flag.default)
    };

    [
        format!("{letter}`--{}{value}`", flag.name),
        default,
        flag.help.to_owned(),
    ]
}
