//! What a proxy has of a type after a change that it had not before, and how that reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::envoy_json::codec;
use navarch_api::names::ResourceName;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use navarch_push::resource::{Collection, Resource, ResourceType};
use prost::Message;
use serde_json::Value;
use similar::TextDiff;

use super::proposal::Action;

/// The longest resource, in bytes, whose difference is shown.
const MAX_SHOWN: usize = 1 << 20;
/// Bytes on the wire around each resource: its version and the tags of fields.
const AROUND: usize = 48;

/// A resource before and after; one of them at least is there.
pub type Pair = [Option<Arc<Resource>>; 2];

/// One step of a proxy from what it had of a type to what it has.
#[derive(Debug, Default)]
pub struct Step {
    /// Resources before and after; one of them at least.
    pub resources: BTreeMap<ResourceName, Pair>,
    /// About how many bytes tell a proxy of it that takes deltas.
    pub delta_bytes: usize,
    /// About how many bytes tell a proxy of it that takes the state of the world.
    pub state_bytes: usize,
}

impl Step {
    /// The step between two collections. Costs what differs between them.
    #[must_use]
    pub fn between(before: Option<&Collection>, after: Option<&Collection>) -> Self {
        let Some(kind) = before.or(after).map(|collection| collection.kind) else { return Self::default() };
        let empty = Collection::new(kind, Default::default());
        let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
        let mut step = Self::default();
        let [old, new] = before.resources.apart(&after.resources);
        for resource in old {
            step.resources.entry(resource.name.clone()).or_default()[0] = Some(resource.clone());
        }
        for resource in new {
            step.resources.entry(resource.name.clone()).or_default()[1] = Some(resource.clone());
        }
        step.resources.retain(|_, [old, new]| old != new);
        let sent = |resource: &Resource| {
            resource.body.len() + resource.name.as_str().len() + kind.resource_url().len() + AROUND
        };
        for (name, [_, new]) in &step.resources {
            step.delta_bytes += new.as_ref().map_or(name.as_str().len(), |new| sent(new));
        }
        step.state_bytes = if step.resources.is_empty() {
            0
        } else if kind.is_wildcard_by_default() {
            after.resources.iter().map(|resource| sent(resource)).sum()
        } else {
            step.delta_bytes
        };
        step
    }

    /// What happens to each resource, by name.
    pub fn actions(&self) -> impl Iterator<Item = (&ResourceName, Action)> {
        self.resources.iter().map(|(name, [old, new])| (name, action(old.as_ref(), new.as_ref())))
    }

    /// The resources that are new or say something else.
    pub fn new_resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values().filter_map(|[_, new]| new.as_ref())
    }
}

/// What happens to a resource.
#[must_use]
pub fn action(old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> Action {
    match (old, new) {
        (None, _) => Action::Added,
        (Some(_), None) => Action::Removed,
        (Some(_), Some(_)) => Action::Changed,
    }
}

/// The difference between two resources as a unified diff of YAML, of at most so many lines. Secrets are not shown.
#[must_use]
pub fn unified(kind: ResourceType, pair: &Pair, lines: usize) -> String {
    if kind == ResourceType::Secret {
        return String::new();
    }
    let [old, new] =
        pair.each_ref().map(|side| side.as_ref().map(|resource| resource.body.to_vec()).unwrap_or_default());
    if old.len().max(new.len()) > MAX_SHOWN && kind != ResourceType::Route {
        return format!("{} bytes become {}: too long to be shown\n", old.len(), new.len());
    }
    let [old, new] = if kind == ResourceType::Route { without_common_hosts(&old, &new) } else { [old, new] };
    let text = |body: &[u8]| {
        if body.is_empty() {
            return String::new();
        }
        match codec().to_json(kind.resource_url(), body) {
            Ok(value) => yaml(&value),
            Err(error) => format!("{error}\n"),
        }
    };
    let (old, new) = (text(&old), text(&new));
    if old.len().max(new.len()) > 4 * MAX_SHOWN {
        return format!("{} bytes of YAML become {}: too long to be shown\n", old.len(), new.len());
    }
    let diff = TextDiff::from_lines(&old, &new);
    let whole = diff.unified_diff().context_radius(3).to_string();
    let shown: Vec<&str> = whole.lines().take(lines).collect();
    let more = whole.lines().count() - shown.len();
    let more = if more > 0 { format!("… {more} more lines\n") } else { String::new() };
    shown.iter().map(|line| format!("{line}\n")).chain([more]).collect()
}

/// Route configurations without the virtual hosts that both have.
fn without_common_hosts(old: &[u8], new: &[u8]) -> [Vec<u8>; 2] {
    let read = |body: &[u8]| RouteConfiguration::decode(body).unwrap_or_default();
    let (mut before, mut after) = (read(old), read(new));
    let known: BTreeMap<String, _> =
        before.virtual_hosts.iter().map(|host| (host.name.clone(), host.clone())).collect();
    let mut common = std::collections::BTreeSet::new();
    after.virtual_hosts.retain(|host| {
        let is_common = known.get(&host.name) == Some(host);
        if is_common {
            common.insert(host.name.clone());
        }
        !is_common
    });
    before.virtual_hosts.retain(|host| !common.contains(&host.name));
    // An empty body stands for a resource that is not there.
    let body =
        |was: &[u8], routes: &RouteConfiguration| if was.is_empty() { Vec::new() } else { routes.encode_to_vec() };
    [body(old, &before), body(new, &after)]
}

/// A value as YAML.
fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("{error}\n"))
}
