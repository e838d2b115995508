//! Measures the cost of Gateway API routes: HTTPRoutes are attached to one Gateway one by one, then
//! single ones are changed.
//!
//! `routeload NAVARCH ROOT RESULTS [ROUTES [ROUTES]]`: the program, the checkout, a directory for
//! results; the number of routes when single ones are changed, and the total number. The Gateway
//! API's own CRDs are installed, the Gateway is a real Envoy, and the effects of routes are
//! measured with requests through it: once with all virtual hosts in the route configuration, the
//! default, and once with separate virtual hosts (`FINE_GRAINED_ROUTES`).

#![expect(clippy::print_stdout, reason = "the table goes to stdout")]
#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use navarch_testkit::backend::Backend;
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::usage::usage;
use navarch_testkit::{client, ports};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Number of routes while single ones are changed, and in total.
const ROUTES: [usize; 2] = [3_000, 5_000];
/// Number of measured changes.
const CHANGES: usize = 50;
/// One in this many routes is requested while they are attached.
const PROBED: usize = 50;
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_mins(5);
/// The interval between requests that check for a change.
const PROBE_INTERVAL: Duration = Duration::from_micros(500);

/// The namespace of everything.
const NAMESPACE: &str = "edge";

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        args.next()
            .map(PathBuf::from)
            .context("usage: routeload NAVARCH ROOT RESULTS [CHANGED_AT [ROUTES]]")
    };
    let program = path()?;
    let root = path()?;

    let results = path()?;
    let mut sizes = ROUTES;
    for size in &mut sizes {
        if let Some(given) = args.next() {
            *size = given
                .to_string_lossy()
                .parse()
                .context("ROUTES must be a number")?;
        }
    }

    ensure!(
        sizes[0] > 0 && sizes[0] <= sizes[1],
        "CHANGED_AT must be above 0 and below ROUTES"
    );
    let mut report = serde_json::Map::new();

    for form in [Form::Table, Form::OneByOne] {
        eprintln!("virtual hosts {}", form.name());
        let found = Bench::start(&program, &root, form)
            .await?
            .run(sizes)
            .await?;
        report.insert(form.name().to_owned(), found);
    }

    std::fs::create_dir_all(&results)?;
    let text = serde_json::to_string_pretty(&Value::Object(report))? + "\n";
    std::fs::write(results.join("gateway-api.json"), &text)?;
    print!("{text}");

    Ok(())
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

/// When each route was created and accepted, by number, and the number of writes to its object.
#[derive(Debug, Default)]
struct Seen {
    accepted: BTreeMap<usize, Instant>,
    /// The generation of each status, and when it was written.
    reported: BTreeMap<usize, (i64, Instant)>,
    writes: usize,
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
    async fn start(program: &Path, root: &Path, form: Form) -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.apply_crds(root)?;
        cluster.apply(&navarch_testkit::gateway_api::crds()?)?;
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
            Navarch::start_on_kubernetes(program, &cluster.admin_kubeconfig(), &[], &[]).await?;
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

    async fn run(self, [changed_at, all]: [usize; 2]) -> Result<Value> {
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
            report = self.measure([changed_at, all], seen) => report,
        }
    }

    async fn measure(
        self,
        [changed_at, all]: [usize; 2],
        seen: watch::Receiver<Seen>,
    ) -> Result<Value> {
        let idle = usage(self.navarch.pid())?;
        let first = self.attach(0..changed_at, &seen).await?;
        let changes = self.change(changed_at, &seen).await?;
        let rest = if all > changed_at {
            Some(self.attach(changed_at..all, &seen).await?)
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

/// The HTTPRoutes of a cluster.
fn routes_of(client: kube::Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "gateway.networking.k8s.io",
        "v1",
        "HTTPRoute",
    ));
    Api::all_with(client, &kind)
}

