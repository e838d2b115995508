//! Simulated proxies: clients of both ADS protocols that acknowledge, reject, are slow, vanish, and
//! reconnect with what they held.

mod held;
mod state;
pub(crate) mod wire;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use navarch_api::identity::Identity;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use parking_lot::Mutex;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

pub use held::{Held, Type};
use state::{Request, Response, State};
use wire::{ADS, Call};

use crate::agent::{self, Agent};
use crate::link::{Condition, Link};
use crate::random::Random;
use crate::replica::{Peer, Replica};
use crate::story::Story;
use crate::tell;

/// What proxies that reject find unacceptable: a text in the bytes of a resource.
pub const POISON: &str = "sim-poison";

/// The version of xDS that a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Differences.
    Delta,
    /// The state of the world.
    State,
}

/// A proxy as it is configured.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name of its pod.
    pub name: String,
    /// The namespace of its pod.
    pub namespace: String,
    /// The first part of its node id, such as `sidecar`.
    pub kind: String,
    /// The address of its pod.
    pub address: IpAddr,
    /// The labels of its pod.
    pub labels: Vec<(String, String)>,
    /// The version of xDS.
    pub protocol: Protocol,
    /// Its service account, if its identity is verified.
    pub account: Option<String>,
    /// The secrets that it subscribes to.
    pub secrets: Vec<String>,
    /// Whether it rejects resources with [`POISON`].
    pub rejects: bool,
    /// Whether it talks through an agent; then its identity is verified.
    pub has_agent: bool,
}

/// A command to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Closes its connection, and opens another.
    Reconnect,
    /// Its connection becomes half-open, and breaks after this time.
    Vanish(Duration),
    /// It takes this long for each response from now on.
    SlowDown(Duration),
    /// It forgets all that it holds, as a restarted process.
    Restart,
}

impl Command {
    /// What it is, whatever time it takes.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Reconnect => "a proxy reconnects",
            Self::Vanish(_) => "a proxy vanishes",
            Self::SlowDown(_) => "a proxy becomes slow",
            Self::Restart => "a proxy restarts",
        }
    }
}

/// The replicas that a proxy may connect to.
pub type Replicas = Arc<Mutex<Vec<Arc<Replica>>>>;

/// What a running proxy shows. Clones show the same proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Name, identity, subscriptions.
    pub spec: Arc<Spec>,
    commands: mpsc::UnboundedSender<Command>,
    shown: Arc<Mutex<Shown>>,
    agent: Option<Agent>,
}

#[derive(Debug, Default)]
struct Shown {
    held: Held,
    /// Since when it has a stream.
    connected_since: Option<Instant>,
    /// The number of responses.
    responses: u64,
    /// The number of those that it has rejected.
    rejections: u64,
    /// The types of which it lacks resources since it has rejected a response.
    rejected: BTreeSet<Type>,
}

/// Called with what a proxy holds after each response.
pub type Check = Arc<dyn Fn(&Spec, &Held) + Send + Sync>;

/// The task of a proxy.
struct Runner {
    spec: Arc<Spec>,
    replicas: Replicas,
    agent: Option<Agent>,
    commands: mpsc::UnboundedReceiver<Command>,
    shown: Arc<Mutex<Shown>>,
    state: State,
    delay: Duration,
    random: Random,
    story: Story,
    check: Check,
}

impl Proxy {
    /// Starts a proxy that connects to one of the replicas at a time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    pub fn start(spec: Spec, replicas: &Replicas, seed: u64, story: &Story, check: Check) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let spec = Arc::new(spec);
        let shown = Arc::<Mutex<Shown>>::default();
        let agent = spec
            .has_agent
            .then(|| Agent::start(&spec, spec.peer(), replicas, seed, story));

        let runner = Runner {
            spec: spec.clone(),
            replicas: replicas.clone(),
            agent: agent.clone(),
            commands: inbox,
            shown: shown.clone(),
            state: State::new(&spec),
            delay: Duration::ZERO,
            random: Random::new(seed, &spec.name),
            story: story.clone(),
            check,
        };
        drop(tokio::spawn(runner.run()));

        Self {
            spec,
            commands,
            shown,
            agent,
        }
    }

    /// Sends a command.
    pub fn command(&self, command: Command) {
        // The task ends only with the proxy.
        _ = self.commands.send(command);
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Held {
        self.shown.lock().held.clone()
    }

    /// Whether it has a stream.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shown.lock().connected_since.is_some()
    }

    /// How long it has had its stream; `None` without one.
    #[must_use]
    pub fn connected_for(&self) -> Option<Duration> {
        let since = self.shown.lock().connected_since;
        let own = since.map(|since| since.elapsed())?;
        match &self.agent {
            Some(agent) => Some(own.min(agent.connected_for()?)),
            None => Some(own),
        }
    }

    /// Its agent, if it has one.
    pub(crate) fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref()
    }

    /// Whether it trusts all of these roots (PEM).
    pub(crate) fn trusts(&self, roots: &str) -> bool {
        match &self.agent {
            Some(agent) => agent.trusts(roots),
            None => {
                let held = self.shown.lock().held.roots();
                agent::contains(held.as_bytes(), roots.as_bytes())
            }
        }
    }

    /// The number of responses so far.
    #[must_use]
    pub fn responses(&self) -> u64 {
        self.shown.lock().responses
    }

    /// The number of responses so far that it has not rejected.
    #[must_use]
    pub fn accepted_responses(&self) -> u64 {
        let shown = self.shown.lock();
        shown.responses - shown.rejections
    }

    /// The types of which it lacks resources that it has rejected, or that were beside these.
    #[must_use]
    pub fn rejected_types(&self) -> BTreeSet<Type> {
        self.shown.lock().rejected.clone()
    }
}

