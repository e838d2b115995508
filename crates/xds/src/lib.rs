//! The xDS server: streams of both ADS protocols over one core.
//!
//! ```text
//! push thread ──Sink──▶ Mailbox (newest collection per type) ──▶ Session (pure: what to send next) ──▶ transport ──▶ wire
//!                                                                  ▲ requests: subscriptions, ACK, NACK
//! ```
//!
//! Delta is the native protocol: a response is the difference between the state of the client and
//! the wanted state. State-of-the-world is derived from it. Differences and their encoded bytes are
//! shared by all streams that make the same step (`encoding_cache`), compressed ones as well
//! (`compression`); a stream adds only a small head with its nonce.
//!
//! A stream's task only transfers bytes. All decisions are made in its `session`, without I/O or
//! clock. Everything that runs on a connection is one task (`transport::connection_task`). This
//! crate handles collections, names and proxies. It does not read the content of resources, except
//! for the endpoints that a cluster waits for, and the roots that a proxy has acknowledged.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod admission;
pub mod authentication;
pub mod change_progress;
mod client;
mod compression;
pub mod connections;
mod debug;
mod large;
mod limits;
pub mod metrics;
mod nacks;
mod node;
mod route_form;
mod scope_form;
mod secret_access;
pub mod server;
mod session;
pub mod standing;
mod stream;
mod transport;
pub mod trusted_roots;
mod workloads;

pub use compression::{Encodings, UnknownEncoding};
pub use debug::{DebugPages, DebugRequest, DebugResponse, DebugResponseFuture};
pub use limits::Limits;
pub use nacks::{Nack, NackQueue};
pub use node::Served;
pub use server::{Ads, AdsParts};
pub use session::{Protocol, Rejection, check_first_request};
pub use transport::{CallContext, ConnectionInfo, Server, plain_connections, read_pieces};
pub use workloads::{AdmissionFuture, Presence, Workloads};

#[cfg(test)]
mod tests;
