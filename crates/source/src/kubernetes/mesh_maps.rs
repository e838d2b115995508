//! Mesh config and mesh networks from ConfigMaps.
//!
//! The maps are merged in order. An invalid text is reported as a problem, and the last valid one
//! of its map stays in force. If a text is invalid at start, the source waits for a valid one: with
//! defaults, perhaps of another trust domain, every certificate would be wrong.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::reflector::{ObjectSelection, Reflector, Target};
use super::scope::{KubernetesScope, Tags, versions};
use super::stream::Connection;
use crate::mesh_text::{Parsed, parse_mesh_config, parse_mesh_networks};
use crate::problem::{FilePosition, Problem, ProblemKind};
use crate::{Batch, SourceError, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::decode::Subject;
use navarch_api::field_error::FieldError;
use navarch_api::kubernetes::ConfigMap;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::Namespace;
use navarch_api::object::Kind;
use navarch_api::rollout::{self, RolloutFault};
use navarch_api::shared_texts::SharedTexts;

/// The key of mesh config.
const MESH: &str = "mesh";
/// The key of mesh networks.
const NETWORKS: &str = "meshNetworks";

/// Settings of a source of mesh config in ConfigMaps.
#[derive(Clone)]
pub struct MeshMapSourceConfig {
    /// The client of the API server.
    pub client: kube::Client,
    /// The namespace of the control plane, such as `istio-system`, in which all maps are.
    pub namespace: Namespace,
    /// The names of the maps, each overriding those before it. Of networks, those of the first map
    /// that has any are used.
    pub names: Vec<String>,
    /// The values of fields that the maps do not set.
    pub base: MeshConfig,
    /// How long a connection may be silent before it counts as dead.
    pub idle_timeout: Duration,
}

impl std::fmt::Debug for MeshMapSourceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshMapSourceConfig")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// Mesh config and mesh networks from ConfigMaps. A missing ConfigMap counts as an empty one.
#[derive(Debug)]
pub struct MeshMapSource {
    config: MeshMapSourceConfig,
    counting: Counting,
}

/// Which texts of the maps are used. A text that a file replaces does not delay the sync if it is
/// invalid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting {
    pub(crate) mesh: bool,
    pub(crate) networks: bool,
}

/// The state of one map.
#[derive(Debug)]
struct Map {
    name: String,
    /// The last valid mesh config.
    mesh: Option<String>,
    /// The last valid mesh networks.
    networks: Option<MeshNetworks>,
    /// Whether a text that is used is invalid, and there was no valid one in its place before.
    lacks: bool,
    /// The problems that were sent.
    problems: Vec<Problem>,
}

impl MeshMapSource {
    /// Creates a source. It reads nothing before it runs.
    #[must_use]
    pub fn new(config: MeshMapSourceConfig) -> Self {
        Self::counting(
            config,
            Counting {
                mesh: true,
                networks: true,
            },
        )
    }

    /// A source that uses only some of the texts.
    pub(crate) fn counting(config: MeshMapSourceConfig, counting: Counting) -> Self {
        Self { config, counting }
    }

