//! The push thread: owns mesh state and engine, handles requests before changes, and debounces
//! changes.
//!
//! The first change after a quiet period is pushed at once; changes that arrive during a push form
//! the next one, after a pause in proportion to what each change of that push took: a flood of
//! changes that affect the same proxies takes a bounded share of the time of thread and proxies.
//! While subscriptions wait, the pause is as long as the push, up to a limit: they are answered
//! between pushes. With `PILOT_DEBOUNCE_AFTER` set, changes wait for that quiet time,
//! `PILOT_DEBOUNCE_MAX` at the longest, as in istiod. Removed configuration always stays in force
//! for a moment, as it may come again.

mod answering;
mod arrivals;
mod current;
mod ended_streams;
mod handle;
mod pause;
mod push_record;
mod removals;

use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use imbl::OrdSet;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::arrivals::Arrivals;
use self::ended_streams::{EndedStreams, Unclaimed};
use self::pause::Pushed;
use self::push_record::objects_of;
use self::removals::Removals;
use super::context::PushContext;
use super::engine::{Engine, Interest, ProxyId, Sink};
use super::fair_queue::FairQueue;
use super::mesh_state::{Change, MeshState, RemoteChange};
use super::metrics::{Metrics, triggers};
use super::notice::Notice;
use super::observer::{Event, PushObserver};
use super::proxy::Proxy;
use super::remark_log::log_remarks;
use super::resource::ResourceType;
use super::sweep_schedule::SweepSchedule;
use super::view::Translator;
use navarch_api::object::Kind;
use navarch_api::settings::Settings;
use navarch_tables::hash::KeyedMap;

pub use current::CurrentSnapshot;
pub use handle::{Ended, PushHandle};
pub use push_record::{ChangedObject, PushRecord};

/// Capacity of the command channel. A full channel makes senders wait: sources slow down, streams
/// stop reading requests.
const COMMAND_QUEUE_SIZE: usize = 16_384;
/// Maximum number of commands handled before subscriptions are answered and debounced changes are
/// pushed.
const MAX_COMMANDS_PER_ROUND: usize = 4_096;
/// Maximum number of changes that wait for the rest of the initial state.
const MAX_INITIAL_CHANGES: usize = 65_536;
/// How long subscriptions are answered before commands are handled again.
const SUBSCRIPTION_WORK_TIME: Duration = Duration::from_millis(4);
/// How long unused results are freed before commands are handled again.
const SWEEP_TIME: Duration = Duration::from_millis(2);
/// Time slice of one subscription before the next client is served.
const TIME_SLICE: Duration = Duration::from_millis(2);
/// Maximum number of pushes in the history.
const PUSH_HISTORY: usize = 128;
/// Maximum number of facts in a push record: the initial push changes all facts.
const REMEMBERED_FACTS: usize = 256;

/// How changes are debounced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debounce {
    /// `PILOT_DEBOUNCE_AFTER`: quiet to wait for. Default zero: push at once.
    pub after: Duration,
    /// `PILOT_DEBOUNCE_MAX`: the longest wait. Default 10 s.
    pub max: Duration,
}

/// Read access to the push thread's state, on that thread.
#[derive(Debug)]
pub struct Inspect<'a> {
    /// The mesh state: its snapshot is in force.
    pub mesh_state: &'a MeshState,
    /// The engine with the snapshot in force.
    pub engine: &'a Engine,
    /// The last pushes, oldest first.
    pub pushes: &'a VecDeque<PushRecord>,
}

