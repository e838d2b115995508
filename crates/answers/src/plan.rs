//! Plans: a change is applied to a mirror, and the resources of each proxy before and after are
//! compared.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::difference::{CollectionDiff, Pair, action, distinct, unified};
use super::mirror::{Mirror, all_resources};
use super::parts::{Form, PlanPart};
use super::predicted_rejection::predicted_rejection;
use super::proposal::{Action, ObjectPlan, ParsedProposal, Proposal};
use super::received::{ProxyResources, ReadResources};
use super::traffic::{self, TrafficChange};
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::NamespacedName;
use navarch_base::digest::sha256_hex;
use navarch_base::resource_version::Version;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;

/// Maximum number of listed resources; the totals count all.
pub(super) const MAX_RESOURCES: usize = 200;
/// Maximum number of diffs.
pub(super) const MAX_DIFFS: usize = 40;
/// Maximum number of lines of one diff.
const MAX_DIFF_LINES: usize = 80;
/// Maximum number of proxy groups for which requests are walked.
pub(super) const MAX_WALKED: usize = 64;
/// Maximum number of requests with another outcome in a plan.
pub(super) const MAX_REQUESTS: usize = 200;
/// Maximum number of listed workloads and pods.
pub(super) const MAX_NAMES: usize = 50;
/// Maximum number of resources that are compared with those of other control planes.
pub(super) const MAX_FORMS: usize = 20_000;

/// The effects of a change before it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The plan of each object, in the order of the files.
    pub objects: Vec<ObjectPlan>,
    /// Proxies for which the plan was computed.
    pub proxies: usize,
    /// The number of proxies that would get a response.
    pub reached: usize,
    /// The first workloads of these proxies by `namespace/name`, each with the number of its
    /// proxies.
    pub workloads: BTreeMap<String, usize>,
    /// Totals of changed resources by type, as in `cds`.
    pub types: BTreeMap<String, Totals>,
    /// The first changed resources, by type and name.
    pub resources: Vec<ResourcePlan>,
    /// The first requests with a different outcome.
    pub traffic: Vec<TrafficChange>,
    /// New remarks: configuration that would be ignored.
    pub left_out: Vec<String>,
    /// Resources that Envoy would reject, as far as known, and does not reject now.
    pub refused: Vec<RejectedResource>,
    /// Approximate number of bytes sent to all proxies.
    pub bytes: usize,
    /// Descriptions of what exceeds the limits and is omitted.
    pub more: Vec<String>,
    /// The control planes whose proxies are included, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}

/// Totals of one type. A change that several proxies share counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Added resources.
    pub added: usize,
    /// Changed resources.
    pub changed: usize,
    /// Removed resources.
    pub removed: usize,
    /// Proxies that would get resources of the type.
    pub proxies: usize,
}

/// The change of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcePlan {
    /// Its type, as in `cds`.
    pub r#type: String,
    /// Resource name, as Envoy subscribes to it.
    pub name: String,
    /// `Added`, `Changed` or `Removed`: resources that stay equal are not listed.
    pub action: Action,
    /// Proxies that would get the change.
    pub proxies: usize,
    /// A unified diff of YAML; empty for secrets, and beyond the maximum number of diffs.
    pub diff: String,
}

/// A resource that Envoy would reject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedResource {
    /// Its type, as in `cds`.
    pub r#type: String,
    /// Resource name, as Envoy subscribes to it.
    pub name: String,
    /// The number of proxies that would get it.
    pub proxies: usize,
    /// A violated rule of the `.proto` file, an invalid script or expression, a duplicate domain or
    /// filter chain.
    pub reason: String,
}

/// Proxies with the same changes.
#[derive(Debug, Default)]
struct Group {
    members: Vec<usize>,
    steps: BTreeMap<ResourceType, CollectionDiff>,
}

/// Addresses of collections in memory, before and after.
type Places = Vec<(ResourceType, [usize; 2])>;

/// A resource with its two versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResourceChange {
    resource_type: ResourceType,
    name: ResourceName,
    /// Before and after; `None` if it does not exist.
    versions: [Option<Version>; 2],
}

