//! The cache of Wasm modules: looked up by name and checksum, fetched if missing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::ModulesConfig;
use super::image::{Image, ImageError};
use super::manifest::Packing;
use super::unpack::{UnpackError, unpack};
use crate::Clock;
use crate::metrics::AgentMetrics;
use crate::oci::SCHEME;
use crate::oci::fetch::{self, FetchError, FetchRequest, FetchResponse};
use crate::oci::reference::{Reference, Version, is_sha256};
use crate::oci::registry::{self, Blob, Registry};
use navarch_api::kubernetes::SecretBytes;
use navarch_base::atomic_file;
use navarch_base::digest::sha256_hex;
use navarch_base::shown_url::ShownUrl;
use navarch_net::backoff::Backoff;

/// Maximum number of concurrent downloads. Each may hold a module of maximum size in memory.
const MAX_CONCURRENT_FETCHES: usize = 2;
/// Delays between download attempts.
const RETRY_DELAYS: Backoff = Backoff::jittered(Duration::from_millis(500), Duration::from_secs(5));

/// Whether a cached module is fetched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PullPolicy {
    /// By the tag: `latest` images always, others never.
    #[default]
    Unspecified,
    /// Never.
    IfNotPresent,
    /// When the resource that refers to it has changed.
    Always,
}

#[derive(Clone, Debug)]
pub(super) struct ModuleRequest {
    pub(super) url: String,
    /// Its sha256 in hexadecimal, of the file or of the image's manifest; empty is any.
    pub(super) checksum: String,
    /// The resource that refers to it.
    pub(super) resource: String,
    /// The version of that resource.
    pub(super) version: String,
    pub(super) timeout: Duration,
    /// Credentials for the registry.
    pub(super) secret: Option<SecretBytes>,
    pub(super) policy: PullPolicy,
}

/// Errors of getting a module.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModuleError {
    /// The scheme of the URL is not supported.
    #[error("unsupported module URL {0:?}")]
    Url(ShownUrl),
    /// The download failed.
    #[error("failed to fetch the module")]
    Fetch(#[from] FetchError),
    /// Pulling the OCI image failed.
    #[error("failed to fetch the image")]
    Image(#[from] ImageError),
    /// Its sha256 differs from the configured one.
    #[error("checksum mismatch: got {found}, want {wanted}")]
    Checksum { wanted: String, found: String },
    /// It is not a Wasm module, or too large.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The module could not be written to the cache directory.
    #[error("failed to write the module file")]
    Write(#[source] io::Error),
}

impl ModuleError {
    /// pilot-agent's label of a fetch result.
    fn result(&self) -> &'static str {
        match self {
            Self::Checksum { .. } => "checksum_mismatched",
            Self::Image(_) => "manifest_failure",
            Self::Url(_) | Self::Fetch(_) | Self::Unpack(_) | Self::Write(_) => "download_failure",
        }
    }
}

#[derive(Debug)]
pub(super) struct Cache {
    config: ModulesConfig,
    /// The clock of module use.
    clock: Clock,
    state: Mutex<State>,
    /// Limits concurrent fetches.
    room: Semaphore,
    /// Held while a module is written, also when the stream that needs it has ended.
    writing: Arc<Mutex<()>>,
    metrics: AgentMetrics,
}

#[derive(Debug, Default)]
struct State {
    /// By name and checksum.
    modules: BTreeMap<Key, Module>,
    /// The checksum of each URL when it was last fetched.
    latest: BTreeMap<String, LatestChecksum>,
}

/// The key of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Its URL; of images, without tag and digest.
    name: String,
    checksum: String,
}

#[derive(Debug)]
struct Module {
    path: PathBuf,
    /// When it was last used.
    used: SystemTime,
}

/// The last checksum of a URL.
#[derive(Debug, Default)]
struct LatestChecksum {
    checksum: String,
    /// The version of each resource that uses it.
    versions: BTreeMap<String, String>,
}

impl Cache {
    /// An empty cache.
    pub(super) fn new(config: ModulesConfig, clock: Clock) -> Self {
        let metrics = AgentMetrics::default();
        Self {
            config,
            clock,
            state: Mutex::default(),
            room: Semaphore::new(MAX_CONCURRENT_FETCHES),
            writing: Arc::default(),
            metrics,
        }
    }

    /// The same, with metrics.
    pub(super) fn counted_by(self, metrics: AgentMetrics) -> Self {
        Self { metrics, ..self }
    }

