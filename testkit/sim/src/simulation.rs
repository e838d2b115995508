//! Runs a schedule, and checks the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use navarch_push::rollout::{Rollout, RolloutProgress};
use navarch_security::ca::keeper::RotationCommand;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::api_server::{ApiServer, Fault, Plant};
use crate::checks::Rest;
use crate::leaders;
use crate::link::Condition;
use crate::memory::Cycles;
use crate::proxy::{Check, Command, Held, Proxy, Replicas, Spec};
use crate::random::Random;
use crate::remote::{self, Remote};
use crate::replica::{Replica, SYSTEM_NAMESPACE};
use crate::schedule::{Action, Event, RemoteEvent, Schedule};
use crate::shares::Shares;
use crate::signers;
use crate::states;
use crate::story::Story;
use crate::tell;
use crate::world;

/// Within this time after the last fault everything must be at rest: half-open watches are noticed
/// after 100 s, and the stages of a rollout take a minute.
const SETTLE_TIME: Duration = Duration::from_secs(420);
/// Within this time after that all rollouts must have ended.
const ROLLOUT_TIME: Duration = Duration::from_mins(40);
/// Within this time after that what is left of them must be gone.
const CLEANUP_TIME: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How long it is observed at rest.
const REST_TIME: Duration = Duration::from_secs(300);
/// Within this time proxies have reconnected, and unused results are freed.
const SWEEP_TIME: Duration = Duration::from_secs(60);
/// The stack of the simulation's thread: trials of the quarantine run on it.
const STACK: usize = 64 << 20;

/// What is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed, which decides everything.
    pub seed: u64,
    /// The case that happens in place of the seed's schedule ([`Schedule::of_case`]).
    pub case: Option<String>,
    /// The indices of the events that happen; `None` for all.
    pub keep: Option<Vec<usize>>,
    /// Whether the story is printed while it happens.
    pub is_printed: bool,
    /// A fault of the simulator, which must be found.
    pub plant: Option<Plant>,
    /// Whether objects come and go at rest, and the memory is compared.
    pub checks_memory: bool,
}

/// How it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The violated invariants; empty if all hold.
    pub violations: Vec<String>,
    /// The hash of the story.
    pub hash: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// The number of events in the whole schedule.
    pub events: usize,
    /// The number of responses to proxies.
    pub responses: u64,
}

impl Outcome {
    /// That of a simulation that does not end.
    #[must_use]
    pub fn endless(seed: u64) -> Self {
        Self {
            violations: vec![format!("a simulation ends: seed {seed} does not")],
            hash: 0,
            simulated: Duration::ZERO,
            events: Schedule::of_seed(seed, world::proxies(seed).len())
                .events
                .len(),
            responses: 0,
        }
    }
}

/// A simulation while it runs.
struct Simulation {
    seed: u64,
    story: Story,
    server: ApiServer,
    replicas: Replicas,
    /// How many replicas had each index.
    incarnations: Vec<u64>,
    proxies: Vec<Proxy>,
    /// What happens later because of an earlier event.
    followups: Vec<(Instant, Followup)>,
    remote: Remote,
}

/// What happens after an event.
#[derive(Clone, Copy, Debug)]
enum Followup {
    Restart(usize),
    /// The link of a replica; whether the history is compacted before.
    Mend(usize, bool),
    MendRemote,
}

/// Runs a simulation. A process can run one, as the clock of all of it is simulated.
///
/// # Errors
/// If it cannot start.
pub fn run(options: Options) -> anyhow::Result<Outcome> {
    let thread = std::thread::Builder::new()
        .name("simulation".to_owned())
        .stack_size(STACK)
        .spawn(move || run_here(&options))?;
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("the simulation panicked"))?
}

fn run_here(options: &Options) -> anyhow::Result<Outcome> {
    crate::host::begin(options.seed);
    leaders::watch();
    navarch_net::cryptography::install("");
    navarch_base::blocking::run_inline();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()?;
    let outcome = runtime.block_on(async {
        crate::host::follow_runtime();
        simulate(options).await
    });
    // Tasks of crashed replicas may be left.
    runtime.shutdown_background();
    outcome
}

async fn simulate(options: &Options) -> anyhow::Result<Outcome> {
    let seed = options.seed;
    let story = Story::begin(options.is_printed);
    let specs = world::proxies(seed);
    let whole = match &options.case {
        Some(name) => Schedule::of_case(name).context("no such case")?,
        None => Schedule::of_seed(seed, specs.len()),
    };
    let schedule = match &options.keep {
        Some(indices) => whole.keep(indices),
        None => whole.clone(),
    };

    leaders::tell_to(&story);
    let server = ApiServer::new("api", seed, story.clone(), options.plant);
    let remote = Remote::new(seed, &story);
    for object in world::permanent(&specs) {
        server.apply(&object);
    }

    let mut simulation = Simulation {
        seed,
        story: story.clone(),
        server,
        replicas: Replicas::default(),
        incarnations: vec![0; schedule.replicas],
        proxies: Vec::new(),
        followups: Vec::new(),
        remote,
    };
    let at_once = schedule.events.iter().filter(|event| event.at.is_zero());
    for event in at_once {
        simulation.happen(event)?;
    }
    for index in 0..schedule.replicas {
        simulation.start_replica(index)?;
    }
    simulation.start_proxies(specs);

    simulation.run_events(&schedule).await?;
    simulation.recover().await?;
    if options.checks_memory {
        let cycles = Cycles {
            seed,
            rest: simulation.rest(),
            remote: &simulation.remote,
        };
        cycles.check().await;
    }
    simulation.check_rest().await?;

    Ok(Outcome {
        violations: story.violations(),
        hash: story.hash(),
        simulated: story.elapsed(),
        events: whole.events.len(),
        responses: simulation.proxies.iter().map(Proxy::responses).sum(),
    })
}

