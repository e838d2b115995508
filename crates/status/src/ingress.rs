//! Writes the addresses of Ingresses into their status (Istio's `pilot/pkg/config/kube/ingress`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InWords, is_conflict_or_gone};
use navarch_net::backoff::exponential;

/// First delay after a failed write of an Ingress, doubled with each further one.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Maximum delay after failures: a webhook may deny every write, and forever.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Maximum number of writes at the same time, of all Ingresses and of those of one namespace.
const MAX_WRITES: usize = 8;
const MAX_WRITES_OF_NAMESPACE: usize = 2;
/// Maximum time of a write: webhooks may take 30 s at most.
const WRITE_TIMEOUT: Duration = Duration::from_secs(35);

/// The wanted addresses of each served Ingress, in the order in which they are written.
pub type IngressAddresses = Arc<BTreeMap<NamespacedName, Vec<IngressAddress>>>;

/// An address of an Ingress. IP addresses sort before host names, as in istiod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressAddress {
    /// IPv4 or IPv6 of a load balancer or a node, as text; `ip` in the status.
    Ip(String),
    /// A host name.
    Hostname(String),
}

/// Maintains `status.loadBalancer` of Ingresses.
#[derive(Clone, Debug)]
pub struct IngressStatus {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Receives each new set. The addresses of an Ingress that is no longer in it are removed.
    pub wanted: watch::Receiver<IngressAddresses>,
}

/// The current Ingresses of the cluster.
#[derive(Debug, Default)]
struct Live {
    ingresses: BTreeMap<NamespacedName, LiveIngress>,
    /// The objects of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// Whether the initial list is complete.
    complete: bool,
    /// Ingresses that were served before: their addresses are removed when they are not served any
    /// more.
    served: BTreeSet<NamespacedName>,
    /// Those whose last write failed.
    failed: BTreeMap<NamespacedName, FailedWrite>,
    /// Those that are being written.
    in_flight: BTreeSet<NamespacedName>,
    /// The versions that were replaced by a write which the watch has not reported yet.
    replaced: BTreeMap<NamespacedName, String>,
}

/// A failed write of a status.
#[derive(Debug)]
struct FailedWrite {
    error: String,
    /// The number of failures since the last success.
    failures: u32,
    /// It is not tried again before, also if the Ingress changes.
    retry_at: Instant,
}

/// An Ingress as the API server has it.
#[derive(Debug)]
struct LiveIngress {
    /// Its `resourceVersion`.
    version: String,
    addresses: Vec<IngressAddress>,
}

/// A write that has ended.
#[derive(Debug)]
struct EndedWrite {
    name: NamespacedName,
    /// The version of the Ingress that it was to replace.
    version: String,
    /// Why it must be tried again.
    error: Option<String>,
}

/// A status to write.
#[derive(Debug, PartialEq, Eq)]
struct DueStatus {
    name: NamespacedName,
    /// The version of the Ingress that the write replaces.
    version: String,
    addresses: Vec<IngressAddress>,
}

impl IngressAddress {
    /// An IP address if the text is one, else a host name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.parse::<IpAddr>() {
            Ok(_) => Self::Ip(text.to_owned()),
            Err(_) => Self::Hostname(text.to_owned()),
        }
    }

    /// Reads an entry of a status.
    fn read(ingress: &IngressLoadBalancerIngress) -> Option<Self> {
        let there = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        there(&ingress.hostname)
            .map(Self::Hostname)
            .or_else(|| there(&ingress.ip).map(Self::Ip))
    }

    /// The entry of a status.
    fn write(&self) -> serde_json::Value {
        match self {
            Self::Ip(ip) => json!({ "ip": ip }),
            Self::Hostname(name) => json!({ "hostname": name }),
        }
    }
}

