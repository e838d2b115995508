//! A million workloads for a hundred ztunnels.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use navarch_testkit::usage::{Usage, usage};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::ambient_mesh::{AmbientMesh, PODS};
use super::api::Api;
use super::histogram::{Histogram, Percentiles};
use super::kubernetes::Served as _;
use super::positive;
use super::ztunnel::{self, Arrived};
use crate::checkout::Checkout;
use crate::distribution::Spread;
use crate::figure::{Figure, Figures, Found};
use crate::plane::{self, Started, at_rest};
use crate::results::Results;
use crate::units::megabytes;

/// The pause between two changes, so that each is sent alone.
const PAUSE: Duration = Duration::from_millis(50);
/// The goal for the resident memory with all ztunnels in sync.
const MEMORY_GOAL_MB: f64 = 4000.0;

/// Measures a million workloads in ambient mode with a hundred ztunnels
///
/// Serves a minimal Kubernetes API from this process, with the pods of a mesh in ambient mode.
/// Starts navarch on it, connects all ztunnels at once and waits until each has all addresses;
/// each counts them, and keeps no names. Then single pods become ready and unready, one after the
/// other. Measured are the time until navarch is ready, its memory before the first ztunnel and
/// with all in sync, time, CPU and bytes of the first sync, and for each change and each ztunnel
/// the time from the event until the response has arrived.
///
/// Prints a table, and writes it and all values to RESULTS/scale-ambient.md and
/// RESULTS/scale-ambient.json. Fails if a ztunnel does not receive all addresses, or a change.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    checkout: Checkout,
    #[command(flatten)]
    results: Results,
    /// Workloads: pods
    #[arg(long, default_value_t = 1_000_000, value_parser = positive::<u32>())]
    workloads: u32,
    /// Pods of each service
    #[arg(long, default_value_t = 10, value_parser = positive::<u32>())]
    pods_per_service: u32,
    /// ztunnels, each on a node of its own
    #[arg(long, default_value_t = 100, value_parser = positive::<u32>())]
    ztunnels: u32,
    /// Changes of single pods
    #[arg(long, default_value_t = 100)]
    changes: u32,
    /// Timeout in seconds until all ztunnels are in sync, and until all have a change
    #[arg(long, default_value_t = 900)]
    patience: u64,
}

impl Options {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a part does not start, a stream breaks, a ztunnel lacks addresses, or the results cannot
    /// be written.
    pub(crate) async fn run(self) -> Result<()> {
        let mesh = AmbientMesh {
            pods: self.workloads,
            pods_per_service: self.pods_per_service,
            nodes: self.ztunnels,
        };
        mesh.check()?;

        let api = Api::start(mesh).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig())?;
        let mesh_config = format!("--mesh-config={}", self.checkout.mesh_config().display());
        let environment = [("PILOT_ENABLE_AMBIENT", "true")];
        let started = plane::start_on(
            &self.checkout,
            &kubeconfig,
            &[mesh_config.as_str()],
            &environment,
        )
        .await?;

