//! Suggested Sidecars: the hosts that a workload needs, what its proxy has without and with them,
//! and what speaks against them.
//!
//! A suggestion is judged before it is made: Navarch translates the proxy with it, and everything
//! that calls of the workload use must be the same as without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_answers::mirror::Mirror;
use navarch_api::object::NamespacedName;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::{Calls, Evidence, Observed};
use super::kept::Kept;
use super::moment::Moment;
use super::policy::{PolicySuggestion, object_name};
use super::proxy_config::{ConfigReader, ProxyConfig, Routed};
use super::selector::{Labels, labels_of, selector};
use super::sidecars::{AppliedSidecar, Reach, applied};
use super::valid::valid;
use super::workload::{Workload, WorkloadName};

pub use super::kept::{KeptHost, Reason};
pub use super::proxy_config::Size;

/// The longest name of an object.
const MAX_NAME: usize = 253;
/// How many differences of a translation are listed.
const MAX_LISTED: usize = 5;

/// How suggestions are made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seconds over which calls must have been counted.
    pub min_age: i64,
    /// Whether policies are suggested, too.
    pub with_policies: bool,
    /// How many pods of a workload could not be read.
    pub unread: BTreeMap<WorkloadName, usize>,
}

/// The suggestion for one workload, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// The workload whose proxies it is for.
    pub workload: WorkloadName,
    /// The number of its pods.
    pub pods: usize,
    /// The time from which calls were counted; `None` if unknown.
    pub since: Option<Moment>,
    /// The last reading; `None` without evidence.
    pub read: Option<Moment>,
    /// Why there is no Sidecar.
    pub against: Vec<String>,
    /// Consequences to consider before it is applied.
    pub warnings: Vec<String>,
    /// Calls to what is not in the registry.
    pub outside: BTreeMap<String, Calls>,
    /// The sum of those that are not kept one by one.
    pub more_outside: Calls,
    /// The Sidecar.
    pub sidecar: Option<Value>,
    /// Its hosts, with the evidence.
    pub hosts: Vec<KeptHost>,
    /// The configuration of one proxy now.
    pub before: Size,
    /// The same with the Sidecar.
    pub after: Option<Size>,
    /// The policy, with [`Options::with_policies`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySuggestion>,
}

/// The suggestions for all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestions {
    /// By workload.
    pub workloads: Vec<Suggestion>,
    /// Workloads with evidence that were not looked at: those that are not selected, gateways, and
    /// those that are gone.
    pub others: Vec<WorkloadName>,
    /// What the next run adds to.
    pub evidence: Evidence,
}

/// A suggestion, and what must be the same with it.
struct Draft {
    suggestion: Suggestion,
    /// The Sidecar as a change of the mesh, until it is applied.
    change: Option<Change>,
    clusters: BTreeSet<String>,
    routed: Vec<Routed>,
    /// What may be missing with it, as [`Kept::without_port`].
    without_port: Vec<Routed>,
}

/// Suggests a Sidecar for each workload. The calling thread's stack must be as large as
/// [`navarch_answers::STACK`].
#[must_use]
pub fn suggest(
    context: &Arc<PushContext>,
    workloads: &[Workload],
    evidence: Evidence,
    options: &Options,
) -> Suggestions {
    let clients = workloads.iter().map(|workload| workload.client.clone());
    let mut mirror = Mirror::of(context, clients.collect());
    let mut reader = ConfigReader::new();

    let mut drafts = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let config = reader.read(&mirror.had(index));
        let observed = evidence.workloads.get(&workload.name);
        drafts.push(Draft::of(context, workload, &config, observed, options));
    }

    let changes = drafts.iter_mut().filter_map(|draft| draft.change.take());
    mirror.apply(changes.collect());
    for (index, draft) in drafts.iter_mut().enumerate() {
        if draft.suggestion.sidecar.is_some() {
            draft.check(&reader.read(&mirror.had(index)));
        }
    }

    let known: BTreeSet<&WorkloadName> = workloads.iter().map(|one| &one.name).collect();
    let others = evidence.workloads.keys();
    let others = others.filter(|name| !known.contains(name)).cloned();
    Suggestions {
        workloads: drafts.into_iter().map(|draft| draft.suggestion).collect(),
        others: others.collect(),
        evidence,
    }
}

