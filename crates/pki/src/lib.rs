//! What both sides of the CA share: kinds of keys, certificate signing requests, and PEM.
//!
//! Signs nothing and decides on nobody's identity.

mod key;
pub mod pem;
mod signing_request;

pub use key::KeyType;
pub use signing_request::{CsrError, SigningRequest};
