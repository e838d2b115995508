//! A client of OCI registries: image names, credentials, bounded downloads.
//!
//! Registries are not trusted: downloads are bounded in size, time and redirects, addresses of
//! metadata servers are never connected to, and what is pulled by digest must match it.

pub(crate) mod credentials;
pub(crate) mod fetch;
pub(crate) mod pull_secret;
pub(crate) mod reference;
pub(crate) mod registry;

/// The scheme of an image's URL.
pub(crate) const SCHEME: &str = "oci://";
