//! The invariants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::api_server::{ApiServer, Write};
use crate::proxy::{Check, Held, POISON, Proxy, Replicas, Spec, Type};
use crate::replica::Replica;
use crate::story::Story;
use crate::tell;
use crate::world::{ANCHOR, ANCHOR_ENDPOINTS, PRIVATE_KEY};

/// How long a fresh replica may take to read everything.
const FRESH_START: Duration = Duration::from_secs(60);
/// How long a proxy of a fresh replica is quiet before its resources are complete.
const QUIET: Duration = Duration::from_secs(20);

/// The invariants about each response to a proxy: the service that never changes is in every state,
/// and a private key only with the proxy that may have it.
pub(crate) fn of_proxies(story: &Story) -> Check {
    let story = story.clone();
    let cluster = format!("outbound|80||{ANCHOR}");
    let key: String = PRIVATE_KEY.lines().skip(1).take(1).collect();
    Arc::new(move |spec: &Spec, held: &Held| {
        let has = |kind: Type| held.of(kind).next().is_some();
        if has(Type::Cluster) && held.get(Type::Cluster, &cluster).is_none() {
            story.violated(
                "no state is partial",
                &format!("{} has clusters, but not {cluster}", spec.name),
            );
        }
        if let Some(endpoints) = held.endpoints(&cluster)
            && endpoints != ANCHOR_ENDPOINTS
        {
            story.violated(
                "no state is partial",
                &format!("{} has {endpoints} endpoints of {cluster}", spec.name),
            );
        }
        if has(Type::Listener)
            && spec.kind == "sidecar"
            && held.get(Type::Listener, "virtualOutbound").is_none()
        {
            story.violated(
                "no state is partial",
                &format!("{} has listeners, but not virtualOutbound", spec.name),
            );
        }

        let may_have_key = spec.account.as_deref() == Some("gateway");
        let has_key = Type::ALL
            .into_iter()
            .flat_map(|kind| held.of(kind))
            .any(|(_, resource)| contains(&resource.bytes, key.as_bytes()));
        if has_key && !may_have_key {
            story.violated("secrets go to those with the right", &spec.name);
        }
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A simulation at rest.
pub(crate) struct Rest<'a> {
    pub(crate) story: &'a Story,
    pub(crate) server: &'a ApiServer,
    pub(crate) proxies: &'a [Proxy],
    pub(crate) replicas: &'a Replicas,
}

impl Rest<'_> {
    /// Nothing is written but what is renewed.
    pub(crate) fn check_writes(&self, before: usize) {
        let writes = self.server.writes();
        let late = writes.get(before..).unwrap_or_default();
        let mut unexpected: BTreeMap<String, usize> = BTreeMap::new();
        for write in late.iter().filter(|write| !is_renewal(write)) {
            let text = format!(
                "{} {} {} {} {}",
                write.client, write.method, write.resource, write.name, write.subresource
            );
            *unexpected.entry(text).or_default() += 1;
        }
        for (write, count) in unexpected {
            self.story.violated(
                "nothing writes at rest",
                &format!("{write} ({count} times)"),
            );
        }
    }

    /// No proxy gets a response.
    pub(crate) fn check_responses(&self, before: &[u64]) {
        for (proxy, before) in self.proxies.iter().zip(before) {
            let more = proxy.responses() - before;
            if more > 0 {
                self.story.violated(
                    "nothing is sent at rest",
                    &format!("{} got {more} responses", proxy.spec.name),
                );
            }
            if proxy.quiet_for().is_none() {
                self.story
                    .violated("every proxy is connected at rest", &proxy.spec.name);
            }
        }
    }

    /// Each proxy holds what a fresh process sends.
    pub(crate) async fn compare_with_fresh(
        &self,
        seed: u64,
        settings: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        // Their locks would be contended for.
        let held: Vec<Held> = self.proxies.iter().map(Proxy::held).collect();
        for replica in self.replicas.lock().iter() {
            replica.stop();
        }
        let fresh = Arc::new(Replica::start(
            "fresh",
            self.server,
            settings,
            seed,
            self.story,
        )?);
        let mut waited = Duration::ZERO;
        while !fresh.is_synced() {
            sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
            if waited > FRESH_START {
                self.story
                    .violated("a fresh replica starts", "it does not sync");
                return Ok(());
            }
        }

        let replicas: Replicas = Arc::new(Mutex::new(vec![fresh.clone()]));
        let check: Check = Arc::new(|_, _| {});
        let twins: Vec<Proxy> = self
            .proxies
            .iter()
            .map(|proxy| {
                let spec = Spec {
                    rejects: false,
                    ..(*proxy.spec).clone()
                };
                Proxy::start(spec, &replicas, seed, self.story, check.clone())
            })
            .collect();
        sleep(QUIET).await;

        for ((proxy, twin), held) in self.proxies.iter().zip(&twins).zip(&held) {
            if twin.responses() == 0 {
                bail!("the fresh replica sends nothing to {}", proxy.spec.name);
            }
            let mut expected = twin.held();
            if proxy.spec.rejects {
                // What no earlier version of an object mends: the proxy keeps what it held.
                expected.except_for(POISON.as_bytes(), held);
            }
            for difference in held.difference(&expected) {
                self.story.violated(
                    "each proxy holds what a fresh process sends",
                    &format!("{}: {difference}", proxy.spec.name),
                );
            }
        }
        tell!(self.story, "simulation", "ends");
        Ok(())
    }
}

/// Whether a write renews what expires.
fn is_renewal(write: &Write) -> bool {
    let is_lock = write.resource == "leases" || write.resource == "configmaps";
    let name = write.name.strip_prefix("istio-system/").unwrap_or_default();
    // The reports of replicas about their proxies are renewed, too.
    let is_report = name.ends_with("-distribution") || name == "istio-ca-secret";
    write.method == "PUT" && (is_lock && name.starts_with("istio-") || is_report)
}
