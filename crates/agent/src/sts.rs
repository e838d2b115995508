//! The security token service (`--stsPort`): exchanges the workload's token for a token that
//! another server accepts, by RFC 8693, for clients on loopback such as Envoy's Google gRPC client.
//!
//! ```text
//! POST /token ─▶ form ─▶ TokenRequest ─▶ TokenManager ─▶ Exchange ─▶ Google, or a server of the user
//!                                          │ one exchange per target at a time, back-off
//! GET /stsStatus ◀─ kinds and expiry ◀─────┘ tokens, until shortly before they expire
//! ```

mod cache;
mod exchange;
mod form;
mod google;
mod https;
mod manager;
mod remote;
mod request;
mod secret;
mod server;

pub(crate) use exchange::Exchange;
pub(crate) use google::{GoogleConfig, GoogleExchange};
pub(crate) use https::{Endpoint, HttpsClient};
pub(crate) use manager::TokenManager;
pub(crate) use remote::{ClientSecret, RemoteExchange};
pub(crate) use server::serve;

#[cfg(test)]
mod tests;
