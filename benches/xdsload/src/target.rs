//! Where the objects of a mesh go: a directory that the server watches, or an API server.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use navarch_testkit::cluster::Writer;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::world;

/// Objects that are written at once when a whole mesh is.
const AT_ONCE: usize = 16;

/// Where objects go, as said on the command line.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Where {
    /// A directory of configuration that the server watches.
    #[arg(long)]
    config_dir: Option<PathBuf>,
    /// The kubeconfig of an API server that the server watches; Istio's CRDs must be there.
    #[arg(long, conflicts_with = "config_dir")]
    kubeconfig: Option<PathBuf>,
}

/// Where objects go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Files of a directory.
    Directory(PathBuf),
    /// Objects of an API server.
    Cluster(Writer),
}

impl Where {
    /// Opens it; `None` where nothing was said.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub(crate) async fn open(&self) -> Result<Option<Target>> {
        Ok(match (&self.config_dir, &self.kubeconfig) {
            (_, Some(file)) => Some(Target::Cluster(Writer::of_kubeconfig(file).await?)),
            (Some(dir), None) => Some(Target::Directory(dir.clone())),
            (None, None) => None,
        })
    }

    /// Opens it where it has to be said.
    ///
    /// # Errors
    /// When it was not, or cannot be opened.
    pub(crate) async fn need(&self) -> Result<Target> {
        match self.open().await? {
            Some(target) => Ok(target),
            None => bail!("say where the mesh goes: --config-dir DIR or --kubeconfig FILE"),
        }
    }
}

impl Target {
    /// Writes an object in place of what was there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn put(&self, object: &Value) -> Result<()> {
        match self {
            Self::Directory(dir) => world::put(dir, object),
            Self::Cluster(writer) => writer.put(object).await,
        }
    }

    /// Writes objects in place of what was there, so that all of them change in one moment.
    ///
    /// # Errors
    /// When they cannot be written, or are several and go to an API server, which takes them one by
    /// one.
    pub(crate) async fn put_together(&self, objects: &[Value]) -> Result<()> {
        match (self, objects) {
            (Self::Directory(dir), objects) => world::put_together(dir, objects),
            (Self::Cluster(writer), [object]) => writer.put(object).await,
            (Self::Cluster(_), _) => {
                bail!("objects that change in one moment go to a directory: --config-dir DIR")
            }
        }
    }

    /// Writes many objects in no particular order.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(crate) async fn put_all(&self, objects: Vec<Value>) -> Result<()> {
        let mut writes = JoinSet::new();
        for object in objects {
            if writes.len() >= AT_ONCE
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
