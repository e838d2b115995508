//! `navarch agent …`: the node side. Called by the name `pilot-agent` the program takes the same commands as its own, by
//! the name `istio-iptables` or `istio-clean-iptables` that one command.

mod exec;
mod iptables;
mod proxy;
mod request;
mod wait;

use std::path::Path;

use anyhow::bail;

use super::environment;
use crate::agent::variables::Variables;

/// What is told of the commands.
const HELP: &str = "\
The node side: Envoy's companion. Takes pilot-agent's commands, flags and environment.

Usage: navarch agent <COMMAND>

Commands:
  proxy [sidecar|router|waypoint]   Start Envoy and stand by it: identity, configuration, DNS, health, metrics
  request <METHOD> <PATH> [BODY]    Ask the admin API of the Envoy beside (--debug-port 15000)
  wait                              Wait until the Envoy beside is ready (--timeoutSeconds 60, --url …)
  istio-iptables                    Set the rules that send a pod's traffic through its Envoy
  istio-clean-iptables              Take these rules away
  version                           Print version and commit";

/// The command that the name of the program stands for, if it does.
pub(super) fn command_of_name(program: Option<&str>) -> Option<Vec<String>> {
    match Path::new(program?).file_name()?.to_str()? {
        "pilot-agent" => Some(Vec::new()),
        name @ ("istio-iptables" | "istio-clean-iptables") => Some(vec![name.to_owned()]),
        _ => None,
    }
}

/// Runs one of the agent's commands; gives the exit code.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<i32> {
    let variables: Variables = environment::all().into_iter().collect();
    // Flags of logging may stand before the command.
    let place = arguments.iter().position(|word| !word.starts_with('-'));
    let Some((command, rest)) = place.and_then(|place| {
        let (before, after) = arguments.split_at_checked(place)?;
        let (command, after) = after.split_first()?;
        Some((command, [before, after].concat()))
    }) else {
        print_help();
        return Ok(i32::from(arguments.is_empty()));
    };
    match command.as_str() {
        "proxy" => proxy::run(&rest, &variables),
        "request" => request::run(&rest),
        "wait" => wait::run(&rest),
        "istio-iptables" => iptables::run(&rest, &variables),
        "istio-clean-iptables" => iptables::clean(&rest, &variables),
        "version" => {
            super::version::print();
            Ok(0)
        }
        "help" => {
            print_help();
            Ok(0)
        }
        exec::COMMAND => exec::run(&rest),
        other => bail!("{other:?} is no command of the agent\n\n{HELP}"),
    }
}

/// Prints what commands there are.
#[expect(clippy::print_stdout, reason = "printing is what help is for")]
fn print_help() {
    println!("{HELP}");
}

/// Starts logging, at `levels` in Istio's notation (`default:info,dns:debug`) or as `RUST_LOG` has it. Logs go to standard
/// error, as standard output belongs to Envoy and to what commands print.
fn start_log(levels: &str, json: bool) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_new(filter(levels))?)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    let started = if json { log.json().try_init() } else { log.try_init() };
    started.map_err(|error| anyhow::anyhow!("no log: {error}"))
}

/// Istio's levels as a filter: that of `default` for all, those of other scopes for rooms of the agent with that name.
fn filter(levels: &str) -> String {
    let named = |level: &str| match level {
        "none" => "off".to_owned(),
        "warning" => "warn".to_owned(),
        "fatal" => "error".to_owned(),
        level => level.to_owned(),
    };
    let mut parts = vec!["info".to_owned()];
    for part in levels.split(',').filter(|part| !part.is_empty()) {
        match part.split_once(':') {
            None | Some(("default" | "all", _)) => {
                let level = part.rsplit(':').next().unwrap_or(part);
                parts.splice(0..1, [named(level)]);
            }
            Some((scope, level)) => parts.push(format!("navarch::agent::{scope}={}", named(level))),
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_is_a_command() {
        assert_eq!(command_of_name(Some("/usr/local/bin/pilot-agent")), Some(vec![]));
        assert_eq!(command_of_name(Some("istio-iptables")), Some(vec!["istio-iptables".to_owned()]));
        assert_eq!(command_of_name(Some("/bin/navarch")), None);
        assert_eq!(command_of_name(None), None);
    }

    #[test]
    fn levels_are_read_in_istios_notation() {
        assert_eq!(
            filter("default:info,dns:debug,grpc:none"),
            "info,navarch::agent::dns=debug,navarch::agent::grpc=off"
        );
        assert_eq!(filter("warning"), "warn");
        assert_eq!(filter(""), "info");
    }
}
