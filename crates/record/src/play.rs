//! Replays a recording on a mesh state and an engine of its own, and compares the pushes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use navarch_ambient::AmbientTranslator;
use navarch_api::identity::Identity;
use navarch_envoy::EnvoyTranslator;
use navarch_push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch_push::mesh_state::{Change, MeshState};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::{Collection, ResourceType};

use super::format::{Header, Line, Moment, ProxyLine, Push, PushGroup, Watch, numbers};
use super::inputs::{self, InputError};
use super::name_sets::DefinedSets;
use super::push_groups::PushGroups;
use super::report::{MAX_NAMES, Played, PlayedPush, PlayedStep};
use super::restore::Restorer;

mod describe;

/// Errors of replaying a line.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// An input is invalid.
    #[error("{0}")]
    Input(String),
    /// A proxy is invalid.
    #[error("failed to parse proxy {0}: {1}")]
    Proxy(u64, String),
    /// A line refers to something that no earlier line defines.
    #[error("it refers to {0}, which no earlier line defines")]
    Unknown(String),
    /// A pair of certificate and key could not be generated.
    #[error("failed to generate replacements for private keys: {0}")]
    Key(String),
}

impl From<InputError> for PlayError {
    fn from(error: InputError) -> Self {
        Self::Input(error.to_string())
    }
}

/// A mesh state and an engine on which a recording is replayed.
#[derive(Debug)]
pub struct Player {
    restorer: Restorer,
    file: PathBuf,
    /// The run and its last segment.
    last: Option<(String, u64)>,
    /// The replayed state; `None` before the first segment.
    state: Option<State>,
    part: SegmentSection,
}

/// The place of a line in a recording.
#[derive(Clone, Copy, Debug)]
struct LinePosition<'a> {
    file: &'a Path,
    /// Byte offset of the line.
    offset: usize,
}

/// The replayed state.
#[derive(Debug)]
struct State {
    mesh_state: MeshState,
    engine: Engine,
    proxies: BTreeMap<u64, (ProxyId, Arc<Proxy>)>,
    numbers: BTreeMap<ProxyId, u64>,
    groups: PushGroups,
    sets: DefinedSets,
    pending: Vec<Change>,
    watches: Vec<(u64, ResourceType, Interest)>,
}

/// The section of a segment that is being read.
#[derive(Clone, Debug, Default)]
enum SegmentSection {
    /// The initial state, which is applied.
    Begins(String),
    /// The initial state, which is known already.
    Known,
    /// Events.
    #[default]
    Done,
}

/// A sink that discards: published collections are read from the engine.
#[derive(Debug)]
struct NullSink;

impl Sink for NullSink {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

impl State {
    fn new(header: &Header) -> Self {
        let mesh_state = MeshState::new(header.settings.clone());
        let mut engine = Engine::new(
            mesh_state.context(),
            Arc::new(AmbientTranslator(EnvoyTranslator)),
        );
        engine.keep_published();
        Self {
            mesh_state,
            engine,
            proxies: BTreeMap::new(),
            numbers: BTreeMap::new(),
            groups: PushGroups::default(),
            sets: DefinedSets::default(),
            pending: Vec::new(),
            watches: Vec::new(),
        }
    }

    fn name(&self, proxy: u64) -> String {
        self.proxies.get(&proxy).map_or_else(
            || format!("proxy {proxy}"),
            |(_, proxy)| proxy.name.to_string(),
        )
    }

    /// The first names of proxies.
    fn names(&self, ranges: &[[u64; 2]]) -> Vec<String> {
        numbers(ranges)
            .take(MAX_NAMES)
            .map(|proxy| self.name(proxy))
            .collect()
    }

    fn connect(&mut self, line: ProxyLine) -> Result<(), PlayError> {
        let number = line.number;
        let proxy = Arc::new(proxy_of(line).map_err(|reason| PlayError::Proxy(number, reason))?);
        let id = self.engine.connect(proxy.clone(), Arc::new(NullSink));
        self.proxies.insert(number, (id, proxy));
        self.numbers.insert(id, number);
        Ok(())
    }

