//! The destination of a mesh's objects: a directory that the server watches, or an API server.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use navarch_testkit::cluster::Writer;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::xds::world;

/// Maximum number of concurrent writes while a whole mesh is written.
const MAX_CONCURRENT_WRITES: usize = 16;

/// The destination, from the command line.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Where {
    /// A directory of configuration that the server watches.
    #[arg(long)]
    config_dir: Option<PathBuf>,
    /// The kubeconfig of an API server that the server watches; Istio's CRDs must be there.
    #[arg(long, conflicts_with = "config_dir")]
    kubeconfig: Option<PathBuf>,
}

/// The destination of objects.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Files in a directory.
    Directory(PathBuf),
    /// Objects of an API server.
    Cluster(Writer),
}

impl Where {
    /// Opens the destination; `None` if the command line has none.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub(crate) async fn open(&self) -> Result<Option<Target>> {
        Ok(match (&self.config_dir, &self.kubeconfig) {
            (_, Some(file)) => Some(Target::Cluster(Writer::of_kubeconfig(file).await?)),
            (Some(dir), None) => Some(Target::Directory(dir.clone())),
            (None, None) => None,
        })
    }

    /// Opens the destination, which must be given.
    ///
    /// # Errors
    /// If it is not given, or cannot be opened.
    pub(crate) async fn need(&self) -> Result<Target> {
        match self.open().await? {
            Some(target) => Ok(target),
            None => bail!("the mesh needs a destination: --config-dir DIR or --kubeconfig FILE"),
        }
    }
}

impl Target {
    /// Creates or replaces an object.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) async fn put(&self, object: &Value) -> Result<()> {
        match self {
            Self::Directory(dir) => world::put(dir, object),
            Self::Cluster(writer) => writer.put(object).await,
        }
    }

    /// Writes many objects in no particular order.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(crate) async fn put_all(&self, objects: Vec<Value>) -> Result<()> {
        let mut writes = JoinSet::new();
        for object in objects {
            if writes.len() >= MAX_CONCURRENT_WRITES
                && let Some(written) = writes.join_next().await
            {
                written??;
            }
            let target = self.clone();
            writes.spawn(async move { target.put(&object).await });
        }
        while let Some(written) = writes.join_next().await {
            written??;
        }
        Ok(())
    }
}