    /// Sends mesh config and networks, and then every change, until the receiver is closed or the
    /// future is dropped.
    ///
    /// # Errors
    /// If a task fails, which is a bug.
    pub async fn run(self, events: mpsc::Sender<Batch>) -> Result<(), SourceError> {
        let MeshMapSourceConfig {
            client,
            namespace,
            names,
            base,
            idle_timeout,
        } = self.config;

        let connection = Connection::new(client, idle_timeout);
        let (to_sync, mut synced) = mpsc::channel(1);
        let (to_maps, mut batches) = mpsc::channel(1);
        let mut readers = JoinSet::new();

        for name in &names {
            let scope = KubernetesScope {
                namespace: namespace.clone(),
                ..KubernetesScope::default()
            };
            let target = Target {
                kind: Kind::ConfigMap,
                paths: versions(Kind::ConfigMap)
                    .iter()
                    .map(|version| scope.path(Kind::ConfigMap, version))
                    .collect(),
                selector: format!("metadata.name={name}"),
                optional: false,
            };

            let redefined = Arc::new(Notify::new());

            // The revision does not matter, because the map is selected by its name.
            let (_, tags) = watch::channel(Some(Tags::default()));
            let reader = Reflector::new(
                target,
                ObjectSelection {
                    scope: scope.into(),
                    tags,
                },
                connection.clone(),
                redefined,
                to_maps.clone(),
                to_sync.clone(),
                SharedTexts::default(),
            );

            readers.spawn(reader.run());
        }

        let mut maps = Maps::new(base, &namespace, &names, self.counting);
        let mut unsynced = names.len();
        let mut is_synced = false;

        loop {
            let mut batch = Batch::new();
            tokio::select! {
                // Events come before the notification that all of them were sent.
                biased;
                Some(read) = batches.recv() => {
                    for event in read {
                        maps.apply(event, &mut batch);
                    }
                }
                Some(_) = synced.recv() => unsynced -= 1,
                Some(ended) = readers.join_next() => {
                    let place = "mesh config".to_owned();
                    return ended.map_err(|source| SourceError::Reader { place, source });
                }
                () = events.closed() => return Ok(()),
            }

            if unsynced == 0 && (is_synced || !maps.lacks_valid_text()) {
                maps.add_changes(&mut batch);
                if !std::mem::replace(&mut is_synced, true) {
                    batch.push(SourceEvent::FullSync);
                }
            }

            if !batch.is_empty() && events.send(batch).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// All maps, and the state that was sent.
struct Maps {
    /// The mesh config below all maps.
    base: MeshConfig,
    namespace: Namespace,
    /// The maps, in their order.
    maps: Vec<Map>,
    counting: Counting,
    /// The state that was sent.
    sent: Option<(MeshConfig, MeshNetworks)>,
}

impl Maps {
    /// No map was read yet.
    fn new(base: MeshConfig, namespace: &Namespace, names: &[String], counting: Counting) -> Self {
        let map = |name: &String| Map {
            name: name.clone(),
            mesh: None,
            networks: None,
            lacks: false,
            problems: Vec::new(),
        };
        Self {
            base,
            namespace: namespace.clone(),
            maps: names.iter().map(map).collect(),
            counting,
            sent: None,
        }
    }

    fn apply(&mut self, event: SourceEvent, batch: &mut Batch) {
        match event {
            SourceEvent::Added(AnyObject::ConfigMap(map))
            | SourceEvent::Updated(AnyObject::ConfigMap(map)) => {
                self.put(
                    &map.meta.key.name,
                    &map.spec,
                    rollout::faults(Kind::ConfigMap, &map.meta),
                    batch,
                );
            }
            SourceEvent::Deleted(map) => {
                self.put(&map.name.name, &ConfigMap::default(), Vec::new(), batch)
            }
            problems @ SourceEvent::Problems { .. } => batch.push(problems),
            SourceEvent::Added(_)
            | SourceEvent::Updated(_)
            | SourceEvent::MeshConfig(_)
            | SourceEvent::MeshNetworks(_)
            | SourceEvent::Keys(..)
            | SourceEvent::FullSync => {}
        }
    }

    /// Applies the content of a map. Its annotations may request stages, which mesh config does not
    /// support.
    fn put(
        &mut self,
        name: &str,
        content: &ConfigMap,
        stages: Vec<RolloutFault>,
        batch: &mut Batch,
    ) {
        let place: Arc<str> = Arc::from(format!("k8s://ConfigMap/{}/{name}", self.namespace));
        let base = self.below(name);
        let Some(map) = self.maps.iter_mut().find(|map| map.name == name) else {
            return;
        };

        let warning = |RolloutFault {
                           annotation,
                           message,
                       }| {
            (
                0,
                ProblemKind::Warning(FieldError::new(
                    format!("metadata.annotations.{annotation}"),
                    message,
                )),
            )
        };

        let mut faults: Vec<_> = stages.into_iter().map(warning).collect();
        map.lacks = false;

        match content.text(MESH) {
            None => map.mesh = None,
            Some(text) => match valid_value(parse_mesh_config(&base, text), &mut faults) {
                Some(_) => map.mesh = Some(text.to_owned()),
                None => map.lacks |= self.counting.mesh && map.mesh.is_none(),
            },
        }

        match content.text(NETWORKS) {
            None => map.networks = None,
            Some(text) => match valid_value(parse_mesh_networks(text), &mut faults) {
                Some(networks) => map.networks = Some(networks),
                None => map.lacks |= self.counting.networks && map.networks.is_none(),
            },
        }

        let problem = |(line, fault)| Problem {
            place: FilePosition {
                file: place.clone(),
                line,
            },
            subject: Subject::default(),
            fault,
        };

        let problems: Vec<_> = faults.into_iter().map(problem).collect();
        if problems != map.problems {
            map.problems.clone_from(&problems);
            batch.push(SourceEvent::Problems { place, problems });
        }
    }

    /// Whether the text of a map is invalid, and there never was a valid one.
    fn lacks_valid_text(&self) -> bool {
        self.maps.iter().any(|map| map.lacks)
    }

    /// The mesh config that a map overrides.
    fn below(&self, name: &str) -> MeshConfig {
        let below = self.maps.iter().take_while(|map| map.name != name);
        below.fold(self.base.clone(), |config, map| {
            apply_text(config, map.mesh.as_deref())
        })
    }

    /// Sends the difference to the sent state.
    fn add_changes(&mut self, batch: &mut Batch) {
        let config = self.maps.iter().fold(self.base.clone(), |config, map| {
            apply_text(config, map.mesh.as_deref())
        });
        let networks = self
            .maps
            .iter()
            .find_map(|map| map.networks.clone())
            .unwrap_or_default();
        let before = self.sent.as_ref();
        if before.is_none_or(|(before, _)| *before != config) {
            batch.push(SourceEvent::MeshConfig(Arc::new(config.clone())));
        }
        if before.is_none_or(|(_, before)| *before != networks) {
            batch.push(SourceEvent::MeshNetworks(Arc::new(networks.clone())));
        }
        self.sent = Some((config, networks));
    }
}

/// Mesh config with a valid text applied to it.
fn apply_text(config: MeshConfig, text: Option<&str>) -> MeshConfig {
    // A text that was valid may be invalid over another base; then it is ignored.
    text.and_then(|text| parse_mesh_config(&config, text).ok())
        .map_or(config, |sound| sound.value)
}

/// The value of a valid text; errors and warnings are added to `faults`.
fn valid_value<T>(parsed: Parsed<T>, faults: &mut Vec<(usize, ProblemKind)>) -> Option<T> {
    match parsed {
        Ok(sound) => {
            faults.extend(sound.oddities);
            Some(sound.value)
        }
        Err(errors) => {
            faults.extend(
                errors
                    .into_iter()
                    .map(|error| (error.line, ProblemKind::Rejected(error.field))),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use navarch_api::object::{NamespacedName, Object, ObjectMeta};

    const ALL: Counting = Counting {
        mesh: true,
        networks: true,
    };

    fn map(mesh: &str) -> ConfigMap {
        ConfigMap {
            data: [(Arc::from(MESH), Bytes::from(mesh.to_owned()))].into(),
        }
    }

    #[test]
    fn the_last_good_text_of_each_map_is_laid_over_the_others() {
        let names = ["shared".to_owned(), "istio".to_owned()];
        let mut maps = Maps::new(
            MeshConfig::istio_defaults(),
            &Namespace::new("istio-system"),
            &names,
            ALL,
        );

        let mut root = |name: &str, text: &str| {
            let mut batch = Batch::new();
            maps.put(name, &map(text), Vec::new(), &mut batch);
            maps.add_changes(&mut batch);
            let problems = batch
                .iter()
                .filter(|event| matches!(event, SourceEvent::Problems { .. }))
                .count();
            (
                maps.sent.as_ref().unwrap().0.root_namespace.clone(),
                problems,
            )
        };

        assert_eq!(
            root("shared", "rootNamespace: shared"),
            ("shared".to_owned(), 0)
        );
        assert_eq!(root("istio", "rootNamespace: own"), ("own".to_owned(), 0));
        assert_eq!(
            root("shared", "rootNamespace: other"),
            ("own".to_owned(), 0)
        );

        assert_eq!(
            root("istio", "rootNamespace: [broken"),
            ("own".to_owned(), 1)
        );
        assert_eq!(root("istio", "connectTimeout: 5s"), ("other".to_owned(), 1));
    }

    #[test]
    fn a_rollout_annotation_on_a_configmap_is_reported() {
        let names = ["istio".to_owned()];
        let mut maps = Maps::new(
            MeshConfig::istio_defaults(),
            &Namespace::new("istio-system"),
            &names,
            ALL,
        );

        let mut meta = ObjectMeta {
            key: NamespacedName::new("istio-system", "istio"),
            ..ObjectMeta::default()
        };
        meta.annotations = [(Arc::from(rollout::ROLLOUT), Arc::from("5%"))].into();
        let mut batch = Batch::new();
        let spec = map("rootNamespace: own");
        maps.apply(
            SourceEvent::Added(AnyObject::ConfigMap(Arc::new(Object { meta, spec }))),
            &mut batch,
        );

        let [SourceEvent::Problems { problems, .. }] = batch.as_slice() else {
            panic!("{batch:?}")
        };

        assert!(
            problems[0]
                .fault
                .to_string()
                .contains("has no effect on ConfigMap"),
            "{problems:?}"
        );
    }

    #[test]
    fn an_invalid_configmap_overridden_by_a_file_does_not_block_sync() {
        let counting = Counting {
            mesh: false,
            networks: true,
        };
        let names = ["istio".to_owned()];
        let mut maps = Maps::new(
            MeshConfig::istio_defaults(),
            &Namespace::new("istio-system"),
            &names,
            counting,
        );

        maps.put(
            "istio",
            &map("trustDomain: [broken"),
            Vec::new(),
            &mut Batch::new(),
        );

        assert!(!maps.lacks_valid_text());
    }

    #[test]
    fn sync_waits_for_a_text_that_was_never_valid() {
        let mut maps = Maps::new(
            MeshConfig::istio_defaults(),
            &Namespace::new("istio-system"),
            &["istio".to_owned()],
            ALL,
        );
        let mut lacks = |text: &str| {
            maps.put("istio", &map(text), Vec::new(), &mut Batch::new());
            maps.lacks_valid_text()
        };
        assert!(lacks("trustDomain: [broken"));
        assert!(!lacks("trustDomain: own"));
        assert!(
            !lacks("trustDomain: [broken"),
            "the last good one is in force"
        );
    }
}
