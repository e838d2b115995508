//! The cost of Gateway API routes: HTTPRoutes are attached to one Gateway one by one, then single
//! ones are changed.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

mod objects;
mod seen;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kube::api::ListParams;
use navarch_testkit::backend::Backend;
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::usage;
use navarch_testkit::{client, gateway_api, ports};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::checkout::Checkout;
use crate::distribution::Spread;
use crate::results::Results;
use objects::{NAMESPACE, host, route, world};
use seen::{Seen, follow, routes_of};

/// Number of measured changes.
const CHANGES: usize = 50;
/// One in this many routes is requested while they are attached.
const PROBED: usize = 50;
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_mins(5);
/// The interval between requests that check for a change.
const PROBE_INTERVAL: Duration = Duration::from_micros(500);

/// Measures the cost of HTTPRoutes of the Gateway API
///
/// Starts an API server and an Envoy as the Gateway (`make tools` installs both) and navarch, and
/// attaches routes one by one. Measured are the times until all are written, until each is
/// accepted, and until requests through the Envoy show it, then the same for changes of single
/// routes, the status writes per route, CPU and memory. All of it is measured twice: with all
/// virtual hosts in the route configuration, the default, and with separate virtual hosts
/// (FINE_GRAINED_ROUTES).
///
/// Prints JSON, and writes it to RESULTS/gateway-api.json.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    sizes: Sizes,
}

/// The numbers of routes.
#[derive(Clone, Copy, Debug, Args)]
struct Sizes {
    /// Routes while single ones are changed
    #[arg(default_value_t = 3_000)]
    changed_at: usize,
    /// Routes in total
    #[arg(default_value_t = 5_000)]
    routes: usize,
}

impl Options {
    /// Measures both forms, and reports.
    ///
    /// # Errors
    /// If a part does not start, the measurement fails, or the result cannot be written.
    pub(crate) async fn run(self) -> Result<()> {
        let Sizes { changed_at, routes } = self.sizes;
        ensure!(
            changed_at > 0 && changed_at <= routes,
            "CHANGED_AT must be above 0 and not above ROUTES"
        );

        let mut report = Map::new();
        for form in [Form::Table, Form::OneByOne] {
            eprintln!("virtual hosts {}", form.name());
            let bench = Bench::start(&self.checkout, form).await?;
            report.insert(form.name().to_owned(), bench.run(self.sizes).await?);
        }

        print!("{}", self.results.json("gateway-api", &report)?);
        Ok(())
    }
}

/// The form of the gateway's virtual hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// All in the route configuration.
    Table,
    /// Each on its own (VHDS).
    OneByOne,
}

impl Form {
    /// The name in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Table => "in_one_table",
            Self::OneByOne => "one_by_one",
        }
    }
}

/// All running parts.
struct Bench {
    cluster: Cluster,
    writer: Writer,
    navarch: Navarch,
    envoy: Envoy,
    _backend: Backend,
    /// The listen address of the gateway.
    gateway: SocketAddr,
}

