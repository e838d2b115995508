//! The command line: one file per subcommand, and the environment.

mod agent;
mod ca;
mod connections;
mod crds;
mod discovery;
pub mod environment;
mod files;
mod inject;
mod istiod_variables;
mod limits;
mod log;
mod memory;
mod pilot_flags;
mod security;
mod version;
mod webhooks;
mod writing;

use clap::{CommandFactory as _, Parser, Subcommand};

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

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane: read configuration, serve xDS to proxies
    Discovery(Box<discovery::Discovery>),
    /// Stand beside an Envoy: pilot-agent's commands (proxy, request, wait, istio-iptables, …)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Agent {
        /// The agent's command with its flags, as pilot-agent takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Add the proxy to the pods of files, as the webhook would
    Inject(Box<inject::Inject>),
    /// Show the roots that the mesh trusts, and replace the one that signs
    Ca(Box<ca::Ca>),
    /// Print the CustomResourceDefinitions of Istio's kinds as YAML
    Crds,
    /// Print version and commit
    Version,
}

/// Runs the program on the process's own arguments and environment.
///
/// # Errors
/// What made the program fail, with what to do about it.
pub fn run() -> anyhow::Result<std::process::ExitCode> {
    let arguments: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(command) = agent::command_of_name(arguments.first().map(String::as_str)) {
        let rest = arguments.into_iter().skip(1);
        return agent::run(&command.into_iter().chain(rest).collect::<Vec<_>>()).map(exit_code);
    }
    let (arguments, unknown) = without_unknown(arguments);
    match Arguments::parse_from(arguments).command {
        Command::Discovery(discovery) => discovery.run(&unknown)?,
        Command::Agent { arguments } => return agent::run(&arguments).map(exit_code),
        Command::Inject(inject) => inject.run()?,
        Command::Ca(ca) => ca.run()?,
        Command::Crds => crds::print(),
        Command::Version => version::print(),
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// Leaves flags of `discovery` out that are not known, as pilot-discovery does; gives them beside.
fn without_unknown(arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    let words = arguments.get(1).filter(|word| *word == "discovery").and_then(|_| arguments.get(2..));
    let command = Arguments::command();
    let Some((words, command)) = words.zip(command.find_subcommand("discovery")) else {
        return (arguments, Vec::new());
    };
    let (kept, unknown) = pilot_flags::leave_out_unknown(command, words);
    (arguments.iter().take(2).cloned().chain(kept).collect(), unknown)
}

/// A code of the agent's commands as the process's own; one that does not fit is a failure.
fn exit_code(code: i32) -> std::process::ExitCode {
    u8::try_from(code).map_or(std::process::ExitCode::FAILURE, std::process::ExitCode::from)
}