impl Draft {
    /// The suggestion for a workload whose proxy has this configuration.
    fn of(
        context: &PushContext,
        workload: &Workload,
        config: &ProxyConfig,
        observed: Option<&Observed>,
        options: &Options,
    ) -> Self {
        let mut draft = Self {
            suggestion: Suggestion {
                workload: workload.name.clone(),
                pods: workload.pods.len(),
                since: observed.and_then(|observed| observed.since),
                read: observed.map(|observed| observed.read),
                against: Vec::new(),
                warnings: Vec::new(),
                outside: BTreeMap::new(),
                more_outside: Calls::default(),
                sidecar: None,
                hosts: Vec::new(),
                before: config.size,
                after: None,
                policy: None,
            },
            change: None,
            clusters: BTreeSet::new(),
            routed: Vec::new(),
            without_port: Vec::new(),
        };

        draft.add_unread(options);
        let Some(observed) = observed else {
            draft.against("no metrics of it were read");
            return draft;
        };

        draft.suggestion.outside.clone_from(&observed.outside);
        draft.suggestion.more_outside = observed.more_outside;
        draft.check_evidence(observed, options);
        let labels = labels_of(context, workload);
        draft.check_sidecars(context, workload, &labels);

        let selector = selector(context, workload);
        if selector.is_none() {
            draft.against("no labels select its pods alone, of those that outlive a release");
        }
        if options.with_policies {
            let selector = selector.as_ref();
            let policy = PolicySuggestion::of(context, &workload.name, &labels, selector, observed);
            draft.suggestion.policy = Some(policy);
        }

        let kept = Kept::of(context, &workload.name.namespace, config, observed);
        draft.check_hosts(&kept);
        draft.suggestion.hosts = kept.hosts();
        if let Some(selector) = selector.filter(|_| draft.suggestion.against.is_empty()) {
            draft.propose(draft.sidecar(&selector));
            draft.keep(config, kept);
        }
        draft
    }

    fn against(&mut self, reason: &str) {
        self.suggestion.against.push(reason.to_owned());
    }

    fn warn(&mut self, text: String) {
        self.suggestion.warnings.push(text);
    }

    /// Warns of pods whose calls are not part of the evidence.
    fn add_unread(&mut self, options: &Options) {
        let name = &self.suggestion.workload;
        if let Some(unread) = options.unread.get(name) {
            let pods = self.suggestion.pods;
            self.warn(format!(
                "{unread} of {pods} pods could not be read: their calls are not taken into account"
            ));
        }
    }

    /// Judges the extent of the evidence.
    fn check_evidence(&mut self, observed: &Observed, options: &Options) {
        if observed.is_silent() {
            self.against("its proxies have counted no calls to services of the registry");
        }
        if observed.is_truncated {
            self.against(
                "its proxies have counted calls to more different hosts than are kept: collect \
                 evidence anew, without --evidence",
            );
        }

        match observed
            .since
            .map(|since| observed.read.seconds_since(since))
        {
            Some(age) if age < options.min_age => self.warn(format!(
                "calls were counted for {} only, and --min-age is {}: what it calls less often is \
                 missing",
                hours(age),
                hours(options.min_age)
            )),
            Some(_) => {}
            None => self.warn("it is not known since when calls were counted".to_owned()),
        }

        for (destination, calls) in &observed.outside {
            if calls.counts.total() > 0 {
                let consequence = consequence(destination);
                let total = calls.counts.total();
                self.warn(format!("{total} calls to {destination}: {consequence}"));
            }
        }
        let more = observed.more_outside.counts.total();
        if more > 0 {
            self.warn(format!(
                "{more} calls to further destinations outside of the registry, which are not kept \
                 one by one"
            ));
        }
    }

    /// Judges the Sidecar in force, which the suggested one would replace.
    fn check_sidecars(&mut self, context: &PushContext, workload: &Workload, labels: &Labels) {
        let namespace = &workload.name.namespace;
        let own = object_name(&workload.name);
        if own.len() > MAX_NAME {
            self.against("its name is too long for that of a Sidecar");
        }

        let own = NamespacedName::new(namespace, &own);
        let applied = applied(context, namespace, labels);
        let is_own = |applied: &AppliedSidecar<'_>| {
            applied.reach == Reach::Workload && applied.sidecar.meta.key == own
        };
        let is_replaced = context.objects.sidecars.get(&own).is_some();
        if is_replaced && !applied.as_ref().is_some_and(is_own) {
            self.against(&format!(
                "Sidecar {}/{} exists, and selects others",
                own.namespace, own.name
            ));
        }
        let Some(applied) = applied else {
            return;
        };

