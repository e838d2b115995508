//! The whole control plane under deterministic simulation.
//!
//! One seed decides everything: the objects and their changes, faults of the API server and the
//! network, crashes, what proxies do, all delays, and the order in which tasks run. A seed that
//! fails fails again, step by step, with the same story.
//!
//! ```text
//!  Schedule ──▶ ApiServer ◀─link─▶ Replica: Embedded = the real control plane ◀─SimStream─▶ Proxy
//!  (users,        objects,          sources, engine, xDS over HTTP/2, rollouts,            held resources,
//!   faults)       watches           quarantine, CA, elections, controllers                  ACK, NACK
//!                                                └────────────── checks ──────────────────────┘
//! ```
//!
//! | real | simulated |
//! | --- | --- |
//! | everything that `navarch discovery` starts, except ports, TLS and signals: reflectors and `kube`'s watchers, store, registry, push engine, xDS sessions and the HTTP/2 server, leader locks, status controllers, rollouts, quarantine, the CA and its rotation, the injector's inputs | the API server ([`api_server`]) |
//! | `kube::Client` above its HTTP connection, `h2` and gRPC framing on both sides | the network ([`link`], [`stream`]) |
//! | tokio's scheduler, on one thread | time: tokio's paused clock, which also answers the C library's `clock_gettime`, and so `SystemTime`, `Instant` and `jiff` |
//! | | random numbers of the C library: keys of hash maps, jitter |
//! | of the agent: the xDS proxy and the secret cache (`agent`) | TLS, and where its connections go |
//! | | proxies ([`proxy`]): they decode resources as far as they must, to subscribe as Envoy does |
//! | keys and signatures of the CA: their bytes differ between runs, and are no part of the story | identities of clients, which authentication would find |
//!
//! The engine's work is a task instead of a thread, and background threads run inline
//! (`navarch_base::blocking::run_inline`). What no simulation shows: races between threads, TLS,
//! Envoy itself, the kernel; `tests/README.md` has the tests with the real ones.
//!
//! A process runs one simulation, as the clock of the process is replaced. [`driver`] runs many, in
//! processes of their own.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "JSON is built by index; a simulation that panics has failed"
)]

mod agent;
pub mod api_server;
pub mod batch;
mod checks;
pub mod driver;
mod host;
mod leaders;
pub mod link;
pub mod live_bytes;
mod memory;
pub mod proxy;
pub mod random;
mod remote;
pub mod replica;
mod replica_pod;
pub mod schedule;
mod shares;
pub mod shrink;
mod signers;
pub mod simulation;
mod states;
pub mod story;
pub mod stream;
pub mod world;

pub use host::stop_randomizing_addresses;

/// The text in the first line of each private key (PEM).
const KEY_LINE: &str = "PRIVATE KEY";
