//! How far one navarch process scales: streams, endpoint updates and workloads of which a real API
//! server beside it could not hold a tenth.
//!
//! ```text
//!              mesh ─▶ api: a minimal API server ─▶ navarch ─▶ client: streams, a few bytes each
//! order ─▶ feed ─▶ events of one watch ─┘                        └─▶ board: which update, and when
//! ambient_mesh ─▶ api ─▶ navarch ─▶ ztunnel ─▶ skim: how many addresses
//! ```
//!
//! The API server is one in this process: the one of `testkit/sim` has no sockets, keeps the
//! history of all objects and simulates delays and faults, and it is linked with the whole control
//! plane.

mod ambient;
mod ambient_mesh;
mod api;
mod board;
mod client;
mod feed;
mod histogram;
mod kubernetes;
mod mesh;
mod order;
mod sidecars;
mod skim;
mod sockets;
mod ztunnel;

use anyhow::Result;
use clap::Subcommand;
use clap::builder::RangedU64ValueParser;

/// Measures how far one navarch process scales
///
/// The parts serve a minimal Kubernetes API from this process, and start navarch on it: no API
/// server needs to be installed, and none takes CPU.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Sidecars(Box<sidecars::Options>),
    Ambient(ambient::Options),
}

impl Command {
    /// Runs the measurement.
    ///
    /// # Errors
    /// If it fails, or its results cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Sidecars(options) => options.run().await,
            Self::Ambient(options) => options.run().await,
        }
    }
}

/// Parses numbers from 1 on.
fn positive<T: TryFrom<u64>>() -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..)
}
