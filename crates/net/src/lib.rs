//! The shared parts of all ports: connection limits, memory budgets and rate limits of clients,
//! metrics of rejections, and rules for outgoing connections that others request.
//!
//! ```text
//! listener ─▶ Port::accept ─▶ PortStream ─▶ handshake ─▶ HTTP, gRPC, DNS
//!              │ full: the idlest connection of the peer that holds the most is closed
//!              └▶ Rejections
//! ```

pub mod activity;
pub mod answers;
pub mod any_certificate;
pub mod background;
pub mod backoff;
pub mod budget;
pub mod cpu_budget;
pub mod cryptography;
pub mod deadline;
pub mod destination;
pub mod fair_semaphore;
pub mod grpc_target;
pub mod handshake;
pub mod http;
pub mod listen;
pub mod log_limit;
pub mod peer;
pub mod port;
pub mod rate;
pub mod rejections;
pub mod same_machine;
mod shares;
pub mod stream;
pub mod system_roots;
pub mod unix_channel;
pub mod url_request;
pub mod watched;