        let measured = self.measure(&api, mesh, &started).await?;
        started.navarch.stop().await?;
        let mut figures = Figures::default();
        figures.add("ambient", measured.found(mesh));
        figures.report(&self.results, "scale-ambient")
    }

    /// Connects all ztunnels, and changes pods.
    async fn measure(&self, api: &Api, mesh: AmbientMesh, started: &Started) -> Result<Measured> {
        let navarch = &started.navarch;
        let count = usize::try_from(self.ztunnels)?;
        let ready = at_rest(navarch).await?;
        let (sender, receiver) = unbounded_channel();
        let mut arrivals = Arrivals {
            receiver,
            tasks: JoinSet::new(),
            count,
            patience: Duration::from_secs(self.patience),
        };

        let begun = Instant::now();
        for number in 0..count {
            arrivals
                .tasks
                .spawn(ztunnel::run(navarch.xds, number, sender.clone()));
        }
        let first = arrivals.wait(mesh.addresses()).await?;
        let first_cpu = usage(navarch.pid())?.cpu_seconds - ready.cpu_seconds;
        let mut times: Vec<_> = first.iter().map(|one| one.at - begun).collect();
        times.sort();
        eprintln!("{count} ztunnels in sync: {:?}", Spread::of(&times));
        let synced = at_rest(navarch).await?;

        let changes = self.change(api, mesh, &mut arrivals).await?;
        let end = at_rest(navarch).await?;
        arrivals.tasks.shutdown().await;

        Ok(Measured {
            ready_time: started.ready,
            at_ready: started.usage,
            ready,
            first_sync: Spread::of(&times),
            first_bytes: first.iter().map(|one| one.bytes).max().unwrap_or(0),
            first_cpu,
            synced,
            changes,
            end,
        })
    }

    /// Changes single pods, one after the other.
    async fn change(
        &self,
        api: &Api,
        mesh: AmbientMesh,
        arrivals: &mut Arrivals,
    ) -> Result<Changes> {
        let times = Histogram::default();
        let mut bytes = 0;
        let mut surplus = arrivals.drain();

        for change in 0..self.changes {
            // The first half becomes unready, in all parts of the mesh, and the other ready again.
            let half = self.changes.div_ceil(2);
            let stride = (mesh.pods / half.max(1)).max(1);
            let pod = (change % half * stride) % mesh.pods;
            let event = mesh
                .pod(pod, change >= half, api.next_version())
                .event("MODIFIED");

            let begun = Instant::now();
            api.send(PODS, &event).await?;
            for one in arrivals.wait(1).await? {
                times.add(one.at - begun);
                bytes += one.bytes;
                surplus += one.addresses - 1;
            }
            sleep(PAUSE).await;
            surplus += arrivals.drain();
        }

        Ok(Changes {
            count: self.changes,
            times: times.percentiles(),
            bytes,
            surplus,
        })
    }
}

/// What all ztunnels receive.
struct Arrivals {
    receiver: UnboundedReceiver<Arrived>,
    tasks: JoinSet<Result<()>>,
    /// The number of ztunnels.
    count: usize,
    patience: Duration,
}

/// What one ztunnel has received.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// When its last response arrived.
    at: Instant,
    addresses: usize,
    bytes: u64,
}

impl Arrivals {
    /// Waits until each ztunnel has received a number of addresses, and returns what each has
    /// received until then.
    ///
    /// # Errors
    /// If a stream fails, or not all arrive in time.
    async fn wait(&mut self, addresses: usize) -> Result<Vec<Received>> {
        let begun = Instant::now();
        let nothing = Received {
            at: begun,
            addresses: 0,
            bytes: 0,
        };
        let mut all = vec![nothing; self.count];
        let mut complete = 0;

        while complete < self.count {
            let next = async {
                tokio::select! {
                    arrived = self.receiver.recv() => arrived.context("all streams ended"),
                    Some(ended) = self.tasks.join_next() => {
                        ended??;
                        anyhow::bail!("a stream ended")
                    }
                }
            };
            let next = timeout_at(begun + self.patience, next).await;
            let arrived = next.with_context(|| {
                format!(
                    "{complete} of {} ztunnels have {addresses} addresses",
                    self.count
                )
            })??;

            let received = all.get_mut(arrived.ztunnel).context("an unknown ztunnel")?;
            let was_complete = received.addresses >= addresses;
            received.addresses += arrived.addresses;
            received.bytes += arrived.bytes;
            if !was_complete {
                received.at = arrived.at;
                complete += usize::from(received.addresses >= addresses);
            }
        }

        Ok(all)
    }

    /// Takes what has arrived unexpectedly, and returns the number of addresses.
    fn drain(&mut self) -> usize {
        let mut addresses = 0;
        while let Ok(arrived) = self.receiver.try_recv() {
            addresses += arrived.addresses;
        }
        addresses
    }
}

/// What changes of single pods have cost.
#[derive(Clone, Copy, Debug)]
struct Changes {
    count: u32,
    /// Of each change and each ztunnel.
    times: Percentiles,
    /// Of all ztunnels and changes.
    bytes: u64,
    /// Addresses that ztunnels received beside those of changed pods.
    surplus: usize,
}

