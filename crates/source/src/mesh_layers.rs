//! Mesh config and mesh networks from both files and ConfigMaps.
//!
//! As in istiod, and separately for config and networks: a file replaces the revision's ConfigMap,
//! and either overrides the shared ConfigMap, if it exists. Of networks, only the first that exist
//! are used.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::kubernetes::{Counting, MeshMapSource, MeshMapSourceConfig};
use super::mesh_files::{MeshFileSource, MeshFileSourceConfig};
use super::{Batch, SourceError, SourceEvent};
use navarch_api::mesh::{MeshConfig, MeshNetworks};

/// Capacity of the channel of batches to be merged; sources wait while it is full.
const BATCHES: usize = 4;

/// Files and ConfigMaps as one source.
#[derive(Debug)]
pub struct MeshLayers {
    /// The shared ConfigMap, if there is one, and then the revision's.
    pub maps: MeshMapSourceConfig,
    /// The shared ConfigMap.
    pub shared: Option<String>,
    /// The file of mesh config.
    pub mesh: Option<PathBuf>,
    /// The file of mesh networks.
    pub networks: Option<PathBuf>,
}

/// The state of one source.
#[derive(Debug, Default)]
struct Layer {
    mesh: Option<Arc<MeshConfig>>,
    networks: Option<Arc<MeshNetworks>>,
    /// Whether the source is in sync.
    synced: bool,
}

/// The state of all sources, and the sent state.
#[derive(Debug)]
struct Layers {
    /// Whether there is a file of mesh config, and one of networks.
    files: (bool, bool),
    /// The state of the shared ConfigMap.
    shared: Layer,
    /// The merged state of the ConfigMaps.
    maps: Layer,
    /// The state of the files.
    file: Layer,
    /// The merged state as it was last sent.
    passed: Layer,
}

/// A running source. It ends when dropped.
type Reader = Pin<Box<dyn Future<Output = Result<(), SourceError>> + Send>>;

impl Layer {
    /// Applies a batch; events other than config and networks are forwarded.
    fn apply(&mut self, batch: Batch, on: &mut Batch) {
        for event in batch {
            match event {
                SourceEvent::MeshConfig(config) => self.mesh = Some(config),
                SourceEvent::MeshNetworks(networks) => self.networks = Some(networks),
                SourceEvent::FullSync => self.synced = true,
                other @ (SourceEvent::Added(_)
                | SourceEvent::Updated(_)
                | SourceEvent::Deleted(_)
                | SourceEvent::Keys(..)
                | SourceEvent::Problems { .. }) => on.push(other),
            }
        }
    }
}

impl Layers {
    /// Sends the difference to the sent state, once all sources are in sync.
    fn add_changes(&mut self, on: &mut Batch) {
        if !(self.shared.synced && self.maps.synced && self.file.synced) {
            return;
        }

        let (mesh_file, networks_file) = self.files;
        let mesh = if mesh_file {
            self.file.mesh.clone()
        } else {
            self.maps.mesh.clone()
        };

        let of_shared = self
            .shared
            .networks
            .clone()
            .filter(|networks| **networks != MeshNetworks::default());
        let networks = match networks_file {
            true => of_shared.or_else(|| self.file.networks.clone()),
            false => self.maps.networks.clone(),
        };

        if mesh.is_some() && mesh != self.passed.mesh {
            on.extend(mesh.clone().map(SourceEvent::MeshConfig));
            self.passed.mesh = mesh;
        }

        if networks.is_some() && networks != self.passed.networks {
            on.extend(networks.clone().map(SourceEvent::MeshNetworks));
            self.passed.networks = networks;
        }

        if !std::mem::replace(&mut self.passed.synced, true) {
            on.push(SourceEvent::FullSync);
        }
    }
}