impl Live {
    /// Applies an event of the watch.
    fn take(&mut self, event: Event<Ingress>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(ingress) => {
                self.listed.insert(name(&ingress));
                self.put(ingress);
            }
            Event::InitDone => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                self.ingresses.retain(|name, _| listed.contains(name));
                self.failed.retain(|name, _| listed.contains(name));
                self.replaced.retain(|name, _| listed.contains(name));
            }
            Event::Apply(ingress) => self.put(ingress),
            Event::Delete(ingress) => {
                let name = name(&ingress);
                self.ingresses.remove(&name);
                self.served.remove(&name);
                self.failed.remove(&name);
                self.replaced.remove(&name);
            }
        }
    }

    fn put(&mut self, ingress: Ingress) {
        let name = name(&ingress);
        let balancer = ingress.status.and_then(|status| status.load_balancer);
        let addresses = balancer
            .and_then(|balancer| balancer.ingress)
            .unwrap_or_default();
        let addresses = addresses.iter().filter_map(IngressAddress::read).collect();
        let live = LiveIngress {
            version: ingress.metadata.resource_version.unwrap_or_default(),
            addresses,
        };
        self.ingresses.insert(name, live);
    }

    /// The statuses that differ from the wanted ones and may be written now, which begins; none
    /// before all Ingresses are known.
    fn begin_due(
        &mut self,
        wanted: &BTreeMap<NamespacedName, Vec<IngressAddress>>,
        now: Instant,
    ) -> Vec<DueStatus> {
        let mut due = Vec::new();
        if !self.complete {
            return due;
        }

        for (name, live) in &self.ingresses {
            let addresses = match wanted.get(name) {
                Some(wanted) => {
                    self.served.insert(name.clone());
                    wanted.clone()
                }
                None if self.served.contains(name) => Vec::new(),
                None => continue,
            };

            let failed = self.failed.get(name);
            let may_retry = failed.is_none_or(|failed| failed.retry_at <= now);
            let is_replaced = self.replaced.get(name) == Some(&live.version);
            if addresses == live.addresses || !may_retry || is_replaced || !self.has_room(name) {
                continue;
            }

            self.in_flight.insert(name.clone());
            due.push(DueStatus {
                name: name.clone(),
                version: live.version.clone(),
                addresses,
            });
        }

        due
    }

    /// Whether the write of an Ingress may begin. A webhook may take its time for all writes of one
    /// namespace, which must not delay those of others.
    fn has_room(&self, name: &NamespacedName) -> bool {
        let of_namespace = self.in_flight.iter();
        let of_namespace = of_namespace.filter(|other| other.namespace == name.namespace);
        !self.in_flight.contains(name)
            && self.in_flight.len() < MAX_WRITES
            && of_namespace.count() < MAX_WRITES_OF_NAMESPACE
    }

    /// A write has ended. An error that stays is logged once.
    fn written(&mut self, ended: EndedWrite, now: Instant) {
        let EndedWrite {
            name,
            version,
            error,
        } = ended;
        let name = &name;
        self.in_flight.remove(name);
        let Some(error) = error else {
            self.failed.remove(name);
            self.replaced.insert(name.clone(), version);
            return;
        };

        let before = self.failed.get(name);
        if before.is_none_or(|before| before.error != error) {
            tracing::warn!(ns = %name.namespace, name = &*name.name, error, "failed to write the status of an Ingress");
        }

        let failures = before.map_or(0, |before| before.failures);
        let delay = exponential(MIN_RETRY_DELAY, MAX_RETRY_DELAY, failures);
        let failed = FailedWrite {
            error,
            failures: failures.saturating_add(1),
            retry_at: now + delay,
        };
        self.failed.insert(name.clone(), failed);
    }

    /// When the first failed write is tried again.
    fn next_retry(&self, now: Instant) -> Option<Instant> {
        let later = self.failed.values().map(|failed| failed.retry_at);
        later.filter(|at| *at > now).min()
    }
}