    pub(super) fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    pub(super) fn config(&self) -> &ModulesConfig {
        &self.config
    }

    /// The file of a module, fetched if missing.
    pub(super) async fn get(&self, wanted: &ModuleRequest) -> Result<PathBuf, ModuleError> {
        let found = self.find(wanted);
        self.metrics.module_looked_up(found.is_some());
        if let Some(path) = found {
            return Ok(path);
        }

        let end = registry::end(wanted.timeout);
        let slow = || FetchError::Slow(wanted.timeout);

        // Never closed.
        let permit = tokio::time::timeout_at(end, self.room.acquire())
            .await
            .map_err(|_| slow())?;

        // Another task may have fetched it in the meantime.
        if let Some(path) = self.find(wanted) {
            return Ok(path);
        }

        let fetched = match Self::image(&wanted.url)? {
            None => self.download(wanted, end).await,
            Some(reference) => self.pull(&reference, wanted, end).await,
        };
        self.metrics.module_fetched(
            fetched
                .as_ref()
                .map_or_else(ModuleError::result, |_| "success"),
        );

        let (checksum, module) = fetched?;
        drop(permit);
        self.keep(wanted, checksum, module).await
    }

    /// The image of an `oci://` URL; `None` for other URLs.
    fn image(url: &str) -> Result<Option<Reference>, ModuleError> {
        let wrong = || ModuleError::Url(ShownUrl::new(url));
        match url.strip_prefix(SCHEME) {
            Some(name) => Reference::parse(name).map(Some).ok_or_else(wrong),
            None if url.starts_with("http://") || url.starts_with("https://") => Ok(None),
            None => Err(wrong()),
        }
    }

    /// Downloads a module over HTTP.
    async fn download(
        &self,
        wanted: &ModuleRequest,
        end: tokio::time::Instant,
    ) -> Result<(String, Vec<u8>), ModuleError> {
        let url = wanted
            .url
            .parse::<Uri>()
            .map_err(|_| ModuleError::Url(ShownUrl::new(&wanted.url)))?;
        let insecure = url
            .authority()
            .is_some_and(|authority| self.config.is_insecure(authority.as_str()));
        let mut backoff = RETRY_DELAYS;
        let mut attempt = 1;

        let got = loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let ask = FetchRequest {
                url: url.clone(),
                headers: HeaderMap::new(),
                allows_plain_credentials: false,
                insecure,
                addresses: &self.config.addresses,
                max_bytes: self.config.max_bytes,
                timeout: left.min(self.config.request_timeout),
            };
            let outcome = match fetch::get(ask).await {
                Ok(FetchResponse {
                    status: StatusCode::OK,
                    body,
                    ..
                }) => Ok(body),
                Ok(FetchResponse { status, .. }) => Err(FetchError::Status(status)),
                Err(error) => Err(error),
            };

            let wait = backoff.next_delay();
            match outcome {
                Err(error)
                    if error.is_temporary() && attempt < self.config.attempts && wait < left =>
                {
                    attempt += 1;
                    tokio::time::sleep(wait).await;
                }
                outcome => break outcome?,
            }
        };

        // The checksum is of the downloaded file, compressed or not.
        let checksum = sha256_hex(&got);
        check(&wanted.checksum, &checksum)?;
        let max_bytes = self.config.max_bytes;
        let module = unpacked(move || unpack(&got, Packing::Plain, max_bytes)).await?;