    fn disconnect(&mut self, number: u64) {
        if let Some((id, _)) = self.proxies.remove(&number) {
            self.engine.disconnect(id);
            self.numbers.remove(&id);
        }
        self.groups.forget_all(number);
    }

    /// The interest of a subscription.
    fn interest(&self, watch: &Watch) -> Result<Interest, PlayError> {
        let unknown = |set: u64| PlayError::Unknown(format!("set {set} of names"));
        let names = watch
            .set
            .map(|set| self.sets.get(set).cloned().ok_or_else(|| unknown(set)))
            .transpose()?;
        Ok(Interest {
            wildcard: watch.wildcard,
            names: names.unwrap_or_default(),
        })
    }

    /// Applies pending inputs.
    fn apply(&mut self) {
        let facts = self.mesh_state.apply(std::mem::take(&mut self.pending));
        if !facts.is_empty() {
            self.engine.apply(self.mesh_state.context(), facts);
        }
    }

    /// The collections published since the last call.
    fn published(&mut self) -> (Vec<PlayedPush>, Vec<PushGroup>) {
        let published: Vec<(u64, Arc<Collection>)> = self
            .engine
            .take_published()
            .into_iter()
            .filter_map(|published| {
                Some((*self.numbers.get(&published.proxy)?, published.collection))
            })
            .collect();
        let before: BTreeMap<(u64, ResourceType), Option<Arc<Collection>>> = published
            .iter()
            .map(|(proxy, now)| {
                (
                    (*proxy, now.resource_type),
                    self.groups.of(*proxy, now.resource_type).cloned(),
                )
            })
            .collect();

        let groups = self.groups.set(published);
        (
            groups
                .iter()
                .map(|group| self.played_push(group, &before))
                .collect(),
            groups,
        )
    }
}

impl Player {
    /// A player before the first segment.
    ///
    /// # Errors
    /// When the replacement for private keys cannot be generated.
    pub fn new() -> Result<Self, PlayError> {
        let restorer = Restorer::new().map_err(|error| PlayError::Key(error.to_string()))?;
        Ok(Self {
            restorer,
            file: PathBuf::new(),
            last: None,
            state: None,
            part: SegmentSection::Done,
        })
    }

    /// Discards the state after a gap: replay continues with the initial state of the next segment.
    pub fn skip(&mut self) {
        self.last = None;
    }

    /// Replays a line of a file; returns the step, if the line is an event.
    ///
    /// # Errors
    /// When the line is invalid.
    pub fn play(
        &mut self,
        file: &Path,
        offset: usize,
        line: Line,
    ) -> Result<Option<PlayedStep>, PlayError> {
        if let Line::Header(header) = line {
            self.begin(file, *header);
            return Ok(None);
        }

        let Some(state) = &mut self.state else {
            return Err(PlayError::Unknown("no segment".to_owned()));
        };

        let position = LinePosition {
            file: &self.file,
            offset,
        };

        match std::mem::take(&mut self.part) {
            SegmentSection::Begins(navarch) => {
                let step = state.load(position, line, &navarch, &self.restorer)?;
                if step.is_none() {
                    self.part = SegmentSection::Begins(navarch);
                }
                Ok(step)
            }
            SegmentSection::Known => {
                if let Line::Complete(complete) = line {
                    let difference = state.compare(position, &complete.pushes, &state.groups.all());
                    let step = |difference| PlayedStep {
                        at: complete.at,
                        what: Played::Synced,
                        pushes: Vec::new(),
                        difference: Some(difference),
                    };
                    return Ok(difference.map(step));
                }

                self.part = SegmentSection::Known;
                if let Line::Names(set) = line {
                    state.add_name_set(set)?;
                }

                Ok(None)
            }
            SegmentSection::Done => {
                if matches!(line, Line::Lost(_)) {
                    self.last = None;
                }
                state.redo(position, line, &self.restorer)
            }
        }
    }

