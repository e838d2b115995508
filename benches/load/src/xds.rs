//! Many simulated Envoys against one xDS server, and what that costs the server.
//!
//! ```text
//! world ─▶ files or objects that it watches        run ─▶ proxies ─▶ one connection each ─▶ server
//!   change ─▶ one file, a text left in it           tally ◀─ follow ◀─ wire, decoded to names ◀─ grpc ◀─ http2
//! ```

mod answering;
mod asking;
mod change;
pub(crate) mod churn;
pub(crate) mod connection;
pub(crate) mod delta;
mod follow;
pub(crate) mod grpc;
pub(crate) mod http2;
mod names;
pub(crate) mod peek;
mod proxy;
mod replay;
mod report;
pub(crate) mod resource_type;
pub(crate) mod run;
mod state;
pub(crate) mod talk;
pub(crate) mod tally;
pub(crate) mod target;
pub(crate) mod wire;
pub(crate) mod world;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use run::{Plan, Run, Server};
use world::Size;

/// Measures any xDS server that runs already, with simulated Envoys
///
/// `generate` writes a mesh to a directory or an API server that the server watches, and `run`
/// connects proxies to it and makes changes. Each proxy has one connection and one stream, delta or
/// state of the world, and requests what an Envoy would. Measured are, for each proxy, the time
/// until it is in sync and until it has a change, and CPU, memory, files and threads of the server.
/// The server may be any that watches these objects, such as istiod.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes a generated mesh, as a directory of YAML or into an API server
    Generate {
        #[command(flatten)]
        place: target::Where,
        #[command(flatten)]
        size: Size,
    },
    /// Connects proxies, makes changes, prints a JSON object and a table
    ///
    /// The sizes must be those that `generate` had: changes are made to objects of that mesh. The
    /// first change of each kind fills caches and is not reported. Times are milliseconds; CPU-s
    /// are CPU seconds of the server; rss_kb and peak_kb are KiB.
    Run(Box<Options>),
    /// Records the responses of a server to one proxy, and sends them to any number of proxies at
    /// next to no cost: what `run` costs against this server is the cost of the proxies themselves
    Replay(replay::Plan),
}

/// The options of `run`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The xDS server; plain text
    #[arg(long, default_value = "127.0.0.1:15010")]
    server: SocketAddr,
    /// Its process id, to measure CPU and memory
    #[arg(long)]
    pid: Option<u32>,
    /// The configuration that the server watches; without it, no changes are made.
    #[command(flatten)]
    place: target::Where,
    #[command(flatten)]
    plan: Plan,
    /// The file for the JSON object, with the table beside it as `.md`; stdout by default
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// If the server, the mesh or a file cannot be reached, or a step times out.
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Generate { place, size } => world::generate(&place.need().await?, &size).await,
            Self::Run(options) => options.run().await,
            Self::Replay(plan) => replay::run(plan).await,
        }
    }
}

impl Options {
    /// Measures, and reports.
    async fn run(self) -> Result<()> {
        let server = Server {
            address: self.server,
            pid: self.pid,
        };
        let target = self.place.open().await?;
        let report = Run::new(self.plan, server, target).run().await?;
        report.publish(self.out.as_deref())
    }
}
