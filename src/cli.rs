//! The command line: one file per subcommand, and the environment.

mod crds;
mod discovery;
pub mod environment;
mod security;
mod version;
mod writing;

use clap::{Parser, Subcommand};

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
    /// Print the CustomResourceDefinitions of Istio's kinds as YAML
    Crds,
    /// Print version and commit
    Version,
}

/// Runs the program on the process's own arguments and environment.
///
/// # Errors
/// What made the program fail, with what to do about it.
pub fn run() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Discovery(discovery) => discovery.run(),
        Command::Crds => {
            crds::print();
            Ok(())
        }
        Command::Version => {
            version::print();
            Ok(())
        }
    }
}