/// A read-only closure that runs on the push thread.
type Inspection = Box<dyn FnOnce(&Inspect<'_>) + Send>;

/// A command to the push thread.
enum Command {
    /// A stream began; with the client's address.
    Connect(
        Arc<Proxy>,
        Option<IpAddr>,
        Arc<dyn Sink>,
        oneshot::Sender<Unclaimed>,
    ),
    /// A stream begins: whether its proxy has large routes.
    AskRouteSize(RouteSizeQuestion),
    /// Streams have ended: those in the list [`EndedStreams`].
    Disconnected,
    /// A stream subscribes to resources of a type.
    Subscribe(ProxyId, ResourceType, Interest),
    /// A stream unsubscribes from a type.
    Unsubscribe(ProxyId, ResourceType),
    /// Changes of inputs, and when they were queued.
    Changes(Vec<Change>, Instant),
    /// All sources have delivered their initial state.
    Synced,
    /// Drops all results and computes them again.
    Recompute(oneshot::Sender<()>),
    /// Runs a read-only closure.
    Inspection(Inspection),
}

/// The question whether a proxy, which need not be connected, has large routes.
struct RouteSizeQuestion {
    proxy: Arc<Proxy>,
    /// The client's address.
    address: Option<IpAddr>,
    answer: oneshot::Sender<bool>,
}

/// The state of the push thread.
struct Worker {
    mesh_state: MeshState,
    engine: Engine,
    /// How changes are debounced.
    debounce: Debounce,
    /// Debounced changes.
    pending: Vec<Change>,
    /// When the first and the last of them arrived.
    since: Option<(Instant, Instant)>,
    /// When they were queued.
    arrivals: Arrivals,
    removals: Removals,
    /// When the pause after the last push ends.
    paused_until: Instant,
    /// Set when the initial state is complete and pushed.
    synced: watch::Sender<bool>,
    /// Publishes the snapshot in force.
    context: watch::Sender<Arc<PushContext>>,
    /// Publishes the notices of results in force.
    notices: watch::Sender<OrdSet<Notice>>,
    ended_streams: EndedStreams,
    /// Unanswered subscriptions. Those that arrive before the initial state is complete wait for
    /// it.
    queue: FairQueue,
    /// Where proxies' route sizes are awaited. At most one for each stream that begins.
    route_sizes: KeyedMap<ProxyId, oneshot::Sender<bool>>,
    /// The last pushes, oldest first.
    pushes: VecDeque<PushRecord>,
    /// When results that only ended streams used are freed.
    sweeps: SweepSchedule,
    metrics: Metrics,
    /// Is called for each event of the thread.
    observer: Option<Arc<dyn PushObserver>>,
}

/// Starts the thread.
///
/// # Errors
/// When the thread cannot be spawned.
pub fn start(
    settings: Settings,
    debounce: Debounce,
    translator: Arc<dyn Translator>,
) -> std::io::Result<(PushHandle, JoinHandle<()>)> {
    start_watched(settings, debounce, translator, Metrics::default(), None)
}

/// Starts the push thread with its metrics and an optional observer.
///
/// # Errors
/// When the thread cannot be spawned.
pub fn start_watched(
    settings: Settings,
    debounce: Debounce,
    translator: Arc<dyn Translator>,
    metrics: Metrics,
    observer: Option<Arc<dyn PushObserver>>,
) -> std::io::Result<(PushHandle, JoinHandle<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let (push, work) = prepare(settings, debounce, translator, metrics, observer);

    let thread = std::thread::Builder::new()
        .name("push".to_owned())
        .stack_size(16 << 20)
        .spawn(move || runtime.block_on(work))?;
    Ok((push, thread))
}

/// The handle and the work of the push thread, for a caller that runs the work itself, as a
/// simulation does on its only thread. The work ends when the last handle is dropped.
pub fn prepare(
    settings: Settings,
    debounce: Debounce,
    translator: Arc<dyn Translator>,
    metrics: Metrics,
    observer: Option<Arc<dyn PushObserver>>,
) -> (PushHandle, impl Future<Output = ()> + Send + 'static) {
    let (commands, inbox) = mpsc::channel(COMMAND_QUEUE_SIZE);
    let gone = EndedStreams::default();
    let of_worker = gone.clone();
    let (sender, synced) = watch::channel(false);
    let mesh_state = MeshState::new(settings);
    let (context_sender, context) = watch::channel(mesh_state.context());
    let (notices_sender, notices) = watch::channel(OrdSet::new());

    // The engine is built where it runs, so that its tables are in that thread's memory.
    let work = async move {
        let mut engine = Engine::new(mesh_state.context(), translator);
        if observer.is_some() {
            engine.keep_published();
        }

        let worker = Worker {
            mesh_state,
            engine,
            debounce,
            pending: Vec::new(),
            since: None,
            arrivals: Arrivals::default(),
            removals: Removals::default(),
            paused_until: Instant::now(),
            synced: sender,
            context: context_sender,
            notices: notices_sender,
            ended_streams: of_worker,
            queue: FairQueue::default(),
            route_sizes: KeyedMap::default(),
            pushes: VecDeque::new(),
            sweeps: SweepSchedule::default(),
            metrics,
            observer,
        };

        worker.run(inbox).await;
    };

    let push = PushHandle {
        commands,
        ended_streams: gone,
        synced,
        current: CurrentSnapshot { context, notices },
    };
    (push, work)
}

impl Worker {
    /// Runs until the last handle is dropped.
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            let command = match self.next_wake() {
                _ if self.has_work() || self.engine.is_sweeping() => match inbox.try_recv() {
                    Ok(command) => Some(command),
                    Err(mpsc::error::TryRecvError::Empty) => None,
                    Err(mpsc::error::TryRecvError::Disconnected) => return,
                },
                None => match inbox.recv().await {
                    Some(command) => Some(command),
                    None => return,
                },
                Some(deadline) => match tokio::time::timeout_at(deadline, inbox.recv()).await {
                    Ok(Some(command)) => Some(command),
                    Ok(None) => return,
                    Err(_) => None,
                },
            };

            if let Some(command) = command {
                self.take(command);
                for _ in 0..MAX_COMMANDS_PER_ROUND {
                    match inbox.try_recv() {
                        Ok(command) => self.take(command),
                        Err(_) => break,
                    }
                }
            }

            self.remove_ended_streams();
            self.work();
            self.remove_due_objects();
            if self
                .deadline()
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                self.push();
            }
            let is_busy = self.has_work();
            self.sweeps
                .begin_sweep_if_due(&mut self.engine, is_busy, Instant::now());
            let until = Instant::now() + SWEEP_TIME;
            self.engine.continue_sweep(|| Instant::now() < until);

            self.metrics.set_sizes(
                self.engine.sizes(),
                self.engine.reads(),
                self.mesh_state.pending_pods(),
            );
            self.metrics.failed(self.engine.take_failed());
            log_remarks(&self.engine.take_fresh_remarks());
            self.publish_notices();
        }
    }

    /// Publishes the notices that have changed since the last call.
    fn publish_notices(&mut self) {
        let changes = self.engine.take_changed_notices();
        if changes.is_empty() {
            return;
        }

        self.notices.send_modify(|notices| {
            for change in changes {
                if change.is_in_force {
                    notices.insert(change.notice);
                } else {
                    notices.remove(&change.notice);
                }
            }
        });
    }

    /// The next time at which there is work without a command.
    fn next_wake(&self) -> Option<Instant> {
        let wakes = [self.deadline(), self.sweeps.next(), self.removals.next()];
        wakes.into_iter().flatten().min()
    }

    /// When the debounced changes are due, if there are any.
    fn deadline(&self) -> Option<Instant> {
        let (first, last) = self.since?;
        match self.debounce.after {
            Duration::ZERO => Some(last.max(self.paused_until)),
            after => Some((last + after).min(first + self.debounce.max)),
        }
    }

    /// Executes one command; changes are only queued.
    fn take(&mut self, command: Command) {
        match command {
            Command::Connect(proxy, address, sink, answer) => {
                let is_proved = proxy.identity.is_some();
                let id = self.engine.connect(proxy.clone(), sink);
                self.notify(|_| Event::Connected(id, proxy, address));
                self.queue.connect(id, address, is_proved);
                drop(answer.send(self.ended_streams.unless_claimed(id)));
            }

            Command::AskRouteSize(question) => self.ask_route_size(question),

            Command::Disconnected => {}

            Command::Subscribe(id, resource_type, interest) => {
                self.queue.subscribe(id, resource_type, interest)
            }
            Command::Unsubscribe(id, resource_type) => {
                if self.queue.unsubscribe(id, resource_type) {
                    self.engine.unsubscribe(id, resource_type);
                    self.notify(|_| Event::Unsubscribed(id, resource_type));
                }
            }

            Command::Changes(changes, received_at) => self.take_changes(changes, received_at),

            Command::Synced => {
                self.pending.push(Change::Stages);
                self.push();
                self.notify(|_| Event::Synced);
                self.synced.send_replace(true);
            }

            Command::Recompute(done) => {
                self.engine.recompute();
                self.notify(|worker| Event::Recomputed(worker.engine.take_published()));
                // The caller may have stopped waiting.
                let _ = done.send(());
            }

            Command::Inspection(look) => {
                look(&Inspect {
                    mesh_state: &self.mesh_state,
                    engine: &self.engine,
                    pushes: &self.pushes,
                });
            }
        }
    }

    /// Takes changes of the inputs: all but removals of configuration wait for the next push only.
    fn take_changes(&mut self, mut changes: Vec<Change>, received_at: Instant) {
        self.metrics.count_received(&changes);

        if self.is_synced() && !changes.is_empty() {
            self.removals.delay(&mut changes, Instant::now());
            if changes.is_empty() {
                return;
            }
        }
        self.queue_changes(changes, received_at);
    }

    /// Queues the removal of objects that have not come again in time.
    fn remove_due_objects(&mut self) {
        let now = Instant::now();
        let due = self.removals.take_due(now);
        if !due.is_empty() {
            self.queue_changes(due, now);
        }
    }

    /// Queues changes for the next push.
    fn queue_changes(&mut self, changes: Vec<Change>, received_at: Instant) {
        let now = Instant::now();
        self.arrivals.add(received_at, &changes);

        // Proxies wait with their subscriptions for this change.
        let is_awaited = changes.iter().any(is_awaited);

        self.since = match self.since {
            None if self.waits_for_sync(&changes) => None,
            None => Some((now, now)),
            // Clients decide when workloads learn: others' changes must not wait longer.
            Some(since) if changes.iter().all(is_learned) => Some(since),
            Some((first, _)) => Some((first, now)),
        };
        self.pending.extend(changes);
        if is_awaited {
            self.push();
        }
    }

    /// Whether changes can wait until the initial state is complete. Most of it are pods, which are
    /// read for the longest time; nobody is served before, and to build the endpoints of a service
    /// once costs least.
    fn waits_for_sync(&self, changes: &[Change]) -> bool {
        !self.is_synced()
            && !changes.is_empty()
            && self.pending.len() < MAX_INITIAL_CHANGES
            && changes.iter().all(is_of_endpoints)
    }

    /// Applies the debounced changes and publishes the affected collections.
    #[tracing::instrument(skip_all, level = "debug")]
    fn push(&mut self) {
        let started = Instant::now();
        let gathered = self
            .since
            .take()
            .map(|(first, _)| started.saturating_duration_since(first));
        let pending = std::mem::take(&mut self.pending);
        let arrivals = std::mem::take(&mut self.arrivals);
        self.metrics
            .count_changes(&pending, &self.engine.context().objects);

        let changes = pending.len();
        let observed = if self.observer.is_some() {
            pending.clone()
        } else {
            Vec::new()
        };

        let changed = self.mesh_state.apply(pending);
        if changed.is_empty() {
            // The snapshot is replaced even if no fact differs: it may differ in the generation of
            // an unchanged object.
            self.context.send_replace(self.mesh_state.context());
            if !observed.is_empty() {
                self.notify_applied(observed);
            }
            return;
        }

        let context = self.mesh_state.context();
        let taken_in = started.elapsed();
        self.metrics
            .observe_applied(gathered.unwrap_or_default(), taken_in);
        self.context.send_replace(context.clone());
        let facts = changed.len();
        let first = changed.iter().take(REMEMBERED_FACTS).cloned().collect();
        let triggers = triggers(&changed);

        let objects = objects_of(&context, &changed, &arrivals);
        let stats = self.engine.apply(context, changed);
        let took = started.elapsed();
        let pushed = Pushed {
            took,
            changes,
            facts,
            has_work: self.has_work(),
        };
        self.paused_until = started + took + pushed.pause();
        self.metrics.pushed(triggers, stats.published);
        self.notify_applied(observed);
        tracing::debug!(facts, published = stats.published, ?took, "push completed");

        if self.pushes.len() >= PUSH_HISTORY {
            self.pushes.pop_front();
        }

        let revision = self.engine.revision();
        let received_at = arrivals.first();
        let began = started;
        let record = PushRecord {
            revision,
            facts,
            changed: first,
            objects,
            received_at,
            began,
            taken_in,
            stats,
            took,
        };

        self.pushes.push_back(record);
    }
}

/// Whether a change concerns access to secrets, or enables the search for peers.
fn is_awaited(change: &Change) -> bool {
    let is_about_readers = matches!(
        change,
        Change::SecretReader(..) | Change::Remote(_, RemoteChange::SecretReader(..))
    );
    is_about_readers || matches!(change, Change::FindPeers)
}

/// Whether a change is of a pod or of an EndpointSlice in the cluster that configures the mesh.
fn is_of_endpoints(change: &Change) -> bool {
    let kind = if let Change::Put(object) = change {
        object.kind()
    } else if let Change::Removed(name) = change {
        name.kind
    } else {
        return false;
    };
    matches!(kind, Kind::Pod | Kind::EndpointSlice)
}

/// Whether a change is what a workload has used.
fn is_learned(change: &Change) -> bool {
    matches!(change, Change::Learned(..))
}

#[cfg(test)]
mod tests;
