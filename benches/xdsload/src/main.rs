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
mod refuse;
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

/// As in the servers that are measured: what the proxies cost must not hide what the server does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates many Envoys on an xDS server and measures the server.
#[derive(Debug, Parser)]
#[command(name = "xdsload", version)]
struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Writes a mesh, as a directory of YAML or into an API server.
    Generate {
        /// Where to.
        #[command(flatten)]
        place: target::Where,
        /// How large it is.
        #[command(flatten)]
        size: Size,
    },
    /// Connects proxies, makes changes, prints a JSON object and a table.
    Run {
        /// What to run.
        #[command(flatten)]
        plan: Box<Plan>,
        /// Where to write the JSON object instead, with the table beside it as `.md`.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Serves what one proxy got from a server again to any number of proxies, at next to no cost:
    /// what `run` needs against it is what the proxies themselves cost.
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