impl IngressStatus {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let ingresses = Api::<Ingress>::all(self.cluster.0.clone());
        let mut events =
            std::pin::pin!(watcher(ingresses, watcher::Config::default()).default_backoff());
        let mut live = Live::default();
        let mut writes = FuturesUnordered::new();

        loop {
            let retry = live.next_retry(Instant::now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
                event = events.next() => match event {
                    Some(Ok(event)) => live.take(event),
                    Some(Err(error)) => tracing::debug!(error = %InWords(&error), "failed to watch Ingresses"),
                    None => return,
                },
                changed = self.wanted.changed() => if changed.is_err() { return },
                Some(ended) = writes.next() => live.written(ended, Instant::now()),
            }

            let wanted = self.wanted.borrow_and_update().clone();
            for due in live.begin_due(&wanted, Instant::now()) {
                writes.push(write_within_time(self.cluster.clone(), due));
            }
        }
    }
}

/// Writes a status within the time limit.
async fn write_within_time(cluster: Cluster, due: DueStatus) -> EndedWrite {
    let error = match timeout(WRITE_TIMEOUT, write(&cluster, &due)).await {
        Ok(error) => error,
        Err(_) => Some(format!("no response within {} s", WRITE_TIMEOUT.as_secs())),
    };
    EndedWrite {
        name: due.name,
        version: due.version,
        error,
    }
}

/// Writes a status, if the Ingress is unchanged. Returns why the write must be tried again.
async fn write(cluster: &Cluster, due: &DueStatus) -> Option<String> {
    let name = &due.name;
    let addresses: Vec<_> = due.addresses.iter().map(IngressAddress::write).collect();
    let patch = json!({
        "metadata": { "resourceVersion": due.version },
        "status": { "loadBalancer": { "ingress": addresses } },
    });

    let ingresses = Api::<Ingress>::namespaced(cluster.0.clone(), name.namespace.as_str());
    match ingresses
        .patch_status(&name.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => None,
        // Another writer has changed it; the watch will report that.
        Err(error) if is_conflict_or_gone(&error) => None,
        Err(error) => Some(InWords(&error).to_string()),
    }
}

