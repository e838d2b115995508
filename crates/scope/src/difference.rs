//! What workloads call, compared with what the configuration in force lets them call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_answers::client::Client;
use navarch_answers::mirror::Mirror;
use navarch_api::names::Hostname;
use navarch_push::context::PushContext;
use serde::{Deserialize, Serialize};

use super::evidence::{Calls, Evidence, Observed};
use super::proxy_config::{ConfigReader, ProxyConfig};
use super::selector::labels_of;
use super::sidecars::applied;
use super::walks::Walks;
use super::workload::{Workload, WorkloadName};

/// How many unused hosts of a workload are listed.
const MAX_UNUSED: usize = 200;
/// The destination of calls that Envoy rejects because the registry has no such host.
pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
/// Why Envoy rejects them.
pub(crate) const NO_SUCH_HOST: &str =
    "the proxy sees no such host, and outboundTrafficPolicy is REGISTRY_ONLY";

/// Calls to a host, and why they are listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCalls {
    /// As the metrics name it, such as `reviews.shop.svc.cluster.local`.
    pub host: String,
    /// What was counted.
    #[serde(flatten)]
    pub calls: Calls,
    /// The reason, as a sentence without a full stop.
    pub reason: String,
}

/// The differences of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The workload whose proxies are compared.
    pub workload: WorkloadName,
    /// The Sidecar in force.
    pub sidecar: Option<String>,
    /// The number of services that its proxy sees.
    pub visible: usize,
    /// Whether there is evidence.
    pub is_read: bool,
    /// Called, and not visible to its proxy.
    pub cut: Vec<HostCalls>,
    /// Called, and no longer in the registry.
    pub gone: Vec<HostCalls>,
    /// Called and denied: by the status 403, by external authorization, or because the registry has
    /// no such host.
    pub denied: Vec<HostCalls>,
    /// Called, visible, and refused by what is in force now: policies, routes, or missing
    /// endpoints. The request is a GET of `/` to the first port, as metrics have neither.
    pub refused: Vec<HostCalls>,
    /// The number of hosts that are visible and were never called; nor does an extension of the
    /// proxy send to them.
    pub unused: usize,
    /// The first of them.
    pub first_unused: Vec<String>,
}

/// The differences of all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Differences {
    /// By workload.
    pub workloads: Vec<Difference>,
    /// What the next run adds to.
    pub evidence: Evidence,
}

impl Differences {
    /// Whether the configuration in force cuts calls.
    #[must_use]
    pub fn has_cut_calls(&self) -> bool {
        self.workloads.iter().any(|one| !one.cut.is_empty())
    }
}

/// Compares each workload. `others` are the further proxies of the mesh, which receive requests. The
/// calling thread's stack must be as large as [`navarch_answers::STACK`].
#[must_use]
pub fn compare(
    context: &Arc<PushContext>,
    workloads: &[Workload],
    others: Vec<Client>,
    evidence: Evidence,
) -> Differences {
    let clients = workloads.iter().map(|workload| workload.client.clone());
    let mirror = Mirror::of(context, clients.chain(others).collect());
    let walks = Walks::of(context, &mirror);
    let mut reader = ConfigReader::new();

    let compared = workloads.iter().enumerate().map(|(index, workload)| {
        let config = reader.read(&mirror.had(index));
        let observed = evidence.workloads.get(&workload.name);
        let mut difference = Difference::of(context, workload, &config, observed);
        let called = observed.iter().flat_map(|observed| &observed.calls);
        for (host, calls) in called {
            if calls.counts.total() > 0 && config.services.contains_key(host) {
                difference.add_refused(&walks, index, host, *calls);
            }
        }
        difference
    });
    Differences {
        workloads: compared.collect(),
        evidence,
    }
}

impl Difference {
    fn of(
        context: &PushContext,
        workload: &Workload,
        config: &ProxyConfig,
        observed: Option<&Observed>,
    ) -> Self {
        let labels = labels_of(context, workload);
        let applied = applied(context, &workload.name.namespace, &labels);
        let mut difference = Self {
            workload: workload.name.clone(),
            sidecar: applied.map(|applied| applied.name()),
            visible: config.services.len(),
            is_read: observed.is_some(),
            cut: Vec::new(),
            gone: Vec::new(),
            denied: Vec::new(),
            refused: Vec::new(),
            unused: 0,
            first_unused: Vec::new(),
        };
        let Some(observed) = observed else {
            return difference;
        };

        let calls = observed.calls.iter();
        let called: BTreeMap<&String, &Calls> = calls
            .filter(|(_, calls)| calls.counts.total() > 0)
            .collect();
        for (host, calls) in &called {
            difference.add_call(context, config, host, **calls);
        }
        let rejected = observed.outside.get(BLACK_HOLE);
        if let Some(calls) = rejected.filter(|calls| calls.counts.total() > 0) {
            difference.denied.push(HostCalls {
                host: BLACK_HOLE.to_owned(),
                calls: *calls,
                reason: NO_SUCH_HOST.to_owned(),
            });
        }

        let needed: BTreeSet<&String> =
            called.into_keys().chain(config.extensions.keys()).collect();
        let unused = config.services.keys().filter(|host| !needed.contains(host));
        let unused: Vec<&String> = unused.collect();
        difference.unused = unused.len();
        difference.first_unused = unused.into_iter().take(MAX_UNUSED).cloned().collect();
        difference
    }

    /// Adds a host if a request to it is refused now.
    fn add_refused(&mut self, walks: &Walks<'_>, index: usize, host: &str, calls: Calls) {
        if let Some(reason) = walks.refusal(index, host) {
            self.refused.push(HostCalls {
                host: host.to_owned(),
                calls,
                reason: format!("a GET of / is refused now: {reason}"),
            });
        }
    }

    /// Adds a host that was called to the lists that it belongs to.
    fn add_call(&mut self, context: &PushContext, config: &ProxyConfig, host: &str, calls: Calls) {
        let of_host = |reason: String| HostCalls {
            host: host.to_owned(),
            calls,
            reason,
        };
        if calls.counts.denied > 0 {
            let reason = "answered with 403, or denied by external authorization";
            self.denied.push(of_host(reason.to_owned()));
        }
        if config.services.contains_key(host) {
            return;
        }

        let namespaces = &context.directory.namespaces_of_host;
        if namespaces.get(&Hostname::new(host)).is_none() {
            self.gone
                .push(of_host("the registry has no such host now".to_owned()));
            return;
        }
        let namespace = &self.workload.namespace;
        let reason = match &self.sidecar {
            Some(sidecar) => {
                format!("{sidecar} does not import it, or it is not exported to {namespace}")
            }
            None => format!("it is not exported to {namespace}"),
        };
        self.cut.push(of_host(reason));
    }
}

#[cfg(test)]
pub(crate) mod tests;