/// What one run has cost.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// From the start until the control plane was ready.
    ready_time: Duration,
    /// The control plane then.
    at_ready: Usage,
    /// Later, at rest, before the first ztunnel.
    ready: Usage,
    first_sync: Spread,
    /// The most that one ztunnel received in the first sync.
    first_bytes: u64,
    first_cpu: f64,
    /// The control plane with all ztunnels in sync, at rest.
    synced: Usage,
    changes: Changes,
    end: Usage,
}

impl Measured {
    /// The figures, and the values that they are computed from.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn found(&self, mesh: AmbientMesh) -> Found {
        let ztunnels = f64::from(mesh.nodes);
        let workload = |usage: Usage| usage.rss_kb as f64 * 1024.0 / f64::from(mesh.pods);
        let times = self.changes.times;
        let pairs = times.count.max(1) as f64;
        let beside = Figure::beside;

        let figures = vec![
            beside("workloads", f64::from(mesh.pods), ""),
            beside("… services", f64::from(mesh.services()), ""),
            beside("… ztunnels", ztunnels, ""),
            beside("ready after", self.ready_time.as_secs_f64(), "s"),
            beside("… CPU until then", self.at_ready.cpu_seconds, "s"),
            beside(
                "memory before the first ztunnel",
                megabytes(self.ready.rss_kb),
                "MB",
            ),
            beside("… of each workload", workload(self.ready), "bytes"),
            Figure::with_goal(
                "memory with all ztunnels in sync",
                megabytes(self.synced.rss_kb),
                "MB",
                MEMORY_GOAL_MB,
            ),
            beside("… of each workload", workload(self.synced), "bytes"),
            beside("… peak until then", megabytes(self.synced.peak_kb), "MB"),
            beside(
                "first sync: the first ztunnel",
                self.first_sync.first / 1e3,
                "s",
            ),
            beside("… the last", self.first_sync.last / 1e3, "s"),
            beside("… CPU each", self.first_cpu / ztunnels, "s"),
            beside("… bytes each", self.first_bytes as f64 / 1e6, "MB"),
            beside(
                "a pod changed: until a ztunnel has it, P50",
                times.p50,
                "ms",
            ),
            beside("… P99", times.p99, "ms"),
            beside("… longest", times.longest, "ms"),
            beside("… bytes each", self.changes.bytes as f64 / pairs, "bytes"),
            beside(
                "… addresses of other workloads",
                self.changes.surplus as f64,
                "",
            ),
            beside("memory at the end", megabytes(self.end.rss_kb), "MB"),
        ];

        let detail = json!({
            "ready_seconds": self.ready_time.as_secs_f64(), "at_ready": self.at_ready,
            "ready": self.ready,
            "first_sync_ms": self.first_sync, "first_sync_bytes": self.first_bytes,
            "first_sync_cpu_seconds": self.first_cpu, "synced": self.synced,
            "changes": self.changes.count,
            "change_ms": times, "change_bytes": self.changes.bytes,
            "surplus_addresses": self.changes.surplus, "end": self.end,
        });
        Found { figures, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ztunnel_is_complete_with_all_addresses_in_any_number_of_responses() {
        let (sender, receiver) = unbounded_channel();
        let mut arrivals = Arrivals {
            receiver,
            tasks: JoinSet::new(),
            count: 2,
            patience: Duration::from_millis(20),
        };
        let send = |ztunnel, addresses| {
            let arrived = Arrived {
                ztunnel,
                at: Instant::now(),
                addresses,
                bytes: 10,
            };
            sender.send(arrived).unwrap();
        };

        send(0, 3);
        send(1, 1);
        assert!(arrivals.wait(3).await.is_err(), "ztunnel 1 has one address");
        send(0, 3);
        send(1, 1);
        send(1, 2);
        let received = arrivals.wait(3).await.unwrap();
        assert_eq!(received[1].bytes, 20);
        assert_eq!(received[0].addresses, 3);
        send(1, 4);
        assert_eq!(arrivals.drain(), 4);
    }
}