fn name(ingress: &Ingress) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(
        &text(&ingress.metadata.namespace),
        &text(&ingress.metadata.name),
    )
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use futures_util::future::BoxFuture;
    use kube::client::Body;

    use super::*;

    /// An Ingress with an address.
    fn ingress(ip: &str) -> Ingress {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "resourceVersion": "7" },
            "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } },
        }))
        .unwrap()
    }

    /// The end of a write of [`ingress`].
    fn ended(error: Option<&str>) -> EndedWrite {
        EndedWrite {
            name: NamespacedName::new("shop", "web"),
            version: "7".to_owned(),
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn only_ingresses_that_are_or_were_served_are_written() {
        let now = Instant::now();
        let mut live = Live::default();
        let web = NamespacedName::new("shop", "web");
        let due = |version: &str, addresses: Vec<IngressAddress>| DueStatus {
            name: web.clone(),
            version: version.to_owned(),
            addresses,
        };
        let wanted: BTreeMap<_, _> = [(web.clone(), vec![IngressAddress::new("192.0.2.2")])].into();
        live.take(Event::Init);
        live.take(Event::InitApply(ingress("192.0.2.1")));
        assert_eq!(live.begin_due(&wanted, now), [], "not all are known");
        live.take(Event::InitDone);
        assert_eq!(
            live.begin_due(&BTreeMap::new(), now),
            [],
            "another controller's"
        );

        assert_eq!(
            live.begin_due(&wanted, now),
            [due("7", vec![IngressAddress::new("192.0.2.2")])]
        );
        live.written(ended(None), now);

        let mut newer = ingress("192.0.2.2");
        newer.metadata.resource_version = Some("8".to_owned());
        live.take(Event::Apply(newer));
        assert_eq!(live.begin_due(&wanted, now), []);
        assert_eq!(
            live.begin_due(&BTreeMap::new(), now),
            [due("8", Vec::new())],
            "it is served no more"
        );
        live.take(Event::Delete(ingress("192.0.2.2")));

        assert_eq!(live.begin_due(&BTreeMap::new(), now), []);
    }

    /// An API server that answers all requests but those about the Ingress `hangs`.
    #[derive(Clone)]
    struct ApiServer;

    impl tower_service::Service<http::Request<Body>> for ApiServer {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let hangs = request.uri().path().contains("/hangs/");
            Box::pin(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(http::Response::new(Body::from(b"{}".to_vec())))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_hangs_fails_once_its_time_is_over() {
        let cluster = Cluster(kube::Client::new(ApiServer, "default"));
        let of = |name: &str| DueStatus {
            name: NamespacedName::new("shop", name),
            version: "7".to_owned(),
            addresses: Vec::new(),
        };
        let ended = write_within_time(cluster.clone(), of("web")).await;
        assert_eq!(ended.error, None);

        let begin = Instant::now();
        let ended = write_within_time(cluster, of("hangs")).await;
        assert!(ended.error.is_some_and(|error| error.contains("35 s")));
        assert_eq!(begin.elapsed(), WRITE_TIMEOUT);
    }

    #[test]
    fn writes_of_one_namespace_do_not_delay_those_of_others() {
        let now = Instant::now();
        let mut live = Live {
            complete: true,
            ..Live::default()
        };
        let names: Vec<_> = ["a1", "a2", "a3", "b1", "b2", "c1"]
            .map(|name| NamespacedName::new(&name[..1], name))
            .into();
        for name in &names {
            let ingress = LiveIngress {
                version: "1".to_owned(),
                addresses: Vec::new(),
            };
            live.ingresses.insert(name.clone(), ingress);
        }
        let wanted = vec![IngressAddress::new("192.0.2.2")];
        let wanted = names.iter().map(|name| (name.clone(), wanted.clone()));
        let wanted: BTreeMap<_, _> = wanted.collect();

        let begun = |live: &mut Live| -> Vec<String> {
            let due = live.begin_due(&wanted, now);
            due.iter().map(|due| due.name.name.to_string()).collect()
        };
        assert_eq!(begun(&mut live), ["a1", "a2", "b1", "b2", "c1"]);
        assert_eq!(begun(&mut live), [""; 0], "all others wait");

        let first = EndedWrite {
            name: names[0].clone(),
            version: "1".to_owned(),
            error: None,
        };
        live.written(first, now);
        assert_eq!(begun(&mut live), ["a3"]);
    }

    #[test]
    fn a_write_that_fails_again_and_again_is_tried_ever_more_rarely() {
        let begin = Instant::now();
        let web = NamespacedName::new("shop", "web");
        let wanted: BTreeMap<_, _> = [(web.clone(), vec![IngressAddress::new("192.0.2.2")])].into();
        let mut live = Live::default();
        live.take(Event::Init);
        live.take(Event::InitApply(ingress("192.0.2.1")));
        live.take(Event::InitDone);

        let mut now = begin;
        let mut delays = Vec::new();
        for _ in 0..7 {
            assert_eq!(live.begin_due(&wanted, now).len(), 1);
            live.written(ended(Some("denied")), now);
            // An edit does not bring it forward.
            live.take(Event::Apply(ingress("192.0.2.1")));
            assert_eq!(live.begin_due(&wanted, now), []);

            let retry = live.next_retry(now).unwrap();
            delays.push(retry.duration_since(now).as_secs());
            now = retry;
        }
        assert_eq!(delays, [2, 4, 8, 16, 32, 60, 60]);

        assert_eq!(live.begin_due(&wanted, now).len(), 1);
        live.written(ended(None), now);
        assert_eq!(live.next_retry(now), None);
        assert_eq!(live.begin_due(&wanted, now), [], "the watch will report it");
    }
}
