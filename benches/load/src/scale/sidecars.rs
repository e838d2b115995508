//! Many streams, each of which sees the services of its namespace, while endpoints change at a
//! rate.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use navarch_testkit::usage::{Usage, thread_cpu_seconds, usage};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::api::Api;
use super::board::{Board, Irregular, Missing};
use super::client::{Client, Clients};
use super::feed::feed;
use super::histogram::Percentiles;
use super::mesh::Mesh;
use super::order::{MAX_UPDATES, Order};
use super::{positive, sockets};
use crate::checkout::Checkout;
use crate::distribution::Spread;
use crate::figure::{Figure, Figures, Found};
use crate::plane::{self, Started, at_rest};
use crate::results::Results;
use crate::units::megabytes;
use crate::xds::resource_type::ResourceType;
use crate::xds::tally::{Counts, Tally, between};
use crate::xds::world::{MAX_ENDPOINTS, MAX_SERVICES};

/// How often connections are opened, so that they are spread within a second.
const CONNECT_TICK: Duration = Duration::from_millis(10);
/// Connections to the xDS port beside those of the proxies.
const SPARE_CONNECTIONS: usize = 64;
/// The thread of the control plane that computes what changes: it alone does that, on one core.
const PUSH_THREAD: &str = "push";
/// The goal for the 99th percentile, in milliseconds.
const P99_GOAL: f64 = 100.0;

/// Measures navarch with many streams and many endpoint updates
///
/// Serves a minimal Kubernetes API from this process: namespaces of a few services each, with a
/// Sidecar that hides the others. Starts navarch on it and connects sidecars over all namespaces in
/// turn. Then endpoints change at a rate, one service after the other, for a time. Measured are,
/// for each update and each stream that sees its service, the time from when the update is due
/// until its address has arrived, or that of a later update of the service (such updates are
/// counted as superseded). CPU and memory are measured of navarch, and apart from it of this
/// process.
///
/// Prints a table, and writes it and all values to RESULTS/scale.md and RESULTS/scale.json. Fails
/// if a stream breaks, or if streams do not hold the last endpoints of their services at the end.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    load: Load,
    /// Timeout in seconds until all streams are in sync, and until all have the last update
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// The size of the mesh.
#[derive(Clone, Copy, Debug, Args)]
struct Size {
    /// Services; rounded up to whole namespaces
    #[arg(long, default_value_t = 5_000, value_parser = positive::<u32>())]
    services: u32,
    /// Services of each namespace, which each of its streams sees
    #[arg(long, default_value_t = 5, value_parser = positive::<u32>())]
    services_per_namespace: u32,
    /// Endpoints of each service, beside the one that changes
    #[arg(long, default_value_t = 5)]
    endpoints: u32,
}

/// What the proxies and the feed do.
#[derive(Clone, Copy, Debug, Args)]
struct Load {
    /// Streams
    #[arg(long, default_value_t = 10_000, value_parser = positive::<usize>())]
    streams: usize,
    /// Streams that share a connection. An Envoy has one; more save open files and, on both sides,
    /// memory
    #[arg(long, default_value_t = 1, value_parser = positive::<usize>().range(1..=100))]
    streams_per_connection: usize,
    /// New connections per second
    #[arg(long, default_value_t = 500, value_parser = positive::<usize>())]
    connect_rate: usize,
    /// Endpoint updates per second
    #[arg(long, default_value_t = 1_000, value_parser = positive::<u32>())]
    rate: u32,
    /// Seconds of updates
    #[arg(long, default_value_t = 30, value_parser = positive::<u32>())]
    seconds: u32,
}

impl Size {
    /// Namespaces with the same number of services each.
    ///
    /// # Errors
    /// If there are more services or endpoints than addresses.
    fn mesh(self) -> Result<Mesh> {
        let slots = self.services_per_namespace;
        let namespaces = self.services.div_ceil(slots);
        let services = u64::from(namespaces) * u64::from(slots);
        let endpoints = services * u64::from(self.endpoints);
        ensure!(
            services <= u64::try_from(MAX_SERVICES)?,
            "{services} services, but there are addresses for {MAX_SERVICES}"
        );
        ensure!(
            endpoints <= u64::try_from(MAX_ENDPOINTS)?,
            "{endpoints} endpoints, but there are addresses for {MAX_ENDPOINTS}"
        );
        Ok(Mesh {
            order: Order { namespaces, slots },
            endpoints: self.endpoints,
        })
    }
}