impl MeshLayers {
    /// Sends mesh config and networks, and then every change, until the receiver is closed or the
    /// future is dropped. When `reload` is notified, the files are read again.
    ///
    /// # Errors
    /// If a reader fails, which is a bug.
    pub async fn run(
        self,
        events: mpsc::Sender<Batch>,
        reload: Arc<Notify>,
    ) -> Result<(), SourceError> {
        let (to_shared, mut from_shared) = mpsc::channel(BATCHES);
        let (to_maps, mut from_maps) = mpsc::channel(BATCHES);
        let (to_files, mut from_files) = mpsc::channel(BATCHES);
        let absent = || Layer {
            synced: true,
            ..Layer::default()
        };
        let needs_maps = self.mesh.is_none() || self.networks.is_none();

        let mut layers = Layers {
            files: (self.mesh.is_some(), self.networks.is_some()),
            shared: if self.shared.is_some() {
                Layer::default()
            } else {
                absent()
            },
            maps: if needs_maps {
                Layer::default()
            } else {
                absent()
            },
            file: Layer::default(),
            passed: Layer::default(),
        };

        let names = self.shared.iter().cloned().collect::<Vec<_>>();
        let of_shared = MeshMapSourceConfig {
            names,
            ..self.maps.clone()
        };
        let mut shared = source(
            self.shared.is_some(),
            MeshMapSource::new(of_shared),
            to_shared,
        );

        let counting = Counting {
            mesh: self.mesh.is_none(),
            networks: self.networks.is_none(),
        };
        let mut maps = source(
            needs_maps,
            MeshMapSource::counting(self.maps.clone(), counting),
            to_maps,
        );

        let read = |base: &MeshConfig| -> Reader {
            let mesh = self.mesh.clone();
            let networks = self.networks.clone();
            let files = MeshFileSource::new(MeshFileSourceConfig {
                mesh,
                networks,
                base: base.clone(),
            });
            Box::pin(files.run(to_files.clone(), reload.clone()))
        };

        let mut base = Arc::new(self.maps.base.clone());
        let mut files = read(&base);

        loop {
            let mut on = Batch::new();
            tokio::select! {
                Some(batch) = from_shared.recv() => {
                    layers.shared.apply(batch, &mut on);
                    // The file overrides it.
                    if let Some(below) = layers.shared.mesh.clone().filter(|below| *below != base) {
                        base = below;
                        // Once they were valid, they do not delay other changes if they are invalid
                        // over this base.
                        layers.file = Layer { synced: layers.passed.synced, ..Layer::default() };
                        files = read(&base);
                    }
                }
                Some(batch) = from_maps.recv() => layers.maps.apply(batch, &mut on),
                Some(batch) = from_files.recv() => layers.file.apply(batch, &mut on),
                ended = &mut files => return ended,
                ended = &mut shared => return ended,
                ended = &mut maps => return ended,
                () = events.closed() => return Ok(()),
            }

            layers.add_changes(&mut on);
            if !on.is_empty() && events.send(on).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// A reader of ConfigMaps; one that never sends anything if `is_read` is false.
fn source(is_read: bool, maps: MeshMapSource, events: mpsc::Sender<Batch>) -> Reader {
    if is_read {
        Box::pin(maps.run(events))
    } else {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a source has to tell.
    fn layer(root: &str) -> Layer {
        let config = MeshConfig {
            root_namespace: root.to_owned(),
            ..MeshConfig::istio_defaults()
        };
        Layer {
            mesh: Some(Arc::new(config)),
            networks: Some(Arc::default()),
            synced: true,
        }
    }

    #[test]
    fn a_file_overrides_the_configmap_for_the_keys_it_contains() {
        let root = |files: (bool, bool)| {
            let mut layers = Layers {
                files,
                shared: layer("shared"),
                maps: layer("map"),
                file: layer("file"),
                passed: Layer::default(),
            };

            let mut on = Batch::new();
            layers.add_changes(&mut on);
            assert_eq!(on.last(), Some(&SourceEvent::FullSync));
            let mut again = Batch::new();
            layers.add_changes(&mut again);
            assert_eq!(again, [], "nothing is reported twice");

            layers.passed.mesh.unwrap().root_namespace.clone()
        };

        assert_eq!(root((true, false)), "file");
        assert_eq!(root((false, true)), "map");
    }

    #[test]
    fn nothing_is_reported_before_all_layers_are_read() {
        let mut layers = Layers {
            files: (true, false),
            shared: layer("shared"),
            maps: Layer::default(),
            file: layer("file"),
            passed: Layer::default(),
        };
        let mut on = Batch::new();
        layers.add_changes(&mut on);
        assert_eq!(on, []);
    }
}
