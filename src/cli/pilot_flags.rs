//! Command lines for pilot-discovery: flags that have no effect here, and unknown flags.

use clap::Args;

/// Flags of pilot-discovery that are taken and have no effect.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Flags of pilot-discovery without effect")]
pub(super) struct WithoutEffect {
    /// Log stack traces, by level
    #[arg(long = "log_stacktrace_level", value_name = "LEVELS")]
    log_stacktrace_level: Option<String>,
    /// Log callers, by scope
    #[arg(long = "log_caller", value_name = "SCOPES")]
    log_caller: Option<String>,
    /// Level of client-go's log
    #[arg(long, value_name = "LEVEL")]
    vklog: Option<String>,
}

impl WithoutEffect {
    /// The flags that are set.
    pub(super) fn given(&self) -> Vec<String> {
        let Self {
            log_stacktrace_level,
            log_caller,
            vklog,
        } = self;
        let flags = [
            ("--log_stacktrace_level", log_stacktrace_level.is_some()),
            ("--log_caller", log_caller.is_some()),
            ("--vklog", vklog.is_some()),
        ];
        flags
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(flag, _)| flag.to_owned())
            .collect()
    }
}

/// Removes unknown flags from the arguments of a command, each with its value, which is the next
/// argument unless that is a flag. pilot-discovery does so for charts of other versions. Returns
/// the remaining arguments, and the removed flags.
pub(super) fn leave_out_unknown(
    command: &clap::Command,
    words: &[String],
) -> (Vec<String>, Vec<String>) {
    let mut kept = Vec::new();
    let mut unknown = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            kept.push(word.clone());
            kept.extend(rest.cloned());
            break;
        }

        let is_flag = word.len() > 1 && word.starts_with('-');
        let name = word.split('=').next().unwrap_or(word);
        match takes_value(command, name) {
            _ if !is_flag => kept.push(word.clone()),
            Some(takes_value) => {
                kept.push(word.clone());
                if takes_value && !word.contains('=') {
                    kept.extend(rest.next().cloned());
                }
            }
            None => {
                unknown.push(name.to_owned());
                if !word.contains('=') {
                    rest.next_if(|next| !next.starts_with('-'));
                }
            }
        }
    }

    (kept, unknown)
}

/// Whether the next argument is the value of a flag; `None` if the flag is unknown.
fn takes_value(command: &clap::Command, flag: &str) -> Option<bool> {
    if matches!(flag, "--help" | "-h" | "--version" | "-V") {
        return Some(false);
    }

    let is_named = |arg: &&clap::Arg| match flag.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&long))
        }
        None => {
            flag.chars()
                .nth(1)
                .is_some_and(|letter| arg.get_short() == Some(letter))
                && flag.len() == 2
        }
    };

    let arg = command.get_arguments().find(is_named)?;
    Some(arg.get_action().takes_values() && !arg.is_require_equals_set())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Arguments;
    use super::*;

    /// What is left of a command line of `discovery`, and what is left out.
    fn read(line: &str) -> (String, String) {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let command = Arguments::command();
        let (kept, unknown) =
            leave_out_unknown(command.find_subcommand("discovery").unwrap(), &words);
        (kept.join(" "), unknown.join(" "))
    }

    #[test]
    fn unknown_flags_go_with_their_values() {
        for (line, kept, unknown) in [
            ("--unknown --domain d", "--domain d", "--unknown"),
            ("--unknown value --domain d", "--domain d", "--unknown"),
            ("--unknown=value --domain=d", "--domain=d", "--unknown"),
            ("-x -n ns", "-n ns", "-x"),
            ("--domain --unknown", "--domain --unknown", ""),
            (
                "--monitoringAddr=:1 --meshConfig f --log_as_json --x",
                "--monitoringAddr=:1 --meshConfig f --log_as_json",
                "--x",
            ),
            (
                "--log_as_json=false word -- --x",
                "--log_as_json=false word -- --x",
                "",
            ),
            ("--help --version -h -V", "--help --version -h -V", ""),
        ] {
            assert_eq!(read(line), (kept.to_owned(), unknown.to_owned()), "{line}");
        }
    }
}
