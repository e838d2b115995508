//! Edges of the mesh: which workload calls which service, which calls were denied, and which the
//! configuration in force allows although they were never made.
//!
//! | class | from |
//! | --- | --- |
//! | `used` | evidence: some calls were not denied |
//! | `denied` | evidence: all calls were denied, or the proxy has rejected them |
//! | `allowed` | what the proxy of the workload has, and a walk, as in [`super::difference`] |

use std::cmp::Reverse;
use std::collections::BTreeSet;

use navarch_api::names::Hostname;
use navarch_push::context::PushContext;
use serde::Serialize;

use super::difference::{BLACK_HOLE, NO_SUCH_HOST};
use super::evidence::{Calls, Evidence, Observed};
use super::moment::Moment;
use super::proxy_config::{ConfigReader, ProxyConfig};
use super::walks::{Verdict, Walks};
use super::workload::WorkloadName;

/// The note on an allowed edge if no policies of a destination were evaluated.
const UNSEEN: &str = "no proxy of a destination is connected to this replica: its policies, if it \
                      has any, were not evaluated";

/// What is known about the calls of a workload to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeClass {
    /// Tried, and each call was denied.
    Denied,
    /// Called; some calls may have been denied.
    Used,
    /// Never called, and a request would pass now.
    Allowed,
}

/// A workload, a service, and what is known about the calls between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The workload that sends the requests.
    pub from: WorkloadName,
    /// The host of the service, or `BlackHoleCluster`.
    pub to: String,
    /// The namespace of the service; `None` if the registry has no such host.
    pub to_namespace: Option<String>,
    /// Used, denied, or allowed and never used.
    pub class: EdgeClass,
    /// The calls that were counted.
    #[serde(flatten)]
    pub calls: Calls,
    /// Requests and connections in a second, on average over the time of the evidence; `None` if
    /// that is not known.
    pub per_second: Option<f64>,
    /// What to know about it, as a sentence without a full stop.
    pub note: Option<String>,
}

/// The edges to look at.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// Edges of workloads of this namespace, and those to its services.
    pub namespace: &'a str,
    /// The name of a workload of the namespace: its edges alone.
    pub workload: Option<&'a str>,
    /// Whether an edge from a workload to a host is wanted.
    pub is_wanted: &'a dyn Fn(&WorkloadName, &str) -> bool,
}

/// A workload with the proxy that stands for all of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The owner of the pods.
    pub name: WorkloadName,
    /// The index of the proxy in [`Walks`].
    pub proxy: usize,
}

/// How much is looked at.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The maximum number of edges that are found.
    pub edges: usize,
    /// Whether the time for it is over.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Edges that the configuration in force allows, and over which nothing was called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowedEdges {
    /// By workload and host.
    pub edges: Vec<Edge>,
    /// The number of services that the workloads see and never called, and to which a request would
    /// be refused now.
    pub refused: usize,
    /// The number of pairs that were not looked at because of the limits.
    pub more: usize,
    /// The number of workloads that were not looked at because of the limits.
    pub more_workloads: usize,
}

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection")
            .field("namespace", &self.namespace)
            .field("workload", &self.workload)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits")
            .field("edges", &self.edges)
            .finish_non_exhaustive()
    }
}

impl Selection<'_> {
    /// Whether all edges of a workload are selected.
    fn has_source(&self, name: &WorkloadName) -> bool {
        let is_named = self.workload.is_none_or(|workload| workload == name.name);
        name.namespace == self.namespace && is_named
    }

    /// Whether an edge to a service of this namespace is selected, whatever its source.
    fn has_destination(&self, namespace: Option<&str>) -> bool {
        self.workload.is_none() && namespace == Some(self.namespace)
    }
}

/// The selected edges with calls: denied ones first, then those with most calls. The cost is
/// proportional to the hosts of all workloads in the evidence.
#[must_use]
pub fn measured(
    context: &PushContext,
    evidence: &Evidence,
    selection: &Selection<'_>,
) -> Vec<Edge> {
    let mut edges = Vec::new();

    for (name, observed) in &evidence.workloads {
        if selection.workload.is_some() && !selection.has_source(name) {
            continue;
        }
        for (host, calls) in &observed.calls {
            if calls.counts.total() == 0 || !(selection.is_wanted)(name, host) {
                continue;
            }
            let namespace = namespace_of(context, name, host);
            if selection.has_source(name) || selection.has_destination(namespace.as_deref()) {
                edges.push(Edge::with_calls(name, host, namespace, observed, *calls));
            }
        }
        edges
            .extend(rejected(name, observed).filter(|edge| {
                selection.has_source(name) && (selection.is_wanted)(name, &edge.to)
            }));
    }

    edges.sort_by_cached_key(|edge| {
        let calls = Reverse(edge.calls.counts.total());
        (edge.class, calls, edge.from.clone(), edge.to.clone())
    });
    edges
}