impl Load {
    fn connections(self) -> usize {
        self.streams.div_ceil(self.streams_per_connection)
    }

    /// The connections with their streams.
    fn clients(self) -> impl Iterator<Item = Client> {
        let each = self.streams_per_connection;
        (0..self.connections()).map(move |number| Client {
            number,
            streams: number * each..self.streams.min((number + 1) * each),
        })
    }

    /// The number of updates.
    ///
    /// # Errors
    /// If there are more than addresses.
    fn updates(self) -> Result<u32> {
        let updates = u64::from(self.rate) * u64::from(self.seconds);
        ensure!(
            updates <= u64::from(MAX_UPDATES),
            "{updates} updates, but there are addresses for {MAX_UPDATES}: lower --rate or \
             --seconds"
        );
        Ok(u32::try_from(updates)?)
    }
}

impl Options {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a part does not start, a stream breaks, streams lack an update at the end, or the results
    /// cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let mesh = self.size.mesh()?;
        let updates = self.load.updates()?;
        let connections = self.load.connections();
        sockets::allow_files(connections)?;

        let api = Api::start(mesh).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig())?;
        let allowed = (connections + SPARE_CONNECTIONS).to_string();
        let environment = [("NAVARCH_MAX_XDS_CONNECTIONS", allowed.as_str())];
        let mesh_config = format!("--mesh-config={}", self.checkout.mesh_config().display());
        // No connection reaches its maximum age during the measurement.
        let arguments = [&*mesh_config, "--keepaliveMaxServerConnectionAge=24h"];
        let started =
            plane::start_on(&self.checkout, &kubeconfig, &arguments, &environment).await?;

        let measured = self.measure(&api, mesh, updates, &started).await?;
        let mut figures = Figures::default();
        figures.add("scale", measured.found(&self.load, mesh.order));
        figures.report(&self.results, "scale")?;
        started.navarch.stop().await?;

        let Missing { pairs, streams } = measured.missing;
        ensure!(
            pairs == 0,
            "{streams} streams lack the last endpoints of {pairs} services after {} s",
            self.patience
        );
        Ok(())
    }

    /// Connects all streams, and feeds updates.
    async fn measure(
        &self,
        api: &Api,
        mesh: Mesh,
        updates: u32,
        started: &Started,
    ) -> Result<Measured> {
        let Load { streams, rate, .. } = self.load;
        let navarch = &started.navarch;
        let ready = at_rest(navarch).await?;
        let clients = Arc::new(Clients {
            server: navarch.xds,
            board: Board::new(mesh.order, streams, rate),
            tally: Tally::new(streams),
        });
        let mut tasks = JoinSet::new();
        self.connect(&clients, &mut tasks).await?;
        let times = clients.tally.sync_times(Duration::ZERO);
        let first_counts = clients.tally.counts();
        eprintln!("{streams} streams in sync: {:?}", Spread::of(&times));
        let synced = at_rest(navarch).await?;

        let own = usage(std::process::id())?;
        let before = usage(navarch.pid())?;
        let push_before = thread_cpu_seconds(navarch.pid(), PUSH_THREAD)?;
        let counts = clients.tally.counts();
        let feed_time = feed(api, mesh, &clients.board, updates).await?;
        let fed = usage(navarch.pid())?;
        let (missing, drain_time) = self.drain(&clients, updates).await?;
        let own_after = usage(std::process::id())?;
        let drained = usage(navarch.pid())?;
        let push_after = thread_cpu_seconds(navarch.pid(), PUSH_THREAD)?;
        let end = at_rest(navarch).await?;

        let measured = Measured {
            ready,
            synced,
            fed,
            end,
            first_sync: Spread::of(&times),
            first_counts,
            first_cpu: synced.cpu_seconds - ready.cpu_seconds,
            updates,
            feed_time,
            drain_time,
            cpu: drained.cpu_seconds - before.cpu_seconds,
            push_cpu: push_after - push_before,
            own_cpu: own_after.cpu_seconds - own.cpu_seconds,
            own: own_after,
            counts: between(&counts, &clients.tally.counts()),
            times: clients.board.times.percentiles(),
            irregular: clients.board.irregular(),
            missing,
        };
        tasks.shutdown().await;
        Ok(measured)
    }

    /// Connects all streams at the given rate, and waits until they are in sync.
    async fn connect(&self, clients: &Arc<Clients>, tasks: &mut JoinSet<()>) -> Result<()> {
        let Load {
            streams,
            connect_rate,
            ..
        } = self.load;
        let mut ticks = interval(CONNECT_TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();

        for (opened, client) in self.load.clients().enumerate() {
            while begun.elapsed() < seconds_of(opened, connect_rate) {
                ticks.tick().await;
            }
            tasks.spawn(client.run(clients.clone()));
        }

        let deadline = Instant::now() + Duration::from_secs(self.patience);
        let mut printed_at = Instant::now();
        while clients.tally.in_sync() < streams {
            unbroken(clients)?;
            let in_sync = clients.tally.in_sync();
            ensure!(
                Instant::now() < deadline,
                "{in_sync} of {streams} streams are in sync {} s after the last connection",
                self.patience
            );
            if printed_at.elapsed() > Duration::from_secs(5) {
                printed_at = Instant::now();
                eprintln!("{in_sync} of {streams} streams in sync");
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until all streams hold the last endpoints of their services, or patience ends. Returns
    /// what is missing then, and the time.
    async fn drain(&self, clients: &Clients, updates: u32) -> Result<(Missing, Duration)> {
        let begun = Instant::now();
        loop {
            unbroken(clients)?;
            let missing = clients.board.missing(updates);
            let waited = begun.elapsed();
            if missing.pairs == 0 || waited > Duration::from_secs(self.patience) {
                return Ok((missing, waited));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The time in which a number of connections are opened.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn seconds_of(connections: usize, rate: usize) -> Duration {
    Duration::from_secs_f64(connections as f64 / rate as f64)
}

/// Fails if a stream broke.
fn unbroken(clients: &Clients) -> Result<()> {
    let (broken, strange) = clients.tally.troubles();
    ensure!(broken == 0, "{broken} connections broke");
    ensure!(
        strange == 0,
        "{strange} responses of types without a subscription"
    );
    Ok(())
}

/// What one run has cost.
#[derive(Debug)]
struct Measured {
    /// The control plane before the first stream.
    ready: Usage,
    /// With all streams in sync.
    synced: Usage,
    /// After the last update was written.
    fed: Usage,
    /// At rest after the last update.
    end: Usage,
    first_sync: Spread,
    /// What all streams received until they were in sync.
    first_counts: Counts,
    /// CPU seconds until all were in sync and at rest.
    first_cpu: f64,
    updates: u32,
    /// From the first update until the last was written.
    feed_time: Duration,
    /// From then until all streams held the last endpoints.
    drain_time: Duration,
    /// CPU seconds of the control plane in both times.
    cpu: f64,
    /// CPU seconds of its thread [`PUSH_THREAD`] in both times.
    push_cpu: f64,
    /// CPU seconds of this process in both times.
    own_cpu: f64,
    /// This process at their end.
    own: Usage,
    /// What all streams received in both times.
    counts: Counts,
    times: Percentiles,
    irregular: Irregular,
    missing: Missing,
}

impl Measured {
    /// The figures, and the values that they are computed from.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn found(&self, load: &Load, order: Order) -> Found {
        let seconds = (self.feed_time + self.drain_time).as_secs_f64();
        let pairs = self.times.count.max(1) as f64;
        let [_, endpoints, ..] = self.counts;
        let others =
            self.counts.iter().map(|count| count.responses).sum::<u64>() - endpoints.responses;
        let streams = load.streams as f64;
        let grown = self.synced.rss_kb.saturating_sub(self.ready.rss_kb);
        let each = megabytes(grown) * 1e3 / streams;
        let beside = Figure::beside;

        let figures = vec![
            beside("streams", streams, ""),
            beside("… connections", load.connections() as f64, ""),
            beside("… namespaces", f64::from(order.namespaces), ""),
            beside("… services", f64::from(order.services()), ""),
            beside(
                "first sync: the last stream, from the first connection",
                self.first_sync.last / 1e3,
                "s",
            ),
            beside("… CPU", self.first_cpu, "s"),
            beside(
                "memory before the first stream",
                megabytes(self.ready.rss_kb),
                "MB",
            ),
            beside("… all streams in sync", megabytes(self.synced.rss_kb), "MB"),
            beside("… of each stream", each, "kB"),
            beside("… after the last update", megabytes(self.fed.rss_kb), "MB"),
            beside("… at rest after it", megabytes(self.end.rss_kb), "MB"),
            beside("… peak", megabytes(self.end.peak_kb), "MB"),
            beside("updates asked for", f64::from(load.rate), "/s"),
            beside(
                "… written",
                f64::from(self.updates) / self.feed_time.as_secs_f64(),
                "/s",
            ),
            beside(
                "… streams that each reaches",
                streams / f64::from(order.namespaces),
                "",
            ),
            beside(
                "from an update until a stream has it, P50",
                self.times.p50,
                "ms",
            ),
            Figure::with_goal("… P99", self.times.p99, "ms", P99_GOAL),
            beside("… P99.9", self.times.p999, "ms"),
            beside("… longest", self.times.longest, "ms"),
            beside(
                "… superseded by a later one",
                self.irregular.superseded as f64 / pairs * 100.0,
                "%",
            ),
            beside(
                "… until all have the last",
                self.drain_time.as_secs_f64() * 1e3,
                "ms",
            ),
            beside("responses", endpoints.responses as f64 / seconds, "/s"),
            beside("… resources", endpoints.resources as f64 / seconds, "/s"),
            beside("… MB", endpoints.bytes as f64 / 1e6 / seconds, "/s"),
            beside("… of other types than endpoints", others as f64, ""),
            beside("CPU of the control plane", self.cpu / seconds, "cores"),
            beside(
                "… of its thread push, which is one",
                self.push_cpu / seconds,
                "cores",
            ),
            beside("CPU of proxies and feed", self.own_cpu / seconds, "cores"),
            beside(
                "memory of proxies and feed",
                megabytes(self.own.rss_kb),
                "MB",
            ),
        ];

        Found {
            figures,
            detail: self.detail(load),
        }
    }

    fn detail(&self, load: &Load) -> serde_json::Value {
        let of_types = |counts: &Counts| {
            let types = ResourceType::ALL.iter().zip(counts);
            let types = types.map(|(of, count)| (of.label().to_owned(), json!(count)));
            types.collect::<serde_json::Map<_, _>>()
        };
        let Missing { pairs, streams } = self.missing;
        json!({
            "streams_per_connection": load.streams_per_connection,
            "first_sync_ms": self.first_sync, "first_sync_counts": of_types(&self.first_counts),
            "updates": self.updates, "feed_seconds": self.feed_time.as_secs_f64(),
            "drain_seconds": self.drain_time.as_secs_f64(), "update_ms": self.times,
            "counts": of_types(&self.counts), "irregular": self.irregular,
            "missing_services": pairs, "streams_that_miss": streams,
            "ready": self.ready, "synced": self.synced, "fed": self.fed, "end": self.end,
            "cpu_seconds": self.cpu, "push_cpu_seconds": self.push_cpu,
            "own_cpu_seconds": self.own_cpu, "own": self.own,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        streams: 10,
        streams_per_connection: 4,
        connect_rate: 1,
        rate: 10_000,
        seconds: 60,
    };

    #[test]
    fn every_stream_has_one_connection() {
        let clients: Vec<_> = LOAD.clients().map(|client| client.streams).collect();
        assert_eq!(clients, [0..4, 4..8, 8..10]);
        assert_eq!(seconds_of(3, 2), Duration::from_millis(1_500));
    }

    #[test]
    fn sizes_beyond_the_number_of_addresses_are_rejected() {
        assert_eq!(LOAD.updates().unwrap(), 600_000);
        let endless = Load {
            seconds: 2_000,
            ..LOAD
        };
        assert!(endless.updates().is_err());

        let size = Size {
            services: 11,
            services_per_namespace: 5,
            endpoints: 2,
        };
        assert_eq!(size.mesh().unwrap().order.services(), 15);
        let large = Size {
            endpoints: 1_000_000,
            ..size
        };
        assert!(large.mesh().is_err());
    }
}