/// The plan of a proposal for the proxies of a mirror, to be merged with those of other control
/// planes. The mirror contains the change afterwards. The calling thread's stack must be as large
/// as that of the push thread. `done` is called with the name of each step when the step ends.
#[must_use]
pub fn part(
    mirror: &mut Mirror,
    proposal: &Proposal,
    done: &mut dyn FnMut(&'static str),
) -> PlanPart {
    let read = proposal.read(&mirror.context());
    plan_proposal(mirror, read, done)
}

/// As [`part`], for a change that was already parsed and validated: the plan has no objects.
#[must_use]
pub fn plan_of(mirror: &mut Mirror, change: Change) -> Plan {
    plan_proposal(
        mirror,
        ParsedProposal {
            changes: vec![change],
            ..ParsedProposal::default()
        },
        &mut |_| (),
    )
    .whole()
}

fn plan_proposal(
    mirror: &mut Mirror,
    mut read: ParsedProposal,
    done: &mut dyn FnMut(&'static str),
) -> PlanPart {
    let context = mirror.context();
    let before = all_resources(mirror);
    let remarks: BTreeSet<Arc<str>> = mirror
        .remarks()
        .into_iter()
        .map(|remark| remark.text)
        .collect();
    let faults: BTreeSet<String> = mirror.faults().into_iter().collect();

    done("before");
    mirror.apply(std::mem::take(&mut read.changes));
    done("apply");
    let changed = mirror.context();
    read.check_references(&changed.objects);
    let groups = groups(&before, mirror);
    let mut plan = Plan {
        objects: read.objects,
        proxies: before.len(),
        ..Plan::default()
    };
    plan.count(&groups, mirror, &changed);

    done("compare");
    let forms = plan.add_resources(&groups);
    done("resources");
    plan.add_traffic(&groups, &before, mirror, [&context, &changed]);
    done("traffic");
    let new_remarks = mirror
        .remarks()
        .into_iter()
        .filter(|remark| !remarks.contains(&remark.text));
    plan.left_out = new_remarks.map(|remark| remark.text.to_string()).collect();

    plan.left_out.extend(
        mirror
            .faults()
            .into_iter()
            .filter(|fault| !faults.contains(fault)),
    );

    done("left-out");
    PlanPart {
        plan,
        forms,
        unwalked: groups.len().saturating_sub(MAX_WALKED),
    }
}

/// Groups the affected proxies by their changes, and by the other inputs of their requests.
fn groups(before: &BTreeMap<usize, ProxyResources>, mirror: &Mirror) -> Vec<Group> {
    let mut groups: BTreeMap<(ProxyKind, Namespace, Places), Group> = BTreeMap::new();

    for ((at, old), client) in before.iter().zip(mirror.clients()) {
        let new = mirror.had(*at);
        let place = |had: &ProxyResources, resource_type| {
            had.get(&resource_type)
                .map_or(0, |collection| Arc::as_ptr(collection).addr())
        };
        let places = ResourceType::ALL.into_iter().map(|resource_type| {
            (
                resource_type,
                [place(old, resource_type), place(&new, resource_type)],
            )
        });
        let places: Places = places.filter(|(_, [old, new])| old != new).collect();
        if places.is_empty() {
            continue;
        }

        let step = |(resource_type, _): &(ResourceType, _)| {
            let [old, new] =
                [old, &new].map(|had| had.get(resource_type).map(|collection| &**collection));
            (*resource_type, CollectionDiff::between(old, new))
        };

        // The key includes type and namespace, since example requests depend on them.
        let key = (client.proxy.kind, client.proxy.namespace.clone(), places);
        let group = groups
            .entry(key)
            .or_insert_with_key(|(_, _, places)| Group {
                members: Vec::new(),
                steps: places
                    .iter()
                    .map(step)
                    .filter(|(_, step)| !step.resources.is_empty())
                    .collect(),
            });

        group.members.push(*at);
    }

    groups
        .into_values()
        .filter(|group| !group.steps.is_empty())
        .collect()
}

/// The workload of a proxy as `namespace/name`: the owner of its pod, else the pod itself.
pub(super) fn workload_of(client: &Client, context: &PushContext) -> String {
    let (namespace, pod) = client.pod();
    let key = NamespacedName::new(namespace, pod);
    let known = context
        .directory
        .workloads
        .get(&key)
        .map(|workload| workload.name.to_string());
    let name = known
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| pod.to_owned());
    format!("{namespace}/{name}")
}

impl Plan {
    /// Counts proxies, resources and bytes.
    fn count(&mut self, groups: &[Group], mirror: &Mirror, context: &PushContext) {
        let clients: Vec<&Client> = mirror.clients().collect();
        let mut seen: BTreeSet<ResourceChange> = BTreeSet::new();

        for group in groups {
            self.reached += group.members.len();

            for client in group.members.iter().filter_map(|at| clients.get(*at)) {
                *self
                    .workloads
                    .entry(workload_of(client, context))
                    .or_default() += 1;
                let bytes = |step: &CollectionDiff| {
                    if client.proxy.uses_delta {
                        step.delta_bytes
                    } else {
                        step.state_bytes
                    }
                };
                self.bytes += group.steps.values().map(bytes).sum::<usize>();
            }

            for (resource_type, step) in &group.steps {
                let totals = self
                    .types
                    .entry(resource_type.short_name().to_owned())
                    .or_default();
                totals.proxies += group.members.len();
                for (name, pair) in &step.resources {
                    if !seen.insert(change_of(*resource_type, name, pair)) {
                        continue;
                    }
                    totals.count(action(pair[0].as_ref(), pair[1].as_ref()));
                }
            }
        }
    }

    /// Adds changed resources, and those that Envoy would reject. Returns their forms.
    fn add_resources(&mut self, groups: &[Group]) -> Vec<Form> {
        let mut all: BTreeMap<ResourceChange, (usize, &Pair)> = BTreeMap::new();

        for group in groups {
            for (resource_type, step) in &group.steps {
                for (name, pair) in &step.resources {
                    all.entry(change_of(*resource_type, name, pair))
                        .or_insert((0, pair))
                        .0 += group.members.len();
                }
            }
        }

        let mut forms = Vec::new();

        for (at, (change, (proxies, pair))) in all.iter().enumerate() {
            let ResourceChange {
                resource_type,
                name,
                ..
            } = change;
            let action = action(pair[0].as_ref(), pair[1].as_ref());
            if at < MAX_FORMS {
                forms.push(form(change, action, *proxies));
            }

            let short_name = resource_type.short_name().to_owned();
            let name = name.to_string();
            let parts = distinct(*resource_type, pair);
            let [old, new] = pair;
            let [old_part, new_part] = &parts;
            let is_new = |reason: &String| {
                old.as_ref()
                    .and_then(|old| predicted_rejection(old, old_part))
                    .as_ref()
                    != Some(reason)
            };

            if let Some(reason) = new
                .as_ref()
                .and_then(|new| predicted_rejection(new, new_part))
                .filter(is_new)
            {
                let proxies = *proxies;
                let r#type = short_name.clone();
                self.refused.push(RejectedResource {
                    r#type,
                    name: name.clone(),
                    proxies,
                    reason,
                });
            }

            if at < MAX_RESOURCES {
                let diff = if at < MAX_DIFFS {
                    unified(*resource_type, &parts, MAX_DIFF_LINES)
                } else {
                    String::new()
                };
                self.resources.push(ResourcePlan {
                    r#type: short_name,
                    name,
                    action,
                    proxies: *proxies,
                    diff,
                });
            }
        }

        forms
    }

    /// Walks requests of each group of proxies.
    fn add_traffic(
        &mut self,
        groups: &[Group],
        before: &BTreeMap<usize, ProxyResources>,
        mirror: &Mirror,
        contexts: [&PushContext; 2],
    ) {
        let clients: Vec<&Client> = mirror.clients().collect();
        let mut read = ReadResources::default();
        let mut all: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();

        for group in groups.iter().take(MAX_WALKED) {
            // One proxy is enough: the others have the same resources before and after.
            let Some((at, client)) = group
                .members
                .first()
                .and_then(|at| Some((at, clients.get(*at)?)))
            else {
                continue;
            };

            let Some(old) = before.get(at) else { continue };
            let workloads = || group.members.iter().filter_map(|at| clients.get(*at));
            let changes = traffic::changes(
                client,
                &group.steps,
                [old, &mirror.had(*at)],
                contexts,
                &mut read,
            );

            for (change, is_own) in changes {
                let from = all
                    .entry((change.request, change.before, change.after))
                    .or_default();
                if is_own {
                    from.extend(workloads().map(|client| workload_of(client, contexts[1])));
                }
            }
        }

        let change = |((request, before, after), from)| TrafficChange {
            request,
            from,
            before,
            after,
        };

        self.traffic = all.into_iter().map(change).collect();
    }
}

impl Totals {
    /// Counts the change of one resource.
    pub(super) fn count(&mut self, action: Action) {
        match action {
            Action::Added => self.added += 1,
            Action::Removed => self.removed += 1,
            Action::Changed | Action::Unchanged | Action::Rejected | Action::Ignored => {
                self.changed += 1
            }
        }
    }
}

/// The form of a change, by which control planes compare it.
fn form(change: &ResourceChange, action: Action, proxies: usize) -> Form {
    let ResourceChange {
        resource_type,
        name,
        versions,
    } = change;

    let versions = versions.map(|version| {
        version
            .map(|version| version.to_string())
            .unwrap_or_default()
    });
    let digest = sha256_hex(format!(
        "{} {name} {}",
        resource_type.short_name(),
        versions.join(" ")
    ));
    Form {
        r#type: resource_type.short_name().to_owned(),
        digest: digest.chars().take(24).collect(),
        action,
        proxies,
    }
}

/// The identity of a change of a resource.
fn change_of(resource_type: ResourceType, name: &ResourceName, pair: &Pair) -> ResourceChange {
    ResourceChange {
        resource_type,
        name: name.clone(),
        versions: pair
            .each_ref()
            .map(|side| side.as_ref().map(|resource| resource.version)),
    }
}
