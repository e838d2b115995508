//! Writes the addresses of Ingresses into their status (Istio's `pilot/pkg/config/kube/ingress`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::InWords;

/// Delay before failed writes are tried again.
const RETRY: Duration = Duration::from_secs(2);

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
}

/// An Ingress as the API server has it.
#[derive(Debug)]
struct LiveIngress {
    /// Its `resourceVersion`.
    version: String,
    addresses: Vec<IngressAddress>,
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
            }
            Event::Apply(ingress) => self.put(ingress),
            Event::Delete(ingress) => {
                let name = name(&ingress);
                self.ingresses.remove(&name);
                self.served.remove(&name);
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

    /// The statuses that differ from the wanted ones; none before all Ingresses are known.
    fn due(&mut self, wanted: &BTreeMap<NamespacedName, Vec<IngressAddress>>) -> Vec<DueStatus> {
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

            if addresses != live.addresses {
                due.push(DueStatus {
                    name: name.clone(),
                    version: live.version.clone(),
                    addresses,
                });
            }
        }

        due
    }
}

impl IngressStatus {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let ingresses = Api::<Ingress>::all(self.cluster.0.clone());
        let mut events =
            std::pin::pin!(watcher(ingresses, watcher::Config::default()).default_backoff());
        let mut live = Live::default();
        let mut failed = false;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY), if failed => {}
                event = events.next() => match event {
                    Some(Ok(event)) => live.take(event),
                    Some(Err(error)) => tracing::debug!(error = %InWords(&error), "failed to watch Ingresses"),
                    None => return,
                },
                changed = self.wanted.changed() => if changed.is_err() { return },
            }

            let wanted = self.wanted.borrow_and_update().clone();
            failed = false;
            for due in live.due(&wanted) {
                tokio::select! {
                    () = stop.cancelled() => return,
                    is_written = self.write(&due) => failed |= !is_written,
                }
            }
        }
    }

    /// Writes a status, if the Ingress is unchanged. Returns false if the write must be retried.
    async fn write(&self, due: &DueStatus) -> bool {
        let name = &due.name;
        let addresses: Vec<_> = due.addresses.iter().map(IngressAddress::write).collect();
        let patch = json!({
            "metadata": { "resourceVersion": due.version },
            "status": { "loadBalancer": { "ingress": addresses } },
        });

        let ingresses = Api::<Ingress>::namespaced(self.cluster.0.clone(), name.namespace.as_str());
        match ingresses
            .patch_status(&name.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => true,
            // Another writer has changed it; the watch will report that.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
            Err(error) => {
                tracing::warn!(ns = %name.namespace, name = &*name.name, error = %InWords(&error), "failed to write the status of an Ingress");
                false
            }
        }
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
    use super::*;

    /// An Ingress with an address.
    fn ingress(ip: &str) -> Ingress {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "resourceVersion": "7" },
            "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } },
        }))
        .unwrap()
    }

    #[test]
    fn only_ingresses_that_are_or_were_served_are_written() {
        let mut live = Live::default();
        let web = NamespacedName::new("shop", "web");
        let due = |addresses: Vec<IngressAddress>| DueStatus {
            name: web.clone(),
            version: "7".to_owned(),
            addresses,
        };
        let wanted: BTreeMap<_, _> = [(web.clone(), vec![IngressAddress::new("192.0.2.2")])].into();
        live.take(Event::Init);
        live.take(Event::InitApply(ingress("192.0.2.1")));
        assert_eq!(live.due(&wanted), [], "not all are known");
        live.take(Event::InitDone);
        assert_eq!(live.due(&BTreeMap::new()), [], "another controller's");

        assert_eq!(
            live.due(&wanted),
            [due(vec![IngressAddress::new("192.0.2.2")])]
        );

        live.take(Event::Apply(ingress("192.0.2.2")));
        assert_eq!(live.due(&wanted), []);
        assert_eq!(
            live.due(&BTreeMap::new()),
            [due(Vec::new())],
            "it is served no more"
        );
        live.take(Event::Delete(ingress("192.0.2.2")));

        assert_eq!(live.due(&BTreeMap::new()), []);
    }
}