/// Records the statuses of routes after a version, until stopped.
async fn follow(
    api: Api<DynamicObject>,
    mut version: String,
    seen: watch::Sender<Seen>,
) -> Result<()> {
    loop {
        let mut events = api
            .watch(&WatchParams::default().timeout(290), &version)
            .await?
            .boxed();
        while let Some(event) = events.next().await {
            let object = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => object,
                Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(status)) => {
                    bail!("the watch of the routes has failed: {}", status.message)
                }
                // The API server ends watches that fall behind.
                Err(error) => {
                    eprintln!("the watch of the routes continues from {version}: {error}");
                    break;
                }
            };

            let now = Instant::now();
            version = object.metadata.resource_version.clone().unwrap_or(version);
            let name = object.metadata.name.unwrap_or_default();
            let number = name
                .strip_prefix("route-")
                .and_then(|number| number.parse::<usize>().ok());
            let conditions = object
                .data
                .pointer("/status/parents/0/conditions")
                .and_then(Value::as_array);
            let is_accepted = conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Accepted" && one["status"] == "True")
            });

            let observed = conditions.and_then(|all| all.first()?["observedGeneration"].as_i64());
            let current = observed.filter(|observed| Some(*observed) == object.metadata.generation);
            seen.send_modify(|seen| {
                seen.writes += 1;
                if let (Some(number), Some(generation)) = (number, current)
                    && seen
                        .reported
                        .get(&number)
                        .is_none_or(|(known, _)| *known < generation)
                {
                    seen.reported.insert(number, (generation, now));
                }
                if let Some(number) = number.filter(|_| is_accepted) {
                    seen.accepted.entry(number).or_insert(now);
                }
            });
        }
    }
}

/// Median, 99th percentile and largest of some times, in milliseconds.
fn spread(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at =
        |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let millis = |time: Option<&Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
    json!({ "p50": millis(at(50)), "p99": millis(at(99)), "max": millis(times.last()) })
}

/// The Gateway of an already running proxy, and a backend.
fn world(backend: u16, listener: u16) -> Vec<Value> {
    let labels = json!({ "app": "front" });
    let front = format!("front.{NAMESPACE}.svc.cluster.local");

    // No server issues certificates for the proxy.
    let mesh = "enableAutoMtls: false\n";
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" }, "data": { "mesh": mesh } }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "front", "namespace": NAMESPACE },
            "spec": { "selector": labels, "ports": [{ "name": "http", "port": listener, "targetPort": listener }] },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "front", "namespace": NAMESPACE, "labels": labels },
            "spec": { "containers": [{ "name": "istio-proxy", "image": "none" }] },
            "status": {
                "phase": "Running", "podIP": "10.1.0.1", "podIPs": [{ "ip": "10.1.0.1" }],
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": { "name": "backend", "namespace": NAMESPACE },
            "spec": {
                "hosts": ["backend.example"], "location": "MESH_EXTERNAL", "resolution": "STATIC",
                "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
                "endpoints": [{ "address": "127.0.0.1", "ports": { "http": backend } }],
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "front", "namespace": NAMESPACE },
            "spec": {
                "gatewayClassName": "istio", "addresses": [{ "type": "Hostname", "value": front }],
                "listeners": [{ "name": "http", "port": listener, "protocol": "HTTP" }],
            },
        }),
    ]
}

/// The host of a route by number.
fn host(number: usize) -> String {
    format!("h{number}.example")
}

/// A route by number; a response header contains the number of its changes.
fn route(number: usize, turn: usize) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": format!("route-{number}"), "namespace": NAMESPACE },
        "spec": {
            "parentRefs": [{ "name": "front" }], "hostnames": [host(number)],
            "rules": [{
                "filters": [{ "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": [{ "name": "x-turn", "value": turn.to_string() }] } }],
                "backendRefs": [{ "group": "networking.istio.io", "kind": "Hostname", "name": "backend.example", "port": 80 }],
            }],
        },
    })
}
