//! The command line: one file per subcommand, and the environment.

mod analyze;
mod applied;
mod ca;
mod cluster;
mod color;
mod connections;
mod control_plane_variables;
mod crds;
mod dashboard;
mod debug_api;
mod discovery;
mod doctor;
pub mod environment;
mod files;
mod inject;
mod istiod_variables;
mod kubeconfig;
mod limits;
mod log;
mod manual;
mod mesh;
mod migrate;
mod object_arguments;
mod offline;
mod output;
mod pilot_flags;
mod plan;
mod preflight;
mod progress;
mod proxy;
mod quarantine;
mod reading;
#[cfg(test)]
mod reference;
mod remotes;
mod replay;
mod request;
mod rollout;
mod scope;
mod security;
mod shadow;
mod signers;
mod support_bundle;
mod version;
mod webhooks;
mod why;
mod writing;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use environment::Variables;
use navarch_net::cryptography;

use crate::admin::LogScopes;
use crate::server::Config;

/// The command that runs the control plane.
const DISCOVERY: &str = "discovery";

/// A service-mesh control plane that speaks Istio's configuration and Envoy's xDS.
///
/// Reads Istio's flags, environment variables and files; runs where istiod runs.
#[derive(Debug, Parser)]
#[command(name = "navarch", version = env!("NAVARCH_VERSION"), propagate_version = true)]
struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane: read configuration, serve xDS to proxies
    Discovery(Box<discovery::Discovery>),
    /// Run the agent of a proxy: the commands of pilot-agent (proxy, request, wait, istio-iptables,
    /// …)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Agent {
        /// The command of the agent with its flags, as for pilot-agent
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    Inject(Box<inject::Inject>),
    /// Show the trusted roots of the mesh, and rotate the signing root
    Ca(Box<ca::Ca>),
    /// Send a request to the monitoring port of the control plane on this machine
    Request(request::Request),
    Analyze(Box<analyze::Analyze>),
    Preflight(Box<preflight::Preflight>),
    Shadow(Box<shadow::Shadow>),
    Migrate(Box<migrate::Migrate>),
    Scope(Box<scope::Scope>),
    Plan(Box<plan::PlanCommand>),
    Applied(Box<applied::AppliedCommand>),
    Rollout(Box<rollout::Rollout>),
    Quarantine(Box<quarantine::Quarantine>),
    Proxy(Box<proxy::Proxy>),
    Why(Box<why::Why>),
    Doctor(Box<doctor::Doctor>),
    Replay(replay::Replay),
    SupportBundle(support_bundle::SupportBundle),
    Dashboard(dashboard::Dashboard),
    /// Print a shell completion script
    Completions(manual::Completions),
    /// Write man pages
    Man(manual::Man),
    /// Print the CustomResourceDefinitions of Istio's kinds as YAML
    Crds,
    Version(version::VersionCommand),
}

/// Runs the program with the arguments and environment of the process. An error of the command is
/// printed, with a hint how to fix it.
pub fn run() -> ExitCode {
    run_command().unwrap_or_else(|error| {
        // As std prints the error of `main`, but escaped: it may quote a server or a file.
        output::report(&format!("Error: {error:?}"));
        ExitCode::FAILURE
    })
}

/// The settings of `navarch discovery` with these flags in this environment, for a program that
/// runs the control plane itself.
///
/// # Errors
/// If a flag or a variable is invalid.
pub fn discovery_config(
    flags: impl IntoIterator<Item = String>,
    variables: impl IntoIterator<Item = (String, String)>,
    log_scopes: LogScopes,
) -> anyhow::Result<Config> {
    let program = ["navarch", DISCOVERY].map(str::to_owned);
    let arguments = Arguments::try_parse_from(program.into_iter().chain(flags))?;
    let Command::Discovery(discovery) = arguments.command else {
        anyhow::bail!("no flags of the control plane");
    };
    discovery.config(&Variables::new(variables), log_scopes)
}

fn run_command() -> anyhow::Result<ExitCode> {
    // Before any TLS; the commands that serve warn about an unknown policy.
    let policy = environment::variable("COMPLIANCE_POLICY").unwrap_or_default();
    cryptography::install(&policy);

    let arguments = navarch_agent::cli::words(std::env::args_os())?;
    if let Some(command) =
        navarch_agent::cli::command_of_name(arguments.first().map(String::as_str))
    {
        let rest = arguments.into_iter().skip(1);
        return navarch_agent::cli::run(&command.into_iter().chain(rest).collect::<Vec<_>>());
    }

    let (arguments, unknown) = without_unknown(with_command_of_name(arguments));
    match Arguments::parse_from(arguments).command {
        Command::Discovery(discovery) => discovery.run(&unknown)?,
        Command::Agent { arguments } => return navarch_agent::cli::run(&arguments),
        Command::Inject(inject) => inject.run()?,
        Command::Ca(ca) => ca.run()?,
        Command::Request(request) => request.run()?,
        Command::Analyze(analyze) => return analyze.run(),
        Command::Preflight(preflight) => return preflight.run(),
        Command::Shadow(shadow) => return shadow.run(),
        Command::Migrate(migrate) => return migrate.run(),
        Command::Scope(scope) => return scope.run(),
        Command::Plan(plan) => return plan.run(),
        Command::Applied(applied) => return applied.run(),
        Command::Rollout(rollout) => return rollout.run(),
        Command::Quarantine(quarantine) => return quarantine.run(),
        Command::Proxy(proxy) => return proxy.run(),
        Command::Why(why) => return why.run(),
        Command::Doctor(doctor) => return doctor.run(),
        Command::Replay(replay) => return replay.run(),
        Command::SupportBundle(bundle) => return bundle.run(),
        Command::Dashboard(dashboard) => return dashboard.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run()?,
        Command::Crds => crds::print()?,
        Command::Version(version) => version.run()?,
    }

    Ok(ExitCode::SUCCESS)
}

/// Inserts the command that the program is named after, as in
/// `/usr/local/bin/discovery --domain d`; with any other name, such as `pilot-discovery`, the
/// command must be an argument.
fn with_command_of_name(mut arguments: Vec<String>) -> Vec<String> {
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str());
    let has_command = arguments
        .get(1)
        .is_some_and(|word| Arguments::command().find_subcommand(word).is_some());
    if name == Some(DISCOVERY) && !has_command {
        arguments.insert(1, DISCOVERY.to_owned());
    }
    arguments
}

/// Removes unknown flags of `discovery`, as pilot-discovery does, and returns them separately.
fn without_unknown(arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    let words = arguments
        .get(1)
        .filter(|word| *word == DISCOVERY)
        .and_then(|_| arguments.get(2..));
    let command = Arguments::command();
    let Some((words, command)) = words.zip(command.find_subcommand(DISCOVERY)) else {
        return (arguments, Vec::new());
    };
    let (kept, unknown) = pilot_flags::leave_out_unknown(command, words);
    (
        arguments.iter().take(2).cloned().chain(kept).collect(),
        unknown,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_may_be_the_command() {
        let read = |line: &str| {
            with_command_of_name(line.split(' ').map(str::to_owned).collect()).join(" ")
        };
        assert_eq!(
            read("/usr/local/bin/discovery --domain d"),
            "/usr/local/bin/discovery discovery --domain d"
        );
        assert_eq!(read("discovery discovery"), "discovery discovery");

        assert_eq!(
            read("discovery request GET /ready"),
            "discovery request GET /ready"
        );

        for other in [
            "pilot-discovery discovery",
            "/usr/local/bin/pilot-discovery",
            "navarch --help",
        ] {
            assert_eq!(read(other), other);
        }
    }
}