        Ok((checksum, module))
    }

    /// Pulls an OCI image.
    async fn pull(
        &self,
        reference: &Reference,
        wanted: &ModuleRequest,
        end: tokio::time::Instant,
    ) -> Result<(String, Vec<u8>), ModuleError> {
        let secret = wanted.secret.as_ref().map(|secret| &secret.expose()[..]);
        let mut registry = Registry::new(self.config.registry_access(), reference, secret, end);
        let image = Image::read(&mut registry, reference).await?;
        check(&wanted.checksum, &image.digest)?;

        let max_bytes = self.config.max_bytes;
        let blob = Blob {
            digest: &image.layer.digest,
            size: image.layer.size,
        };
        let layer = registry
            .blob(blob, max_bytes)
            .await
            .map_err(ImageError::from)?;
        let packing = image.layer.packing;
        let module = unpacked(move || unpack(&layer, packing, max_bytes)).await?;
        Ok((image.digest, module))
    }

    /// The file of a cached module.
    fn find(&self, wanted: &ModuleRequest) -> Option<PathBuf> {
        let mut state = self.state.lock();
        let image = Self::image(&wanted.url).ok()?;
        let checksum = match &image {
            _ if !wanted.checksum.is_empty() => wanted.checksum.clone(),
            Some(Reference {
                version: Version::Digest(digest),
                ..
            }) => digest.clone(),
            Some(_) | None => {
                let latest = state.latest.get(&wanted.url)?;
                let again = wanted.is_refetched(image.as_ref());
                if again && latest.versions.get(&wanted.resource) != Some(&wanted.version) {
                    return None;
                }
                latest.checksum.clone()
            }
        };

        let key = Key {
            name: image.map_or_else(|| wanted.url.clone(), |image| image.name()),
            checksum,
        };
        let module = state.modules.get_mut(&key)?;
        if !module.path.exists() {
            return None;
        }

        module.used = (self.clock)();
        Some(module.path.clone())
    }

    /// Writes a module to its file.
    async fn keep(
        &self,
        wanted: &ModuleRequest,
        checksum: String,
        module: Vec<u8>,
    ) -> Result<PathBuf, ModuleError> {
        debug_assert!(is_sha256(&checksum), "files are named by digests");
        let name =
            Self::image(&wanted.url)?.map_or_else(|| wanted.url.clone(), |image| image.name());
        let folder = self.config.folder.join(sha256_hex(&name));
        let path = folder.join(format!("{checksum}.wasm"));
        let target = path.clone();
        let writing = self.writing.clone();
        let written = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&folder)?;
            write(&writing, &target, &module)
        });

        written
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(ModuleError::Write)?;
        let mut state = self.state.lock();
        let latest = state.latest.entry(wanted.url.clone()).or_default();
        latest.checksum.clone_from(&checksum);

        latest
            .versions
            .insert(wanted.resource.clone(), wanted.version.clone());
        let used = (self.clock)();
        state.modules.insert(
            Key { name, checksum },
            Module {
                path: path.clone(),
                used,
            },
        );

        self.metrics.keeps_modules(state.modules.len());
        Ok(path)
    }

    /// Removes modules that were not used for the expiry time.
    pub(super) fn purge(&self) {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let State { modules, latest } = &mut *state;
        modules.retain(|_, module| {
            let kept = now.duration_since(module.used).unwrap_or_default() <= self.config.expiry;
            if !kept && let Err(error) = std::fs::remove_file(&module.path) {
                tracing::warn!(path = %module.path.display(), %error, "failed to remove a cached Wasm module");
            }
            kept
        });
        self.metrics.keeps_modules(modules.len());
        latest.retain(|_, latest| modules.keys().any(|key| key.checksum == latest.checksum));
    }
}

impl ModuleRequest {
    /// Whether a cached module is fetched again when its resource has changed.
    fn is_refetched(&self, image: Option<&Reference>) -> bool {
        match self.policy {
            PullPolicy::Always => true,
            PullPolicy::IfNotPresent => false,
            PullPolicy::Unspecified => {
                // Only if the tag is `latest`, as in Istio.
                image.is_some() && self.url.ends_with(":latest")
            }
        }
    }
}

/// Writes a module to its file, atomically, as Envoy may be reading the previous one. Two resources
/// may have fetched the same module at the same time, whose file has one writer at a time.
fn write(writing: &Mutex<()>, target: &Path, module: &[u8]) -> io::Result<()> {
    let _writing = writing.lock();
    atomic_file::replace(target, module, None)
}

/// Unpacks on a blocking thread.
async fn unpacked(
    work: impl FnOnce() -> Result<Vec<u8>, UnpackError> + Send + 'static,
) -> Result<Vec<u8>, UnpackError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(UnpackError::Broken(error.to_string())))
}

/// Verifies the checksum, if one is configured.
fn check(wanted: &str, found: &str) -> Result<(), ModuleError> {
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    Err(ModuleError::Checksum {
        wanted: wanted.to_owned(),
        found: found.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_writers_of_one_module_leave_it_complete() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("module.wasm");
        let module = vec![7; 1 << 16];
        let writing = Mutex::new(());

        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        write(&writing, &target, &module).unwrap();
                        assert!(std::fs::read(&target).unwrap() == module, "it is torn");
                    }
                });
            }
        });
    }
}
