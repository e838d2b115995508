//! Identities, the certificate authority, and authentication. Independent of routing.
//!
//! ```text
//! root or intermediate (Secret, folder) ─▶ Authority ─┬▶ workloads' certificates (CreateCertificate)
//!                                                     ├▶ the server's own certificate ─▶ TLS port
//!                                                     └▶ roots (watch) ─▶ trust of the TLS port, ConfigMaps
//! connection and headers ─▶ Authenticator (certificate, JWT, TokenReview, XFCC) ─▶ Caller
//! ```
//!
//! One [`ca::Authority`] is current at a time and is replaced as a whole; each signature uses the
//! one that is current then. The types of private keys print nothing.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

use std::time::SystemTime;

pub mod api_server;
pub mod authenticate;
pub mod ca;
pub mod certificate_life;
pub mod remote_servers;
pub mod rules;
pub mod secret_access;
pub mod serving;
pub mod tls_rules;
pub mod trust_bundle;

/// Returns the current time.
pub type Clock = fn() -> SystemTime;