/// The edges of these workloads over which nothing was called, and a GET of `/` to the first port
/// would pass now. Workloads without evidence have all edges that would pass.
///
/// For each workload it reads what the proxy has, and each edge costs a walk: in proportion to the
/// listeners of the proxy and to the endpoints of the service. The calling thread's stack must be as
/// large as [`navarch_answers::STACK`].
#[must_use]
pub fn allowed(
    walks: &Walks<'_>,
    sources: &[Source],
    evidence: &Evidence,
    selection: &Selection<'_>,
    limits: &Limits<'_>,
) -> AllowedEdges {
    let mut found = AllowedEdges::default();
    let mut reader = ConfigReader::new();

    for source in sources {
        if !selection.has_source(&source.name) {
            continue;
        }
        let is_full = found.edges.len() >= limits.edges;
        let had = walks
            .had(source.proxy)
            .filter(|_| !is_full && !(limits.is_over)());
        let Some(had) = had else {
            found.more_workloads += 1;
            continue;
        };

        let config = reader.read(had);
        let observed = evidence.workloads.get(&source.name);
        let unused = unused(&config, observed);
        for host in unused.filter(|host| (selection.is_wanted)(&source.name, host)) {
            if found.edges.len() >= limits.edges || (limits.is_over)() {
                found.more += 1;
                continue;
            }
            match walks.verdict(source.proxy, host) {
                Some(Verdict::Passes { has_unseen }) => {
                    let namespace = config.services.get(host).cloned();
                    let edge = Edge::without_calls(&source.name, host, namespace, has_unseen);
                    found.edges.push(edge);
                }
                Some(Verdict::Refused(_)) | None => found.refused += 1,
            }
        }
    }

    found
}

/// The hosts that a proxy sees, that its workload has not called, and that none of its extensions
/// sends to.
fn unused<'a>(
    config: &'a ProxyConfig,
    observed: Option<&'a Observed>,
) -> impl Iterator<Item = &'a String> {
    let calls = observed.into_iter().flat_map(|observed| &observed.calls);
    let called: BTreeSet<&String> = calls
        .filter(|(_, calls)| calls.counts.total() > 0)
        .map(|(host, _)| host)
        .collect();
    let hosts = config.services.keys();
    hosts.filter(move |host| !called.contains(host) && !config.extensions.contains_key(*host))
}

/// The calls that the proxies of a workload have rejected because they see no such host.
fn rejected(name: &WorkloadName, observed: &Observed) -> impl Iterator<Item = Edge> {
    let calls = observed.outside.get(BLACK_HOLE);
    let calls = calls.filter(|calls| calls.counts.total() > 0);
    let edge = calls.map(|calls| Edge {
        class: EdgeClass::Denied,
        note: Some(NO_SUCH_HOST.to_owned()),
        ..Edge::with_calls(name, BLACK_HOLE, None, observed, *calls)
    });
    edge.into_iter()
}

/// The namespace of a host as a workload sees it: its own, or the first one that has the host.
fn namespace_of(context: &PushContext, from: &WorkloadName, host: &str) -> Option<String> {
    let namespaces = &context.directory.namespaces_of_host;
    let namespaces = namespaces.get(&Hostname::new(host))?;
    let mut own = namespaces.iter().map(|namespace| namespace.as_str());
    let own = own.find(|namespace| *namespace == from.namespace);
    let first = namespaces.first().map(|namespace| namespace.as_str());
    own.or(first).map(str::to_owned)
}

impl Edge {
    fn with_calls(
        from: &WorkloadName,
        host: &str,
        to_namespace: Option<String>,
        observed: &Observed,
        calls: Calls,
    ) -> Self {
        let counts = calls.counts;
        let is_denied = counts.denied >= counts.total();
        let is_gone = to_namespace.is_none();
        let note = is_gone.then(|| "the registry has no such host now".to_owned());
        Self {
            from: from.clone(),
            to: host.to_owned(),
            to_namespace,
            class: match is_denied {
                true => EdgeClass::Denied,
                false => EdgeClass::Used,
            },
            calls,
            per_second: per_second(counts.total(), observed.since, observed.read),
            note,
        }
    }

    fn without_calls(
        from: &WorkloadName,
        host: &str,
        to_namespace: Option<String>,
        has_unseen: bool,
    ) -> Self {
        Self {
            from: from.clone(),
            to: host.to_owned(),
            to_namespace: to_namespace.filter(|namespace| !namespace.is_empty()),
            class: EdgeClass::Allowed,
            calls: Calls::default(),
            per_second: None,
            note: has_unseen.then(|| UNSEEN.to_owned()),
        }
    }
}

/// The average number of calls in a second.
fn per_second(calls: u64, since: Option<Moment>, read: Moment) -> Option<f64> {
    let seconds = read.seconds_since(since?);
    #[expect(
        clippy::cast_precision_loss,
        reason = "an average is shown with two digits"
    )]
    let average = calls as f64 / seconds as f64;
    (seconds > 0).then_some(average)
}

#[cfg(test)]
mod tests;