impl Bench {
    async fn start(checkout: &Checkout, form: Form) -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.apply_crds(&checkout.root)?;
        cluster.apply(&gateway_api::crds()?)?;
        cluster.kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                "crd",
                "--all",
            ],
            "",
        )?;

        let writer = cluster.writer().await?;
        let backend = Backend::start("backend", SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let gateway = SocketAddr::from(([127, 0, 0, 1], ports::free()?));
        for object in world(backend.address.port(), gateway.port()) {
            writer.put(&object).await?;
        }

        let navarch =
            Navarch::start_on_kubernetes(&checkout.navarch, &cluster.admin_kubeconfig(), &[], &[])
                .await?;
        let mut envoy = Envoy::start(&EnvoyConfig {
            kind: "router".to_owned(),
            pod: "front".to_owned(),
            namespace: NAMESPACE.to_owned(),
            ip: "10.1.0.1".to_owned(),
            metadata: json!({
                "LABELS": { "app": "front" },
                "FINE_GRAINED_ROUTES": if form == Form::OneByOne { "true" } else { "false" },
            }),
            xds: navarch.xds,
            protocol: AdsProtocol::Delta,
            sds: None,
            token: None,
        })
        .await?;
        envoy.wait_ready().await?;
        Ok(Self {
            cluster,
            writer,
            navarch,
            envoy,
            _backend: backend,
            gateway,
        })
    }

    async fn run(self, sizes: Sizes) -> Result<Value> {
        let (sender, seen) = watch::channel(Seen::default());
        let api = routes_of(self.cluster.client().await?);
        // The watch starts after this version, so no route may be written before.
        let listed = api.list(&ListParams::default().limit(1)).await?;
        let version = listed
            .metadata
            .resource_version
            .context("a list without a version")?;
        let mut watching = JoinSet::new();
        watching.spawn(follow(api, version, sender));
        tokio::select! {
            Some(ended) = watching.join_next() => {
                ended??;
                bail!("the watch of the routes has ended")
            }
            report = self.measure(sizes, seen) => report,
        }
    }

    async fn measure(self, sizes: Sizes, seen: watch::Receiver<Seen>) -> Result<Value> {
        let Sizes { changed_at, routes } = sizes;
        let idle = usage(self.navarch.pid())?;
        let first = self.attach(0..changed_at, &seen).await?;
        let changes = self.change(changed_at, &seen).await?;
        let rest = if routes > changed_at {
            Some(self.attach(changed_at..routes, &seen).await?)
        } else {
            None
        };

        let stats = self.envoy.stats().await?;
        ensure!(
            stats.rejected() == 0,
            "Envoy rejected {} updates:\n{}",
            stats.rejected(),
            self.envoy.output()
        );

        let settled = usage(self.navarch.pid())?;
        self.navarch.stop().await?;
        Ok(
            json!({ "idle": idle, "attached": first, "changed": changes, "attached_then": rest, "end": settled }),
        )
    }

    /// Creates routes one by one, and waits until all are accepted and the requested ones respond.
    async fn attach(
        &self,
        numbers: std::ops::Range<usize>,
        seen: &watch::Receiver<Seen>,
    ) -> Result<Value> {
        let before = usage(self.navarch.pid())?;
        let writes_before = seen.borrow().writes;
        let begun = Instant::now();
        let mut created = BTreeMap::new();
        let mut probes = JoinSet::new();

        for number in numbers.clone() {
            self.writer.put(&route(number, 0)).await?;
            let written = Instant::now();
            created.insert(number, written);

            if number % PROBED == 0 {
                let gateway = self.gateway;
                probes.spawn(async move { answers(gateway, number, 0, written).await });
            }

            if number % 500 == 499 {
                eprintln!(
                    "{} routes after {:.1?}",
                    number + 1 - numbers.start,
                    begun.elapsed()
                );
            }
        }

        let written_after = begun.elapsed();
        let end = begun + TIMEOUT;
        while !numbers
            .clone()
            .all(|number| seen.borrow().accepted.contains_key(&number))
        {
            if Instant::now() >= end {
                let missing = numbers
                    .clone()
                    .find(|number| !seen.borrow().accepted.contains_key(number));
                let count = seen.borrow().accepted.len();
                let name = format!("route-{}", missing.unwrap_or_default());
                let routes =
                    format!("/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/httproutes");
                let found = self.writer.get(&format!("{routes}/{name}")).await?;
                bail!(
                    "only {count} routes are accepted after {TIMEOUT:?}; one of the others: {found}"
                );
            }

            sleep(Duration::from_millis(5)).await;
        }

        let accepted_after = begun.elapsed();
        let mut answered = Vec::new();
        while let Some(probe) = probes.join_next().await {
            answered.push(probe??);
        }

        // Later status writes belong to these routes.
        sleep(Duration::from_secs(2)).await;
        let after = usage(self.navarch.pid())?;
        let seen = seen.borrow();
        let accepted = created.iter().filter_map(|(number, written)| {
            Some(
                seen.accepted
                    .get(number)?
                    .saturating_duration_since(*written),
            )
        });

        // One event is the creation.
        let writes = seen.writes - writes_before - numbers.len();
        Ok(json!({
            "routes": numbers.len(), "all_written_s": written_after.as_secs_f64(), "all_accepted_s": accepted_after.as_secs_f64(),
            "accepted_ms": spread(accepted.collect()), "first_200_ms": spread(answered),
            "status_writes_per_route": writes as f64 / numbers.len() as f64,
            "cpu_seconds": after.cpu_seconds - before.cpu_seconds, "rss_kb": after.rss_kb, "peak_kb": after.peak_kb,
        }))
    }

    /// Changes single routes one by one, and measures the time until requests show the change, and
    /// until the status does.
    async fn change(&self, routes: usize, seen: &watch::Receiver<Seen>) -> Result<Value> {
        let before = usage(self.navarch.pid())?;
        let mut effective = Vec::new();
        let mut reported = Vec::new();

        for turn in 1..=CHANGES {
            let number = (turn * 7919) % routes;
            let generation = |seen: &Seen| {
                seen.reported
                    .get(&number)
                    .map_or(0, |(generation, _)| *generation)
            };
            let known = generation(&seen.borrow());
            let requested_at = Instant::now();

            let object = route(number, turn);
            let (taken, shown) = tokio::join!(
                self.writer.put(&object),
                answers(self.gateway, number, turn, requested_at)
            );
            taken?;
            effective.push(shown?);
            let mut seen = seen.clone();
            let now = tokio::time::timeout(TIMEOUT, seen.wait_for(|seen| generation(seen) > known))
                .await??;

            reported.extend(
                now.reported
                    .get(&number)
                    .map(|(_, at)| at.saturating_duration_since(requested_at)),
            );
            drop(now);
            sleep(Duration::from_millis(100)).await;
        }

        let after = usage(self.navarch.pid())?;
        let cpu = (after.cpu_seconds - before.cpu_seconds) / CHANGES as f64;
        Ok(json!({
            "routes": routes, "changes": CHANGES, "effective_ms": spread(effective), "envoy_ms": spread(self.taken().await?),
            "told_ms": spread(reported), "cpu_seconds_each": cpu,
        }))
    }

    /// Envoy's time from each of the last responses to its acknowledgement.
    async fn taken(&self) -> Result<Vec<Duration>> {
        let page = self
            .navarch
            .page(&format!("/debug/why/push?proxy=front.{NAMESPACE}"))
            .await?;
        let page: Value = serde_json::from_str(&page).context("the last pushes")?;
        let pushes = page["pushes"].as_array().context("pushes")?;
        Ok(pushes
            .iter()
            .filter_map(|push| {
                Some(Duration::from_secs_f64(
                    push["answeredMs"].as_f64()? / 1000.0,
                ))
            })
            .collect())
    }
}

/// Sends requests until a route responds with the header of a turn. Returns the time since `from`.
async fn answers(
    gateway: SocketAddr,
    number: usize,
    turn: usize,
    from: Instant,
) -> Result<Duration> {
    let host = host(number);
    let turn = turn.to_string();

    loop {
        let reply = client::get(gateway, &host, "/", &[]).await;
        if let Ok(reply) = &reply
            && reply.status == 200
            && reply
                .headers
                .get("x-turn")
                .is_some_and(|value| value.as_bytes() == turn.as_bytes())
        {
            return Ok(from.elapsed());
        }

        if from.elapsed() > TIMEOUT {
            bail!(
                "{host} does not answer with x-turn: {turn}: {:?}",
                reply.map(|reply| (reply.status, reply.headers))
            );
        }

        sleep(PROBE_INTERVAL).await;
    }
}

/// Median, 99th percentile and largest of some times, in milliseconds; null without times.
fn spread(mut times: Vec<Duration>) -> Value {
    if times.is_empty() {
        return json!({ "p50": null, "p99": null, "max": null });
    }
    times.sort_unstable();
    let Spread { p50, p99, last, .. } = Spread::of(&times);
    json!({ "p50": p50, "p99": p99, "max": last })
}
