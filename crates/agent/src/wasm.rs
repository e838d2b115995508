//! Wasm modules: fetched and stored in files before Envoy gets their config.
//!
//! ```text
//! extension config, listener ─▶ convert ─▶ cache ─┬▶ http: one file, maybe packed ─────────▶ <folder>/<name>/<sha256>.wasm
//!                                                 └▶ registry: manifest ─▶ layer ─▶ unpack ─▶
//! ```
//!
//! The control plane and registries are not trusted: downloads are bounded in size, time and
//! redirects, addresses of metadata servers are never connected to, and files are named by digests
//! only. If a module cannot be fetched, it is replaced by a filter that allows or denies
//! everything, according to its fail strategy.

mod cache;
mod convert;
mod image;
mod listener;
pub mod manifest;
mod unpack;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost_types::Any;
use tokio_util::sync::CancellationToken;

pub use convert::ConvertError;
pub use unpack::{UnpackError, unpack};

use super::metrics::AgentMetrics;
use crate::Clock;
use crate::oci::registry::RegistryAccess;
use navarch_net::destination::AddressPolicy;

/// Configuration of the Wasm module cache.
#[derive(Clone, Debug)]
pub struct ModulesConfig {
    /// The cache directory.
    pub folder: PathBuf,
    /// `WASM_MODULE_EXPIRY`: how long an unused module is kept. Default 24 h.
    pub expiry: Duration,
    /// `WASM_PURGE_INTERVAL`: interval at which unused modules are removed. Default 1 h.
    pub purge_interval: Duration,
    /// `WASM_INSECURE_REGISTRIES`: hosts whose certificates are not verified and that may be
    /// accessed in plain text; `*` is all.
    pub insecure: BTreeSet<String>,
    /// `WASM_HTTP_REQUEST_TIMEOUT`: timeout of one request. Default 15 s.
    pub request_timeout: Duration,
    /// `WASM_HTTP_REQUEST_MAX_RETRIES`: maximum number of download attempts. Default 5.
    pub attempts: u32,
    /// `ISTIO_WASM_MAX_BINARY_SIZE_BYTES`: maximum size of a module. Default 256 MiB.
    pub max_bytes: u64,
    /// `BLOCKED_CIDRS_IN_WASM_FETCH`: blocked addresses, in addition to those of metadata servers.
    pub addresses: AddressPolicy,
}

/// Fetches modules. Clones share the cache.
#[derive(Clone, Debug)]
pub struct Modules(Arc<cache::Cache>);

impl ModulesConfig {
    /// The defaults, with this cache directory.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            expiry: Duration::from_secs(24 * 3600),
            purge_interval: Duration::from_secs(3600),
            insecure: BTreeSet::new(),
            request_timeout: Duration::from_secs(15),
            attempts: 5,
            max_bytes: 256 << 20,
            addresses: AddressPolicy {
                allow_loopback: true,
                ..AddressPolicy::default()
            },
        }
    }

    /// How registries are accessed.
    fn registry_access(&self) -> RegistryAccess<'_> {
        RegistryAccess {
            insecure: &self.insecure,
            request_timeout: self.request_timeout,
            addresses: &self.addresses,
            // As Istio's agent does it, for registries that may be accessed so at all.
            allows_plain_credentials: true,
        }
    }

    /// Whether a host, with its port if given, is accessed without verification.
    fn is_insecure(&self, host: &str) -> bool {
        self.insecure.contains("*") || self.insecure.contains(host)
    }
}

impl Modules {
    /// Modules with an empty cache.
    #[must_use]
    pub fn new(config: ModulesConfig, clock: Clock) -> Self {
        Self(Arc::new(cache::Cache::new(config, clock)))
    }

    /// The same, with metrics.
    #[must_use]
    pub fn counted_by(config: ModulesConfig, clock: Clock, metrics: AgentMetrics) -> Self {
        Self(Arc::new(
            cache::Cache::new(config, clock).counted_by(metrics),
        ))
    }

    /// Replaces remote modules by files in these extension configs. Returns whether anything was
    /// changed.
    ///
    /// # Errors
    /// If a config cannot be decoded.
    pub async fn localize(
        &self,
        resources: impl Iterator<Item = &mut Any> + Send,
    ) -> Result<bool, ConvertError> {
        let all = resources.map(|resource| convert::localize(&self.0, resource));
        let outcomes = futures_util::future::join_all(all).await;
        outcomes
            .into_iter()
            .try_fold(false, |changed, outcome| Ok(outcome? || changed))
    }

    /// Whether encoded listeners may contain modules; otherwise they need no conversion.
    #[must_use]
    pub fn may_be_named(listeners: &[u8]) -> bool {
        listener::may_name_module(listeners)
    }

    /// Like [`Modules::localize`], for listeners. Invalid listeners are unchanged: Envoy will
    /// reject them.
    pub async fn localize_listeners(
        &self,
        resources: impl Iterator<Item = &mut Any> + Send,
    ) -> bool {
        let all = resources.map(|resource| listener::localize(&self.0, resource));
        let outcomes = futures_util::future::join_all(all).await;
        outcomes.into_iter().fold(false, |changed, outcome| match outcome {
            Ok(localized) => localized || changed,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to prefetch the Wasm modules of a listener; Envoy fetches them itself"
                );
                changed
            }
        })
    }

    /// Removes expired modules until shutdown.
    pub async fn purge(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.0.config().purge_interval) => self.0.purge(),
                () = stop.cancelled() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
