//! One run: proxies connect, come into sync, see changes, come back; the server is watched all
//! along.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_testkit::usage::{self, Usage};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::change::{self, What};
use crate::churn;
use crate::names::Names;
use crate::proxy::{Phase, Proxy, Shared};
use crate::refuse::{self, Refusals};
use crate::report::{Changed, Connected, Report, Spread};
use crate::talk::Protocol;
use crate::tally::{Tally, between};
use crate::target::{Target, Where};
use crate::world::{GATEWAYS, Size};

/// What is said of proxies that stay connected: whoever started this program waits for it.
const HOLDING: &str = "stay connected until SIGTERM";

/// What to run.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// The xDS server, in plain text.
    #[arg(long, default_value = "127.0.0.1:15010")]
    pub(crate) server: SocketAddr,
    /// Its process id, to measure what it uses.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// What the server watches; without it, nothing is changed.
    #[command(flatten)]
    pub(crate) place: Where,
    /// How many proxies.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) proxies: usize,
    /// Namespaces over which they are spread, among those of the services; 0: all in one of their
    /// own.
    #[arg(long, default_value_t = 0)]
    pub(crate) proxy_namespaces: usize,
    /// The protocol.
    #[arg(long, value_enum, default_value_t = Protocol::Delta)]
    pub(crate) protocol: Protocol,
    /// The proxies ask for virtual hosts one by one (VHDS); with the delta protocol only.
    #[arg(long)]
    pub(crate) fine_grained: bool,
    /// The proxies are gateways.
    #[arg(long)]
    pub(crate) routers: bool,
    /// Proxies that connect in a second; 0: all at once.
    #[arg(long, default_value_t = 0)]
    pub(crate) rate: u64,
    /// How often each change is made.
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,
    /// Changes to make; without a value, none.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., default_values_t = What::ALL)]
    pub(crate) changes: Vec<What>,
    /// Let all proxies break off and come back with what they have.
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// How many of the proxies read slowly.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow: usize,
    /// How long a slow proxy lets each response lie, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) slow_ms: u64,
    /// Seconds of churn: endpoints and configuration change all the time.
    #[arg(long, default_value_t = 0)]
    pub(crate) churn: u64,
    /// Changes a second in that time.
    #[arg(long, default_value_t = 20)]
    pub(crate) churn_rate: u64,
    /// As often as changes are repeated, an edit is made that the proxies refuse.
    #[arg(long)]
    pub(crate) refuse: bool,
    /// How many objects change together with the one that is refused, itself included.
    #[arg(long, default_value_t = 1)]
    pub(crate) refuse_among: usize,
    /// Stay connected in the end, until SIGTERM.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Seconds that anything may take.
    #[arg(long, default_value_t = 300)]
    pub(crate) patience: u64,
    /// What the mesh is made of.
    #[command(flatten)]
    pub(crate) size: Size,
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct Run {
    /// What to run.
    pub(crate) plan: Plan,
    /// What the proxies share.
    pub(crate) shared: Arc<Shared>,
    /// Tells them what to do.
    phase: watch::Sender<Phase>,
    /// They.
    proxies: JoinSet<()>,
}

impl Run {
    /// Makes ready; nobody is connected yet.
    pub(crate) fn new(plan: Plan) -> Self {
        let (phase, receiver) = watch::channel(Phase::Connected(0));
        let shared = Arc::new(Shared {
            server: plan.server,
            protocol: plan.protocol,
            names: Names::default(),
            tally: Tally::new(plan.proxies),
            refusals: plan.refuse.then(|| Refusals::new(plan.proxies)),
            phase: receiver,
        });
        Self {
            plan,
            shared,
            phase,
            proxies: JoinSet::new(),
        }
    }

