//! One run: proxies connect, sync, receive changes and reconnect, while the server is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, FromArgMatches as _};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_testkit::usage::{self, Usage};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::distribution::Spread;
use crate::metadata;
use crate::xds::change::{self, What};
use crate::xds::churn;
use crate::xds::grpc::Encoding;
use crate::xds::names::Names;
use crate::xds::proxy::{Phase, Proxy, Shared};
use crate::xds::report::{Changed, Connected, Report};
use crate::xds::talk::Protocol;
use crate::xds::tally::{Counts, Tally, between};
use crate::xds::target::Target;
use crate::xds::world::{GATEWAYS, Size};

/// A server to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Its address; plain text.
    pub(crate) address: SocketAddr,
    /// Its process id; without it, CPU and memory are not measured.
    pub(crate) pid: Option<u32>,
}

impl Server {
    /// A server whose process id is known.
    pub(crate) fn started(address: SocketAddr, pid: u32) -> Self {
        Self {
            address,
            pid: Some(pid),
        }
    }
}

/// What the proxies do, as options of the command line.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
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
    /// The proxies ask for resources without versions and compute them, as Navarch's agent does;
    /// delta protocol only
    #[arg(long)]
    pub(crate) omit_versions: bool,
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

impl Default for Plan {
    /// The plan of a command line without options.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("plan"));
        let matches = command.get_matches_from(["plan"]);
        Self::from_arg_matches(&matches).expect("every option has a default")
    }
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    server: Server,
    /// The configuration that the server watches; without it, no changes are made.
    target: Option<Target>,
    /// Shared by the proxies.
    pub(crate) shared: Arc<Shared>,
    /// Sets the state that the proxies must reach.
    phase: watch::Sender<Phase>,
    /// The tasks of the proxies.
    proxies: JoinSet<()>,
}

impl Run {
    /// Creates the proxies' state; none connects yet.
    pub(crate) fn new(plan: Plan, server: Server, target: Option<Target>) -> Self {
        let (phase, receiver) = watch::channel(Phase::Connected(0));
        let shared = Arc::new(Shared {
            server: server.address,
            protocol: plan.protocol,
            encoding: plan.encoding,
            omits_versions: plan.omit_versions,
            names: Names::default(),
            tally: Tally::new(plan.proxies),
            phase: receiver,
        });
        Self {
            plan,
            server,
            target,
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
        let own = usage::usage(std::process::id())?;
        let before = self.usage()?;
        let first_sync = self.connect().await?;
        let memory = self.usage()?;
        let mut changes = Vec::new();
        if let Some(target) = &self.target {
            for what in &self.plan.changes {
                for turn in 0..=self.plan.repeat {
                    let changed = self.change(target, *what, turn).await?;
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
        let churn = match (self.plan.churn, &self.target) {
            (0, _) | (_, None) => None,
            (_, Some(target)) => Some(churn::run(&self, target, || Ok(())).await?),
        };

        if self.plan.hold {
            let mut ended = signal(SignalKind::terminate())?;
            eprintln!(
                "all {} proxies stay connected until SIGTERM",
                self.plan.proxies
            );
            ended.recv().await;
        }

        let (broken, strange) = self.shared.tally.troubles();
        let after = self.usage()?;
        self.end().await;
        let own_after = usage::usage(std::process::id())?;
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
            own_cpu_seconds: own_after.cpu_seconds - own.cpu_seconds,
        })
    }

    /// The server's usage so far.
    pub(crate) fn usage(&self) -> Result<Option<Usage>> {
        self.server.pid.map(usage::usage).transpose()
    }

    /// Disconnects all proxies.
    pub(crate) async fn end(&mut self) {
        self.phase.send_replace(Phase::Ended);
        while self.proxies.join_next().await.is_some() {}
    }

    /// Connects all proxies and waits until they are in sync.
    ///
    /// # Errors
    /// If the server cannot be measured, or they are not in sync in time.
    pub(crate) async fn connect(&mut self) -> Result<Connected> {
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
        counts: Counts,
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
        // Sidecars have no endpoints of a headless service: they connect to the original destination.
        let is_hidden = self.plan.size.headless && !self.plan.routers && what == What::Endpoint;
        let marker = object
            .marker
            .as_ref()
            .filter(|_| !is_hidden)
            .map(|(resource_types, text)| tally.mark(resource_types, text));
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
    node_of_sidecar("clients", 0)
}

/// The node of a sidecar by its namespace and number.
pub(crate) fn node_of_sidecar(namespace: &str, number: usize) -> Node {
    node_in("sidecar", namespace, number, false)
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

    Node {
        id: format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
        cluster: format!("client.{namespace}"),
        metadata: Some(metadata::of(metadata)),
        ..Node::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_the_defaults_of_the_command_line() {
        let plan = Plan::default();
        assert_eq!((plan.proxies, plan.repeat, plan.churn), (1_000, 5, 0));
        assert_eq!(plan.changes, What::ALL);
        assert_eq!(plan.size.services, 1_000);
    }
}
