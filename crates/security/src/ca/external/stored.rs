//! Keeps the roots of signers that proxies trust, for the next start: while a signer is away, its
//! roots must stay in the trust bundle, and a root that was being distributed is not used before.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::Instant;

use navarch_base::error_chain::chain;
use navarch_base::regular_file;
use navarch_kubernetes::{InWords, is_conflict};
use navarch_net::backoff::Backoff;

/// The name of the ConfigMap, in the control plane's namespace.
pub(super) const NAME: &str = "navarch-signer-roots";
/// Delays between attempts to write.
const RETRY_DELAYS: Backoff = Backoff::jittered(Duration::from_secs(1), Duration::from_secs(60));
/// Attempts to write while other replicas write as well.
const MAX_ATTEMPTS: usize = 5;
/// The first and the longest delay between attempts to read at the start, as of the CA's roots.
const START_RETRY: Backoff = Backoff::jittered(Duration::from_millis(500), Duration::from_secs(15));
/// After this time of failures the start is given up, as in istiod.
const MAX_START_TIME: Duration = Duration::from_mins(20);

/// Where the roots are kept, one text of PEM for each signer.
#[derive(Clone, Debug)]
pub enum StoredRoots {
    /// The ConfigMap `navarch-signer-roots`. Who may write it may also write the mesh config.
    ConfigMap(Box<Api<ConfigMap>>),
    /// A folder, with a file for each signer.
    Folder(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// Why roots are not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoredRootsError {
    /// The API server fails.
    #[error("failed to access the ConfigMap {NAME}")]
    Kubernetes(#[from] kube::Error),
    /// A file cannot be read or written.
    #[error("failed to access {path}")]
    File {
        /// Where it is.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl StoredRoots {
    /// The roots of a signer at the last stop; empty if there are none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn load(&self, signer: &str) -> Result<Arc<str>, StoredRootsError> {
        match self {
            Self::Nowhere => Ok(Arc::default()),
            Self::ConfigMap(maps) => {
                let map = maps.get_opt(NAME).await?;
                let mut texts = map.and_then(|map| map.data).unwrap_or_default();
                Ok(texts.remove(&key(signer)).unwrap_or_default().into())
            }
            Self::Folder(folder) => {
                let path = folder.join(key(signer));
                match regular_file::read_text(&path) {
                    Ok(text) => Ok(text.into()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Arc::default()),
                    Err(source) => Err(StoredRootsError::File { path, source }),
                }
            }
        }
    }

    /// The roots of a signer at the last stop. While the API server fails it tries again, for
    /// `MAX_START_TIME`: without them, whatever the signer names first would be taken for
    /// distributed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn load_at_start(&self, signer: &str) -> Result<Arc<str>, StoredRootsError> {
        let begun = Instant::now();
        let mut delays = START_RETRY;
        loop {
            let error = match self.load(signer).await {
                Err(error @ StoredRootsError::Kubernetes(_))
                    if begun.elapsed() < MAX_START_TIME =>
                {
                    error
                }
                outcome => return outcome,
            };

            let delay = delays.next_delay();
            tracing::warn!(
                problem = chain(&error),
                signer,
                retry_in = ?delay,
                "failed to read the last roots of the signer; not ready before that succeeds"
            );
            tokio::time::sleep(delay).await;
        }
    }

    /// Keeps the roots of a signer.
    async fn save(&self, signer: &str, roots: &str) -> Result<(), StoredRootsError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::ConfigMap(maps) => Ok(save_in_map(maps, signer, roots).await?),
            Self::Folder(folder) => {
                let path = folder.join(key(signer));
                let new = folder.join(format!("{}.new", key(signer)));
                let written = std::fs::create_dir_all(folder)
                    .and_then(|()| std::fs::write(&new, roots))
                    .and_then(|()| std::fs::rename(&new, &path));
                written.map_err(|source| StoredRootsError::File { path, source })
            }
        }
    }

    /// Keeps the roots of a signer after each change; does not return.
    pub async fn follow(self, signer: &'static str, mut roots: watch::Receiver<Arc<str>>) {
        let mut delays = RETRY_DELAYS;
        loop {
            let current = roots.borrow_and_update().clone();
            let saved = match current.is_empty() {
                true => Ok(()),
                false => self.save(signer, &current).await,
            };

            if let Err(error) = saved {
                tracing::warn!(
                    signer,
                    error = %InWords(&error),
                    "failed to keep the signer's roots for the next start"
                );
                tokio::time::sleep(delays.next_delay()).await;
                continue;
            }
            delays.reset();
            if roots.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// The name of a signer's text.
fn key(signer: &str) -> String {
    format!("{signer}-roots.pem")
}

/// Keeps the roots of a signer in the ConfigMap. If another replica changes it at the same time, it
/// is read again, and written with both changes.
async fn save_in_map(maps: &Api<ConfigMap>, signer: &str, roots: &str) -> Result<(), kube::Error> {
    let mut attempts = 1;
    loop {
        let found = maps.get_opt(NAME).await?;
        let exists = found.is_some();
        let mut map = found.unwrap_or_else(empty_map);

        let texts = map.data.get_or_insert_default();
        if texts.get(&key(signer)).is_some_and(|text| text == roots) {
            return Ok(());
        }
        texts.insert(key(signer), roots.to_owned());

        match put(maps, &map, exists).await {
            Err(error) if is_conflict(&error) && attempts < MAX_ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

/// The ConfigMap without texts.
pub(super) fn empty_map() -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// Replaces the ConfigMap if it still has the version of `map`, or creates it.
pub(super) async fn put(
    maps: &Api<ConfigMap>,
    map: &ConfigMap,
    exists: bool,
) -> Result<(), kube::Error> {
    let parameters = PostParams::default();
    let written = match exists {
        true => maps.replace(NAME, &parameters, map).await,
        false => maps.create(&parameters, map).await,
    };
    written.map(drop)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// An API server that fails twice, and then returns the roots of one signer.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<usize>>);

    impl tower_service::Service<Request<Body>> for Server {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let mut calls = self.0.lock();
            *calls += 1;
            let (code, body) = match *calls {
                1 | 2 => (
                    503,
                    json!({"kind": "Status", "code": 503, "reason": "later"}),
                ),
                _ => (
                    200,
                    json!({
                        "kind": "ConfigMap",
                        "metadata": {"name": NAME},
                        "data": {"spire-roots.pem": "one"},
                    }),
                ),
            };
            let answer = Response::builder()
                .status(code)
                .body(Full::from(body.to_string()));
            std::future::ready(Ok(answer.unwrap()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_the_stored_roots() {
        let server = Server::default();
        let client = kube::Client::new(server.clone(), "default");
        let stored = StoredRoots::ConfigMap(Box::new(Api::default_namespaced(client)));
        assert_eq!(&*stored.load_at_start("spire").await.unwrap(), "one");
        assert_eq!(*server.0.lock(), 3);

        // An unreadable folder does not mend itself.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("spire-roots.pem"), b"\xff").unwrap();
        let stored = StoredRoots::Folder(folder.path().to_owned());
        let error = stored.load_at_start("spire").await.unwrap_err();
        assert!(matches!(error, StoredRootsError::File { .. }), "{error}");
    }

    #[tokio::test]
    async fn roots_are_kept_in_a_folder_for_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let stored = StoredRoots::Folder(folder.path().join("signers"));
        assert_eq!(&*stored.load("spire").await.unwrap(), "");

        let (sender, roots) = watch::channel(Arc::from("one"));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(stored.clone().follow("spire", roots));
        for text in ["one", "two"] {
            sender.send_replace(text.into());
            while *stored.load("spire").await.unwrap() != *text {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(&*stored.load("socket").await.unwrap(), "");
    }
}