impl Runner {
    async fn run(mut self) {
        loop {
            if let Some((stream, link, replica)) = self.connect() {
                let method = match self.spec.protocol {
                    Protocol::Delta => "DeltaAggregatedResources",
                    Protocol::State => "StreamAggregatedResources",
                };
                if let Ok(call) = Call::open(stream, ADS, method).await {
                    tell!(self.story, self.spec.name, "connects to {replica}");
                    self.shown.lock().connected_since = Some(Instant::now());
                    let ended = self.converse(call, &link).await;
                    self.shown.lock().connected_since = None;
                    let reason = ended.map_or_else(|error| error.to_string(), |()| "closed".into());
                    tell!(self.story, self.spec.name, "lost its stream: {reason}");
                    link.set(Condition::Cut);
                }
            }

            let pause = self.random.millis(100, 1500);
            sleep(pause).await;
            if self.commands.is_closed() && self.commands.is_empty() {
                return;
            }
        }
    }

    /// Opens a connection to one of the replicas.
    fn connect(&mut self) -> Option<(crate::stream::SimStream, Link, String)> {
        if let Some(agent) = &self.agent {
            let (stream, link) = agent.connect()?;
            return Some((stream, link, "its agent".to_owned()));
        }

        let ready: Vec<Arc<Replica>> = self
            .replicas
            .lock()
            .iter()
            .filter(|replica| replica.is_running() && replica.is_synced())
            .cloned()
            .collect();
        let replica = ready.get(self.random.index(ready.len()))?;
        let (stream, link) = replica.connect(self.spec.peer())?;
        Some((stream, link, replica.name().to_owned()))
    }

    /// Talks on a stream until it ends.
    async fn converse(&mut self, mut call: Call, link: &Link) -> io::Result<()> {
        let mut node = Some(self.spec.node());
        for request in self.state.first_requests() {
            self.send(&mut call, request, node.take())?;
        }

        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return Ok(()),
                    Some(Command::Reconnect) => return Ok(()),
                    Some(Command::Restart) => {
                        if let Some(agent) = &self.agent {
                            agent.restart_envoy();
                        }
                        self.state = State::new(&self.spec);
                        self.shown.lock().held = Held::default();
                        return Ok(());
                    }
                    Some(Command::SlowDown(delay)) => self.delay = delay,
                    Some(Command::Vanish(time)) if let Some(agent) = &self.agent => {
                        agent.silence(time);
                    }
                    Some(Command::Vanish(time)) => {
                        link.set(Condition::Silent);
                        sleep(time).await;
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                },
                response = receive(self.spec.protocol, &mut call) => {
                    let Some(response) = response? else { return Ok(()) };
                    sleep(self.delay).await;
                    self.on_response(&mut call, response)?;
                }
            }
        }
    }

    fn on_response(&mut self, call: &mut Call, response: Response) -> io::Result<()> {
        let text = response.describe();
        let rejects = self.spec.rejects && response.contains(POISON.as_bytes());
        let requests = self.state.take(response, rejects);
        if rejects {
            tell!(self.story, self.spec.name, "rejects {text}");
        } else {
            self.story
                .detail(&format!("{} gets {text}", self.spec.name));
        }

        {
            let mut shown = self.shown.lock();
            shown.held = self.state.held().clone();
            shown.responses += 1;
            shown.rejections += u64::from(rejects);
            shown.rejected = self.state.rejected_types();
        }
        (self.check)(&self.spec, self.state.held());
        for request in requests {
            self.send(call, request, None)?;
        }
        Ok(())
    }

    fn send(&self, call: &mut Call, request: Request, node: Option<Node>) -> io::Result<()> {
        match self.spec.protocol {
            Protocol::Delta => call.send(&DeltaDiscoveryRequest {
                node,
                ..request.delta()
            }),
            Protocol::State => call.send(&DiscoveryRequest {
                node,
                ..request.state()
            }),
        }
    }
}

/// The next response on a stream.
async fn receive(protocol: Protocol, call: &mut Call) -> io::Result<Option<Response>> {
    match protocol {
        Protocol::Delta => {
            let response = call.next::<DeltaDiscoveryResponse>().await?;
            Ok(response.map(Response::of_delta))
        }
        Protocol::State => {
            let response = call.next::<DiscoveryResponse>().await?;
            Ok(response.map(Response::of_state))
        }
    }
}

impl Spec {
    /// The peer of its connections.
    fn peer(&self) -> Peer {
        let identity = self.account.as_ref().and_then(|account| {
            let namespace = &self.namespace;
            Identity::parse(&format!(
                "spiffe://cluster.local/ns/{namespace}/sa/{account}"
            ))
            .ok()
        });
        Peer {
            address: self.address,
            identity,
        }
    }

    /// The node message.
    fn node(&self) -> Node {
        let text = |text: &str| Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let labels = Struct {
            fields: self
                .labels
                .iter()
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        };
        let labels = Value {
            kind: Some(Kind::StructValue(labels)),
        };
        let account = self.account.as_deref().unwrap_or("default");
        let fields = [
            ("NAMESPACE", text(&self.namespace)),
            ("CLUSTER_ID", text("Kubernetes")),
            ("INSTANCE_IPS", text(&self.address.to_string())),
            ("SERVICE_ACCOUNT", text(account)),
            ("LABELS", labels),
        ];

        Node {
            id: format!(
                "{}~{}~{}.{}~{}.svc.cluster.local",
                self.kind, self.address, self.name, self.namespace, self.namespace
            ),
            metadata: Some(Struct {
                fields: fields
                    .map(|(key, value)| (key.to_owned(), value))
                    .into_iter()
                    .collect(),
            }),
            ..Node::default()
        }
    }
}