    /// Runs all of the plan.
    ///
    /// # Errors
    /// When the server cannot be measured, a file not written, or something takes too long.
    pub(crate) async fn run(mut self) -> Result<Report> {
        let before = self.usage()?;
        let first_sync = self.connect().await?;
        let memory = self.usage()?;
        let mut changes = Vec::new();
        let target = self.plan.place.open().await?;
        if let Some(target) = &target {
            for what in self.plan.changes.clone() {
                for turn in 0..=self.plan.repeat {
                    let changed = self.change(target, what, turn).await?;
                    // The first of its kind warms up what no later one will have to.
                    if turn > 0 {
                        changes.push(changed);
                    }
                }
            }
        }

        let reconnect = match self.plan.reconnect {
            true => Some(self.reconnect().await?),
            false => None,
        };
        let churn = match (self.plan.churn, &target) {
            (0, _) | (_, None) => None,
            (_, Some(target)) => Some(churn::run(&self, target).await?),
        };

        let refused = match (&self.shared.refusals, &target) {
            (Some(refusals), Some(target)) => refuse::run(&self, target, refusals).await?,
            (Some(_), None) => {
                bail!(
                    "say where an edit goes that is to be refused: --config-dir DIR or --kubeconfig FILE"
                )
            }
            (None, _) => Vec::new(),
        };

        if self.plan.hold {
            let mut ended = signal(SignalKind::terminate())?;
            eprintln!("all {} proxies {HOLDING}", self.plan.proxies);
            ended.recv().await;
        }

        let (broken, strange) = self.shared.tally.troubles();
        let after = self.usage()?;
        self.phase.send_replace(Phase::Ended);
        while self.proxies.join_next().await.is_some() {}
        let own = usage::usage(std::process::id())?;
        let Plan {
            size,
            protocol,
            proxies,
            ..
        } = self.plan;

        Ok(Report {
            size,
            protocol,
            proxies,
            before,
            first_sync,
            in_sync: memory,
            changes,
            reconnect,
            churn,
            refused,
            after,
            broken,
            strange,
            own_cpu_seconds: own.cpu_seconds,
        })
    }

    /// What the server has used so far.
    pub(crate) fn usage(&self) -> Result<Option<Usage>> {
        self.plan.pid.map(usage::usage).transpose()
    }

    /// Connects all proxies and waits until they are in sync.
    async fn connect(&mut self) -> Result<Connected> {
        let start = self.shared.tally.elapsed();
        let counts = self.shared.tally.counts();
        let usage = self.usage()?;

        for number in 0..self.plan.proxies {
            let pause = match number < self.plan.slow {
                true => Duration::from_millis(self.plan.slow_ms),
                false => Duration::ZERO,
            };
            let proxy = Proxy {
                shared: self.shared.clone(),
                number,
                node: node(&self.plan, number),
                pause,
            };

            self.proxies.spawn(proxy.run());

            if self.plan.rate > 0 {
                sleep(Duration::from_secs(1) / u32::try_from(self.plan.rate).unwrap_or(u32::MAX))
                    .await;
            }
        }

        self.in_sync(start, counts, usage).await
    }

    /// Lets all proxies come back, and waits until they are in sync.
    async fn reconnect(&self) -> Result<Connected> {
        eprintln!("all {} proxies connect anew", self.plan.proxies);
        let start = self.shared.tally.elapsed();
        let counts = self.shared.tally.counts();
        let usage = self.usage()?;
        self.shared.tally.reset_sync();
        self.phase.send_replace(Phase::Connected(1));
        self.in_sync(start, counts, usage).await
    }

    /// Waits until all are in sync.
    async fn in_sync(
        &self,
        start: Duration,
        counts: crate::tally::Counts,
        usage: Option<Usage>,
    ) -> Result<Connected> {
        let tally = &self.shared.tally;
        let mut printed_at = Instant::now();
        let deadline = printed_at + Duration::from_secs(self.plan.patience);

        while tally.in_sync() < self.plan.proxies {
            ensure!(
                Instant::now() < deadline,
                "{} of {} proxies are in sync after {} s; {} streams broke",
                tally.in_sync(),
                self.plan.proxies,
                self.plan.patience,
                tally.troubles().0
            );

            if printed_at.elapsed() > Duration::from_secs(1) {
                printed_at = Instant::now();
                eprintln!(
                    "{} of {} proxies in sync",
                    tally.in_sync(),
                    self.plan.proxies
                );
            }

            sleep(Duration::from_millis(1)).await;
        }

        let times = tally.sync_times(start);
        self.quiet().await;
        let after = self.usage()?;
        Ok(Connected {
            times: Spread::of(&times),
            cpu_seconds: Usage::cpu_between(usage, after),
            counts: between(&counts, &tally.counts()),
        })
    }