impl Simulation {
    /// Starts a replica at an index.
    fn start_replica(&mut self, index: usize) -> anyhow::Result<()> {
        let incarnation = self
            .incarnations
            .get_mut(index)
            .context("no such replica")?;
        *incarnation += 1;
        let name = format!("istiod-{index}-{incarnation}");
        let replica = Arc::new(Replica::start(
            &name,
            &self.server,
            &settings(),
            self.seed,
            &self.story,
        )?);

        let mut replicas = self.replicas.lock();
        if index < replicas.len() {
            replicas[index] = replica;
        } else {
            replicas.push(replica);
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn start_proxies(&mut self, specs: Vec<Spec>) {
        let shares = Shares::new(&self.story, &self.server, &self.replicas);
        let names = specs
            .iter()
            .map(|spec| format!("{}.{}", spec.name, spec.namespace));
        drop(tokio::spawn(shares.clone().run(names.collect())));

        let of_state = states::check(&self.story);
        let check: Check = Arc::new(move |spec: &Spec, held: &Held| {
            of_state(spec, held);
            shares.check(spec, held);
        });
        self.proxies = specs
            .into_iter()
            .map(|spec| Proxy::start(spec, &self.replicas, self.seed, &self.story, check.clone()))
            .collect();

        let story = self.story.clone();
        let proxies = self.proxies.clone();
        drop(tokio::spawn(signers::follow(
            story,
            self.server.clone(),
            proxies,
        )));
    }

    /// Lets the events happen at their times, and what follows from them.
    async fn run_events(&mut self, schedule: &Schedule) -> anyhow::Result<()> {
        let begin = Instant::now();
        let later = schedule.events.iter().filter(|event| !event.at.is_zero());
        for event in later {
            let at = begin + event.at;
            self.follow_up(Some(at)).await?;
            sleep_until(at).await;
            self.happen(event)?;
        }
        self.follow_up(None).await
    }

    /// Lets happen what follows until a time, or at any time.
    async fn follow_up(&mut self, until: Option<Instant>) -> anyhow::Result<()> {
        loop {
            self.followups.sort_by_key(|(at, _)| *at);
            let is_due = |(at, _): &(Instant, Followup)| until.is_none_or(|until| *at <= until);
            if !self.followups.first().is_some_and(is_due) {
                return Ok(());
            }
            let (at, followup) = self.followups.remove(0);
            sleep_until(at).await;
            match followup {
                Followup::Restart(index) => self.start_replica(index)?,
                Followup::Mend(index, compacts) => {
                    if compacts {
                        self.server.begin(&Fault::Compact);
                    }
                    self.replica(index)?.set_link(Condition::Up);
                }
                Followup::MendRemote => self.remote.set_link(Condition::Up),
            }
        }
    }

    fn replica(&self, index: usize) -> anyhow::Result<Arc<Replica>> {
        let replicas = self.replicas.lock();
        replicas.get(index).cloned().context("no such replica")
    }

    fn happen(&mut self, event: &Event) -> anyhow::Result<()> {
        match &event.action {
            Action::Edit(edit) => edit.send(&self.server),
            Action::MeshConfig { content } => self.edit_mesh_config(*content),
            Action::Rotate { replica } => self.rotate(*replica)?,
            Action::Api(fault) => self.server.begin(fault),
            Action::Remote(event) => self.happen_remotely(event),

            Action::Link {
                replica,
                condition,
                lasts,
            } => {
                self.replica(*replica)?.set_link(*condition);
                // What happened meanwhile can then only be read from a new list.
                let compacts = lasts.as_millis() % 2 == 0;
                self.later(*lasts, Followup::Mend(*replica, compacts));
            }

            Action::Crash {
                replica,
                connections,
                lasts,
            } => {
                let crashing = self.replica(*replica)?;
                if crashing.is_running() {
                    crashing.crash(*connections);
                    self.later(*lasts, Followup::Restart(*replica));
                }
            }

            Action::Stop { replica, lasts } => {
                let stopping = self.replica(*replica)?;
                if stopping.is_running() {
                    stopping.stop();
                    self.later(*lasts, Followup::Restart(*replica));
                }
            }

            Action::Proxy { proxy, command } => {
                if let Some(proxy) = self.proxies.get(*proxy) {
                    tell!(self.story, proxy.spec.name, "{command:?}");
                    proxy.command(*command);
                }
            }
        }
        Ok(())
    }

    fn happen_remotely(&mut self, event: &RemoteEvent) {
        match event {
            RemoteEvent::Join => self.server.apply(&remote::secret()),
            RemoteEvent::Leave => {
                self.server
                    .delete("", "Secret", SYSTEM_NAMESPACE, remote::SECRET);
            }
            RemoteEvent::Edit(edit) => edit.send(&self.remote.server),
            RemoteEvent::Api(fault) => self.remote.server.begin(fault),
            RemoteEvent::Link { condition, lasts } => {
                self.remote.set_link(*condition);
                self.later(*lasts, Followup::MendRemote);
            }
        }
    }

    fn later(&mut self, delay: Duration, followup: Followup) {
        self.followups.push((Instant::now() + delay, followup));
    }

    /// Asks a replica to rotate the root.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn rotate(&self, index: usize) -> anyhow::Result<()> {
        let replica = self.replica(index)?;
        let Some(rotation) = replica.signing().map(|signing| signing.rotation.clone()) else {
            return Ok(());
        };
        let story = self.story.clone();
        drop(tokio::spawn(async move {
            let outcome = rotation.send(RotationCommand::Begin).await;
            let text = outcome.map_or_else(|error| error.to_string(), |_| "begun".to_owned());
            tell!(story, replica.name(), "rotation of the root: {text}");
        }));
        Ok(())
    }

    fn edit_mesh_config(&self, content: u64) {
        let mut random = Random::new(content, "mesh config");
        let mesh = format!(
            "trustDomain: cluster.local\nconnectTimeout: {}s\nenableTracing: {}\n",
            random.below(9) + 1,
            random.happens(500)
        );
        self.server.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "istio", "namespace": SYSTEM_NAMESPACE },
            "data": { "mesh": mesh },
        }));
    }

    /// Ends all faults, and waits until everything must be at rest.
    async fn recover(&mut self) -> anyhow::Result<()> {
        self.server.recover();
        self.remote.server.recover();
        self.remote.set_link(Condition::Up);
        for index in 0..self.incarnations.len() {
            let replica = self.replica(index)?;
            replica.set_link(Condition::Up);
            if !replica.is_running() {
                self.start_replica(index)?;
            }
        }
        for proxy in &self.proxies {
            proxy.command(Command::SlowDown(Duration::ZERO));
        }
        tell!(self.story, "simulation", "all faults have ended");
        sleep(SETTLE_TIME).await;

        // Proxies of other namespaces may hold a stage for ten minutes.
        let end = Instant::now() + ROLLOUT_TIME;
        while self.rolls_out() && Instant::now() < end {
            sleep(POLL_INTERVAL).await;
        }
        signers::settle(&self.story, &self.replicas).await;
        sleep(CLEANUP_TIME).await;
        Ok(())
    }

    /// The simulation, to be checked at rest.
    fn rest(&self) -> Rest<'_> {
        Rest {
            story: &self.story,
            server: &self.server,
            proxies: &self.proxies,
            replicas: &self.replicas,
        }
    }

    /// Whether a rollout is under way.
    fn rolls_out(&self) -> bool {
        let is_under_way =
            |rollout: &Arc<Rollout>| !matches!(rollout.progress, RolloutProgress::Stopped(_));
        self.replicas.lock().iter().any(|replica| {
            replica.parts().is_some_and(|parts| {
                let context = parts.push.context();
                context.rollouts.values().any(is_under_way)
            })
        })
    }

    /// Checks what must hold at rest.
    async fn check_rest(&self) -> anyhow::Result<()> {
        tell!(self.story, "simulation", "must be at rest");
        let before = self.server.writes().len();
        let accepted = self.proxies.iter().map(Proxy::accepted_responses);
        let responses: Vec<u64> = accepted.collect();
        sleep(REST_TIME).await;

        let rest = self.rest();
        rest.check_writes(before);
        rest.check_responses(&responses);
        rest.check_write_rates();
        rest.check_agreement();
        rest.check_leaders();
        rest.check_rollouts();
        rest.check_addresses();

        let held: Vec<Held> = self.proxies.iter().map(Proxy::held).collect();

        // Proxies reconnect with what they hold, and engines free what no stream needs any more:
        // without an ended stream they do so only when their tables have grown much.
        for proxy in &self.proxies {
            proxy.command(Command::Reconnect);
        }
        sleep(SWEEP_TIME).await;
        rest.compare_with_fresh(&held, self.seed, &settings()).await
    }
}

/// The environment of the replicas.
fn settings() -> BTreeMap<String, String> {
    [
        ("RESOLVE_HOSTNAME_GATEWAYS", "false"),
        ("PILOT_ENABLE_STATUS", "true"),
        // Istio's half second would take a third of the CPU time.
        ("PILOT_STATUS_UPDATE_INTERVAL", "3s"),
        ("PILOT_ENABLE_IP_AUTOALLOCATE", "true"),
        // As those of the simulated agents: a former root is gone soon after.
        ("DEFAULT_WORKLOAD_CERT_TTL", "10m"),
        ("MAX_WORKLOAD_CERT_TTL", "10m"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}
