//! The command line of `pilot-agent`: its commands, flags and environment. If the program is named
//! `istio-iptables` or `istio-clean-iptables`, it runs that command; `navarch agent …` accepts the
//! same commands.

mod exec;
mod iptables;
mod log;
mod proxy;
mod request;
mod wait;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, bail};

use crate::command::ProxyCommand;
use crate::flags::{Flag, FlagValue};
use crate::iptables::Options;
use crate::variables::Variables;
use navarch_net::cryptography;

/// The help text of the program.
const HELP: &str = "\
The agent that runs beside Envoy. Supports the commands, flags and environment variables of pilot-agent.

Usage: pilot-agent <COMMAND>

Commands:
  proxy [sidecar|router|waypoint]   Start and manage Envoy: identity, configuration, DNS, health, metrics
  request <METHOD> <PATH> [BODY]    Send a request to the admin API of Envoy in this pod (--debug-port 15000)
  wait                              Wait until Envoy in this pod is ready (--timeoutSeconds 60, --url …)
  istio-iptables                    Set up the rules that redirect the traffic of a pod to Envoy
  istio-clean-iptables              Remove these rules
  version                           Print version and commit";

/// A documented command of the agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentCommand {
    /// The name on the command line, such as `proxy`.
    pub name: &'static str,
    /// The arguments after the name.
    pub arguments: &'static str,
    /// What it does, in full sentences.
    pub about: &'static str,
    /// Its flags, in the order of the help text.
    pub flags: &'static [Flag],
}

/// All documented commands.
pub const COMMANDS: &[AgentCommand] = &[
    AgentCommand {
        name: "proxy",
        arguments: "[sidecar|router|waypoint] [FLAGS]",
        about: "Start and manage Envoy.",
        flags: ProxyCommand::FLAGS,
    },
    AgentCommand {
        name: "request",
        arguments: "<METHOD> <PATH> [BODY]",
        about: "Send a request to the admin API of Envoy in this pod.",
        flags: request::FLAGS,
    },
    AgentCommand {
        name: "wait",
        arguments: "[FLAGS]",
        about: "Wait until Envoy in this pod is ready.",
        flags: wait::FLAGS,
    },
    AgentCommand {
        name: "istio-iptables",
        arguments: "[FLAGS]",
        about: "Set up the rules that redirect the traffic of a pod to Envoy. Each flag can also be set by an environment variable.",
        flags: Options::FLAGS,
    },
    AgentCommand {
        name: "istio-clean-iptables",
        arguments: "[FLAGS]",
        about: "Remove the rules that istio-iptables sets up.",
        flags: Options::FLAGS,
    },
    AgentCommand {
        name: "version",
        arguments: "",
        about: "Print version and commit.",
        flags: &[],
    },
];

/// The command that the name of the program selects, if any.
pub fn command_of_name(program: Option<&str>) -> Option<Vec<String>> {
    match Path::new(program?).file_name()?.to_str()? {
        "pilot-agent" => Some(Vec::new()),
        name @ ("istio-iptables" | "istio-clean-iptables") => Some(vec![name.to_owned()]),
        _ => None,
    }
}

/// Runs one of the agent's commands in the environment of the process. An exit code out of range
/// becomes a failure.
///
/// # Errors
/// The error of the command, with a hint how to fix it.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let code = run_command(arguments)?;
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs one of the agent's commands; returns the exit code.
fn run_command(arguments: &[String]) -> anyhow::Result<i32> {
    let (valid, not_utf8) = texts(std::env::vars_os());
    let variables: Variables = valid.into_iter().collect();

    // Before any TLS.
    cryptography::install(variables.text("COMPLIANCE_POLICY"));

    // Logging flags are also allowed before the command.
    let place = arguments.iter().position(|word| !word.starts_with('-'));
    let Some((command, rest)) = place.and_then(|place| {
        let (before, after) = arguments.split_at_checked(place)?;
        let (command, after) = after.split_first()?;
        Some((command, [before, after].concat()))
    }) else {
        print(HELP);
        return Ok(i32::from(arguments.is_empty()));
    };

    if let Some(help) = help(command).filter(|_| requests_help(&rest)) {
        print(&help);
        return Ok(0);
    }

    match command.as_str() {
        "proxy" => proxy::run(&rest, &variables, &not_utf8),
        "request" => request::run(&rest),
        "wait" => wait::run(&rest),
        "istio-iptables" => iptables::run(&rest, &variables),
        "istio-clean-iptables" => iptables::clean(&rest, &variables),
        "version" => {
            print(concat!(
                env!("NAVARCH_VERSION"),
                "-",
                env!("NAVARCH_COMMIT")
            ));
            Ok(0)
        }
        "help" => {
            print(HELP);
            Ok(0)
        }
        exec::COMMAND => exec::run(&rest),
        other => bail!("unknown command {other:?}\n\n{HELP}"),
    }
}

