//! One run: proxies connect, sync, receive changes and reconnect, while the server is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
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
use crate::grpc::Encoding;
use crate::names::Names;
use crate::proxy::{Phase, Proxy, Shared};
use crate::report::{Changed, Connected, Report, Spread};
use crate::talk::Protocol;
use crate::tally::{Tally, between};
use crate::target::{Target, Where};
use crate::world::{GATEWAYS, Size};

/// Printed when the proxies stay connected, for the process that started this program.
const HOLDING: &str = "stay connected until SIGTERM";

/// The options of `run`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// The xDS server; plain text.
    #[arg(long, default_value = "127.0.0.1:15010")]
    pub(crate) server: SocketAddr,
    /// Its process id, to measure CPU and memory.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// The configuration that the server watches; without it, no changes are made.
    #[command(flatten)]
    pub(crate) place: Where,
    /// The number of proxies.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) proxies: usize,
    /// Namespaces over which they are spread, among those of the services; 0: all in a namespace
    /// without services.
    #[arg(long, default_value_t = 0)]
    pub(crate) proxy_namespaces: usize,
    /// The variant of the aggregated discovery service that the proxies use
    #[arg(long, value_enum, default_value_t = Protocol::Delta)]
    pub(crate) protocol: Protocol,
    /// An encoding that the proxies accept for compressed responses
    #[arg(long, value_enum)]
    pub(crate) encoding: Option<Encoding>,
    /// The proxies use on-demand virtual hosts (VHDS); delta protocol only.
    #[arg(long)]
    pub(crate) fine_grained: bool,
    /// The proxies are gateways.
    #[arg(long)]
    pub(crate) routers: bool,
    /// New connections per second; 0: all at once.
    #[arg(long, default_value_t = 0)]
    pub(crate) rate: u64,
    /// How often each change is made.
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,
    /// Changes to make; without a value, none.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., default_values_t = What::ALL)]
    pub(crate) changes: Vec<What>,
    /// Reconnect all proxies with their state.
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// The number of slow proxies.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow: usize,
    /// The delay of a slow proxy before each response, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) slow_ms: u64,
    /// Seconds of churn: endpoints and configuration change continuously.
    #[arg(long, default_value_t = 0)]
    pub(crate) churn: u64,
    /// Changes per second during churn.
    #[arg(long, default_value_t = 20)]
    pub(crate) churn_rate: u64,
    /// Stay connected at the end, until SIGTERM.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Timeout in seconds of each step.
    #[arg(long, default_value_t = 300)]
    pub(crate) patience: u64,
    /// The size of the mesh.
    #[command(flatten)]
    pub(crate) size: Size,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// Shared by the proxies.
    pub(crate) shared: Arc<Shared>,
    /// Sets the state that the proxies must reach.
    phase: watch::Sender<Phase>,
    /// The tasks of the proxies.
    proxies: JoinSet<()>,
}

impl Run {
    /// Creates the proxies' state; none connects yet.
    pub(crate) fn new(plan: Plan) -> Self {
        let (phase, receiver) = watch::channel(Phase::Connected(0));
        let shared = Arc::new(Shared {
            server: plan.server,
            protocol: plan.protocol,
            encoding: plan.encoding,
            names: Names::default(),
            tally: Tally::new(plan.proxies),
            phase: receiver,
        });
        Self {
            plan,
            shared,
            phase,
            proxies: JoinSet::new(),
        }
    }

    /// Runs the whole plan.
    ///
    /// # Errors
    /// If the server cannot be measured, a file cannot be written, or a step times out.
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
                    // The first change of a kind fills caches, so it is not reported.
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
            after,
            broken,
            strange,
            own_cpu_seconds: own.cpu_seconds,
        })
    }

    /// The server's usage so far.
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

    /// Reconnects all proxies, and waits until they are in sync.
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

    /// Waits until no response has arrived for a while.
    pub(crate) async fn quiet(&self) {
        /// The time without responses.
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

    /// Makes one change and waits until all proxies have received it.
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

/// The node of the proxy with a number.
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

/// The node of a typical proxy.
pub(crate) fn sample_node() -> Node {
    node_in("sidecar", "clients", 0, false)
}

/// The node of a proxy by its kind, namespace and number.
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

/// A JSON value as a protobuf `Value`.
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