    /// Starts a segment.
    fn begin(&mut self, file: &Path, header: Header) {
        file.clone_into(&mut self.file);
        let follows = self
            .last
            .as_ref()
            .is_some_and(|(run, last)| *run == header.run && last + 1 == header.segment);
        match &mut self.state {
            Some(state) if follows => {
                state.sets = DefinedSets::default();
                self.part = SegmentSection::Known;
            }
            _ => {
                self.state = Some(State::new(&header));
                self.part = SegmentSection::Begins(header.navarch);
            }
        }
        self.last = Some((header.run, header.segment));
    }
}

impl State {
    /// Loads a line of the initial state; returns a step at its end.
    fn load(
        &mut self,
        position: LinePosition<'_>,
        line: Line,
        navarch: &str,
        restorer: &Restorer,
    ) -> Result<Option<PlayedStep>, PlayError> {
        match line {
            Line::Input(input) => self.pending.push(inputs::read(*input, restorer)?),
            Line::Proxy(proxy) => self.connect(*proxy)?,
            Line::Names(set) => self.add_name_set(set)?,
            Line::Watch(watch) => {
                let resource_type = type_of(&watch.r#type)?;
                let interest = self.interest(&watch)?;
                self.watches.push((watch.proxy, resource_type, interest));
            }
            Line::Complete(complete) => {
                let inputs = self.pending.len();
                let proxies = self.proxies.len();
                self.apply();

                for (proxy, resource_type, interest) in std::mem::take(&mut self.watches) {
                    let id = self.id(proxy)?;
                    self.engine.subscribe(id, resource_type, interest);
                }

                self.published();
                let difference = self.compare(position, &complete.pushes, &self.groups.all());
                let file = position.file.to_owned();
                let navarch = navarch.to_owned();
                let what = Played::Begun {
                    file,
                    navarch,
                    inputs,
                    proxies,
                };

                return Ok(Some(PlayedStep {
                    at: complete.at,
                    what,
                    pushes: Vec::new(),
                    difference,
                }));
            }
            Line::Header(_)
            | Line::Unwatch(_)
            | Line::Push(_)
            | Line::Synced(_)
            | Line::Gone(_)
            | Line::Took(_)
            | Line::Nack(_)
            | Line::Lost(_) => {}
        }

        Ok(None)
    }

    /// Replays an event.
    fn redo(
        &mut self,
        position: LinePosition<'_>,
        line: Line,
        restorer: &Restorer,
    ) -> Result<Option<PlayedStep>, PlayError> {
        let (at, what) = match line {
            Line::Input(input) => {
                self.pending.push(inputs::read(*input, restorer)?);
                return Ok(None);
            }
            Line::Names(set) => {
                self.add_name_set(set)?;
                return Ok(None);
            }
            Line::Watch(watch) => return self.watch(position, &watch).map(Some),
            Line::Push(push) => return Ok(Some(self.push(position, &push))),
            Line::Proxy(line) => {
                let at = line.at;
                let number = line.number;
                self.connect(*line)?;
                (
                    at,
                    Played::Connected {
                        proxy: self.name(number),
                    },
                )
            }
            Line::Unwatch(line) => {
                let id = self.id(line.proxy)?;
                let resource_type = type_of(&line.r#type)?;
                self.engine.unsubscribe(id, resource_type);
                self.groups.forget(line.proxy, resource_type);
                (
                    line.at,
                    Played::Unsubscribed {
                        proxy: self.name(line.proxy),
                        r#type: line.r#type,
                    },
                )
            }
            Line::Gone(gone) => {
                let proxies = self.names(&gone.proxies);
                numbers(&gone.proxies).for_each(|proxy| self.disconnect(proxy));
                (gone.at, Played::Gone { proxies })
            }
            Line::Took(took) => {
                let proxies = numbers(&took.proxies).count();
                let names = self.names(&took.proxies);
                (
                    took.at,
                    Played::Took {
                        r#type: took.r#type,
                        proxies,
                        names,
                    },
                )
            }
            Line::Nack(nack) => {
                let proxy = self.name(nack.proxy);
                (
                    nack.at,
                    Played::Nack {
                        proxy,
                        r#type: nack.r#type,
                        said: nack.said,
                    },
                )
            }
            Line::Synced(at) => (at.at, Played::Synced),
            Line::Lost(lost) => (lost.at, Played::Lost { why: lost.why }),
            Line::Header(_) | Line::Complete(_) => return Ok(None),
        };

        Ok(Some(PlayedStep {
            at,
            what,
            pushes: Vec::new(),
            difference: None,
        }))
    }

    fn push(&mut self, position: LinePosition<'_>, push: &Push) -> PlayedStep {
        let revision = push.revision;
        let what = if push.anew {
            self.engine.recompute();
            Played::Anew { revision }
        } else {
            let inputs: Vec<String> = self
                .pending
                .iter()
                .take(MAX_NAMES)
                .map(describe::input)
                .collect();
            let more = self.pending.len() - inputs.len();
            self.apply();
            Played::Changed {
                revision,
                inputs,
                more,
            }
        };

        self.step(position, push.at, what, &push.pushes)
    }

    fn watch(
        &mut self,
        position: LinePosition<'_>,
        watch: &Watch,
    ) -> Result<PlayedStep, PlayError> {
        let id = self.id(watch.proxy)?;
        let resource_type = type_of(&watch.r#type)?;
        let interest = self.interest(watch)?;
        let names = (!interest.wildcard).then_some(interest.names.len());
        self.engine.subscribe(id, resource_type, interest);
        let what = Played::Subscribed {
            proxy: self.name(watch.proxy),
            r#type: watch.r#type.clone(),
            names,
        };
        let step = self.step(position, watch.at, what, &watch.pushes);
        if watch.given_up {
            self.engine.unsubscribe(id, resource_type);
            self.groups.forget(watch.proxy, resource_type);
        }
        Ok(step)
    }

    fn step(
        &mut self,
        position: LinePosition<'_>,
        at: Moment,
        what: Played,
        recorded: &[PushGroup],
    ) -> PlayedStep {
        let (pushes, played) = self.published();
        PlayedStep {
            at,
            what,
            pushes,
            difference: self.compare(position, recorded, &played),
        }
    }

    fn add_name_set(&mut self, set: super::format::NameSet) -> Result<(), PlayError> {
        let from = set.from.unwrap_or_default();
        if self.sets.add(set) {
            Ok(())
        } else {
            Err(PlayError::Unknown(format!("set {from} of names")))
        }
    }

    fn id(&self, proxy: u64) -> Result<ProxyId, PlayError> {
        let unknown = || PlayError::Unknown(format!("proxy {proxy}"));
        self.proxies
            .get(&proxy)
            .map(|(id, _)| *id)
            .ok_or_else(unknown)
    }
}

/// The type of a short name.
fn type_of(name: &str) -> Result<ResourceType, PlayError> {
    let found = ResourceType::ALL
        .into_iter()
        .find(|resource_type| resource_type.short_name() == name);
    found.ok_or_else(|| PlayError::Unknown(format!("type {name}")))
}

fn proxy_of(line: ProxyLine) -> Result<Proxy, String> {
    let [region, zone, sub_zone] = line.locality.map(Arc::from);
    let parsed = Proxy::parse(
        &line.node,
        line.metadata,
        Locality {
            region,
            zone,
            sub_zone,
        },
    );

    let proxy = parsed.map_err(|error| error.to_string())?;
    let identity = line
        .identity
        .as_deref()
        .map(Identity::parse)
        .transpose()
        .map_err(|error| error.to_string())?;

    let extensions = line
        .extensions
        .map(|all| Arc::new(all.into_iter().map(Arc::from).collect()));
    let service_cluster = Arc::from(line.cluster);

    Ok(Proxy {
        service_cluster,
        extensions,
        identity,
        uses_delta: line.deltas,
        has_learned_scope: line.has_learned_scope,
        ..proxy
    })
}
