//! Descriptions of replayed events, and their comparison with the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_answers::difference::CollectionDiff as Resources;
use navarch_answers::proposal::Action;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::rollout::RolloutCommand;

use super::{LinePosition, State};
use crate::format::{PushGroup, numbers};
use crate::report::{Difference, MAX_NAMES, PlayedPush};

impl State {
    /// What a group of proxies was pushed, where this is what each had before.
    pub(super) fn played_push(
        &self,
        group: &PushGroup,
        before: &BTreeMap<(u64, ResourceType), Option<Arc<Collection>>>,
    ) -> PlayedPush {
        let first = numbers(&group.proxies).next().unwrap_or_default();
        let resource_type = super::type_of(&group.r#type).ok();
        let now = resource_type.and_then(|resource_type| self.groups.of(first, resource_type));
        let old =
            resource_type.and_then(|resource_type| before.get(&(first, resource_type))?.as_deref());
        let resources = Resources::between(old, now.map(|now| &**now));
        let actions: Vec<_> = resources.actions().collect();
        let count = |of: Action| actions.iter().filter(|(_, action)| *action == of).count();
        let uses_delta = self
            .proxies
            .get(&first)
            .is_some_and(|(_, proxy)| proxy.uses_delta);

        PlayedPush {
            r#type: group.r#type.clone(),
            proxies: numbers(&group.proxies).count(),
            names: self.names(&group.proxies),
            resources: group.resources,
            added: count(Action::Added),
            changed: count(Action::Changed),
            removed: count(Action::Removed),
            touched: actions
                .iter()
                .take(MAX_NAMES)
                .map(|(name, _)| name.to_string())
                .collect(),
            bytes: if uses_delta {
                resources.delta_bytes
            } else {
                resources.state_bytes
            },
            digest: group.digest.clone(),
        }
    }

    /// The first difference between what was recorded and what was played.
    pub(super) fn compare(
        &self,
        position: LinePosition<'_>,
        recorded: &[PushGroup],
        played: &[PushGroup],
    ) -> Option<Difference> {
        if recorded == played {
            return None;
        }

        let recorded = by_proxy(recorded);
        let played = by_proxy(played);
        let all: BTreeSet<&(String, u64)> = recorded.keys().chain(played.keys()).collect();
        let differs = all
            .into_iter()
            .find(|key| recorded.get(*key) != played.get(*key))?;
        let r#type = differs.0.clone();
        let proxy = self.name(differs.1);

        let of = |pushed: &ByProxy| pushed.get(differs).cloned();
        let recorded = of(&recorded);
        let played = of(&played);
        Some(Difference {
            file: position.file.to_owned(),
            offset: position.offset,
            proxy,
            r#type,
            recorded,
            played,
        })
    }
}

/// What each proxy is shown of a type: how many resources, and their digest.
type ByProxy = BTreeMap<(String, u64), (usize, String)>;

fn by_proxy(groups: &[PushGroup]) -> ByProxy {
    let of = |group: &PushGroup| {
        let r#type = group.r#type.clone();
        let shown = (group.resources, group.digest.clone());
        numbers(&group.proxies)
            .map(move |proxy| ((r#type.clone(), proxy), shown.clone()))
            .collect::<Vec<_>>()
    };
    groups.iter().flat_map(of).collect()
}

/// A change in words.
pub(super) fn input(change: &Change) -> String {
    match change {
        Change::Put(object) => match object.meta().generation {
            0 => object.object_ref().to_string(),
            generation => format!("{} (generation {generation})", object.object_ref()),
        },

        Change::Removed(name) => format!("{name} (gone)"),
        Change::Mesh(_) => "mesh config".to_owned(),
        Change::Networks(_) => "mesh networks".to_owned(),
        Change::SecretReader(account, _) => format!("access to secrets: service account {account}"),
        Change::Keys(source, _) => format!("keys of {source}"),
        Change::TrustBundle(_) => "roots of trust".to_owned(),

        Change::Quarantine(name, _) | Change::RestoreQuarantine(name, _) => {
            format!("{name} (quarantined)")
        }
        Change::ReleaseQuarantine(name) => format!("{name} (no longer quarantined)"),

        Change::GatewayHost(host, _) => format!("addresses of {host}"),
        Change::Stages => "rollouts are enabled".to_owned(),
        Change::FindPeers => "proxies look up peers by address".to_owned(),
        Change::Learned(workload, _) => format!("hosts that {workload} has used"),

        Change::Rollout(name, command) => match &**command {
            RolloutCommand::Stage { at, .. } => format!("{name} (stage {})", at + 1),
            RolloutCommand::Stop { reason, .. } => format!("{name} (stopped: {reason})"),
            RolloutCommand::Complete { .. } => format!("{name} (all stages done)"),
            RolloutCommand::Restore { .. } => format!("{name} (stages resumed)"),
        },

        Change::Remote(cluster, change) => match change {
            RemoteChange::Put(object) => format!("{} of cluster {cluster}", object.object_ref()),
            RemoteChange::Removed(name) => format!("{name} of cluster {cluster} (gone)"),
            RemoteChange::Reset(objects) => {
                format!("all {} objects of cluster {cluster}", objects.len())
            }
            RemoteChange::Gone => format!("cluster {cluster} (gone)"),
            RemoteChange::SecretReader(account, _) => {
                format!("access to secrets in cluster {cluster}: service account {account}")
            }
        },
    }
}
