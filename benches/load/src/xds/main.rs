//! `xdsload`: many simulated Envoys against one xDS server, and what that costs the server.
//!
//! ```text
//! world ─▶ files or objects that it watches        run ─▶ proxies ─▶ one connection each ─▶ server
//!   change ─▶ one file, a text left in it           tally ◀─ follow ◀─ wire, decoded to names ◀─ grpc ◀─ http2
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report goes to stdout, progress to stderr"
)]

mod answering;
mod asking;
mod change;
mod churn;
mod connection;
mod delta;
mod follow;
mod grpc;
mod http2;
mod kind;
mod names;
mod peek;
mod proxy;
mod replay;
mod report;
mod run;
mod state;
mod talk;
mod tally;
mod target;
mod wire;
mod world;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use run::{Plan, Run};
use world::Size;

/// The servers' allocator: the cost of the proxies must stay small beside the server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates many Envoys on an xDS server and measures the server.
#[derive(Debug, Parser)]
#[command(name = "xdsload", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes a generated mesh, as a directory of YAML or into an API server.
    Generate {
        #[command(flatten)]
        place: target::Where,
        #[command(flatten)]
        size: Size,
    },
    /// Connects proxies, makes changes, prints a JSON object and a table.
    Run {
        /// The plan of the run.
        #[command(flatten)]
        plan: Box<Plan>,
        /// The file for the JSON object, with the table beside it as `.md`; stdout by default.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Records the responses of a server to one proxy, and sends them to any number of proxies at
    /// next to no cost: what `run` costs against this server is the cost of the proxies themselves.
    Replay(replay::Plan),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        Command::Generate { place, size } => world::generate(&place.need().await?, &size).await,
        Command::Run { plan, out } => {
            let report = Run::new(*plan).run().await?;
            let json = serde_json::to_string_pretty(&report)?;

            match out {
                Some(out) => {
                    let write = |path: PathBuf, text: String| {
                        std::fs::write(&path, text)
                            .with_context(|| format!("cannot write {}", path.display()))
                    };
                    write(out.with_extension("md"), report.table())?;
                    write(out, json + "\n")?;
                }
                None => println!("{json}"),
            }

            println!("{}", report.table());
            Ok(())
        }
        Command::Replay(plan) => replay::run(plan).await,
    }
}