        let name = applied.name();
        let further = applied.further_settings();
        if applied.reach == Reach::Workload {
            self.against(&format!(
                "{name} selects it already: see navarch scope diff"
            ));
        } else if !further.is_empty() {
            let further = further.join(", ");
            self.against(&format!(
                "{name} applies to it with {further}, which a Sidecar of its own would replace"
            ));
        } else {
            self.warn(format!(
                "{name} applies to it now; the suggestion replaces it"
            ));
        }
    }

    /// Judges the hosts that it needs.
    fn check_hosts(&mut self, kept: &Kept) {
        if !kept.has_calls && self.suggestion.against.is_empty() {
            self.against("its proxy sees none of the services that it has called");
        }
        for host in &kept.invisible {
            self.warn(format!(
                "{host} was called, and its proxy does not see it now: it is left out"
            ));
        }
    }

    fn sidecar(&self, selector: &Labels) -> Value {
        let workload = &self.suggestion.workload;
        let hosts: Vec<&String> = self
            .suggestion
            .hosts
            .iter()
            .map(|kept| &kept.host)
            .collect();
        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "Sidecar",
            "metadata": { "name": object_name(workload), "namespace": workload.namespace },
            "spec": {
                "workloadSelector": { "labels": selector },
                "egress": [{ "hosts": hosts }],
            },
        })
    }

    /// Notes what must be the same with the Sidecar.
    fn keep(&mut self, config: &ProxyConfig, kept: Kept) {
        let is_kept = |cluster: &&String| {
            let host = cluster.rsplit('|').next().unwrap_or_default();
            kept.services.contains(host)
        };
        self.clusters = config.clusters.iter().filter(is_kept).cloned().collect();
        self.routed = kept.routed;
        self.without_port = kept.without_port;
    }

    /// Takes a Sidecar as the suggestion, if it is valid.
    fn propose(&mut self, sidecar: Value) {
        match valid(&sidecar) {
            Ok(object) => {
                self.change = Some(Change::Put(object));
                self.suggestion.sidecar = Some(sidecar);
            }
            Err(error) => self.against(&format!("it would be rejected: {error}")),
        }
    }

    /// Compares what the proxy has with the Sidecar, and withdraws it if calls would change.
    fn check(&mut self, with: &ProxyConfig) {
        let lost = self.clusters.difference(&with.clusters).cloned();
        let mut lost: Vec<String> = lost.map(|name| format!("cluster {name}")).collect();

        let routes = RoutedParts::of(with);
        lost.extend(routes.missing(&self.routed).map(Routed::to_string));

        if !lost.is_empty() {
            self.suggestion.sidecar = None;
            self.against(&format!(
                "with these hosts its calls would be routed differently: {}",
                listed(lost)
            ));
            return;
        }

        self.suggestion.after = Some(with.size);
        let unrouted = routes.missing(&self.without_port).map(Routed::to_string);
        let unrouted: Vec<String> = unrouted.collect();
        if !unrouted.is_empty() {
            self.warn(format!(
                "requests to ports that the called services do not have are routed now, and would \
                 not be: {}",
                listed(unrouted)
            ));
        }
    }
}

/// The parts of a proxy's routes and listeners, by their route configuration or listener.
struct RoutedParts<'a>(BTreeMap<&'a str, Vec<&'a Routed>>);

impl<'a> RoutedParts<'a> {
    fn of(config: &'a ProxyConfig) -> Self {
        let mut parts: BTreeMap<&str, Vec<&Routed>> = BTreeMap::new();
        for routed in config.routed() {
            parts.entry(&routed.within).or_default().push(routed);
        }
        Self(parts)
    }

    /// Those of `wanted` that are not among these parts, or route otherwise.
    fn missing<'b>(&self, wanted: &'b [Routed]) -> impl Iterator<Item = &'b Routed> {
        wanted.iter().filter(|routed| {
            let mut within = self.0.get(routed.within.as_str()).into_iter().flatten();
            !within.any(|found| found.is_same(routed))
        })
    }
}

/// The first [`MAX_LISTED`] texts, and the number of the others.
fn listed(texts: impl IntoIterator<Item = String>) -> String {
    let mut first: Vec<String> = texts.into_iter().collect();
    let more = first.len().saturating_sub(MAX_LISTED);
    first.truncate(MAX_LISTED);
    match more {
        0 => first.join("; "),
        more => format!("{}; {more} more", first.join("; ")),
    }
}

/// What calls to a destination outside of the registry mean for a Sidecar.
fn consequence(destination: &str) -> &'static str {
    match destination {
        "BlackHoleCluster" => "they are rejected already, and stay so",
        "PassthroughCluster" | "AllowAnyDynamicDnsCluster" | "unknown" => {
            "no host names them; they pass as before unless outboundTrafficPolicy becomes \
             REGISTRY_ONLY"
        }
        _ => "the registry has no such host; no Sidecar can name it",
    }
}

/// A number of seconds as text, in minutes, hours or days.
fn hours(seconds: i64) -> String {
    match seconds {
        ..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
pub(crate) mod tests;
