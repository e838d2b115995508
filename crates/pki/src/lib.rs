//! Common parts of both sides of the CA: key types, certificate signing requests, and PEM.
//!
//! This crate signs nothing and makes no decision about identities.

mod key;
pub mod pem;
mod signing_request;

pub use key::KeyType;
pub use signing_request::{CsrError, SigningRequest};