/// The words of a command line; the first is the program's own path, which only selects a command.
///
/// # Errors
/// If a word is not UTF-8: with other characters in place of its bytes, it could name another file.
pub fn words(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Vec<String>> {
    let mut arguments = arguments.into_iter();
    let program = arguments
        .next()
        .map(|path| path.to_string_lossy().into_owned());
    let text = |word: OsString| {
        word.into_string()
            .map_err(|word| anyhow!("argument {word:?} is not UTF-8 text"))
    };
    program
        .map(Ok)
        .into_iter()
        .chain(arguments.map(text))
        .collect()
}

/// The environment variables of the process that are valid UTF-8.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    texts(std::env::vars_os()).0
}

/// The variables that are valid UTF-8, and the names of the others.
fn texts(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<(String, String)>, Vec<String>) {
    let mut valid = Vec::new();
    let mut others = Vec::new();

    for (name, value) in variables {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => valid.push((name, value)),
            (Ok(name), Err(_)) => others.push(name),
            (Err(name), _) => others.push(format!("{name:?}")),
        }
    }

    (valid, others)
}

#[expect(clippy::print_stdout, reason = "printing is what help is for")]
fn print(text: &str) {
    println!("{text}");
}

/// Whether help is requested instead of the command.
fn requests_help(arguments: &[String]) -> bool {
    let flags = arguments.iter().take_while(|word| *word != "--");
    flags
        .into_iter()
        .any(|word| matches!(word.as_str(), "--help" | "-h"))
}

/// The help text of a command; `None` for words that are not a documented command.
fn help(command: &str) -> Option<String> {
    let AgentCommand {
        name,
        arguments,
        about,
        flags,
    } = COMMANDS.iter().find(|known| known.name == command)?;

    let usage = format!("{name} {arguments}");
    let mut text = format!(
        "{about} The flags are those of pilot-agent.\n\nUsage: pilot-agent {}\n\nFlags:\n",
        usage.trim_end()
    );

    for flag in *flags {
        let letter = flag
            .letter
            .map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        let value = if flag.value == FlagValue::Text {
            " VALUE"
        } else {
            ""
        };

        let default = if flag.default.is_empty() {
            String::new()
        } else {
            format!(" [default: {}]", flag.default)
        };

        text.push_str(&format!(
            "  {letter}--{}{value}\n          {}{default}\n",
            flag.name, flag.help
        ));
    }

    text.push_str("  -h, --help");
    Some(text)
}

/// Logs one warning about ignored settings, if there are any.
fn warn_ignored(what: &str, names: &[impl AsRef<str>]) {
    if !names.is_empty() {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        tracing::warn!(names = names.join(", "), "{what}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn arguments_are_not_altered() {
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        assert_eq!(
            words([bytes(b"/opt/\xff/pilot-agent"), bytes(b"proxy")]).unwrap(),
            ["/opt/\u{fffd}/pilot-agent", "proxy"]
        );
        assert_eq!(words([]).unwrap(), Vec::<String>::new());

        let rejected = words([bytes(b"pilot-agent"), bytes(b"--meshConfig=/a\xff")]);
        assert_eq!(
            rejected.unwrap_err().to_string(),
            r#"argument "--meshConfig=/a\xFF" is not UTF-8 text"#
        );
    }

    #[test]
    fn variables_that_are_not_text_are_named_without_their_values() {
        let pair = |name: &[u8], value: &[u8]| {
            (
                OsString::from_vec(name.to_vec()),
                OsString::from_vec(value.to_vec()),
            )
        };
        let all = [
            pair(b"A", b"1"),
            pair(b"B", b"secret\xff"),
            pair(b"C\xff", b"2"),
        ];

        let (valid, others) = texts(all.into_iter());

        assert_eq!(valid, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(others, ["B", r#""C\xFF""#]);
    }

    #[test]
    fn the_programs_name_is_a_command() {
        assert_eq!(
            command_of_name(Some("/usr/local/bin/pilot-agent")),
            Some(vec![])
        );
        assert_eq!(
            command_of_name(Some("istio-iptables")),
            Some(vec!["istio-iptables".to_owned()])
        );
        assert_eq!(command_of_name(Some("/bin/navarch")), None);
        assert_eq!(command_of_name(None), None);
    }
}