    /// Waits until nothing has come for a while.
    pub(crate) async fn quiet(&self) {
        /// How long nothing must come.
        const QUIET_TIME: Duration = Duration::from_millis(300);
        let deadline = Instant::now() + Duration::from_secs(self.plan.patience);
        let mut counts = self.shared.tally.counts();
        let mut since = Instant::now();
        while since.elapsed() < QUIET_TIME && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
            let now = self.shared.tally.counts();
            if now != counts {
                (counts, since) = (now, Instant::now());
            }
        }
    }

    /// Makes one change and waits until all have it.
    async fn change(&self, target: &Target, what: What, turn: usize) -> Result<Changed> {
        let tally = &self.shared.tally;
        let object = change::object(&self.plan.size, what, turn);
        let marker = object
            .marker
            .as_ref()
            .map(|(kinds, text)| tally.mark(kinds, text));
        let counts = tally.counts();
        let usage = self.usage()?;

        let start = tally.elapsed();
        target.put(&object.value).await?;

        if let Some(marker) = &marker {
            let deadline = Instant::now() + Duration::from_secs(self.plan.patience);
            while marker.count() < self.plan.proxies {
                ensure!(
                    Instant::now() < deadline,
                    "{what:?}: {} of {} proxies have it after {} s",
                    marker.count(),
                    self.plan.proxies,
                    self.plan.patience
                );
                sleep(Duration::from_micros(500)).await;
            }
        }

        self.quiet().await;
        let times = marker.map(|marker| marker.times(start)).unwrap_or_default();
        let after = self.usage()?;
        let changed = Changed {
            what,
            times: Spread::of(&times),
            cpu_seconds: Usage::cpu_between(usage, after),
            counts: between(&counts, &tally.counts()),
        };

        eprintln!("{}", changed.line());
        Ok(changed)
    }
}

/// What the proxy of a number says it is.
fn node(plan: &Plan, number: usize) -> Node {
    let kind = if plan.routers { "router" } else { "sidecar" };
    match plan.proxy_namespaces {
        _ if plan.routers => node_in(kind, GATEWAYS, number, plan.fine_grained),
        0 => node_in(kind, "clients", number, plan.fine_grained),
        spread => node_in(
            kind,
            &format!("ns{}", number % spread),
            number,
            plan.fine_grained,
        ),
    }
}

/// What one proxy says it is that stands for all.
pub(crate) fn sample_node() -> Node {
    node_in("sidecar", "clients", 0, false)
}

/// A proxy by its kind, namespace and number.
fn node_in(kind: &str, namespace: &str, number: usize, fine_grained: bool) -> Node {
    let name = format!("client-{number}");
    let ip = format!(
        "10.{}.{}.{}",
        200 + (number >> 16),
        (number >> 8) & 255,
        number & 255
    );

    let metadata: [(&str, Value); 10] = [
        ("NAMESPACE", namespace.into()),
        ("CLUSTER_ID", "Kubernetes".into()),
        ("ISTIO_VERSION", "1.32.0".into()),
        ("MESH_ID", "cluster.local".into()),
        ("SERVICE_ACCOUNT", "default".into()),
        ("INSTANCE_IPS", ip.clone().into()),
        ("INTERCEPTION_MODE", "REDIRECT".into()),
        ("NAME", name.clone().into()),
        ("FINE_GRAINED_ROUTES", fine_grained.into()),
        (
            "LABELS",
            serde_json::json!({ "app": "client", "istio": "ingressgateway" }),
        ),
    ];

    let fields = metadata
        .into_iter()
        .map(|(key, value)| (key.to_owned(), wire(value)))
        .collect();
    Node {
        id: format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
        cluster: format!("client.{namespace}"),
        metadata: Some(prost_types::Struct { fields }),
        ..Node::default()
    }
}

/// A JSON value as it goes on the wire.
fn wire(value: Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.into_iter().map(wire).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(prost_types::Struct {
            fields: fields.into_iter().map(|(k, v)| (k, wire(v))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}
