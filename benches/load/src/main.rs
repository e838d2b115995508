//! `navarch-load`: measures control planes under load. Each subcommand is one measurement.
//!
//! ```text
//! xds       any xDS server that runs already        ◀─ simulated Envoys
//! sync      navarch, or istiod, on an API server    ◀─ simulated Envoys
//! answers   navarch on a directory                  ◀─ simulated Envoys, `navarch plan`, …
//! ambient   navarch on an API server                ◀─ simulated ztunnels
//! scale     navarch on an API server in this tool   ◀─ simulated Envoys that keep little, ztunnels
//! kubernetes, clusters, routes: navarch on large, many or changing API servers; routes has a real Envoy
//! ```
//!
//! All but `xds` start the measured control plane themselves, and read its CPU and memory from
//! `/proc`.

#![allow(clippy::disallowed_methods, reason = "the tool spawns its own clients")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tables go to stdout, progress to stderr"
)]

mod ambient;
mod answers;
mod checkout;
mod clusters;
mod distribution;
mod figure;
mod kubernetes;
mod metadata;
mod metrics;
mod plane;
mod results;
mod routes;
mod scale;
mod sync;
mod units;
mod xds;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The servers' allocator: the cost of the clients must stay small beside the server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures control planes under load
///
/// Results are JSON files for tools, and tables in Markdown on stdout for people; progress goes to
/// stderr. Fields say their units: `_seconds` and `_s` are seconds, `_ms` milliseconds, `_kb` KiB
/// as in /proc, `_mb` and MB 10^6 bytes, `cpu_seconds` and CPU-s seconds of CPU of all cores
/// together. docs/benchmarks.md has the methods and figures.
#[derive(Debug, Parser)]
#[command(name = "navarch-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The measurements; the options of each have its description.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand)]
    Xds(xds::Command),
    Sync(Box<sync::Options>),
    Answers(answers::Options),
    Ambient(ambient::Options),
    Kubernetes(kubernetes::Options),
    Clusters(clusters::Options),
    Routes(routes::Options),
    #[command(subcommand)]
    Scale(scale::Command),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Xds(command) => command.run().await,
        Command::Sync(options) => options.run().await,
        Command::Answers(options) => options.run().await,
        Command::Ambient(options) => options.run().await,
        Command::Kubernetes(options) => options.run().await,
        Command::Clusters(options) => options.run().await,
        Command::Routes(options) => options.run().await,
        Command::Scale(command) => command.run().await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_has_a_description_and_consistent_options() {
        let cli = Cli::command();
        cli.clone().debug_assert();
        let commands: Vec<_> = cli.get_subcommands().collect();
        assert_eq!(commands.len(), 8);

        for command in commands {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no description");
            assert!(
                command.get_long_about().is_some(),
                "{name} has only a short description"
            );
        }
    }

    #[test]
    fn the_command_lines_of_scripts_are_accepted() {
        let lines = [
            "xds generate --config-dir mesh --services 1000 --endpoints 10",
            "xds run --server 127.0.0.1:1 --pid 1 --config-dir mesh --out a.json --proxies 9 --reconnect",
            "xds run --headless --routers --gateway-hosts 62000 --changes endpoint --proxies 10",
            "xds replay --from 127.0.0.1:1",
            "sync navarch . result.json --services 1000 --proxies 1000 --fine-grained --reconnect",
            "sync navarch . result.json --istiod istiod --services 1000 --proxies 1000",
            "answers navarch . results --only plan,record",
            "ambient navarch . results --only start --runs 1",
            "kubernetes navarch . results 5000",
            "clusters navarch . results 10 300 14",
            "routes navarch . results 3000 5000",
            "scale ambient navarch . results --workloads 1000000 --ztunnels 100",
            "scale sidecars navarch . results --streams 50000 --streams-per-connection 3 --rate 10000",
        ];

        for line in lines {
            let words = ["navarch-load"].into_iter().chain(line.split(' '));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
